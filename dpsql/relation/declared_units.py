"""Keys each value of which belongs to one privacy unit, by declaration, among those of a table."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.catalog.catalog import Table
from dpsql.relation.lineage import named
from dpsql.relation.unit_local import (
    DerivedTable,
    DifferRows,
    FilterRows,
    JoinRows,
    MapRows,
    MeetRows,
    PerKey,
    PickColumns,
    Scan,
    UnitLocal,
    WindowRows,
)


def unit_keys_of(table: Table) -> frozenset[str]:
    """Return the unit keys of a table, stored or derived, by case-folded name.

    Those of a union are none: a key of one side may be that of another unit on the other.
    """
    if isinstance(table, DerivedTable):
        return _of(table.relation, named(table.bases))
    return frozenset(name.casefold() for name in table.unit_keys)


def _of(relation: UnitLocal, tables: Mapping[str, Table]) -> frozenset[str]:
    match relation:
        case Scan(table):
            return unit_keys_of(tables[table])
        case JoinRows(left, right):
            beside = {f"{relation.name.casefold()}.{name}" for name in _of(right, tables)}
            return _of(left, tables) | beside
        case MeetRows(left):
            return _of(left, tables)
        case FilterRows(rows) | WindowRows(rows) | MapRows(rows) | DifferRows(rows):
            return _of(rows, tables)
        case PerKey(rows):
            return _of(rows, tables).intersection(relation.keys)
        case PickColumns(rows, names):
            known = _of(rows, tables)
            return frozenset(new.casefold() for new, old in names if old in known)
    return frozenset()
