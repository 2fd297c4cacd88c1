"""Exact tallies from integer codes: mixed-radix cell numbers, whole weights, no floats."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpsql.plan.cells import Cells, Unions
from dpsql.privacy.vault.base import Classes, Codes, Counts

Flags = npt.NDArray[np.bool_]

CHUNK = 1 << 18
"""Rows, or rows times the unions that share a cell, that are looked at together."""

MARKS = 1 << 24
"""Most pairs of a privacy unit and a cell that are marked one by one, not sorted."""

OUTSIDE = -(1 << 48)


Chunk = slice | Counts
"""Some rows: a range of them, or their places."""

Spread = Callable[[Chunk], list[tuple[Counts, Counts | None]]]
"""For some rows, the cells that each adds to and how much (one, if None); outside is < 0."""

Axis = Callable[[int], Spread]
"""Where rows fall along one axis of a tally, in cell numbers times the stride of the axis."""


def axis_of_cells(codes: Sequence[Codes], cells: Cells) -> Axis:
    """Return the axis of cells of one column or of several; ``codes`` has one array per column."""
    found = [np.append(classes, -1) for classes in cells.classes]  # the last code is "outside"
    if cells.labels is None:
        return lambda stride: _looked_up([strided(found[0], stride)], codes)
    # One more slot per column, for its rows that are in no class.
    labels = np.pad(cells.labels, [(1, 0)] * cells.labels.ndim, constant_values=-1)
    steps = [math.prod(labels.shape[i + 1 :]) for i in range(labels.ndim)]
    pairs = zip(found, steps, strict=True)
    lookups = [(classes.astype(np.int64) + 1) * step for classes, step in pairs]
    return lambda stride: _looked_up(lookups, codes, strided(labels.ravel(), stride))


def _looked_up(
    lookups: list[Counts], codes: Sequence[Codes], joint: Counts | None = None
) -> Spread:
    def spread(rows: Chunk) -> list[tuple[Counts, Counts | None]]:
        found = lookups[0][codes[0][rows]]
        for lookup, code in zip(lookups[1:], codes[1:], strict=True):
            found += lookup[code[rows]]
        return [(found if joint is None else joint[found], None)]

    return spread


def axis_of_unions(codes: Sequence[Codes], unions: Unions) -> Axis:
    """Return the axis of unions of cells: for every row, all the places that share its cell."""
    cells = axis_of_cells(codes, unions.cells)(1)
    inside = [np.flatnonzero(column) for column in unions.members.T]
    found = np.full((len(inside) + 1, max([1, *map(len, inside)])), -1)
    for cell, members in enumerate(inside):
        found[cell, : len(members)] = members

    def axis(stride: int) -> Spread:
        places = strided(found, stride)

        def spread(rows: Chunk) -> list[tuple[Counts, Counts | None]]:
            ((cell, _),) = cells(rows)
            return [(places[np.maximum(cell, -1)], None)]  # the last one is outside

        return spread

    return axis


def strided(classes: Classes, stride: int) -> Counts:
    """Return class numbers times a stride, and OUTSIDE for -1.

    >>> strided(np.array([0, 2, -1]), 10).tolist() == [0, 20, OUTSIDE]
    True
    """
    return np.where(classes < 0, OUTSIDE, classes.astype(np.int64) * stride)


def tally_rows(axes: Sequence[Axis], shape: tuple[int, ...], kept: Flags) -> Counts:
    """Add up what the rows that are kept add to every cell; every row is looked at.

    >>> codes = [np.array([0, 1, 2, 1], np.uint8), np.array([0, 0, 1, 1], np.uint8)]
    >>> cells = [Cells(("a",), (np.array([0, 1, -1]),)), Cells(("b",), (np.array([0, 1]),))]
    >>> axes = [axis_of_cells([code], each) for code, each in zip(codes, cells)]
    >>> tally_rows(axes, (2, 2), np.ones(4, dtype=bool))
    array([[1, 0],
           [1, 1]])
    """
    if not axes:
        return np.array(np.count_nonzero(kept), dtype=np.int64)
    tally = np.zeros(math.prod(shape), dtype=np.int64)
    spreads = _spreads(axes, shape)
    for chunk in _chunks(len(kept)):
        for terms in itertools.product(*(spread(chunk) for spread in spreads)):
            places = _flat([place for place, _ in terms], chunk)
            inside = (places >= 0) & kept[chunk]
            weight: Counts | int = 1
            for each in (each[inside] for _, each in terms if each is not None):
                weight = weight * each
            np.add.at(tally, places[inside], weight)
    return tally.reshape(shape)


def tally_units(axes: Sequence[Axis], shape: tuple[int, ...], kept: Flags, units: Codes) -> Counts:
    """Count the different units among the rows that are kept, by cell or union of cells.

    All rows of a unit are looked at together, so that it counts once wherever they are.

    >>> cells = Cells(("a",), (np.array([0, 1]),))
    >>> axis = axis_of_cells([np.array([0, 0, 1], np.uint8)], cells)
    >>> every = np.ones(3, dtype=bool)
    >>> tally_units([axis], (2,), every, np.array([4, 4, 4], np.uint32)).tolist()
    [1, 1]
    >>> both = Unions(cells, np.array([[True, True], [False, True]]))
    >>> axis = axis_of_unions([np.array([0, 0, 1], np.uint8)], both)
    >>> tally_units([axis], (2,), every, np.array([4, 4, 5], np.uint32)).tolist()
    [2, 1]
    """
    spreads, size = _spreads(axes, shape), math.prod(shape)
    rows = np.flatnonzero(kept)
    order = rows[np.argsort(units[rows], kind="stable")]
    owners = units[order].astype(np.int64)
    tally = np.zeros(size, dtype=np.int64)
    shared = math.prod(_places(spread, order[:0]).shape[1] for spread in spreads)
    for chunk in _chunks_of_units(owners, max(1, CHUNK // shared)):
        rows, owner = order[chunk], owners[chunk] - owners[chunk.start]
        places = np.zeros((len(rows), 1), dtype=np.int64)
        for spread in spreads:
            both = places[:, :, np.newaxis] + _places(spread, rows)[:, np.newaxis, :]
            places = both.reshape(len(rows), -1)
        inside = places >= 0
        who = np.broadcast_to(owner[:, np.newaxis], places.shape)
        tally += _different(places[inside], who[inside], size)
    return tally.reshape(shape)


def _places(spread: Spread, rows: Chunk) -> Counts:
    """Return where some rows fall on one axis, a row for each: in one place, or in several."""
    ((places, _),) = spread(rows)
    return places[:, np.newaxis] if places.ndim == 1 else places


def _chunks_of_units(owners: Counts, length: int) -> Iterator[slice]:
    """Ranges of about so many rows that are sorted by unit: whole units."""
    start = 0
    while start < len(owners):
        last = min(start + length, len(owners)) - 1
        stop = int(np.searchsorted(owners, owners[last], side="right"))
        yield slice(start, stop)
        start = stop


def _different(places: Counts, owners: Counts, size: int) -> Counts:
    """Count the different owners of every place."""
    count = int(owners.max(initial=-1)) + 1
    if count * size <= MARKS:
        marks = np.zeros((count, size), dtype=np.bool_)
        marks[owners, places] = True
        return np.asarray(marks.sum(axis=0, dtype=np.int64))
    pairs = np.unique(places * count + owners)
    return np.bincount(pairs // count, minlength=size).astype(np.int64)


def _spreads(axes: Sequence[Axis], shape: tuple[int, ...]) -> list[Spread]:
    return [axis(math.prod(shape[i + 1 :])) for i, axis in enumerate(axes)]


def _chunks(rows: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK)]


def _flat(places: Sequence[Counts], rows: slice) -> Counts:
    """Return the flat cell of every row of a chunk; negative where it is outside on any axis."""
    return sum(places, start=np.zeros(rows.stop - rows.start, dtype=np.int64))
