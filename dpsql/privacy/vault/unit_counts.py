"""Numbers that do not add up: units by cell or union of cells, and which of these have a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpsql.privacy.vault.data_engine import Codes, Counts, Flags
from dpsql.privacy.vault.owners import count_rows, share_units
from dpsql.privacy.vault.tally import CHUNK, Axis, Chunk, Spread, spread_out

MARKS = 1 << 24
"""Most pairs of a privacy unit and a cell that are marked one by one, not sorted."""


def tally_units(
    axes: Sequence[Axis],
    shape: tuple[int, ...],
    kept: Flags,
    units: Codes,
    folder: str | None = None,
) -> Counts:
    """Count the different units among the rows that are kept, by cell or union of cells.

    All rows of a unit are looked at together, so that it counts once wherever they are. What has to
    be known of every row is in a file in ``folder``, where there is one.

    >>> from dpsql.privacy.vault.tally import axis_of_cells, axis_of_unions
    >>> from dpsql.workload.cells import Cells, Unions
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
    spreads, size = spread_out(axes, shape), math.prod(shape)
    tally = np.zeros(size, dtype=np.int64)
    shared = math.prod(_places(spread, np.zeros(0, np.int64)).shape[1] for spread in spreads)
    most = int(units.max(initial=0)) + 1
    shares = share_units(units, kept, count_rows(units, kept, most), folder)
    for rows in map(shares.rows, range(len(shares))):
        order = rows[np.argsort(units[rows], kind="stable")]
        owners = units[order].astype(np.int64)
        for chunk in _chunks_of_units(owners, max(1, CHUNK // shared)):
            tally += _of_units(spreads, order[chunk], owners[chunk] - owners[chunk.start], size)
    return tally.reshape(shape)


def mark_cells(axes: Sequence[Axis], shape: tuple[int, ...], kept: Flags) -> Counts:
    """Say of every cell or union whether any of the rows that are kept is in it: 1 or 0.

    Every row is looked at. Guarantee: what a unit's rows change is 0 to 1, in cells that they are
    in: no more than they change the number of units there.

    >>> from dpsql.privacy.vault.tally import axis_of_cells
    >>> from dpsql.workload.cells import Cells
    >>> cells = Cells(("a",), (np.array([0, 1, 2]),))
    >>> axis = axis_of_cells([np.array([0, 0, 2], np.uint8)], cells)
    >>> mark_cells([axis], (3,), np.ones(3, dtype=bool)).tolist()
    [1, 0, 1]
    """
    spreads, marks = spread_out(axes, shape), np.zeros(math.prod(shape), dtype=np.bool_)
    shared = math.prod(_places(spread, np.zeros(0, np.int64)).shape[1] for spread in spreads)
    step = max(1, CHUNK // shared)
    for start in range(0, len(kept), step):
        chunk = slice(start, min(start + step, len(kept)))
        places = _together(spreads, chunk, chunk.stop - start)
        marks[places[(places >= 0) & kept[chunk, np.newaxis]]] = True
    return marks.astype(np.int64).reshape(shape)


def _together(spreads: Sequence[Spread], rows: Chunk, count: int) -> Counts:
    """Return all places of some rows in all their combinations, shape (rows, places)."""
    places = np.zeros((count, 1), dtype=np.int64)
    for spread in spreads:
        both = places[:, :, np.newaxis] + _places(spread, rows)[:, np.newaxis, :]
        places = both.reshape(count, -1)
    return places


def _of_units(spreads: Sequence[Spread], rows: Counts, owner: Counts, size: int) -> Counts:
    """Count the different owners of some rows, by place."""
    places = _together(spreads, rows, len(rows))
    inside = places >= 0
    who = np.broadcast_to(owner[:, np.newaxis], places.shape)
    return _different(places[inside], who[inside], size)


def _places(spread: Spread, rows: Chunk) -> Counts:
    """Return where some rows fall on one axis, a row for each: in one place, or in several."""
    (places,) = spread(rows).cells
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
