"""The audits fail when they should: each known fault is planted and must be found."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dpsql
from dpsql.errors import InternalError, LedgerError
from dpsql.privacy.budget.accounting import Cost, Policy, cost_at
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.budget.receipt import Receipt, issue
from dpsql.privacy.doors import exact_counts, exact_products, measure
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.samplers import SAMPLERS, discrete_gaussian, discrete_laplace
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.product_block import ProductBlock
from tests.audit import checks, widths
from tests.audit.test_audit import watch_order

TENTH = Fraction(1, 10)
Draw = Callable[[Bits, Fraction, int], NDArray[Any]]


def caught(check: Callable[[], None]) -> None:
    """Assert that an audit finds something."""
    with pytest.raises((AssertionError, InternalError, LedgerError)):
        check()


def plant(monkeypatch: pytest.MonkeyPatch, laplace: Draw, gaussian: Draw | None = None) -> None:
    monkeypatch.setitem(SAMPLERS, "laplace", laplace)
    monkeypatch.setitem(SAMPLERS, "gaussian", gaussian or laplace)


@pytest.mark.parametrize("factor", [Fraction(1, 2), Fraction(99, 100), Fraction(101, 100)], ids=str)
def test_a_wrong_scale(factor: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch,
        lambda bits, scale, size: discrete_laplace(bits, scale * factor, size),
        lambda bits, scale, size: discrete_gaussian(bits, scale * factor**2, size),
    )
    caught(lambda: checks.residuals("laplace", TENTH))
    caught(lambda: checks.residuals("gaussian", TENTH))


def test_half_the_noise_seen_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda bits, scale, size: discrete_laplace(bits, scale / 2, size))
    caught(checks.scalar)


def test_one_draw_for_all_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch,
        lambda bits, scale, size: np.repeat(discrete_laplace(bits, scale, 1), size),
    )
    caught(lambda: checks.residuals("laplace", TENTH, 300))


def test_noise_repeated_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch,
        lambda bits, scale, size: np.repeat(discrete_laplace(bits, scale, size // 2 + 1), 2)[:size],
    )
    caught(lambda: checks.residuals("laplace", TENTH, 300))


@pytest.mark.parametrize("rounded", [False, True])
def test_floating_point_noise(rounded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)

    def draw(_: Bits, scale: Fraction, size: int) -> NDArray[Any]:
        z = random.laplace(scale=float(scale), size=size)
        return np.rint(z).astype(np.int64) if rounded else z

    plant(monkeypatch, draw)
    caught(lambda: checks.residuals("laplace", Fraction(3, 2)))


def test_a_column_that_sensitivity_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    norm = measure._column_norm
    sensitivity = ProductStrategy.sensitivity

    def without(rows: NDArray[np.int64], noise: str) -> int:
        return norm(np.delete(rows, checks.HEAVY, axis=1) if rows.shape[1] == 16 else rows, noise)

    def ignorant(self: ProductStrategy, block: ProductBlock) -> int:
        rows = self.full["a"] if "a" in block.attributes else None
        if isinstance(rows, np.ndarray):
            return without(rows, self.noise)
        return sensitivity(self, block)

    monkeypatch.setattr(measure, "_column_norm", without)
    monkeypatch.setattr(ProductStrategy, "sensitivity", ignorant)
    caught(lambda: checks.sensitivity("laplace"))
    caught(lambda: checks.sensitivity("gaussian"))
    caught(lambda: checks.columns([checks.HEAVY], 2000))


def test_an_overflow_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    apply_rows = exact_products.apply_rows

    def careful(rows: Any, counts: Any, most: int) -> NDArray[np.int64]:
        if int(np.abs(counts).sum()) * 1024 > 2**53:
            raise OverflowError
        return apply_rows(rows, counts, most)

    monkeypatch.setattr(measure, "apply_rows", careful)
    caught(checks.large_counts)


def test_integers_as_wide_as_the_rows_need(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_total(rows: Any, counts: NDArray[np.int64], most: int) -> NDArray[Any]:
        total = int(np.abs(counts).sum(dtype=object))
        kind = np.int64 if exact_products.largest(rows) * total < exact_products.WRAPS else object
        return exact_products._apply(rows.matrices, counts, most, kind)

    monkeypatch.setattr(measure, "apply_rows_unbounded", by_total)
    caught(lambda: widths.measurements("long"))
    caught(lambda: widths.measurements("too long"))


def test_limbs_for_as_long_as_there_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def until_nothing(counts: NDArray[np.int64], most: int, width: int) -> Iterator[Any]:
        rest, shift = counts, 0
        while not shift or rest.any():
            yield shift, rest & ((1 << width) - 1)
            rest, shift = rest >> width, shift + width

    monkeypatch.setattr(exact_products, "_limbs", until_nothing)
    caught(lambda: widths.measurements("long"))


def test_rows_that_are_multiplied_as_python_integers_when_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_total(rows: Any, counts: NDArray[np.int64], most: int) -> NDArray[Any]:
        kind = object if counts.sum() > 2**40 else np.int64
        return exact_products._multiply_integers(rows.matrices, counts, kind)

    monkeypatch.setattr(measure, "apply_rows", by_total)
    caught(widths.clock)


def test_distances_that_are_added_up_as_wide_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def distance(true: NDArray[Any], whole: NDArray[Any]) -> int:
        gap = np.abs(true - whole)
        wide = int(gap.max(initial=0)) * gap.size >= 2**40
        return int(gap.astype(object).sum() if wide else gap.sum())

    monkeypatch.setattr(exact_counts, "_distance", distance)
    caught(widths.looks)


def test_a_ledger_that_charges_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Cost, policy: Policy) -> Cost:
        return cost_at(policy, self.noise, self.epsilon / 2, self.rho)

    monkeypatch.setattr(Cost, "under", half)
    caught(lambda: checks.transcript(tmp_path))


def test_a_refund_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debit = Ledger.debit

    def remembering(self: Ledger, *request: Any) -> Receipt:
        shutil.copytree(tmp_path, tmp_path.with_name("before"))
        return debit(self, *request)

    def refunding(self: Ledger, receipt: Receipt, outcome: str) -> None:
        shutil.copytree(tmp_path.with_name("before"), tmp_path, dirs_exist_ok=True)

    monkeypatch.setattr(Ledger, "debit", remembering)
    monkeypatch.setattr(Ledger, "settle", refunding)
    caught(lambda: checks.no_refund(tmp_path))


def test_noise_before_the_commit(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def later(
        self: Ledger, cost: Cost, plan_hash: str, data_version: str, within: tuple[str, ...]
    ) -> Receipt:
        return issue(self.ledger_id, 1, "later", plan_hash, data_version, cost)

    monkeypatch.setattr(Ledger, "debit", later)
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        caught(lambda: watch_order(connection, demo, monkeypatch))


def test_a_receipt_that_can_be_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receipt, "redeem", lambda *_: None)
    caught(checks.single_use)
