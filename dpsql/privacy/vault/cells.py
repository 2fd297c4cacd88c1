"""Exact tallies from integer codes: mixed-radix cell numbers, whole weights, no floats."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from dpsql.plan.cells import Cells
from dpsql.privacy.vault.base import Classes, Codes, Counts

CHUNK = 1 << 18
OUTSIDE = -(1 << 48)


Spread = Callable[[slice], list[tuple[Counts, Counts | None]]]
"""For a range of rows, the cells that each adds to and how much (one, if None); outside is < 0."""

Axis = Callable[[int], Spread]
"""Where rows fall along one axis of a tally, in cell numbers times the stride of the axis."""


def axis_of_cells(codes: Sequence[Codes], cells: Cells) -> Axis:
    """Return the axis of cells of one column or of several; ``codes`` has one array per column."""
    if cells.labels is None:
        return lambda stride: _looked_up([strided(cells.classes[0], stride)], codes)
    # One more slot per column, for its rows that are in no class.
    labels = np.pad(cells.labels, [(1, 0)] * cells.labels.ndim, constant_values=-1)
    steps = [math.prod(labels.shape[i + 1 :]) for i in range(labels.ndim)]
    pairs = zip(cells.classes, steps, strict=True)
    lookups = [(classes.astype(np.int64) + 1) * step for classes, step in pairs]
    return lambda stride: _looked_up(lookups, codes, strided(labels.ravel(), stride))


def _looked_up(
    lookups: list[Counts], codes: Sequence[Codes], joint: Counts | None = None
) -> Spread:
    def spread(rows: slice) -> list[tuple[Counts, Counts | None]]:
        found = lookups[0][codes[0][rows]]
        for lookup, code in zip(lookups[1:], codes[1:], strict=True):
            found += lookup[code[rows]]
        return [(found if joint is None else joint[found], None)]

    return spread


def strided(classes: Classes, stride: int) -> Counts:
    """Return class numbers times a stride, and OUTSIDE for -1.

    >>> strided(np.array([0, 2, -1]), 10).tolist() == [0, 20, OUTSIDE]
    True
    """
    return np.where(classes < 0, OUTSIDE, classes.astype(np.int64) * stride)


def tally_rows(axes: Sequence[Axis], shape: tuple[int, ...], rows: int) -> Counts:
    """Add up what rows 0, 1, ..., ``rows`` - 1 add to every cell; every row is looked at.

    >>> codes = [np.array([0, 1, 2, 1], np.uint8), np.array([0, 0, 1, 1], np.uint8)]
    >>> cells = [Cells(("a",), (np.array([0, 1, -1]),)), Cells(("b",), (np.array([0, 1]),))]
    >>> axes = [axis_of_cells([code], each) for code, each in zip(codes, cells)]
    >>> tally_rows(axes, (2, 2), 4)
    array([[1, 0],
           [1, 1]])
    """
    if not axes:
        return np.array(rows, dtype=np.int64)
    tally = np.zeros(math.prod(shape), dtype=np.int64)
    spreads = _spreads(axes, shape)
    for chunk in _chunks(rows):
        for terms in itertools.product(*(spread(chunk) for spread in spreads)):
            places = _flat([place for place, _ in terms], chunk)
            inside = places >= 0
            weight: Counts | int = 1
            for each in (each[inside] for _, each in terms if each is not None):
                weight = weight * each
            np.add.at(tally, places[inside], weight)
    return tally.reshape(shape)


def tally_units(axes: Sequence[Axis], shape: tuple[int, ...], units: Codes) -> Counts:
    """Count the different units among the rows of every cell.

    >>> cells = Cells(("a",), (np.array([0, 1]),))
    >>> axis = axis_of_cells([np.array([0, 0, 1], np.uint8)], cells)
    >>> tally_units([axis], (2,), np.array([4, 4, 4], np.uint32)).tolist()
    [1, 1]
    """
    spreads, count = _spreads(axes, shape), int(units.max(initial=0)) + 1
    pairs = [np.zeros(0, dtype=np.int64)]
    for chunk in _chunks(len(units)):
        places = _flat([spread(chunk)[0][0] for spread in spreads], chunk)
        inside = places >= 0
        pairs.append(places[inside] * count + units[chunk][inside])
    sorted_pairs = np.sort(np.concatenate(pairs))
    is_first = np.diff(sorted_pairs, prepend=-1) > 0
    tally = np.zeros(math.prod(shape), dtype=np.int64)
    np.add.at(tally, sorted_pairs[is_first] // count, 1)
    return tally.reshape(shape)


def _spreads(axes: Sequence[Axis], shape: tuple[int, ...]) -> list[Spread]:
    return [axis(math.prod(shape[i + 1 :])) for i, axis in enumerate(axes)]


def _chunks(rows: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK)]


def _flat(places: Sequence[Counts], rows: slice) -> Counts:
    """Return the flat cell of every row of a chunk; negative where it is outside on any axis."""
    return sum(places, start=np.zeros(rows.stop - rows.start, dtype=np.int64))
