"""Exact tallies from integer codes: mixed-radix cell numbers, whole weights, no floats.

Values of measures are kept as doubles, clipped to the declared bounds, so that narrower bounds of a
request lose no precision; the place of a value in its bin is kept in steps of 2^-24.

Guarantee: whatever the value of a row is, its weights are non-negative integers that sum to the
``unit`` of the block: it is split between the nodes of one column after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins, DecimalRange, IntegerRange
from dpsql.interrupts import check
from dpsql.privacy.vault.data_engine import Classes, Codes, Counts, Flags, Floats
from dpsql.records import dataclass
from dpsql.workload.cells import MOST_STEPS, Cells, Nodes, Steps, Unions
from dpsql.workload.weights import Weights

CHUNK = 1 << 18
"""Rows, or rows times the unions that share a cell, that are looked at together."""

OUTSIDE = -(1 << 48)
"""The place of a row outside: below zero, whatever its places on other axes add to it."""


Chunk = slice | Counts
"""Some rows: a range of them, or their places."""


@dataclass(frozen=True, slots=True)
class AxisPlaces:
    """The places of some rows on an axis: in one cell each, or between the nodes of a number.

    ``cells`` has the cell of every row, once for each node; outside is < 0. ``part`` says where
    numbers lie between their nodes, 0 to 1.
    """

    cells: Sequence[Counts]
    part: Floats | None = None


WHOLE = Weights(1, (), 0, Fraction(0))
"""The weights where no axis has nodes: a row counts one."""

Spread = Callable[[Chunk], AxisPlaces]
"""A function to the places of some rows."""

Axis = Callable[[int], Spread]
"""The places of rows along one axis of a tally: cell numbers times the stride of the axis."""


def axis_of_cells(codes: Sequence[Codes], cells: Cells) -> Axis:
    """Return the axis of cells of one column or of several.

    ``codes`` has one array of shape (rows,) per column.
    """
    found = [np.append(classes, -1) for classes in cells.classes]  # the last code is "outside"
    if cells.labels is None:
        return lambda stride: _looked_up([strided(found[0], stride)], codes)
    # Whoever is in no class of some column has a place below zero, whatever the others are.
    shape = cells.labels.shape
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    lookups = [strided(each, step) for each, step in zip(found, steps, strict=True)]
    labels = np.append(cells.labels.ravel(), -1)
    return lambda stride: _looked_up(lookups, codes, strided(labels, stride))


def _looked_up(
    lookups: list[Counts], codes: Sequence[Codes], joint: Counts | None = None
) -> Spread:
    def spread(rows: Chunk) -> AxisPlaces:
        found = lookups[0][codes[0][rows]]
        for lookup, code in zip(lookups[1:], codes[1:], strict=True):
            found += lookup[code[rows]]
        return AxisPlaces([found if joint is None else joint[np.maximum(found, -1)]])

    return spread


def axis_of_unions(codes: Sequence[Codes], unions: Unions) -> Axis:
    """Return the axis of unions of cells: for every row, all the places that share its cell.

    ``codes`` has one array of shape (rows,) per column.
    """
    cells = axis_of_cells(codes, unions.cells)(1)
    inside = [np.flatnonzero(column) for column in unions.members.T]
    found = np.full((len(inside) + 1, max([1, *map(len, inside)])), -1)
    for cell, members in enumerate(inside):
        found[cell, : len(members)] = members

    def axis(stride: int) -> Spread:
        places = strided(found, stride)

        def spread(rows: Chunk) -> AxisPlaces:
            (cell,) = cells(rows).cells
            return AxisPlaces([places[np.maximum(cell, -1)]])  # the last one is outside

        return spread

    return axis


def strided(classes: Classes, stride: int) -> Counts:
    """Return class numbers times a stride, and OUTSIDE for -1.

    >>> strided(np.array([0, 2, -1]), 10).tolist() == [0, 20, OUTSIDE]
    True
    """
    return np.where(classes < 0, OUTSIDE, classes.astype(np.int64) * stride)


def tally_rows(
    axes: Sequence[Axis], shape: tuple[int, ...], kept: Flags, weights: Weights = WHOLE
) -> Counts:
    """Add up what the rows that are kept add to every cell; every row is looked at.

    The shape may be larger than the axes, so that there is room beside the cells. ``weights`` say
    how what a row adds is split between nodes.

    >>> codes = [np.array([0, 1, 2, 1], np.uint8), np.array([0, 0, 1, 1], np.uint8)]
    >>> cells = [Cells(("a",), (np.array([0, 1, -1]),)), Cells(("b",), (np.array([0, 1]),))]
    >>> axes = [axis_of_cells([code], each) for code, each in zip(codes, cells)]
    >>> tally_rows(axes, (2, 2), np.ones(4, dtype=bool))
    array([[1, 0],
           [1, 1]])
    """
    if not axes:
        return np.array(np.count_nonzero(kept), dtype=np.int64)
    size = math.prod(shape)
    tally = np.zeros(size + 1, dtype=np.int64)  # the last one is of what is in no cell
    spreads = spread_out(axes, shape)
    for chunk in _chunks(len(kept)):
        falls = [spread(chunk) for spread in spreads]
        places = _flat([each.cells[0] for each in falls if each.part is None], chunk)
        between = [falls[i] for i in weights.order]
        for where, weight in _split(between, places, weights.unit):
            found = np.where((where >= 0) & kept[chunk], where, size)
            if isinstance(weight, int) and weight == 1:
                add_ones(tally, found)
            else:
                np.add.at(tally, found, weight)
    return tally[:-1].reshape(shape)


def add_ones(tally: Counts, places: Counts) -> None:
    """Add one to places of a tally; which way depends on its size alone, which is public."""
    if len(tally) <= CHUNK:
        tally += np.bincount(places, minlength=len(tally))
    else:
        np.add.at(tally, places, 1)


def _split(
    falls: Sequence[AxisPlaces], places: Counts, weight: Counts | int
) -> Iterator[tuple[Counts, Counts | int]]:
    """Yield the cells of rows, and how much of a weight, for every combination of nodes."""
    if not falls:
        yield places, weight
        return
    from dpsql.privacy.vault.codes.node_weights import split_weight  # few columns have bins

    first, *rest = falls
    assert first.part is not None
    weights = split_weight(weight, first.part, len(first.cells) - 1)
    for cells, each in zip(first.cells, weights, strict=True):
        yield from _split(rest, places + cells, each)


def spread_out(axes: Sequence[Axis], shape: tuple[int, ...]) -> list[Spread]:
    return [axis(math.prod(shape[i + 1 :])) for i, axis in enumerate(axes)]


def _chunks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, CHUNK):
        if start:
            check()
        yield slice(start, min(start + CHUNK, rows))


def _flat(places: Sequence[Counts], rows: slice) -> Counts:
    """Return the flat cell of every row of a chunk; negative where it is outside on any axis."""
    return sum(places, start=np.zeros(rows.stop - rows.start, dtype=np.int64))


PLACES = 1 << 24
"""Steps to which the place of a value in its bin is kept."""


def fits(nodes: Nodes, column: Column) -> bool:
    """Say whether nodes are those of a number column as the catalog declares it."""
    declared = column.null + (column.other is not None)
    if nodes.degree not in (1, 2) or not 0 <= nodes.steps <= MOST_STEPS or nodes.grid:
        return False
    if len(nodes.others) != declared:
        return False
    if nodes.starts and not isinstance(column.domain, Bins):
        return False
    match column.domain:
        case IntegerRange() | DecimalRange():
            is_plain = nodes.low is nodes.high is None and nodes.steps * column.size <= MOST_STEPS
            return nodes.intervals == 1 and is_plain
        case Bins() as bins:
            is_plain = nodes.low is nodes.high is None and nodes.steps <= PLACES
            return _fits_bins(nodes, bins.size) and is_plain
        case None if column.bounds is not None:
            low, high = clip_bounds(nodes, column)
            least, most = map(float, column.bounds)
            return nodes.intervals == 1 and least <= low < high <= most
    return False


def _fits_bins(nodes: Nodes, bins: int) -> bool:
    """Say whether there is one interval per bin, or for each run of bins from the first on."""
    starts = nodes.starts or tuple(range(bins))
    increase = all(one < two for one, two in itertools.pairwise((*starts, bins)))
    return nodes.intervals == len(starts) and starts[0] == 0 and increase


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

    ``numbers`` and ``cells`` are (rows,), ``edges`` one more than there are bins.

    >>> numbers, cells = np.array([0.0, 2.5, 10.0, np.inf]), np.array([0, 0, 0, 1])
    >>> (find_places(numbers, cells, (0.0, 10.0)) / PLACES).tolist()
    [0.0, 0.25, 1.0, 0.0]
    """
    is_bin = cells < len(edges) - 1
    found = np.where(is_bin, cells, 0)
    part = np.where(is_bin, numbers, edges[0]) - np.array(edges)[found]
    return to_grid(part, np.diff(edges)[found], PLACES).astype(np.uint32)


def find_steps(numbers: Floats, column: Column) -> Counts:
    """Return where values of a measure lie in its bounds, in 0..PLACES; -1 for NULL, -2 outside.

    ``numbers`` and the result are (rows,); missing is NaN, outside is infinite.
    """
    low, high = map(float, column.bounds or (0, 0))
    steps = to_grid(numbers - low, high - low, PLACES)
    return np.where(np.isnan(numbers), -1, np.where(numbers == np.inf, -2, steps))


def to_grid(part: Floats, width: Floats | float, grid: int) -> Counts:
    """Return part/width in whole steps of 1/grid, 0..grid whatever the numbers are.

    ``part`` and ``width`` are in units of the column, (rows,) or one number.

    >>> to_grid(np.array([-1.0, 0.0, 2.0, 5.0, np.inf, np.nan]), 4.0, 8).tolist()
    [0, 0, 4, 8, 8, 0]
    """
    with np.errstate(all="ignore"):
        steps = np.rint(part * float(grid) / width)
    return np.fmin(np.fmax(steps, 0.0), float(grid)).astype(np.int64)


def between(part: Floats, width: Floats | float, steps: int) -> Floats:
    """Return part/width, 0 to 1 whatever the numbers are; in whole steps, 0 for as they are.

    Args:
        part: (rows,) distances from the first node, in units of the measure.
        width: between two nodes, in the same unit; one number, or (rows,).
        steps: of a width; 0 for none.

    >>> between(np.array([-1.0, 1.0, 5.0, np.nan]), 3.0, 2).tolist()
    [0.0, 0.5, 1.0, 0.0]
    """
    if steps:
        return to_grid(part, width, steps) / steps
    with np.errstate(all="ignore"):
        return np.fmin(np.fmax(part / width, 0.0), 1.0)


def axis_of_range(code: Codes, nodes: Nodes, size: int) -> Axis:
    """Return the axis of nodes of a range of ``size`` integers, from the cells of its column.

    ``code`` has shape (rows,).
    """
    last, others = max(1, size - 1), len(nodes.others)
    parts = np.arange(size) / last
    if nodes.steps:
        parts = (2 * np.arange(size) * nodes.steps + last) // (2 * last) / nodes.steps
    kinds = np.concatenate([np.zeros(size, dtype=np.int64), 1 + np.arange(others + 1)])
    parts = np.concatenate([parts, np.zeros(others + 1)])
    return _axis(nodes, lambda rows: kinds[code[rows]], lambda rows: parts[code[rows]])


def axis_of_bins(code: Codes, places: Codes, nodes: Nodes, edges: Sequence[float]) -> Axis:
    """Return the axis of nodes of a binned column, from its bins and the places in them.

    ``code`` and ``places`` have shape (rows,); places count steps of 1 / PLACES of a bin, and
    ``edges``, one more than bins, are in units of the column.
    """

    def part(rows: Chunk) -> Floats:
        if not nodes.steps:
            return places[rows] / PLACES
        twice = 2 * places[rows].astype(np.int64) * nodes.steps
        return (twice + PLACES) // (2 * PLACES) / nodes.steps

    if nodes.starts:
        return _axis_of_runs(code, places, nodes, np.array(edges))
    return _axis(nodes, lambda rows: code[rows], part)


def _axis_of_runs(code: Codes, places: Codes, nodes: Nodes, edges: Floats) -> Axis:
    """Return the axis of nodes of runs of bins, from the bins and the places in them."""
    bins = len(edges) - 1
    starts = np.array([*nodes.starts, bins])
    run = np.searchsorted(starts, np.arange(bins), side="right") - 1
    others = nodes.intervals + np.arange(len(nodes.others) + 1)
    interval = np.concatenate([run, others]).astype(np.int64)
    lower, widths = edges[starts[:-1]], np.diff(edges[starts])

    def part(rows: Chunk) -> Floats:
        cell = np.minimum(code[rows], bins - 1)
        value = edges[cell] + places[rows] * (np.diff(edges)[cell] / PLACES)
        return between(value - lower[run[cell]], widths[run[cell]], nodes.steps)

    return _axis(nodes, lambda rows: interval[code[rows]], part)


def axis_of_measure(numbers: Floats, nodes: Nodes, column: Column) -> Axis:
    """Return the axis of nodes of a measure, from its values; see OUTSIDE of encode.

    ``numbers`` is (rows,), in units of the column.
    """
    low, high = clip_bounds(nodes, column)
    outside = nodes.intervals + len(nodes.others)

    def part(rows: Chunk) -> Floats:
        clipped = np.fmin(np.fmax(numbers[rows], low), high)
        return between(clipped - low, high - low, nodes.steps)

    def interval(rows: Chunk) -> Codes:
        is_outside = numbers[rows] == np.inf
        return np.where(is_outside, outside, np.isnan(numbers[rows])).astype(np.uint32)

    return _axis(nodes, interval, part)


def axis_of_steps(numbers: Floats, steps: Steps) -> Axis:
    """Return the axis of steps of a measure; NULL and what is outside have no step.

    ``numbers`` is (rows,), in units of the column.
    """
    levels = np.array([float(level) for level in steps.levels[:-1]])

    def spread_for(stride: int) -> Spread:
        def spread(rows: Chunk) -> AxisPlaces:
            found = np.searchsorted(levels, numbers[rows], side="left") * stride
            return AxisPlaces([np.where(np.isfinite(numbers[rows]), found, OUTSIDE)])

        return spread

    return spread_for


def _axis(
    nodes: Nodes, interval: Callable[[Chunk], Codes | Counts], part: Callable[[Chunk], Floats]
) -> Axis:
    """Return the axis of nodes; intervals beyond the last are the other cells, then "outside".

    Rows of an interval are split between its nodes; other cells are the first node and get all.
    """
    first = nodes.intervals * (nodes.degree + 1)
    others = [first + other if other >= 0 else -1 for other in nodes.others] + [-1]
    starts = np.arange(nodes.intervals) * (nodes.degree + 1)
    places = [
        np.concatenate([starts + t, np.array(others, dtype=np.int64)])
        for t in range(nodes.degree + 1)
    ]

    def spread_for(stride: int) -> Spread:
        lookups = [strided(each, stride) for each in places]

        def spread(rows: Chunk) -> AxisPlaces:
            where = interval(rows)
            is_value = where < nodes.intervals
            return AxisPlaces(
                [lookup[where] for lookup in lookups], np.where(is_value, part(rows), 0.0)
            )

        return spread

    return spread_for
