"""Symmetric strategies: exact rows and sensitivities, costs, storage."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import CONSTANT, OrbitPart, OrbitRows, squared_columns
from dpsql.algebra.orbits import Orbits
from dpsql.strategy.symmetric import OrbitBlock, SymmetricStrategy
from dpsql.strategy.symmetric_forecast import invert
from tests.support.symmetric import UNIONS, strategy_of


@pytest.mark.parametrize("name", UNIONS)
def test_sensitivity_is_that_of_the_largest_column(name: str) -> None:
    strategy = strategy_of(name)
    (block,) = strategy.blocks
    shape = [orbits.n for orbits in block.integer_rows.orbits]
    norms = block.integer_rows.column_norms()
    largest = 0
    for cell in itertools.product(*map(range, shape)):
        unit = np.zeros(shape, dtype=np.int64)
        unit[cell] = 1
        column = sum(int(v) ** 2 for v in block.integer_rows.apply(unit))
        own = block.integer_rows
        place = tuple(int(o.labels[c]) for o, c in zip(own.orbits, cell, strict=True))
        assert norms[place] == column
        largest = max(largest, column)
    assert strategy.sensitivity(block) == block.integer_rows.sensitivity() == largest
    assert isinstance(strategy.sensitivity(block), int)


@pytest.mark.parametrize("name", UNIONS)
def test_scales_cost_at_most_the_amount(name: str) -> None:
    strategy = strategy_of(name)
    for amount, rows in ((Fraction(1, 7), 1), (Fraction(355, 113), 2)):
        (sigma2,) = strategy.scales(amount, rows)
        cost = rows**2 * strategy.sensitivity(strategy.block) / (2 * sigma2)
        assert amount * (1 - Fraction(1, 2**29)) < cost <= amount
    assert sum(block.share for block in strategy.blocks) == 1


@pytest.mark.parametrize("name", UNIONS)
def test_apply_is_the_matrix(name: str) -> None:
    block = strategy_of(name).block
    A = block.integer_rows.matrix()
    assert A.shape == (block.rows, block.cells)
    assert A.dtype == np.int64
    ((names, same),) = block.factors.items()
    assert names == block.attributes
    assert same is not None
    assert np.array_equal(A, same)
    shape = [orbits.n for orbits in block.integer_rows.orbits]
    x = np.random.default_rng(0).integers(0, 1 << 20, shape)
    assert np.array_equal(block.integer_rows.apply(x), A @ x.reshape(-1))


def test_apply_wraps_around_like_integers_do() -> None:
    block = strategy_of("mixed").block
    shape = [orbits.n for orbits in block.integer_rows.orbits]
    x = np.random.default_rng(0).integers(0, 1 << 62, shape)
    exact = block.integer_rows.matrix().astype(object) @ x.reshape(-1).astype(object)
    assert all(
        (int(a) - int(b)) % (1 << 64) == 0
        for a, b in zip(exact, block.integer_rows.apply(x), strict=True)
    )


def test_equal_workloads_give_equal_strategies() -> None:
    one, two = strategy_of("mixed"), strategy_of("mixed")
    assert one.fingerprint() == two.fingerprint()
    assert one.fingerprint() != strategy_of("prefix").fingerprint()
    assert one.blocks == (one.block,)
    assert (one.noise, one.method) == ("gaussian", "symmetric")


def test_a_strategy_survives_being_written_down() -> None:
    strategy = strategy_of("between")
    arrays: dict[str, Any] = {}

    def keep(array: NDArray[np.int64]) -> str:
        name = f"x{len(arrays)}"
        arrays[name] = array
        return name

    facts = json.loads(json.dumps(strategy.encode(keep)))
    again = SymmetricStrategy.decode(facts, arrays)
    assert again.fingerprint() == strategy.fingerprint()
    assert again.method == strategy.method


def part_of(rows: list[list[int]]) -> OrbitPart:
    return OrbitPart((CONSTANT,), np.array(rows, dtype=np.int64))


def strategy_with(part: OrbitPart, names: tuple[str, ...] = ("a",)) -> SymmetricStrategy:
    rows = OrbitRows((Orbits(np.array([0, 1])),) * len(names), (part,))
    return SymmetricStrategy({"a": 2, "b": 2}, (OrbitBlock(names, rows),))


@pytest.mark.parametrize(
    "make",
    [
        lambda: strategy_with(part_of([[1, 0, 0]])),
        lambda: strategy_with(OrbitPart((CONSTANT,) * 2, np.eye(4, dtype=np.int64)), ("b", "a")),
        lambda: strategy_with(OrbitPart((0,), np.eye(1, dtype=np.int64))),
        lambda: strategy_with(OrbitPart((CONSTANT,) * 2, np.eye(2, dtype=np.int64))),
        lambda: strategy_with(OrbitPart((CONSTANT,), np.eye(2))),  # type: ignore[arg-type]
        lambda: invert(part_of([[1, 1]]), [Orbits(np.array([0, 1]))]),
        lambda: invert(part_of([[1, 1], [2, 2]]), [Orbits(np.array([0, 1]))]),
        lambda: strategy_with(part_of([[1, 0], [0, 1]])).forecast([0.0]),
        lambda: strategy_with(part_of([[1, 0], [0, 1]])).scales(Fraction(0)),
    ],
)
def test_malformed_strategies_are_refused(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_norms_of_large_entries_are_exact() -> None:
    rows = np.array([[1 << 40, 3], [-(1 << 40), 4]], dtype=np.int64)
    assert squared_columns(rows).tolist() == [1 << 81, 25]
    block = strategy_with(part_of(rows.tolist())).block
    assert block.integer_rows.sensitivity() == 1 << 81
