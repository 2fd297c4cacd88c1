"""Sub-queries of a SELECT of the outer shell: their values stand beside every row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.sql.names import Names
from dpsql.sql.relations import ShellTable
from dpsql.sql.shell.expressions import sql_of, written
from dpsql.sql.shell.language import Locate
from dpsql.sql.shell.whole_numbers import marked

MAX_LEFT = 5_000
"""Characters of what stands before IN, which the generated SQL repeats."""
HINT = "joins, WHERE, GROUP BY, windows, HAVING, ORDER BY and LIMIT work over aggregated results"


class HoistedSubqueries:
    """The sub-queries of one SELECT as columns ``h_...`` of tables of one row, joined to all rows.

    ``texts`` are their SQL by name, ``scalars`` the tables of those that are values, ``public``
    those that depend on no private table. ``listed`` bounds what IN compares a row with.
    """

    def __init__(
        self, query: Callable[[exp.Expr, Names], ShellTable], names: Names, private: bool
    ) -> None:
        self.query = query
        self.names = names
        self.private = private
        self.texts: dict[str, str] = {}
        self.scalars: dict[str, ShellTable] = {}
        self.public: set[str] = set()
        self.listed = 0

    def table(self, query: exp.Expr) -> ShellTable:
        """The table of a sub-query."""
        found = self.query(query, self.names)
        self.private = self.private or found.private
        return found

    def value_of(self, node: exp.Expr) -> exp.Expr:
        """A scalar sub-query, or EXISTS, as a column of one row that is joined to all."""
        inner = node.this if isinstance(node, exp.Exists) else node
        table = self.query(inner, self.names)
        self.private = self.private or table.private
        name = f"h_{table.name}"
        if isinstance(node, exp.Exists):
            return self.add(f"{name}_x", f"SELECT count(*) > 0 AS {{0}} FROM {table.name}", table)
        if len(table.traits) != 1:
            what = "a sub-query of several columns as a value"
            refuse(node, "E_SUBQUERY", what, "", self.names.locate)
        self.scalars[name] = table
        whole = table.traits[0].is_whole
        traced = "".join(f", any_value({each}) AS {name}_{each}" for each in table.traces())
        value = self.add(
            name,
            f"SELECT CASE WHEN count(*) = 1 THEN any_value(c0) END AS {{0}}{traced} "
            f"FROM {table.name}",
            table,
        )
        return marked(value, whole)

    def traces_of(self, name: str) -> list[str]:
        """The columns beside the value of a sub-query that say how it depends on noise."""
        table = self.scalars.get(name)
        return [] if table is None else [f"{name}_{each}" for each in table.traces()]

    def add(self, name: str, sql: str, table: ShellTable) -> exp.Column:
        if not table.private:
            self.public.add(name)
        self.texts[name] = sql.format(name)
        return exp.column(name)

    def membership(self, node: exp.In, left: Callable[[], exp.Expr]) -> exp.Expr:
        """``left`` IN (sub-query), with SQL's three truth values."""
        table = self.table(node.args["query"])
        if len(table.traits) != 1:
            what = "IN with a sub-query of several columns"
            refuse(node, "E_SUBQUERY", what, "", self.names.locate)
        tested = sql_of(left())
        if len(tested) > MAX_LEFT:
            what = "IN after so long an expression"
            refuse(node, "E_TOO_COMPLEX", what, "", self.names.locate)
        self.listed = max(self.listed, table.rows)
        rows, full, values = (f"h_{table.name}_{part}" for part in "nml")
        self.add(rows, f"SELECT count(*) AS {{0}} FROM {table.name}", table)
        self.add(full, f"SELECT count(c0) AS {{0}} FROM {table.name}", table)
        self.add(
            values,
            f"SELECT list(c0) FILTER (WHERE c0 IS NOT NULL) AS {{0}} FROM {table.name}",
            table,
        )
        text = (
            f"CASE WHEN {rows} = 0 THEN FALSE WHEN {tested} IS NULL THEN NULL "
            f"WHEN coalesce(list_contains({values}, {tested}), FALSE) THEN TRUE "
            f"WHEN {full} < {rows} THEN NULL ELSE FALSE END"
        )
        return exp.Paren(this=written(text, self.private))


def refuse(node: Any, code: str, what: str, hint: str, locate: Locate) -> NoReturn:
    """Refuse a part of a SELECT over tables of the shell by name."""
    first = node[0] if isinstance(node, list) else node
    raise NotSupportedError(
        code,
        f"{what} is not supported over aggregated results",
        hint=hint or HINT,
        span=locate(first) if isinstance(first, exp.Expr) else None,
    )
