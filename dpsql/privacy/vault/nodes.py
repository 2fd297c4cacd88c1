"""Rows spread over nodes: whole weights of a value's place in its interval, exact sums.

Values of measures are kept as doubles, clipped to the declared bounds, so that narrower bounds of a
request lose no precision; the place of a value in its bin is kept in steps of 2^-24.

Guarantee: whatever the value of a row is, its weights are non-negative integers that sum to the
``unit`` of the nodes: the place is a whole number 0..grid, and Bernstein polynomials sum to one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins, IntegerRange
from dpsql.plan.cells import Nodes, Steps
from dpsql.privacy.vault.base import Codes, Counts
from dpsql.privacy.vault.cells import OUTSIDE, Axis, Chunk, Spread, strided

Floats = npt.NDArray[np.float64]

PLACES = 1 << 24
"""Steps to which the place of a value in its bin is kept."""


def fits(nodes: Nodes, column: Column) -> bool:
    """Say whether nodes are those of a number column as the catalog declares it."""
    declared = column.null + (column.other is not None)
    if nodes.degree not in (1, 2) or nodes.grid < 1 or len(nodes.others) != declared:
        return False
    match column.domain:
        case IntegerRange():
            return nodes.intervals == 1 and nodes.low is nodes.high is None
        case Bins() as bins:
            return nodes.intervals == bins.size and nodes.low is nodes.high is None
        case None if column.bounds is not None:
            low, high = clip_bounds(nodes, column)
            least, most = map(float, column.bounds)
            return nodes.intervals == 1 and least <= low < high <= most
    return False


def fits_steps(steps: Steps, column: Column) -> bool:
    """Say whether steps are those of a measure: increasing numbers that doubles keep apart."""
    levels = [float(level) for level in steps.levels]
    increase = all(one < two for one, two in itertools.pairwise(levels))
    return column.bounds is not None and bool(levels) and increase


def clip_bounds(nodes: Nodes, column: Column) -> tuple[float, float]:
    """Return the bounds that the values of a measure are clipped to."""
    if column.bounds is None:
        raise ValueError("a column without bounds is no measure")
    low = column.bounds[0] if nodes.low is None else nodes.low
    high = column.bounds[1] if nodes.high is None else nodes.high
    return float(low), float(high)


def find_places(numbers: Floats, cells: Codes, edges: Sequence[float]) -> Codes:
    """Return where numbers lie in their bins, in 0..PLACES; 0 where there is no bin.

    >>> numbers, cells = np.array([0.0, 2.5, 10.0, np.inf]), np.array([0, 0, 0, 1])
    >>> (find_places(numbers, cells, (0.0, 10.0)) / PLACES).tolist()
    [0.0, 0.25, 1.0, 0.0]
    """
    is_bin = cells < len(edges) - 1
    found = np.where(is_bin, cells, 0)
    part = np.where(is_bin, numbers, edges[0]) - np.array(edges)[found]
    return to_grid(part, np.diff(edges)[found], PLACES).astype(np.uint32)


def find_steps(numbers: Floats, column: Column) -> Counts:
    """Return where values of a measure lie in its bounds, in 0..PLACES; -1 for NULL, -2 outside."""
    low, high = map(float, column.bounds or (0, 0))
    steps = to_grid(numbers - low, high - low, PLACES)
    return np.where(np.isnan(numbers), -1, np.where(numbers == np.inf, -2, steps))


def to_grid(part: Floats, width: Floats | float, grid: int) -> Counts:
    """Return part/width in whole steps of 1/grid, 0..grid whatever the numbers are.

    >>> to_grid(np.array([-1.0, 0.0, 2.0, 5.0, np.inf, np.nan]), 4.0, 8).tolist()
    [0, 0, 4, 8, 8, 0]
    """
    with np.errstate(all="ignore"):
        steps = np.rint(part * float(grid) / width)
    return np.fmin(np.fmax(steps, 0.0), float(grid)).astype(np.int64)


def axis_of_range(code: Codes, nodes: Nodes, size: int) -> Axis:
    """Return the axis of nodes of a range of ``size`` integers, from the cells of its column."""
    last, others = max(1, size - 1), len(nodes.others)
    steps = (2 * np.arange(size) * nodes.grid + last) // (2 * last)
    kinds = np.concatenate([np.zeros(size, dtype=np.int64), 1 + np.arange(others + 1)])
    steps = np.concatenate([steps, np.zeros(others + 1, dtype=np.int64)])
    return _axis(nodes, lambda rows: kinds[code[rows]], lambda rows: steps[code[rows]])


def axis_of_bins(code: Codes, places: Codes, nodes: Nodes) -> Axis:
    """Return the axis of nodes of a binned column, from its bins and the places in them."""

    def steps(rows: Chunk) -> Counts:
        return (2 * places[rows].astype(np.int64) * nodes.grid + PLACES) // (2 * PLACES)

    return _axis(nodes, lambda rows: code[rows], steps)


def axis_of_measure(numbers: Floats, nodes: Nodes, column: Column) -> Axis:
    """Return the axis of nodes of a measure, from its values; see OUTSIDE of encode."""
    low, high = clip_bounds(nodes, column)
    outside = nodes.intervals + len(nodes.others)

    def steps(rows: Chunk) -> Counts:
        clipped = np.fmin(np.fmax(numbers[rows], low), high)
        return to_grid(clipped - low, high - low, nodes.grid)

    def interval(rows: Chunk) -> Codes:
        is_outside = numbers[rows] == np.inf
        return np.where(is_outside, outside, np.isnan(numbers[rows])).astype(np.uint32)

    return _axis(nodes, interval, steps)


def axis_of_steps(numbers: Floats, steps: Steps) -> Axis:
    """Return the axis of steps of a measure; NULL and what is outside have no step."""
    levels = np.array([float(level) for level in steps.levels[:-1]])

    def spread_for(stride: int) -> Spread:
        def spread(rows: Chunk) -> list[tuple[Counts, Counts | None]]:
            found = np.searchsorted(levels, numbers[rows], side="left") * stride
            return [(np.where(np.isfinite(numbers[rows]), found, OUTSIDE), None)]

        return spread

    return spread_for


def _axis(
    nodes: Nodes, interval: Callable[[Chunk], Codes], steps: Callable[[Chunk], Counts]
) -> Axis:
    """Return the axis of nodes; intervals beyond the last are the other cells, then "outside".

    The node of an interval's row gets its Bernstein weight; other cells get all in one go.
    """
    first = nodes.intervals * (nodes.degree + 1)
    others = [first + other if other >= 0 else -1 for other in nodes.others] + [-1]
    starts = np.arange(nodes.intervals) * (nodes.degree + 1)
    places = [np.concatenate([starts + t, np.array(others, dtype=np.int64)]) for t in range(3)]

    def spread_for(stride: int) -> Spread:
        lookups = [strided(each, stride) for each in places]

        def spread(rows: Chunk) -> list[tuple[Counts, Counts | None]]:
            where = interval(rows)
            is_value = where < nodes.intervals
            weights = _bernstein(np.where(is_value, steps(rows), 0), nodes)
            return [(lookups[t][where], weight) for t, weight in enumerate(weights)]

        return spread

    return spread_for


def _bernstein(steps: Counts, nodes: Nodes) -> list[Counts]:
    """Return the weights of all nodes of an interval, for places in it of steps/grid."""
    rest = nodes.grid - steps
    return [rest, steps] if nodes.degree == 1 else [rest * rest, 2 * steps * rest, steps * steps]
