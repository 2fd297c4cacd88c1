"""The choice of a mechanism: published calibration, and public facts only."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.adaptive.auto import THRESHOLDS, Facts, decide
from dpsql.adaptive.query import marginal
from dpsql.algebra.blocks import Dense
from dpsql.plan.workload import Product
from tests.answer.test_project import ADULT, RHO, ROWS, adult_cliques


def adult(rho: float) -> Facts:
    candidates = [marginal(ADULT, c) for c in adult_cliques()]
    return Facts(ADULT, candidates, "gaussian", Fraction(rho), float(ROWS))


@pytest.mark.parametrize(
    ("rho", "ratio", "share"), list(zip(RHO, (44, 8.9, 4.5), (0.05, 0.01, 0.005), strict=True))
)
def test_the_adult_marginals(rho: float, ratio: float, share: float) -> None:
    facts = adult(rho)
    mean = decide(facts)
    assert mean.mechanism == "marginals"
    assert mean.inputs["error_per_cell"] == pytest.approx(ratio, rel=0.05)
    assert "> 1" in mean.rule
    largest = decide(replace(facts, metric="max"))
    assert largest.mechanism == "matrix+projection"
    assert largest.inputs["max_error_per_row"] == pytest.approx(share, rel=0.15)
    assert largest.power == 0.375
    assert not largest.useless


def test_the_model_follows_the_cap() -> None:
    facts = adult(RHO[2])
    assert decide(replace(facts, admitted=64)).model == "graphical"
    assert decide(replace(facts, admitted=31)).model == "mixture"


def test_intervals_and_unknown_sizes_get_the_matrix_mechanism() -> None:
    facts = adult(RHO[2])
    assert decide(replace(facts, unbiased=True)).mechanism == "matrix"
    assert decide(replace(facts, total=None)).mechanism == "matrix"


def test_a_budget_too_small_says_so() -> None:
    choice = decide(replace(adult(RHO[2]), budget=Fraction(1, 10**9), metric="max"))
    assert choice.useless
    assert choice.describe()["warning"] == "budget too small to be useful"


def ranges(domain: dict[str, int]) -> list[tuple[Product, ...]]:
    rng = np.random.default_rng(0)
    return [
        (
            Product(
                {a: Dense((rng.random((1, n)) < 0.5).astype(np.int64)) for a, n in domain.items()}
            ),
        )
        for _ in range(30)
    ]


def test_ranges_over_an_explicit_table() -> None:
    domain = {"loss": 4357}
    limit = THRESHOLDS["range_error_per_row"]
    for part, mechanism in ((2 * limit, "mwem"), (limit / 2, "matrix")):
        facts = Facts(
            domain, ranges(domain), "laplace", Fraction(1, 10), 32561.0, matrix_rmse=part * 32561
        )
        assert decide(facts).mechanism == mechanism
        assert not decide(facts).useless
    tiny = Facts(domain, ranges(domain), "laplace", Fraction(1, 10**5), 100.0, matrix_rmse=1e7)
    assert decide(tiny).useless
    assert decide(replace(tiny, matrix_rmse=None)).mechanism == "matrix"


def test_predicates_over_large_domains_are_for_relaxed_tables() -> None:
    domain = {f"a{i}": 30 for i in range(6)}
    facts = Facts(domain, ranges(domain), "gaussian", Fraction(1, 100), 1e5)
    assert math.prod(domain.values()) > THRESHOLDS["explicit_cells"]
    assert decide(facts).mechanism == "rap"
    pairs = [marginal(domain, c) for c in combinations(domain, 2)]
    assert decide(replace(facts, candidates=pairs, budget=Fraction(100))).mechanism == (
        "matrix+projection"
    )
