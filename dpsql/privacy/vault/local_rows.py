"""The rows of a unit-local relation, worked out in numpy from the encoded rows of its tables.

Guarantee: each step maps rows of units to rows of units, one unit at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from dpsql.catalog.catalog import Column, Table
from dpsql.catalog.formulas import FormulaRows
from dpsql.catalog.header import united_column
from dpsql.catalog.unit_local import (
    DifferRows,
    FilterRows,
    JoinRows,
    MapRows,
    MeetRows,
    PerUnit,
    PickColumns,
    Scan,
    UnionRows,
    UnitLocal,
    WindowRows,
)
from dpsql.interrupts import check
from dpsql.privacy.vault.data_engine import Counts
from dpsql.privacy.vault.frame import Frame, Key, Lane, holds, map_cells, tell_apart, work_out
from dpsql.privacy.vault.matching import join_rows, label, meet_rows
from dpsql.privacy.vault.owners import Digest
from dpsql.privacy.vault.people import NOBODY, People, number_together
from dpsql.privacy.vault.rows import Rows, declared
from dpsql.privacy.vault.summing import add_window, sum_up
from dpsql.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Stock:
    """The rows of some tables of one privacy unit, by case-folded name, and their units."""

    frames: Mapping[str, Frame]
    people: People


def take_stock(tables: Sequence[Table], rows: Mapping[str, Rows], digest: Digest) -> Stock:
    """Number the units of tables together, and find those of rows that refer to others.

    Tables that refer stand after those they refer to. Rows without a unit are left out.
    """
    anchored = [each for each in tables if each.unit.through is None]
    owners = [rows[each.name.casefold()].owners for each in anchored]
    people, units = number_together([each for each in owners if each is not None], digest)
    frames: dict[str, Frame] = {}
    for table, found in zip(anchored, units, strict=True):
        frame = _frame(table, rows[table.name.casefold()], found)
        owned = found != NOBODY
        frames[table.name.casefold()] = frame.take(np.flatnonzero(owned))
    for table in tables:
        way = table.unit.through
        if way is not None:
            raw = rows[table.name.casefold()]
            frame = _frame(table, raw, np.full(raw.count, NOBODY))
            owner = frames[way.table]
            own = [frame.keys[one.casefold()] for one, _ in way.on]
            their = [owner.keys[other.casefold()] for _, other in way.on]
            frames[table.name.casefold()] = label(frame, own, owner, their)
    return Stock(frames, people)


def _frame(table: Table, rows: Rows, units: Counts) -> Frame:
    lanes = {
        key: Lane(column, rows.codes.get(key), rows.places.get(key), rows.numbers.get(key))
        for key, column in declared(table).items()
    }
    return Frame(units, lanes, rows.keys)


def rows_of(table: Table, relation: UnitLocal, stock: Stock) -> Rows:
    """Return all rows of a relation as those of its table."""
    frame = evaluate(relation, stock)
    lanes = {key: frame.lanes[key] for key in declared(table)}
    return Rows(
        frame.count,
        {key: lane.codes for key, lane in lanes.items() if lane.codes is not None},
        {key: lane.places for key, lane in lanes.items() if lane.places is not None},
        {key: lane.numbers for key, lane in lanes.items() if lane.numbers is not None},
        stock.people.owners(frame.units),
    )


def evaluate(relation: UnitLocal, stock: Stock) -> Frame:
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
            return work_out(relation, evaluate(rows, stock))
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


def _joined(given: Sequence[Lane]) -> Lane:
    column = reduce(united_column, [each.column for each in given])
    lanes = [_as(column, each) for each in given]
    codes = [each.codes for each in lanes if each.codes is not None]
    places = [each.places for each in lanes if each.places is not None]
    numbers = [each.numbers for each in lanes if each.numbers is not None]
    return Lane(
        column,
        np.concatenate(codes) if codes else None,
        np.concatenate(places) if places else None,
        np.concatenate(numbers) if numbers else None,
    )


def _as(column: Column, lane: Lane) -> Lane:
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
