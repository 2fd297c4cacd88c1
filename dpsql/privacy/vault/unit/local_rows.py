"""The rows of a unit-local relation, worked out in numpy from the encoded rows of its tables.

Guarantee: each step maps rows of units to rows of units, one unit at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise

import numpy as np

from dpsql.catalog.catalog import Column, Table
from dpsql.interrupts import check
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.data_engine import Counts
from dpsql.privacy.vault.unit.relation_frame import (
    EncodedColumn,
    Frame,
    Key,
    add_product_column,
    holds,
    map_cells,
    tell_apart,
)
from dpsql.privacy.vault.unit.rows import EncodedRows, Rows, declared
from dpsql.privacy.vault.unit.shared_units import NOBODY, SharedUnits, number_together
from dpsql.privacy.vault.unit.unit_joins import join_rows, label, meet_rows
from dpsql.privacy.vault.unit.unit_numbers import Digest, Units, count_rows, edges_of, share_units
from dpsql.privacy.vault.unit.unit_sums import add_window, sum_up
from dpsql.records import dataclass, replace
from dpsql.relation.header import united_column
from dpsql.relation.unit_local import (
    MOST_OF_UNIT,
    DifferRows,
    FilterRows,
    FormulaRows,
    JoinRows,
    MapRows,
    MeetRows,
    PerUnit,
    PickColumns,
    Scan,
    UnionRows,
    UnitLocal,
    WindowRows,
    amounts,
    scanned,
)


@dataclass(frozen=True, slots=True)
class UnitTables:
    """The rows of some tables of one privacy unit, by case-folded name, and their units.

    Rows without a unit are NOBODY's.
    """

    frames: Mapping[str, Frame]
    people: SharedUnits

    def owned(self) -> dict[str, Frame]:
        """Return the rows that have a unit."""
        frames = self.frames.items()
        return {name: frame.take(np.flatnonzero(frame.units != NOBODY)) for name, frame in frames}

    def shares(self, relation: UnitLocal, room: SpillRoom) -> Iterator[tuple[int, UnitTables]]:
        """Yield the rows of some units after the other: the first of them, and all of theirs.

        No step of the relation makes more than GATHERED rows of them, or they are one unit. What is
        worked out for every row is in ``room``.
        """
        frames = {name: self.frames[name] for name in scanned(relation)}
        owned = {name: frame.units != NOBODY for name, frame in frames.items()}
        counts = {
            name: count_rows(frame.units, owned[name], self.people.count)
            for name, frame in frames.items()
        }
        edges = edges_of(np.maximum.reduce(amounts(relation, counts, _pairs_of_unit)))
        shares = {
            name: share_units(frame.units, owned[name], edges, room)
            for name, frame in frames.items()
        }
        for i, (first, last) in enumerate(pairwise(edges)):
            some = {name: _from(f.take(shares[name].rows(i)), first) for name, f in frames.items()}
            yield first, UnitTables(some, self.people.some(first, last))


def _from(frame: Frame, first: int) -> Frame:
    return replace(frame, units=frame.units - first)


def _pairs_of_unit(left: Counts, right: Counts) -> Counts:
    return np.minimum(left * np.maximum(right, 1), MOST_OF_UNIT)


def take_stock(tables: Sequence[Table], rows: Mapping[str, Rows], digest: Digest) -> UnitTables:
    """Number the units of tables together, and find those of rows that refer to others.

    Tables that refer stand after those they refer to.
    """
    anchored = [each for each in tables if each.unit.through is None]
    owners = [rows[each.name.casefold()].owners for each in anchored]
    people, units = number_together([each for each in owners if each is not None], digest)
    frames: dict[str, Frame] = {}
    for table, found in zip(anchored, units, strict=True):
        frames[table.name.casefold()] = _frame(table, rows[table.name.casefold()], found)
    for table in tables:
        way = table.unit.through
        if way is not None:
            raw = rows[table.name.casefold()]
            frame = _frame(table, raw, np.full(raw.count, NOBODY))
            owner = frames[way.table]
            own = [frame.keys[one.casefold()] for one, _ in way.on]
            their = [owner.keys[other.casefold()] for _, other in way.on]
            frames[table.name.casefold()] = label(frame, own, owner, their)
    return UnitTables(frames, people)


def _frame(table: Table, rows: Rows, units: Counts) -> Frame:
    lanes = {
        key: EncodedColumn(column, rows.codes.get(key), rows.places.get(key), rows.numbers.get(key))
        for key, column in declared(table).items()
    }
    return Frame(units, lanes, rows.keys)


def rows_of(
    table: Table, relation: UnitLocal, stock: UnitTables, room: SpillRoom | None = None
) -> Rows:
    """Return all rows of a relation as those of its table: worked out for some units at a time.

    Guarantee: as each step goes unit by unit, they are those of all units together.
    Raises: MemoryError; OSError for a disk that is full.
    """
    columns, count = declared(table), 0
    parts = EncodedRows(room)
    units = parts.room.spill()
    for first, some in stock.shares(relation, parts.room):
        frame = evaluate(relation, some)
        for key in columns:
            lane = frame.lanes[key]
            parts.put(key, lane.codes, lane.places, lane.numbers)
        units.add((frame.units + first).astype(np.uint32))
        count += frame.count
    owners = Units(units.array(), parts.room.flags(count), stock.people.names)
    return parts.rows(count, owners)


def evaluate(relation: UnitLocal, stock: UnitTables) -> Frame:
    """Return the rows of a relation, all of them."""
    check()
    match relation:
        case Scan(table):
            return stock.frames[table]
        case JoinRows(left, right):
            sides = evaluate(left, stock), evaluate(right, stock)
            return join_rows(relation, *sides, stock.people)
        case MeetRows(left, right):
            return meet_rows(relation, evaluate(left, stock), evaluate(right, stock), stock.people)
        case FilterRows(rows, where):
            frame = evaluate(rows, stock)
            return frame.take(np.flatnonzero(holds(where, frame)))
        case PerUnit(rows):
            return sum_up(relation, evaluate(rows, stock))
        case WindowRows(rows):
            return add_window(relation, evaluate(rows, stock), stock.people)
        case MapRows(rows):
            return map_cells(relation, evaluate(rows, stock))
        case DifferRows(rows):
            return tell_apart(relation, evaluate(rows, stock))
        case FormulaRows(rows):
            return add_product_column(relation, evaluate(rows, stock))
        case UnionRows(parts):
            return _together([evaluate(each, stock) for each in parts])
        case PickColumns(rows, names):
            return _picked(names, evaluate(rows, stock))


def _together(frames: Sequence[Frame]) -> Frame:
    """Return the rows of several frames with the same columns."""
    first = frames[0]
    lanes = {name: _joined([each.lanes[name] for each in frames]) for name in first.lanes}
    shared = set(first.keys).intersection(*(each.keys for each in frames))
    keys = {name: _joined_keys([each.keys[name] for each in frames]) for name in sorted(shared)}
    return Frame(np.concatenate([each.units for each in frames]), lanes, keys)


def _joined(given: Sequence[EncodedColumn]) -> EncodedColumn:
    column = reduce(united_column, [each.column for each in given])
    lanes = [_as(column, each) for each in given]
    codes = [each.codes for each in lanes if each.codes is not None]
    places = [each.places for each in lanes if each.places is not None]
    numbers = [each.numbers for each in lanes if each.numbers is not None]
    return EncodedColumn(
        column,
        np.concatenate(codes) if codes else None,
        np.concatenate(places) if places else None,
        np.concatenate(numbers) if numbers else None,
    )


def _as(column: Column, lane: EncodedColumn) -> EncodedColumn:
    """Return a lane as one of a column that may take NULL besides."""
    if column.null == lane.column.null:
        return replace(lane, column=column)
    count = len(next(x for x in (lane.codes, lane.numbers) if x is not None))
    return lane.nullable(column, np.zeros(count, dtype=np.bool_))


def _joined_keys(keys: Sequence[Key]) -> Key:
    return np.concatenate([n for n, _ in keys]), np.concatenate([known for _, known in keys])


def _picked(names: Sequence[tuple[str, str]], frame: Frame) -> Frame:
    lanes = {
        new.casefold(): replace(frame.lanes[old], column=replace(frame.lanes[old].column, name=new))
        for new, old in names
        if old in frame.lanes
    }
    keys = {new.casefold(): frame.keys[old] for new, old in names if old in frame.keys}
    return Frame(frame.units, lanes, keys)
