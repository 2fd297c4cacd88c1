"""Lineage of the columns of a relation: the stored columns that decide on its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dpsql.catalog.catalog import Table
from dpsql.records import dataclass, replace
from dpsql.relation.unit_local import (
    DerivedTable,
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
    WindowRows,
    columns_of_test,
)

if TYPE_CHECKING:
    from dpsql.relation.unit_local import Summary, UnitLocal

Origin = tuple[str, str]
"""A stored column: the case-folded names of its table and of itself."""
Origins = frozenset[Origin]


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Lineage: stored columns behind those of a relation, by case-folded name, and behind its rows.

    ``read`` are the stored columns by which rows are chosen, grouped, ordered or summed up.
    """

    columns: Mapping[str, Origins]
    read: Origins

    def of(self, names: Iterable[str | None]) -> Origins:
        """The stored columns that some columns are made of."""
        none: Origins = frozenset()
        return none.union(*(self.columns.get(name or "", none) for name in names))


def trace(relation: UnitLocal, tables: Mapping[str, Table]) -> Ancestry:
    """Follow the columns of a relation back to those of ``tables``, by case-folded name."""
    match relation:
        case Scan(table):
            names = tables[table].columns
            return Ancestry({name: frozenset({(table, name)}) for name in names}, frozenset())
        case JoinRows(left, right):
            return _of_join(relation, trace(left, tables), trace(right, tables))
        case MeetRows(left, right, where=where):
            found = trace(left, tables)
            pairs = _of_join(relation.pairs(), found, trace(right, tables))
            return replace(found, read=pairs.read | pairs.of(columns_of_test(where)))
        case FilterRows(rows, where):
            found = trace(rows, tables)
            return replace(found, read=found.read | found.of(columns_of_test(where)))
        case PerUnit(rows):
            return _of_groups(relation, trace(rows, tables))
        case WindowRows(rows):
            return _of_window(relation, trace(rows, tables))
        case MapRows(rows, column, of):
            found = trace(rows, tables)
            return replace(found, columns={**found.columns, column.name.casefold(): found.of(of)})
        case DifferRows(rows, column, left, right):
            found = trace(rows, tables)
            both = found.of((left, right))
            return replace(found, columns={**found.columns, column.name.casefold(): both})
        case FormulaRows(rows, column):
            found, of = trace(rows, tables), relation.of
            return replace(found, columns={**found.columns, column.name.casefold(): found.of(of)})
        case UnionRows(parts):
            return _of_union([trace(each, tables) for each in parts])
        case PickColumns(rows, names):
            found = trace(rows, tables)
            return replace(found, columns={new.casefold(): found.of([old]) for new, old in names})


def _of_join(join: JoinRows, left: Ancestry, right: Ancestry) -> Ancestry:
    beside = {f"{join.name}.{name}".casefold(): found for name, found in right.columns.items()}
    return Ancestry({**left.columns, **beside}, left.read | right.read)


def _of_groups(groups: PerUnit, inner: Ancestry) -> Ancestry:
    sums = {each.column.name.casefold(): _of_summary(each, inner) for each in groups.columns}
    keys = {name: inner.of([name]) for name in groups.by}
    read = inner.read.union(*keys.values(), *sums.values())
    return Ancestry({**keys, **sums}, read)


def _of_summary(summary: Summary, inner: Ancestry) -> Origins:
    tested = () if summary.where is None else columns_of_test(summary.where)
    return inner.of([summary.of, summary.order, *tested])


def _of_window(window: WindowRows, inner: Ancestry) -> Ancestry:
    found = inner.of([window.of, *window.by, *(each.column for each in window.order)])
    columns = {**inner.columns, window.column.name.casefold(): found}
    return Ancestry(columns, inner.read | found)


def _of_union(parts: list[Ancestry]) -> Ancestry:
    none: Origins = frozenset()
    names = parts[0].columns
    columns = {name: none.union(*(part.of([name]) for part in parts)) for name in names}
    return Ancestry(columns, none.union(*(part.read for part in parts)))


def origins_of(table: Table, names: Iterable[str]) -> Origins:
    """The stored columns that decide on what is said of some columns of a table."""
    if not isinstance(table, DerivedTable):
        return frozenset((table.name.casefold(), name) for name in names)
    found = trace(table.relation, named(table.bases))
    return found.read | found.of(names)


def named(tables: Iterable[Table]) -> dict[str, Table]:
    """Tables by their case-folded names."""
    return {table.name.casefold(): table for table in tables}


def released_of(origins: Origins, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The domains and bounds of stored columns that had to be found, each with its release."""
    found = {(table, name): tables[table].columns[name].released for table, name in origins}
    return tuple(sorted(f"{table}.{name}@{head}" for (table, name), head in found.items() if head))
