"""Columns that follow from the unit: all rows of a unit have one value of them.

A DISTINCT or GROUP BY of such columns has one row for each unit, whatever their domains are.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.catalog.catalog import Table
from dpsql.relation.unit_local import (
    DifferRows,
    FilterRows,
    FormulaRows,
    JoinRows,
    MapRows,
    MeetRows,
    PerKey,
    PerUnit,
    PickColumns,
    Scan,
    UnionRows,
    UnitLocal,
    WindowRows,
)


def follows(relation: UnitLocal, name: str, tables: Mapping[str, Table]) -> bool:
    """True if a column, case-folded, has one value in all rows of a unit, as tables declare it.

    Args:
        relation: steps that are followed down to the stored tables.
        name: case-folded column of the relation.
        tables: stored ones by case-folded name, whose units and keys decide.
    """
    match relation:
        case Scan() | UnionRows():
            return is_single(relation, tables)
        case JoinRows(left, right, prefix, on):
            start, by_unit = f"{prefix.casefold()}.", not on and is_single(right, tables)
            if name == relation.partner_of.casefold():
                return not on
            if not name.startswith(start):
                return follows(left, name, tables)
            if relation.outer:
                return by_unit
            return by_unit or follows(right, name.removeprefix(start), tables)
        case MapRows(rows, column, of) if column.name.casefold() == name:
            return all(follows(rows, each, tables) for each in of)
        case FormulaRows(rows, column) if column.name.casefold() == name:
            return all(follows(rows, each, tables) for each in relation.of)
        case DifferRows(rows, column, one, other) if column.name.casefold() == name:
            return follows(rows, one, tables) and follows(rows, other, tables)
        case PerUnit(rows, by):
            if name in by:
                return follows(rows, name, tables)
            return is_single(relation, tables)
        case PickColumns(rows, names):
            olds = [old for new, old in names if new.casefold() == name]
            return all(follows(rows, old, tables) for old in olds)
        case MeetRows(left):
            is_made = name == relation.partner_of.casefold()
            return not is_made and follows(left, name, tables)
        case WindowRows(rows, column):
            return column.name.casefold() != name and follows(rows, name, tables)
        case FilterRows(rows) | MapRows(rows) | DifferRows(rows) | FormulaRows(rows):
            return follows(rows, name, tables)


def is_single(relation: UnitLocal, tables: Mapping[str, Table]) -> bool:
    """True if a unit has one row at most, as tables declare it."""
    match relation:
        case Scan(table):
            return tables[table].unit.max_rows == 1
        case UnionRows():
            return False
        case JoinRows(left, right):
            return is_single(left, tables) and (relation.one or is_single(right, tables))
        case PerKey():
            return False
        case PerUnit(rows, by):
            return all(follows(rows, each, tables) for each in by)
        case PickColumns(rows) | WindowRows(rows) | FilterRows(rows):
            return is_single(rows, tables)
        case MeetRows(rows) | MapRows(rows) | DifferRows(rows) | FormulaRows(rows):
            return is_single(rows, tables)
