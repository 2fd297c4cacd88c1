"""Noise laws as numbers, and that no other module decides anything by their names."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE, LAWS, NoiseLaw, admitted, is_law, law

ROOT = Path(__file__).parents[2] / "dpsql"
NAMED = {"strategy/noise_law.py"}
"""The only module that may write the name of a law: elsewhere laws are asked, not compared."""


def written(tree: ast.Module) -> Iterator[str]:
    """Every text of a module but for docstrings, as it is or between quotes of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.strip("'")


def named() -> set[str]:
    """The modules that write the name of a law."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if any(name in (text := path.read_text("utf-8")) for name in LAWS)
        and LAWS.keys() & set(written(ast.parse(text)))
    }


def test_no_other_module_names_a_law() -> None:
    assert named() - {"settings/table.py", "ui/complete.py"} == NAMED


def test_a_comparison_would_be_seen() -> None:
    for text in ('noise == "laplace"', "{'gaussian': 1}", "f\"{noise == 'laplace'}\""):
        assert LAWS.keys() & set(written(ast.parse(text)))


@pytest.mark.parametrize("each", LAWS.values(), ids=LAWS)
def test_a_scale_costs_the_amount_that_it_is_for(each: NoiseLaw) -> None:
    for amount in (Fraction(3, 7), Fraction(1, 10**6), Fraction(100)):
        assert each.cost(12, each.scale(12, amount)) == amount


@pytest.mark.parametrize("each", LAWS.values(), ids=LAWS)
def test_variances_are_those_of_fine_integers(each: NoiseLaw) -> None:
    for amount in (1e-6, 1e-4, 1e-3):
        scale = float(each.rate) / amount
        assert each.variance(scale) == pytest.approx(each.unit_variance(amount), rel=1e-5)
        assert each.stddev(scale) == pytest.approx(math.sqrt(each.variance(scale)), rel=1e-5)
        spread = each.spread(1, amount)
        assert each.spread_of(each.stddev(scale)) == pytest.approx(spread, rel=1e-5)


@pytest.mark.parametrize("each", LAWS.values(), ids=LAWS)
def test_shares_by_the_power_are_the_best(each: NoiseLaw) -> None:
    errors = (1.0, 5.0, 30.0)
    roots = [error**each.share_power for error in errors]

    def total(shares: list[float]) -> float:
        pairs = zip(errors, shares, strict=True)
        return sum(error * each.squared(1 / share) for error, share in pairs)

    best = [root / sum(roots) for root in roots]
    for shift in (0.01, -0.01):
        assert total(best) < total([best[0] + shift, best[1] - shift, best[2]])


def test_only_pure_laws_are_admitted_without_a_delta() -> None:
    assert admitted("auto", Fraction(0)) == (LAPLACE.name,)
    assert admitted("auto", Fraction(1, 10**9)) == (LAPLACE.name, GAUSSIAN.name)
    assert not is_law("auto")
    assert law(LAPLACE.name) is LAPLACE
