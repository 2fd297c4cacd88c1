"""Resolutions: stored and read back, compared by content, and the units of their blocks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.product_block import ProductBlock
from dpsql.workload.cells import (
    Cells,
    Nodes,
    Resolution,
    cells_of,
    decode_resolution,
    encode_resolution,
)
from dpsql.workload.weights import block_unit, weights_of

ALL: list[Resolution] = [
    cells_of("a", np.array([0, 1, -1])),
    cells_of("b", np.array([0, 1, -1])),
    cells_of("a", np.array([0, 1, 1])),
    Cells(("a", "b"), (np.array([0, 1]), np.array([1, 0])), np.array([[0, -1], [1, 2]])),
    Cells(("a", "b"), (np.array([0, 1]), np.array([1, 0])), np.array([[0, 1], [1, 2]])),
    Nodes("a", 1, 1, 100),
    Nodes("a", 2, 3, 100, (0, -1)),
    Nodes("a", 2, 3, 100, (0, 1)),
    Nodes("a", 1, 1, 100, (0,), Fraction(1, 3), Fraction(2)),
    Nodes("a", 1, 1, grid=100),
    Nodes("a", 2, 1, grid=100),
]


@pytest.mark.parametrize("resolution", ALL, ids=repr)
def test_a_resolution_survives_storage(resolution: Resolution) -> None:
    arrays: dict[str, NDArray[np.int64]] = {}

    def keep(array: NDArray[np.int64]) -> str:
        arrays[f"x{len(arrays)}"] = array
        return f"x{len(arrays) - 1}"

    stored = encode_resolution(resolution, keep)
    found = decode_resolution(stored, arrays)
    assert found == resolution
    assert hash(found) == hash(resolution)
    assert (found.size, found.facts) == (resolution.size, resolution.facts)


def test_resolutions_are_equal_only_to_themselves() -> None:
    for i, one in enumerate(ALL):
        assert [one == other for other in ALL] == [i == j for j in range(len(ALL))]


def test_sizes_units_and_what_is_left_out() -> None:
    assert [each.size for each in ALL] == [2, 2, 2, 3, 3, 2, 10, 11, 3, 2, 3]
    units = [1, 1, 1, 1, 1, 100, 10_000, 10_000, 100, 100, 10_000]
    assert [block_unit([each]) for each in ALL] == units
    left = [True, True, False, True, False, False, True, False, False, False, False]
    assert [each.leaves_out for each in ALL] == left
    assert block_unit([]) == 1
    assert block_unit([ALL[0], ALL[5], ALL[6]]) == 10**6


def units(*meeting: tuple[int, int]) -> tuple[int, tuple[int, ...], int]:
    """The unit of nodes of these steps and degrees, their order, and how many are even."""
    found = weights_of([Nodes(f"x{i}", d, 1, steps) for i, (steps, d) in enumerate(meeting)])
    return found.unit, found.order, found.even


def test_whole_steps_are_kept_where_they_fit() -> None:
    assert units(((1 << 31) - 1, 1)) == ((1 << 31) - 1, (0,), 1)
    assert units((1 << 31, 1)) == (1 << 24, (0,), 0)
    assert units((1 << 12, 2)) == (1 << 24, (0,), 1)
    assert units((10_494_950, 1), (10, 1), (8, 1)) == (839_596_000, (2, 1, 0), 3)
    assert units((1 << 40, 1), (49, 1), (3, 2)) == ((1 << 30) // 441 * 441, (2, 1, 0), 2)
    assert units((0, 1)) == (1 << 24, (0,), 0)
    assert units((0, 2)) == (1 << 30, (0,), 0)
    assert units((0, 1), (0, 1)) == (1 << 30, (0, 1), 0)
    assert units((0, 2), (66, 2)) == ((1 << 30) // 4356 * 4356, (1, 0), 1)
    assert units((20_000, 2), (20_000, 2)) == ((1 << 30) // 20_000**2 * 20_000**2, (0, 1), 1)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_multipliers_enter_the_scales_of_their_blocks(noise: Noise) -> None:
    blocks = (
        ProductBlock(("a",), frozenset(), Fraction(1, 2)),
        ProductBlock((), frozenset(), Fraction(1, 2)),
    )
    strategy = ProductStrategy({"a": 3}, {"a": None}, {}, blocks, noise, "example")
    plain, more = strategy.scales(Fraction(1)), strategy.scales(Fraction(1), 2, [3, 1])
    rows = 2 if noise == "laplace" else 4
    assert [b / a for a, b in zip(plain, more, strict=True)] == [3 * rows, rows]
    with pytest.raises(ValueError, match="zip"):
        strategy.scales(Fraction(1), 1, [1])
