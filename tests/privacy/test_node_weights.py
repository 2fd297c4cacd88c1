"""What rows add to the nodes of a block, by brute force: never negative, and of one sum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import InternalError
from dpsql.plan.plan import Part, Plan
from dpsql.privacy.doors.exact_products import apply_rows_unbounded
from dpsql.privacy.doors.measure import check_cost
from dpsql.privacy.vault.codes import tally
from dpsql.privacy.vault.codes.node_weights import split_weight
from dpsql.privacy.vault.codes.tally import tally_rows
from dpsql.privacy.vault.vault import TableVault
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.queries import QueriesStrategy
from dpsql.strategy.query_block import QueryBlock
from dpsql.workload import weights as weights_module
from dpsql.workload.cells import AnyResolution, Nodes, cells_of
from dpsql.workload.weights import LOST, MOST_WEIGHT, REAL_BITS, block_unit, weights_of
from tests.privacy.doors.test_measure import FakeVault, FakeVaults, pay
from tests.support.tables import scribe

SALT = b"0123456789abcdef"
SHARES = st.floats(0, 1) | st.floats(0, 1e-6) | st.floats(0, 1e-6).map(lambda w: 1 - w)
TOTALS = st.integers(0, 9) | st.integers(0, MOST_WEIGHT)


def bernstein(w: Fraction, degree: int) -> list[Fraction]:
    return [math.comb(degree, k) * w**k * (1 - w) ** (degree - k) for k in range(degree + 1)]


@settings(max_examples=600, deadline=None)
@given(TOTALS, st.floats(), st.sampled_from([1, 2]))
@example(1, 0.72, 2)
@example(3, 0.5, 2)
@example(MOST_WEIGHT, math.nan, 2)
@example(MOST_WEIGHT, 1e300, 2)
@example(MOST_WEIGHT, -math.inf, 1)
def test_weights_are_not_negative_whatever_the_number(total: int, part: float, degree: int) -> None:
    with np.errstate(all="ignore"):
        found = split_weight(np.array([total]), np.array([part]), degree)
    assert all(each.dtype == np.int64 and each[0] >= 0 for each in found)
    assert sum(int(each[0]) for each in found) == total
    assert len(found) == degree + 1


@settings(max_examples=600, deadline=None)
@given(TOTALS, SHARES, st.sampled_from([1, 2]))
def test_moments_are_rounded_once_each(total: int, part: float, degree: int) -> None:
    found = [int(each[0]) for each in split_weight(total, np.array([part]), degree)]
    exact = [total * each for each in bernstein(Fraction(part), degree)]
    assert sum(abs(one - two) for one, two in zip(found, exact, strict=True)) < LOST[degree]
    first = found[-1] if degree == 1 else found[1] + 2 * found[2]
    assert abs(first - degree * total * Fraction(part)) < Fraction(501, 1000)
    if degree == 2 and total > 1:
        assert abs(found[2] - total * Fraction(part) ** 2) < Fraction(751, 1000)


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 46_340), st.integers(1, 1000), st.sampled_from([1, 2]), st.data())
def test_whole_steps_come_out_even(steps: int, times: int, degree: int, data: Any) -> None:
    total = steps**degree * min(times, MOST_WEIGHT // steps**degree)
    step = data.draw(st.integers(0, steps))
    found = split_weight(total, np.array([step / steps]), degree)
    exact = [total * each for each in bernstein(Fraction(step, steps), degree)]
    assert [int(each[0]) for each in found] == exact


STEPS = (0, 0, 1, 7, 66, 1000, 99_999, 1 << 40)
NODES = st.sampled_from([Nodes("v", degree, 1, steps) for degree in (1, 2) for steps in STEPS])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NODES, SHARES), min_size=1, max_size=4))
@example([(Nodes("v", 1, 1), w) for w in (0.31, 0.77, 0.123, 0.61, 0.45, 0.501, 0.377)])
def test_a_row_is_as_near_exact_moments_as_is_said(drawn: list[tuple[Nodes, float]]) -> None:
    nodes = [each for each, _ in drawn]
    parts = [round(w * n.steps) / n.steps if n.steps else w for n, w in drawn]
    found, weights = row_of(nodes, parts), weights_of(nodes)
    assert found.min() >= 0
    assert found.sum() == weights.unit
    exact = np.ones((), dtype=object)
    for each, part in zip(nodes, parts, strict=True):
        place = Fraction(round(part * each.steps), each.steps) if each.steps else Fraction(part)
        exact = np.multiply.outer(exact, np.array(bernstein(place, each.degree), dtype=object))
    gap = np.abs(found.astype(object) - weights.unit * exact).sum() / (2 * weights.unit)
    assert gap <= weights.rounding
    even = weights.order[: weights.even]
    rest = tuple(i for i in range(len(nodes)) if i not in even)
    assert np.all(found.sum(axis=rest) == weights.unit * exact.sum(axis=rest))


def axis_at(nodes: Nodes, part: float) -> tally.Axis:
    one = np.zeros(1, dtype=np.int64)
    return tally._axis(nodes, lambda rows: one, lambda rows: np.array([part]))


def row_of(nodes: Sequence[Nodes], parts: Sequence[float]) -> NDArray[np.int64]:
    """What one row adds to the nodes of a block, of which it is in these places."""
    axes = [axis_at(each, part) for each, part in zip(nodes, parts, strict=True)]
    shape = tuple(each.size for each in nodes)
    return tally_rows(axes, shape, np.ones(1, dtype=np.bool_), weights_of(nodes))


ODD = [
    *("NULL", "'nan'", "'inf'", "'-inf'", "-0.0", "5e-324", "1e-30", "0.001", "7", "9.999", "10"),
    *("1e308", "-1e308", "9007199254740993", "3.3333333333333335"),
]
COLUMNS = {
    "v": Column("v", "number", None, (Fraction(0), Fraction(10)), True),
    "w": Column("w", "number", None, (Fraction(-1), Fraction(2000)), True),
    "k": Column("k", "integer", IntegerRange(0, 3)),
}
BLOCKS: list[list[AnyResolution]] = [
    [Nodes("v", 2, 1, 0, (0,)), Nodes("w", 2, 1, 0, (0,))],
    [Nodes("v", 1, 1, 0, (0,)), Nodes("k", 2, 1, 3), Nodes("w", 2, 1, 0, (-1,))],
    [cells_of("k", np.array([0, 1, 1, -1])), Nodes("w", 2, 1, 0, (0,))],
    [Nodes("w", 2, 1, 2001, (0,)), Nodes("v", 2, 1, 10, (0,)), Nodes("k", 1, 1, 3)],
]


def test_one_more_row_adds_the_unit_to_a_block_or_nothing(tmp_path: Path) -> None:
    pairs = [*itertools.product(ODD, ODD[::2])]
    rows = [(one, two, str(i % 4)) for i, (one, two) in enumerate(pairs)]
    path = tmp_path / "t.parquet"
    changes = []
    for some in (rows[:40], rows[:41], *([row] for row in rows)):
        with scribe() as writer:
            writer.execute("CREATE TEMP TABLE t (v DOUBLE, w DOUBLE, k BIGINT)")
            listed = ", ".join(f"({', '.join(each)})" for each in some)
            writer.execute(f"INSERT INTO t VALUES {listed}")
            writer.execute(f"COPY t TO '{path}' (FORMAT parquet)")
        vault = TableVault(Table("t", str(path), Unit(), COLUMNS), SALT)
        changes.append([vault.tally(each) for each in BLOCKS])
        vault.close()
    before, after, *singles = changes
    assert [(b - a).tolist() for a, b in zip(before, after, strict=True)] == [
        each.tolist() for each in singles[40]
    ]
    for row, found in zip(rows, singles, strict=True):
        for block, change in zip(BLOCKS, found, strict=True):
            assert change.min() >= 0
            left = isinstance(block[0], Nodes) is False and row[2] == "3"
            left |= len(block) == 3 and block[2] == BLOCKS[1][2] and row[1] in ("NULL", "'nan'")
            assert int(change.sum()) == (0 if left else block_unit(block)), (row, block)


def joint_plan(noise: Noise) -> Plan:
    """A plan whose two blocks cost as much together in every cell, and neither does alone."""
    sizes = {"a": 2, "b": 2}
    used = [{"a": np.array([[1, 0]])}, {"a": np.array([[0, 1]]), "b": np.array([[1, 1]])}]
    blocks = tuple(
        QueryBlock(tuple(f), tuple(sizes[n] for n in f), tuple(f.values()), 1) for f in used
    )
    strategy = QueriesStrategy(sizes, blocks, noise)
    resolutions = {"a": Nodes("a", 1, 1), "b": Nodes("b", 1, 1)}
    rho = Fraction(1) if noise == "gaussian" else None
    part = Part("t", strategy, resolutions, Fraction(1), 1)
    return Plan((part,), noise, Fraction(1), Fraction(1, 10**9), rho)


def worst_row(plan: Plan) -> Fraction:
    """The most that one row costs in all blocks together, over many values of both columns."""
    (part,) = plan.parts
    places = [0.0, 1.0, 0.5, *(k / 2 ** (REAL_BITS + 1) * (1 - 1e-7) for k in range(1, 60, 2))]
    most, power = Fraction(0), law(plan.noise).norm
    for a, b in itertools.product(places, places[:3]):
        cost = Fraction(0)
        for block, scale in zip(part.blocks, part.scales, strict=True):
            nodes = [part.resolutions[name] for name in block.attributes]
            row = row_of([n for n in nodes if isinstance(n, Nodes)], [a, b][: len(nodes)])
            change = [abs(int(v)) for v in apply_rows_unbounded(block.integer_rows, row)]
            cost += Fraction(sum(v**power for v in change)) / (scale * power)
        most = max(most, cost)
    return most


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_blocks_that_are_paid_for_together_cost_no_more_by_brute_force(
    noise: Noise, tmp_path: Path
) -> None:
    plan = joint_plan(noise)
    (part,) = plan.parts
    check_cost(plan, pay(tmp_path, plan, FakeVaults(FakeVault({}, np.zeros(0, dtype=np.int64)))))
    assert 0 < part.excess < Fraction(1, 1_000_000)
    most = worst_row(plan)
    assert most <= part.amount
    if noise == "laplace":
        assert most > part.amount * (1 - part.excess)


def test_without_the_excess_a_row_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.plan.plan.joint_excess", lambda blocks: Fraction(0))
    plan = joint_plan("laplace")
    assert worst_row(plan) > plan.parts[0].amount


def test_a_plan_without_the_excess_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.plan.plan.joint_excess", lambda blocks: Fraction(0))
    plan = joint_plan("laplace")
    receipt = pay(tmp_path, plan, FakeVaults(FakeVault({}, np.zeros(0, dtype=np.int64))))
    with pytest.raises(InternalError, match="costs more"):
        check_cost(plan, receipt)


def test_blocks_with_the_same_nodes_have_no_excess() -> None:
    v, w, cells = Nodes("v", 2, 1), Nodes("w", 1, 1), cells_of("g", np.arange(3))
    assert weights_module.joint_excess([[v, w], [cells, v, w], [cells], []]) == 0
    assert weights_module.joint_excess([[v], [v, w]]) == sum(
        (weights_of(each).rounding for each in ([v], [v, w])), Fraction(0)
    )
    even = Nodes("v", 1, 1, 9), Nodes("w", 1, 1, 8)
    assert weights_module.joint_excess([[even[0]], [*even]]) == 0
