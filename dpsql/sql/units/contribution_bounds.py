"""The rows of units that a statement lets count: of so many groups, or so many rows, each.

``max_groups_contributed = 2`` where a patient has several visits leaves, of each patient, the rows
in two of the groups that these are in, and ``max_rows_contributed = 3`` three of the rows, both by
lot. Such rows are a table like any other: quantiles and variances work on them, and what a unit
adds to a group may be bounded besides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange
from dpsql.logical.functions import SETS
from dpsql.records import replace
from dpsql.relation.unit_local import (
    Among,
    DerivedTable,
    FilterRows,
    UnitLocal,
    WindowRows,
    children,
)
from dpsql.sql.cells.cell_columns import FlatColumns
from dpsql.sql.cells.cell_tests import as_test
from dpsql.sql.inline import FlatFrom
from dpsql.sql.products import Compiler
from dpsql.sql.text.parse import Statement
from dpsql.sql.units.contribution_limits import GROUPS, ROWS, ContributionLimits
from dpsql.sql.units.local_tables import named_source, relation_of, table_of
from dpsql.sql.units.per_unit import group_keys, table_under


def groups_of(table: Table) -> int:
    """In how many groups the rows of a unit are, at most, where these were picked by group."""
    relation = table.relation if isinstance(table, DerivedTable) else None
    while relation is not None:
        if isinstance(relation, FilterRows) and isinstance(relation.rows, WindowRows):
            name, test = relation.rows.column.name.casefold(), relation.where
            is_number = isinstance(test, Among) and test.columns == (name,)
            if isinstance(test, Among) and is_number and relation.rows.kind == "part_number":
                return sum(test.cells)
        # what is worked out from rows of so many groups is of no others
        relation = next(iter(children(relation)), None)
    return table.unit.max_rows


def keep_groups(
    flat: FlatFrom,
    select: exp.Select,
    limits: ContributionLimits,
    statement: Statement,
    compiler: Compiler,
) -> exp.Select:
    """The SELECT over the rows that count, which ``flat`` is of from now on.

    Raises: NotSupportedError; ProgrammingError.
    """
    table = table_under(flat, compiler)
    if flat.joins:
        hint = "leave the option out, or join public rows by a unique key"
        flat.refuse(select, "E_JOIN", f"public rows beside {GROUPS} or {ROWS}", hint)
    columns = FlatColumns(flat.rows.source, table, statement.fragment, compiler)
    by = _keys(flat, select, columns) if limits.groups is not None else ()
    relation, tests = relation_of(table), flat.filters(select)
    if tests:
        test = as_test(flat.rows.source, tests, statement.fragment, compiler)
        relation = FilterRows(relation, test)
    relation, most = columns.over(relation), table.unit.max_rows
    if limits.rows is not None:
        # rows are numbered as lots are drawn, where nothing says how they are ordered
        relation = _first(
            WindowRows(relation, _number("row", columns, most), "row_number"), limits.rows
        )
        most = limits.rows
    if limits.groups is not None:
        known = columns.all()
        count = min(most, math.prod(known[name].size for name in by))
        number = _number("group", columns, count)
        relation = _first(WindowRows(relation, number, "part_number", by=by), limits.groups)
    label = table.name.split(" #")[0]
    found = table_of(compiler.catalog, relation, label, most, flat.locate(select))
    source = named_source(found.name, flat.rows.source.alias_or_name)
    flat.rows, flat.where = replace(flat.rows, source=source, where=(), plain=False), []
    bare = select.copy()
    bare.set("where", None)
    return bare


def refuse_sets(flat: FlatFrom, keys: Sequence[exp.Expr]) -> None:
    """Refuse CUBE and its like, which put a row in several groups."""
    for key in keys:
        if isinstance(key, SETS):
            what = f"{key.key.upper()} beside bounds of privacy units, or counts of keys,"
            hint = "GROUP BY columns, and a SELECT of its own for each level of groups"
            flat.refuse(key, "E_AGGREGATE", what, hint)


def _keys(flat: FlatFrom, select: exp.Select, columns: FlatColumns) -> tuple[str, ...]:
    """The columns, by case-folded name, whose cells tell the groups of a SELECT apart."""
    found = []
    for key in group_keys(flat, select):
        column = columns.find(flat.resolve(key))
        if column is None or column.domain is None:
            hint = "a column with a domain, or an expression over one"
            flat.refuse(key, "E_AGGREGATE", f"this key with {GROUPS}", hint)
        found.append(column.name.casefold())
    return tuple(dict.fromkeys(found))


def _number(of: str, columns: FlatColumns, most: int) -> Column:
    """The column that numbers rows or groups."""
    return Column(columns.fresh(f"{of} of unit"), "integer", IntegerRange(1, most))


def _first(window: WindowRows, most: int) -> UnitLocal:
    """The rows whose number is among the first ones."""
    count = window.column.size
    cells = b"\1" * min(most, count) + b"\0" * (count - most)
    return FilterRows(window, Among((window.column.name.casefold(),), cells))
