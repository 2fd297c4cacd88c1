"""Queries measured themselves, through the door: what they cost together, and planted faults."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.plan.plan import Part, Plan
from dpsql.privacy.doors import measure
from dpsql.privacy.doors.exact_products import apply_rows
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.queries import QueriesStrategy
from dpsql.strategy.query_block import QueryBlock
from dpsql.workload.cells import Cells, Nodes, cells_of
from tests.audit.door import empty, with_unit
from tests.audit.lower_bound import epsilon_lower_bound

SIZES = {"a": 4, "b": 3, "c": 2}
AMOUNT = Fraction(1, 2)
NOISES: tuple[Noise, ...] = ("laplace", "gaussian")


def blocks() -> tuple[QueryBlock, ...]:
    """Return blocks of which four meet in one cell, with different norms and weights."""
    one = np.array([[0, 2, 1, 0]])
    two = np.array([[1, 1, 0], [0, -3, 1]])
    last = np.array([[0, 1]])
    found: list[tuple[dict[str, Any], int]] = [
        ({"a": one, "b": two}, 3),
        ({"b": None}, 2),
        ({"a": np.array([[0, 1, 1, 1]]), "c": last}, 5),
        ({}, 1),
        ({"a": np.array([[5, 0, 0, 0]])}, 1),
    ]
    return tuple(
        QueryBlock(tuple(f), tuple(SIZES[n] for n in f), tuple(f.values()), weight)
        for f, weight in found
    )


def plan_of(noise: Noise, rows: int = 1) -> Plan:
    strategy = QueriesStrategy(SIZES, blocks(), noise)
    resolutions = {name: cells_of(name, np.arange(size)) for name, size in SIZES.items()}
    part = Part("t", strategy, resolutions, AMOUNT, rows)
    rho = AMOUNT if noise == "gaussian" else None
    return Plan((part,), noise, AMOUNT if rho is None else Fraction(1), Fraction(1, 10**9), rho)


def costs(plan: Plan, rows: int) -> list[Fraction]:
    """Return what each cell costs: the change that ``rows`` rows in it make, over the noise."""
    (part,) = plan.parts
    out = []
    for cell in itertools.product(*map(range, SIZES.values())):
        door = with_unit(plan, cell, rows)
        cost = Fraction(0)
        for block, scale in zip(part.blocks, part.scales, strict=True):
            counts = door.cells.tally([part.resolutions[name] for name in block.attributes])
            change = apply_rows(block.integer_rows, counts)
            if plan.noise == "laplace":
                cost += Fraction(sum(abs(int(v)) for v in change)) / scale
            else:
                cost += Fraction(sum(int(v) ** 2 for v in change)) / (2 * scale)
        out.append(cost)
    return out


def audit(noise: Noise) -> None:
    """Compare the costliest cell with what was given, one unit of one and of three rows."""
    for rows in (1, 3):
        plan = plan_of(noise, rows)
        measure.check_cost(plan, empty(plan).receipt())
        assert max(costs(plan, rows)) <= AMOUNT


@pytest.mark.parametrize("noise", NOISES)
def test_the_costliest_cell_costs_what_is_given(noise: Noise) -> None:
    audit(noise)
    assert max(costs(plan_of(noise), 1)) >= AMOUNT * (1 - Fraction(1, 10**8))


@pytest.mark.parametrize("noise", NOISES)
def test_a_plan_that_understates_what_blocks_cost_together_is_refused(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    joint = QueriesStrategy.joint
    monkeypatch.setattr(QueriesStrategy, "joint", lambda self: joint(self) - 1)
    with pytest.raises(InternalError, match="costs more than was paid"):
        empty(plan_of(noise)).measured()


@pytest.mark.parametrize("noise", NOISES)
def test_a_plan_that_forgets_rows_of_a_unit_is_refused(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Part, "_multiplier", lambda self, block, unit: 1)
    with pytest.raises(InternalError, match="costs more than was paid"):
        empty(plan_of(noise, 3)).measured()


@pytest.mark.parametrize("noise", NOISES)
def test_a_search_that_misses_the_worst_cell_is_found(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same fault in the planner and the membrane: only the cells themselves tell."""

    def first(tables: Any, start: Any) -> tuple[Any, bool]:
        return sum(s * np.prod([t[k, 0] for t in tables]) for k, s in enumerate(start)), True

    monkeypatch.setattr("dpsql.strategy.queries.worst_cell", first)
    monkeypatch.setattr(measure, "worst_cell", first)
    with pytest.raises(AssertionError):
        audit(noise)


def test_what_a_row_adds_to_nodes_is_counted() -> None:
    """A row adds several whole weights to nodes: each block costs that much more."""
    nodes = Nodes("b", 1, 1, 7, (0,))
    assert nodes.size == SIZES["b"]
    plan = plan_of("laplace")
    (part,) = plan.parts
    resolutions = {**part.resolutions, "b": nodes}
    spread = Part("t", part.strategy, resolutions, AMOUNT, 1)
    wide = Plan((spread,), "laplace", AMOUNT, Fraction(1, 10**9), None)
    measure.check_cost(wide, empty(wide).receipt())
    narrow = Part("t", part.strategy, resolutions, AMOUNT, 1)
    object.__setattr__(narrow, "__dict__", {**narrow.__dict__, "scales": part.scales})
    cheap = Plan((narrow,), "laplace", AMOUNT, Fraction(1, 10**9), None)
    with pytest.raises(InternalError, match="costs more than was paid"):
        measure.check_cost(cheap, empty(cheap).receipt())
    assert isinstance(part.resolutions["b"], Cells)


@pytest.mark.parametrize("noise", NOISES)
def test_blocks_have_the_noise_of_their_own_weights(noise: Noise) -> None:
    """In rows the noise of a block is what it is without nodes, however much a row adds to them."""
    (part,) = plan_of(noise).parts
    power = law(noise).norm
    for steps in (1, 7, 1 << 16):
        resolutions = {**part.resolutions, "b": Nodes("b", 1, 1, steps, (0,))}
        spread = Part("t", part.strategy, resolutions, AMOUNT, 3)
        assert spread.block_units == tuple(steps if "b" in b.attributes else 1 for b in part.blocks)
        plain = Part("t", part.strategy, part.resolutions, AMOUNT, 3)
        pairs = zip(spread.scales, spread.block_units, strict=True)
        assert [scale / unit**power for scale, unit in pairs] == list(plain.scales)
        plan = replace(plan_of(noise), parts=(spread,))
        measure.check_cost(plan, empty(plan).receipt())


def test_epsilon_from_below() -> None:
    plan = plan_of("laplace")
    cell = max(
        itertools.product(*map(range, SIZES.values())),
        key=dict(
            zip(itertools.product(*map(range, SIZES.values())), costs(plan, 1), strict=True)
        ).__getitem__,
    )
    base, near = empty(plan), with_unit(plan, cell)
    without = np.array([base.measured() for _ in range(1000)], dtype=np.float64)
    present = np.array([near.measured() for _ in range(1000)], dtype=np.float64)
    assert epsilon_lower_bound(without, present) <= float(AMOUNT)
