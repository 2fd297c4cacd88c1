"""The membrane's door: exact rows, exact cost, one receipt for one plan, the declared noise law."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dpsql.algebra.blocks import Dense, Identity
from dpsql.algebra.integer_rows import KronRows
from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.discovery import Sought
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import InternalError, LedgerError
from dpsql.plan.plan import Part, Plan, split_amount
from dpsql.privacy.budget.accounting import Policy, gaussian_cost, laplace_cost
from dpsql.privacy.budget.ledger import Ledger, Receipt
from dpsql.privacy.doors.exact_products import apply_rows, apply_rows_unbounded
from dpsql.privacy.doors.measure import _add_noise, _is_wide, check_cost, measure
from dpsql.privacy.doors.vaults import Vaults, read_public
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.samplers import SAMPLERS
from dpsql.privacy.vault.data_engine import Room
from dpsql.privacy.vault.unit.key_counts import Pairs
from dpsql.privacy.vault.vault import TableVault, Vault
from dpsql.relation.row_view import RowView
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.product_block import ProductBlock
from dpsql.workload.cells import AnyResolution, Nodes, Resolution, cells_of
from dpsql.workload.workload import Product
from tests.support.seam import zero_noise
from tests.support.symmetric import strategy_of

pytestmark = pytest.mark.usefixtures("one_reader")

POLICY = Policy(Fraction(100), Fraction(1, 10**9))


class FakeVault:
    """A vault over explicit cells instead of rows."""

    data_version = "fake"
    sources = ("fake",)

    def __init__(self, cells: dict[str, int], counts: NDArray[np.int64]) -> None:
        self.axes = list(cells)
        self.counts = counts

    def check(self) -> None:
        """Nothing to check."""

    def load(self, columns: Collection[str] | None = None) -> None:
        """Nothing to load."""

    def count(
        self, attributes: Sequence[str], classes: Sequence[NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """The marginal on some attributes."""
        return self.tally([cells_of(a, c) for a, c in zip(attributes, classes, strict=True)])

    def tally(
        self, resolutions: Sequence[AnyResolution], units: bool = False, room: Room = None
    ) -> NDArray[np.int64]:
        """The marginal on some attributes; classes must be the identity here."""
        attributes = [each.columns[0] for each in resolutions]
        others = tuple(i for i, name in enumerate(self.axes) if name not in attributes)
        for each in resolutions:
            size = self.counts.shape[self.axes.index(each.columns[0])]
            assert each.arrays()[0].tolist() == list(range(size))
        return np.asarray(self.counts.sum(axis=others), dtype=np.int64)

    def mark(self, resolutions: Sequence[AnyResolution]) -> NDArray[np.int64]:
        """Which cells have a row."""
        return np.minimum(self.tally(resolutions), 1)

    def find(self, column: str, sought: Sought) -> None:
        raise NotImplementedError

    def pairs(self, column: str, sought: Sought) -> Pairs:
        raise AssertionError("a plan looks at no keys")

    def within(self, rows: RowView) -> FakeVault:
        """Every row is in every view."""
        return self

    def close(self) -> None:
        """Nothing to close."""


class FakeVaults(Vaults):
    """Vaults of one table ``t``."""

    _salt = b"a salt that is known"

    def __init__(self, vault: FakeVault) -> None:
        self.vault = vault

    least = 1

    def check_unit(self, table: str, rows: int) -> None:
        """A unit has so many rows at least."""
        if rows < self.least:
            raise InternalError("E_INTERNAL", "a privacy unit has more rows")

    def __getitem__(self, table: str) -> FakeVault:
        assert table == "t"
        return self.vault


def example(noise: Noise, amount: Fraction = Fraction(1), c: int = 1) -> tuple[Plan, FakeVaults]:
    rows = np.array([[1024, 0, 0], [0, 700, 0], [0, 0, 512], [0, 324, 512]], dtype=np.int64)
    strategy = ProductStrategy(
        {"a": 3, "b": 2},
        {"a": rows, "b": None},
        {},
        (
            ProductBlock(("a", "b"), frozenset(), Fraction(1, 2)),
            ProductBlock(("b",), frozenset(), Fraction(1, 3)),
            ProductBlock((), frozenset(), Fraction(1, 6)),
        ),
        noise,
        "example",
    )
    resolutions = {name: cells_of(name, np.arange(n)) for name, n in strategy.domain.items()}
    part = Part("t", strategy, resolutions, amount, c)
    rho = amount if noise == "gaussian" else None
    plan = Plan((part,), noise, amount, Fraction(1, 10**9), rho)
    return plan, FakeVaults(FakeVault({"a": 3, "b": 2}, np.arange(6).reshape(3, 2)))


def pay(tmp_path: Path, plan: Plan, vaults: Vaults, amount: Fraction | None = None) -> Receipt:
    ledger = Ledger.open_or_create(tmp_path / "t.ledger", tmp_path / "anchors", POLICY, "0" * 64)
    spent = plan.parts[0].amount if amount is None else amount
    if plan.noise == "laplace":
        cost = laplace_cost(POLICY, spent)
    else:
        cost = gaussian_cost(POLICY, spent, Fraction(1))
    return ledger.debit(cost, plan.fingerprint, vaults.versions(["t"]))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_values_are_the_rows_plus_noise_of_the_declared_scale(tmp_path: Path, noise: Noise) -> None:
    plan, vaults = example(noise)
    (measured,) = measure(plan, pay(tmp_path, plan, vaults), vaults)
    part = plan.parts[0]
    assert isinstance(part.strategy, ProductStrategy)
    assert [len(value) for value in measured.values] == [8, 2, 1]
    for value, block, scale in zip(measured.values, part.strategy.blocks, part.scales, strict=True):
        assert value.dtype == np.int64
        exact = apply_rows(
            block.integer_rows,
            vaults.vault.tally([part.resolutions[a] for a in block.attributes]),
        )
        spread = 50 * (float(scale) if noise == "laplace" else math.sqrt(scale))
        assert np.abs(value - exact).max() < spread
        with pytest.raises(ValueError, match="read-only"):
            value[0] = 0


def test_a_receipt_pays_once(tmp_path: Path) -> None:
    plan, vaults = example("laplace")
    receipt = pay(tmp_path, plan, vaults)
    measure(plan, receipt, vaults)
    with pytest.raises(LedgerError, match="E_RECEIPT"):
        measure(plan, receipt, vaults)


def test_a_receipt_is_for_one_plan(tmp_path: Path) -> None:
    plan, vaults = example("laplace", Fraction(1, 100))
    dear, _ = example("laplace", Fraction(1))
    with pytest.raises(LedgerError, match="E_RECEIPT"):
        measure(dear, pay(tmp_path, plan, vaults), vaults)


def test_a_receipt_is_for_one_version_of_the_data(tmp_path: Path) -> None:
    plan, vaults = example("laplace")
    receipt = pay(tmp_path, plan, vaults)
    vaults.vault.data_version = "later"
    with pytest.raises(LedgerError, match="E_RECEIPT"):
        measure(plan, receipt, vaults)


def test_noise_for_fewer_rows_of_a_unit_than_are_declared_is_refused(tmp_path: Path) -> None:
    plan, vaults = example("laplace", c=2)
    vaults.least = 3
    with pytest.raises(InternalError, match="more rows"):
        measure(plan, pay(tmp_path, plan, vaults), vaults)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_plan_that_costs_more_than_was_paid_is_not_measured(tmp_path: Path, noise: Noise) -> None:
    plan, vaults = example(noise)
    receipt = pay(tmp_path, plan, vaults, Fraction(999_999, 1_000_000))
    with pytest.raises(InternalError, match="costs more"):
        measure(plan, receipt, vaults)


def test_failures_inside_say_nothing(tmp_path: Path) -> None:
    plan, vaults = example("laplace")
    receipt = pay(tmp_path, plan, vaults)
    vaults.vault.axes = ["nothing"]
    with pytest.raises(InternalError) as caught:
        measure(plan, receipt, vaults)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "charge stays" in str(caught.value)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("c", [1, 2, 5])
def test_cost_is_exact_by_brute_force_over_every_column(
    tmp_path: Path, noise: Noise, c: int
) -> None:
    plan, vaults = example(noise, c=c)
    check_cost(plan, pay(tmp_path, plan, vaults))
    part = plan.parts[0]
    assert isinstance(part.strategy, ProductStrategy)
    totals = []
    for cell in itertools.product(range(3), range(2)):
        total = Fraction(0)
        for block, scale in zip(part.strategy.blocks, part.scales, strict=True):
            unit = np.zeros((3, 2), dtype=np.int64)
            unit[cell] = c
            found = FakeVault({"a": 3, "b": 2}, unit).tally(
                [part.resolutions[a] for a in block.attributes]
            )
            change = [abs(int(v)) for v in apply_rows(block.integer_rows, found)]
            if noise == "laplace":
                total += Fraction(sum(change)) / scale
            else:
                total += Fraction(sum(v * v for v in change)) / (2 * scale)
        totals.append(total)
    assert max(totals) <= part.amount
    assert max(totals) >= part.amount * Fraction(999_999, 1_000_000)


def dense(matrices: Iterable[NDArray[np.int64] | None], shape: Sequence[int]) -> list[list[int]]:
    out = [[1]]
    for rows, n in zip(matrices, shape, strict=True):
        right = np.eye(n, dtype=np.int64) if rows is None else rows
        out = [[a * int(b) for a in row for b in other] for row in out for other in right]
    return out


def test_symmetric_rows_are_measured_at_their_own_sensitivity(tmp_path: Path) -> None:
    strategy = strategy_of("mixed")
    cells = np.arange(48).reshape(2, 4, 6) * 2**52
    vaults = FakeVaults(FakeVault(dict(strategy.domain), cells))
    resolutions = {name: cells_of(name, np.arange(n)) for name, n in strategy.domain.items()}
    part = Part("t", strategy, resolutions, Fraction(1), 2)
    plan = Plan((part,), "gaussian", Fraction(1), Fraction(1, 10**9), Fraction(1))
    (measured,) = measure(plan, pay(tmp_path, plan, vaults), vaults)
    difference = measured.values[0] - strategy.block.integer_rows.apply(cells)
    assert np.abs(difference).max() < 50 * math.sqrt(part.scales[0])
    exact = strategy.block.integer_rows.apply(cells.astype(object))
    unbounded = apply_rows_unbounded(strategy.block.integer_rows, cells)
    assert unbounded.tolist() == exact.tolist()
    assert max(map(abs, exact)) >= 2**63

    liar = strategy_of("mixed")
    liar.norm.append(1)
    cheat = Part("t", liar, resolutions, Fraction(1), 2)
    plan = Plan((cheat,), "gaussian", Fraction(1), Fraction(1, 10**9), Fraction(1))
    receipt = pay(tmp_path, plan, vaults)
    with pytest.raises(InternalError, match="costs more than was paid"):
        measure(plan, receipt, vaults)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_are_exact_modulo_two_to_the_64(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=0, max_size=3))
    limit = data.draw(st.sampled_from([3, 2**12, 2**31]))
    entry = st.integers(-limit, limit)
    matrices: list[NDArray[np.int64] | None] = []
    for n in shape:
        rows = data.draw(st.none() | st.lists(st.lists(entry, min_size=n, max_size=n), min_size=1))
        matrices.append(None if rows is None else np.array(rows, dtype=np.int64))
    rows_of = KronRows(tuple(matrices), tuple(shape))
    size = math.prod(shape)
    cells = data.draw(st.lists(st.integers(0, 2**40), min_size=size, max_size=size))
    found = apply_rows(rows_of, np.array(cells, dtype=np.int64).reshape(shape))
    exact = [sum(a * x for a, x in zip(row, cells, strict=True)) for row in dense(matrices, shape)]
    assert [int(v) % 2**64 for v in found] == [v % 2**64 for v in exact]
    counts = np.array(cells, dtype=np.int64).reshape(shape)
    assert [int(v) for v in apply_rows_unbounded(rows_of, counts)] == exact
    assert [int(v) % 2**64 for v in apply_rows(rows_of, -counts)] == [-v % 2**64 for v in exact]
    assert [int(v) for v in apply_rows_unbounded(rows_of, -counts)] == [-v for v in exact]
    most = data.draw(st.sampled_from([1, 2**9, 2**20, 2**40]))
    capped = [min(x, most) for x in cells]
    exact = [sum(a * x for a, x in zip(row, capped, strict=True)) for row in dense(matrices, shape)]
    if any(rows is not None for rows in matrices):
        assert [int(v) for v in apply_rows_unbounded(rows_of, counts, most)] == exact


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_measured_noise_follows_the_declared_law(tmp_path: Path, noise: Noise) -> None:
    n = 40_000
    strategy = ProductStrategy(
        {"a": n},
        {"a": None},
        {},
        (ProductBlock(("a",), frozenset(), Fraction(1)),),
        noise,
        "identity",
    )
    amount = Fraction(1, 3) if noise == "laplace" else Fraction(1, 100)
    part = Part("t", strategy, {"a": cells_of("a", np.arange(n))}, amount, 1)
    rho = amount if noise == "gaussian" else None
    plan = Plan((part,), noise, amount, Fraction(1, 10**9), rho)
    vaults = FakeVaults(FakeVault({"a": n}, np.zeros(n, dtype=np.int64)))
    worst = 1.0
    for attempt in range(2):
        (measured,) = measure(plan, pay(tmp_path / str(attempt), plan, vaults), vaults)
        support = np.arange(-400, 401)
        if noise == "laplace":
            weights = np.exp(-np.abs(support) * float(amount))
        else:
            weights = np.exp(-(support**2) * float(amount))
        expected = weights / weights.sum() * n
        keep = expected >= 20
        found = np.bincount(measured.values[0] + 400, minlength=801)[:801]
        chi = ((found - expected)[keep] ** 2 / expected[keep]).sum()
        chi += (n - found[keep].sum() - (n - expected[keep].sum())) ** 2 / max(
            n - expected[keep].sum(), 1e-9
        )
        worst = min(worst, float(stats.chi2.sf(chi, int(keep.sum()))))
        if worst > 1e-6:
            break
    assert worst > 1e-6


def test_a_budget_is_split_exactly_and_best() -> None:
    for noise, power in (("laplace", 2), ("gaussian", 1)):
        errors = [3.0, 1.0, 20.0]
        amounts = split_amount(Fraction(7, 3), errors, noise)
        assert sum(amounts) == Fraction(7, 3)
        best = sum(e / float(a) ** power for e, a in zip(errors, amounts, strict=True))
        for shift in (-0.01, 0.01):
            moved = [float(amounts[0]) + shift, float(amounts[1]) - shift, float(amounts[2])]
            assert sum(e / a**power for e, a in zip(errors, moved, strict=True)) > best


def nodes_plan(noise: Noise, nodes: Nodes, c: int = 1) -> Plan:
    """A plan over the nodes of v and groups g: both together, nodes alone, and groups alone."""
    draw = np.random.default_rng(nodes.degree)
    strategy = ProductStrategy(
        {"v": nodes.size, "g": 3},
        {"v": draw.integers(-1000, 1000, (nodes.size + 1, nodes.size)), "g": None},
        {},
        (
            ProductBlock(("v", "g"), frozenset(), Fraction(1, 2)),
            ProductBlock(("v",), frozenset(), Fraction(1, 4)),
            ProductBlock(("g",), frozenset(), Fraction(1, 4)),
        ),
        noise,
        "example",
    )
    resolutions: dict[str, Resolution] = {"v": nodes, "g": cells_of("g", np.array([0, 1, 2, 0]))}
    part = Part("t", strategy, resolutions, Fraction(1), c)
    rho = Fraction(1) if noise == "gaussian" else None
    return Plan((part,), noise, Fraction(1), Fraction(1, 10**9), rho)


def spread(nodes: Nodes, steps: int) -> NDArray[np.int64]:
    """The weights of a row whose value is some steps of the grid above the lower bound."""
    rest = nodes.steps - steps
    if nodes.degree == 1:
        return np.array([rest, steps, 0], dtype=np.int64)
    return np.array([rest**2, 2 * steps * rest, steps**2, 0], dtype=np.int64)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("c", [1, 3])
def test_cost_of_nodes_by_brute_force_over_every_value(
    tmp_path: Path, noise: Noise, degree: int, c: int
) -> None:
    nodes = Nodes("v", degree, 1, 17, (0,))
    plan = nodes_plan(noise, nodes, c)
    check_cost(plan, pay(tmp_path, plan, FakeVaults(FakeVault({}, np.zeros(0, dtype=np.int64)))))
    part = plan.parts[0]
    assert isinstance(part.strategy, ProductStrategy)
    assert part.block_units == (17**degree, 17**degree, 1)
    values = [spread(nodes, steps) for steps in range(18)]
    values.append(np.array([0] * (degree + 1) + [17**degree]))
    totals = []
    for value, group in itertools.product(values, range(3)):
        row = np.zeros((len(value), 3), dtype=np.int64)
        row[:, group] = c * value
        adds = [row, row.sum(axis=1), np.eye(3, dtype=np.int64)[group] * c]
        total = Fraction(0)
        for block, scale, add in zip(part.strategy.blocks, part.scales, adds, strict=True):
            change = [abs(int(v)) for v in apply_rows(block.integer_rows, add)]
            if noise == "laplace":
                total += Fraction(sum(change)) / scale
            else:
                total += Fraction(sum(v * v for v in change)) / (2 * scale)
        totals.append(total)
    assert max(totals) <= part.amount
    assert max(totals) >= part.amount * Fraction(999_999, 1_000_000)


def two_columns(tmp_path: Path, rows: list[tuple[int, int, str]]) -> Table:
    """A table t of a measure v in 0..100, groups g in 0..3, and owners."""
    text = "\n".join(["v,g,who", *(f"{v},{g},{who}" for v, g, who in rows)])
    (tmp_path / "t.csv").write_text(text + "\n")
    columns = {
        "v": Column("v", "integer", None, (Fraction(0), Fraction(100)), True),
        "g": Column("g", "integer", IntegerRange(0, 3)),
    }
    return Table("t", str(tmp_path / "t.csv"), Unit("who", 2), columns)


class OneVault(Vaults):
    """The real vault of one table."""

    _salt = b"a salt that is known"

    def __init__(self, table: Table) -> None:
        self._vault = TableVault(table, b"0123456789abcdef")

    def check_unit(self, table: str, rows: int) -> None:
        """Any number of rows may be those of a unit."""

    def __getitem__(self, table: str) -> Vault:
        return self._vault


@pytest.mark.parametrize("degree", [1, 2])
def test_estimates_from_nodes_are_sums_of_values(tmp_path: Path, degree: int) -> None:
    rows = [(i * 37 % 101, i % 4, f"p{i // 2}") for i in range(60)]
    vaults = OneVault(two_columns(tmp_path, rows))
    plan = nodes_plan("laplace", Nodes("v", degree, 1, 100, (0,)), 2)
    receipt = pay(tmp_path, plan, vaults)
    with zero_noise():
        (measured,) = measure(plan, receipt, vaults)
    found = plan.parts[0].estimate(measured.values)
    count = [[1] * (degree + 2)]
    total = [[0, 100, 0]] if degree == 1 else [[0, 50, 100, 0]]
    exact = {0: len(rows), 1: sum(v for v, _, _ in rows)}
    for i, weights in enumerate((count, total)):
        product = Product({"v": Dense(np.array(weights))})
        assert found.answer(product) == pytest.approx([exact[i]])
    grouped = Product({"v": Dense(np.array(total)), "g": Identity(3)})
    sums = [sum(v for v, g, _ in rows if g in groups) for groups in ((0, 3), (1,), (2,))]
    assert found.answer(grouped) == pytest.approx(sums)


@pytest.mark.slow
def test_forecasts_of_nodes_are_in_rows(tmp_path: Path) -> None:
    coarse, fine = (
        nodes_plan("gaussian", Nodes("v", 1, 1, grid, (0,))).parts[0] for grid in (64, 1 << 16)
    )
    total = Product({"v": Dense(np.array([[0, 100, 0]]))})
    assert coarse.forecast.variance(total) == pytest.approx(fine.forecast.variance(total), rel=1e-6)
    rows = [(i, 0, f"p{i}") for i in range(101)]
    vaults = OneVault(two_columns(tmp_path, rows))
    plan = nodes_plan("gaussian", Nodes("v", 1, 1, 1 << 16, (0,)))
    answers = []
    for i in range(200):
        (measured,) = measure(plan, pay(tmp_path / str(i), plan, vaults), vaults)
        answers.append(float(plan.parts[0].estimate(measured.values).answer(total)[0]))
    spread_of = np.var(answers) / float(fine.forecast.variance(total)[0])
    assert stats.chi2.ppf(1e-7, 199) < spread_of * 199 < stats.chi2.ppf(1 - 1e-7, 199)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_distinct_units_cost_no_more_than_there_are_cells(tmp_path: Path, noise: Noise) -> None:
    classes = cells_of("g", np.arange(4))
    strategy = ProductStrategy(
        {"g": 4},
        {"g": None},
        {},
        (
            ProductBlock(("g",), frozenset(), Fraction(1, 2)),
            ProductBlock((), frozenset(), Fraction(1, 2)),
        ),
        noise,
        "example",
    )
    for c in (1, 3, 1000):
        part = Part("t", strategy, {"g": classes}, Fraction(1), c, units=True)
        rho = Fraction(1) if noise == "gaussian" else None
        plan = Plan((part,), noise, Fraction(1), Fraction(1, 10**9), rho)
        vaults = OneVault(two_columns(tmp_path, [(1, 2, "a"), (5, 2, "a"), (1, 3, "b")]))
        receipt = pay(tmp_path / str(c), plan, vaults)
        reach = min(c, 4)
        expected = [2 * reach, 2] if noise == "laplace" else [reach, 1]
        assert list(map(int, part.scales)) == expected
        with zero_noise():
            (measured,) = measure(plan, receipt, vaults)
        assert [value.tolist() for value in measured.values] == [[0, 0, 1, 1], [2]]
        assert part.fingerprint() != replace(part, units=False).fingerprint()


def test_a_part_that_understates_its_nodes_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.plan.plan.block_unit", lambda _: 1)
    plan = nodes_plan("laplace", Nodes("v", 1, 1, 17, (0,)))
    vaults = OneVault(two_columns(tmp_path, [(1, 2, "a")]))
    with pytest.raises(InternalError, match="costs more"):
        measure(plan, pay(tmp_path, plan, vaults), vaults)


def test_every_fact_of_a_resolution_is_in_the_fingerprint() -> None:
    base = Nodes("v", 1, 1, 17, (0,))
    others = [
        replace(base, steps=18),
        replace(base, column="w"),
        replace(base, low=Fraction(1)),
        replace(base, high=Fraction(9)),
    ]
    prints = {nodes_plan("laplace", each).fingerprint for each in [base, *others]}
    assert len(prints) == 5
    assert nodes_plan("laplace", base).fingerprint in prints


def test_integers_that_could_wrap_are_exact(tmp_path: Path) -> None:
    large = np.array([[2**20, 2**19], [0, 2**20]])
    strategy = ProductStrategy(
        {"a": 2, "b": 2},
        {"a": large, "b": large},
        {},
        (ProductBlock(("a", "b"), frozenset(), Fraction(1)),),
        "laplace",
        "example",
    )
    resolutions = {name: cells_of(name, np.arange(2)) for name in "ab"}
    part = Part("t", strategy, resolutions, Fraction(1), 1)
    plan = Plan((part,), "laplace", Fraction(1), Fraction(0), None)
    assert _is_wide(9 * 2**38, "laplace", Fraction(1))
    counts = np.full((2, 2), 2**31)
    vaults = FakeVaults(FakeVault({"a": 2, "b": 2}, counts))
    receipt = pay(tmp_path, plan, vaults)
    with zero_noise():
        (measured,) = measure(plan, receipt, vaults)
    exact = [9 * 2**69, 6 * 2**69, 6 * 2**69, 4 * 2**69]
    assert measured.values[0].tolist() == exact
    assert not _is_wide(2**30, "laplace", Fraction(2**54))
    assert _is_wide(2**31, "laplace", Fraction(1))
    assert _is_wide(1, "laplace", Fraction(2**55))
    assert _is_wide(1, "gaussian", Fraction(2**110))
    assert not _is_wide(1, "gaussian", Fraction(2**109))


def test_only_public_tables_can_be_read(tmp_path: Path) -> None:
    table = two_columns(tmp_path, [(i, i % 4, "") for i in range(3)])
    with pytest.raises(InternalError, match="public"):
        read_public(table)
    found = read_public(replace(table, public=True))
    assert {name: (kind, list(values)) for name, (kind, values) in found.items()} == {
        "v": ("BIGINT", [0, 1, 2]),
        "g": ("BIGINT", [0, 1, 2]),
        "who": ("VARCHAR", [None] * 3),
    }
    assert list(found["v"][1])[1:] == found["v"][1][1:] == [1, 2]
    two_columns(tmp_path, [(1, 1, "a")] * 100_001)
    assert len(read_public(replace(table, public=True))["v"][1]) == 100_001


@pytest.mark.parametrize("cores", [1, 3])
def test_noise_of_many_pieces_is_drawn_once_for_every_number(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(bits: Bits, scale: Fraction, size: int) -> NDArray[np.int64]:
        return (bits.words(size) >> np.uint64(1)).view(np.int64)

    monkeypatch.setattr("dpsql.algebra.cores._cores", lambda: cores)
    monkeypatch.setattr("dpsql.privacy.doors.measure.PIECE", 100)
    monkeypatch.setitem(SAMPLERS, "laplace", draw)
    found = _add_noise(np.zeros(1050, dtype=np.int64), "laplace", Fraction(1), False)
    assert found.all()
    assert len(np.unique(found)) == len(found)  # no word is handed out twice
