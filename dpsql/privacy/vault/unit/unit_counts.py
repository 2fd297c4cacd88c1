"""Numbers that do not add up: units by cell or union of cells, and which of these have a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.interrupts import check
from dpsql.privacy.vault.codes.distinct_integers import in_groups
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.codes.tally import CHUNK, Axis, Chunk, Spread, add_ones, spread_out
from dpsql.privacy.vault.data_engine import Codes, Counts, Flags
from dpsql.privacy.vault.unit.unit_numbers import count_rows, edges_of, share_units


def tally_units(
    axes: Sequence[Axis],
    shape: tuple[int, ...],
    kept: Flags,
    units: Codes,
    count: int,
    room: SpillRoom | None = None,
) -> Counts:
    """Count the different units among the rows that are kept, by cell or union of cells.

    Rows are looked at unit by unit, so that each counts once wherever they are. ``count`` is that
    of units; what has to be known of every row is in ``room``.

    >>> from dpsql.privacy.vault.codes.tally import axis_of_cells, axis_of_unions
    >>> from dpsql.workload.cells import Cells, Unions
    >>> cells = Cells(("a",), (np.array([0, 1]),))
    >>> axis = axis_of_cells([np.array([0, 0, 1], np.uint8)], cells)
    >>> every = np.ones(3, dtype=bool)
    >>> tally_units([axis], (2,), every, np.array([4, 4, 4], np.uint32), 5).tolist()
    [1, 1]
    >>> both = Unions(cells, np.array([[True, True], [False, True]]))
    >>> axis = axis_of_unions([np.array([0, 0, 1], np.uint8)], both)
    >>> tally_units([axis], (2,), every, np.array([4, 4, 5], np.uint32), 6).tolist()
    [2, 1]
    """
    spreads, size = spread_out(axes, shape), math.prod(shape)
    tally = np.zeros(size + 1, dtype=np.int64)  # the last one is of what is in no cell
    step = max(1, CHUNK // _shared(spreads))
    every = np.ones(len(units), dtype=np.bool_)
    edges = edges_of(count_rows(units, every, count))
    shares = share_units(units, every, edges, room or SpillRoom())
    for rows in map(shares.rows, range(len(shares))):
        order = rows[in_groups(units[rows])]
        owners = units[order]
        begun = np.zeros(size + 1, dtype=np.bool_)
        for start in range(0, len(rows), step):
            check()
            some = slice(start, min(start + step, len(rows)))
            begun &= start > 0 and bool(owners[start - 1] == owners[start])
            places = _together(spreads, order[some], some.stop - start)
            inside = (places >= 0) & kept[order[some], np.newaxis]
            _add_different(tally, begun, np.where(inside, places, size), owners[some])
    return tally[:-1].reshape(shape)


def _add_different(tally: Counts, begun: Flags, places: Counts, owners: Codes) -> None:
    """Add one to a place for every unit among those of rows (rows,) sorted by unit.

    ``places`` (rows, places) are places of ``tally``. ``begun`` says where the first unit has been
    counted already, and afterwards where the last one has. Guarantee: what is done depends on how
    many rows and places there are, not on units and places.
    """
    last = len(tally) - 1
    numbers = np.append(0, np.cumsum(owners[1:] != owners[:-1]))
    bits = len(owners).bit_length()
    pairs = np.sort(((places << bits) | numbers[:, np.newaxis]).ravel())
    is_new = np.append(True, pairs[1:] != pairs[:-1])
    found, owner = pairs >> bits, pairs & ((1 << bits) - 1)
    is_new &= (owner > 0) | ~begun[found]
    add_ones(tally, np.where(is_new, found, last))
    begun &= bool(numbers[-1] == 0)
    begun[np.where(owner == numbers[-1], found, last)] = True


def mark_cells(axes: Sequence[Axis], shape: tuple[int, ...], kept: Flags) -> Counts:
    """Say of every cell or union whether any of the rows that are kept is in it: 1 or 0.

    Every row is looked at. Guarantee: what a unit's rows change is 0 to 1, in cells that they are
    in: no more than they change the number of units there.

    >>> from dpsql.privacy.vault.codes.tally import axis_of_cells
    >>> from dpsql.workload.cells import Cells
    >>> cells = Cells(("a",), (np.array([0, 1, 2]),))
    >>> axis = axis_of_cells([np.array([0, 0, 2], np.uint8)], cells)
    >>> mark_cells([axis], (3,), np.ones(3, dtype=bool)).tolist()
    [1, 0, 1]
    """
    spreads, size = spread_out(axes, shape), math.prod(shape)
    marks = np.zeros(size + 1, dtype=np.bool_)
    step = max(1, CHUNK // _shared(spreads))
    for start in range(0, len(kept), step):
        check()
        chunk = slice(start, min(start + step, len(kept)))
        places = _together(spreads, chunk, chunk.stop - start)
        marks[np.where((places >= 0) & kept[chunk, np.newaxis], places, size)] = True
    return marks[:-1].astype(np.int64).reshape(shape)


def _shared(spreads: Sequence[Spread]) -> int:
    """Count the places that a row may be in."""
    return math.prod(_places(spread, np.zeros(0, np.int64)).shape[1] for spread in spreads)


def _together(spreads: Sequence[Spread], rows: Chunk, count: int) -> Counts:
    """Return all places of some rows in all their combinations, shape (rows, places)."""
    places = np.zeros((count, 1), dtype=np.int64)
    for spread in spreads:
        both = places[:, :, np.newaxis] + _places(spread, rows)[:, np.newaxis, :]
        places = both.reshape(count, -1)
    return places


def _places(spread: Spread, rows: Chunk) -> Counts:
    """Return where some rows fall on one axis, a row for each: in one place, or in several."""
    (places,) = spread(rows).cells
    return places[:, np.newaxis] if places.ndim == 1 else places
