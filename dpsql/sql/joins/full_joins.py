"""Outer joins of private tables in two parts: rows with a partner, and those without.

FULL JOIN is an outer join, and the rows of its right side without a partner. A join by a unit that
is NULL in some rows leaves those alone. Both parts are rows of a unit made of rows of that unit
alone, and so is their union. Rows are bounded after it, as after every join.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Values
from dpsql.records import replace
from dpsql.relation.derive import bases_of
from dpsql.relation.header import Header, read_header
from dpsql.relation.lineage import named
from dpsql.relation.unit_local import (
    EXISTS,
    AllOf,
    Among,
    AnyOf,
    FilterRows,
    JoinRows,
    PickColumns,
    Test,
    UnionRows,
    UnitLocal,
    scanned,
)
from dpsql.sql.cells.cell_columns import mapped
from dpsql.sql.joins.joined_part import JoinedPart, Pairs, attached, free_names, is_lookup

_Picked = list[tuple[str, str]]


def joined_in_full(
    left: JoinedPart, right: JoinedPart, keys: Pairs, catalog: Catalog
) -> JoinedPart:
    """Join two parts by keys within a unit; rows of either stay that have no partner."""
    one, other = free_names([], left, right)
    first = attached(left, right, keys, True, one=is_lookup(left, right, keys), name=other)
    back = attached(right, left, flipped(keys), True, one=True, name=one)
    lone = FilterRows(back.relation, Among((f"{one}{EXISTS}".casefold(),), b"\1\0"))
    # without keys, all rows of a unit are in pairs
    most = most_in_full(left, right, keys) if keys else left.most * right.most
    return with_both(left, right, first.relation, lone, most, catalog)


def with_both(
    left: JoinedPart,
    right: JoinedPart,
    first: UnitLocal,
    lone: UnitLocal,
    most: int,
    catalog: Catalog,
) -> JoinedPart:
    """The rows of the left beside their partners, and of the right those that have none.

    Either is beside NULLs where it has none, called as ``free_names`` of both calls it.
    """
    one, other = free_names([], left, right)
    own, their = (header_of(each.relation, catalog) for each in (left, right))
    picked = [
        _picked((own, one, False), (their, other, True)),
        _picked((own, one, True), (their, other, False)),
    ]
    halves = (
        _always(PickColumns(first, tuple(picked[0])), one),
        _always(PickColumns(lone, tuple(picked[1])), other),
    )
    rows = UnionRows(halves)
    beside = JoinRows(rows, rows, one, outer=True)
    members = (
        *(each.below(beside) for each in left.members),
        *(each.below(replace(beside, name=other)) for each in right.members),
    )
    return JoinedPart(rows, members, None, most)


def apart(
    part: JoinedPart, there: Sequence[str], catalog: Catalog
) -> tuple[JoinedPart, JoinedPart]:
    """The rows of a part that have all of some tables, and the other ones.

    ``there`` are the columns that say so of every table.
    """
    columns = header_of(part.relation, catalog).columns
    missing = [b"\1" * columns[each].null for each in there]
    has = [Among((each,), b"\0\1" + bytes(len(m))) for each, m in zip(there, missing, strict=True)]
    lacks = [Among((each,), b"\1\0" + m) for each, m in zip(there, missing, strict=True)]
    return _filtered(part, AllOf(tuple(has))), _filtered(part, AnyOf(tuple(lacks)))


def without_rows(part: JoinedPart) -> JoinedPart:
    """A part of which no row is left, so that all columns of it are NULL in an outer join."""
    return _filtered(part, AnyOf(()))


def together(one: JoinedPart, other: JoinedPart) -> JoinedPart:
    """The rows of two parts with the same columns."""
    return replace(one, relation=UnionRows((one.relation, other.relation)))


def _filtered(part: JoinedPart, test: Test) -> JoinedPart:
    return replace(part, relation=FilterRows(part.relation, test))


def flipped(keys: Pairs) -> Pairs:
    return [(theirs, mine) for mine, theirs in keys]


def header_of(relation: UnitLocal, catalog: Catalog) -> Header:
    """The columns of a relation over tables of a catalog."""
    return read_header(relation, named(bases_of(catalog, scanned(relation))))


def _picked(*sides: tuple[Header, str, bool]) -> _Picked:
    """The columns of both sides under the name of their side, where some are so called already."""
    found: _Picked = []
    for header, name, is_beside in sides:
        before = f"{name.casefold()}." if is_beside else ""
        names = {key: column.name for key, column in header.columns.items()}
        for key, written in ({key: key for key in sorted(header.keys)} | names).items():
            found.append((f"{name}.{written}", f"{before}{key}"))
        if is_beside:
            exists = f"{name}{EXISTS}"
            found.append((exists, exists.casefold()))
    return found


def _always(rows: UnitLocal, name: str) -> UnitLocal:
    """The rows of one side, all of which it has."""
    column = Column(f"{name}{EXISTS}", "boolean", Values((False, True)))
    return replace(mapped(column, (), [True]), rows=rows)


def most_in_full(left: JoinedPart, right: JoinedPart, keys: Pairs) -> int:
    """Rows of a unit that has as many on both sides as it may: in pairs, or without partners."""
    is_one = is_lookup(left, right, keys) or is_lookup(right, left, flipped(keys))
    apart = left.most + right.most
    return apart if is_one else max(left.most * right.most, apart)
