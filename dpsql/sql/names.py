"""The names of one SELECT: its private table, the public rows joined to it, and their columns."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Column, Table
from dpsql.errors import NotSupportedError, ProgrammingError, Span, printable
from dpsql.sql.clauses import Cut
from dpsql.sql.edges import check_growth, undeclared
from dpsql.sql.language import PARTIAL, check_scalar
from dpsql.sql.lexemes import Fragment
from dpsql.sql.literals import as_literal
from dpsql.sql.query import Condition, Expression
from dpsql.sql.whole import INTEGERS

PublicRows = Callable[[Table], dict[str, tuple[str, list[Any]]]]
"""Reads a public table: column name to its DuckDB type and values."""


@dataclass
class Joined:
    """Public rows in FROM: their columns by case-folded name, and the private column they fit."""

    alias: str
    columns: dict[str, int]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    keep: bool
    span: Span
    carrier: str | None = None
    shared: set[str] = field(default_factory=set)
    tests: list[exp.Expr] = field(default_factory=list)


@dataclass
class Scope:
    """What the names in one SELECT stand for.

    ``known`` are conditions that were bound before, by table, aliases and tree.
    """

    fragment: Fragment
    catalog: Catalog
    table: Table
    aliases: set[str]
    joined: list[Joined] = field(default_factory=list)
    clips: dict[int, tuple[float, float]] = field(default_factory=dict)
    cut: Cut | None = None
    where: list[exp.Expr] = field(default_factory=list)
    known: dict[Hashable, Condition] = field(default_factory=dict)

    def clip_of(self, node: exp.Expr) -> tuple[float, float] | None:
        """The contribution bounds written after the argument of an aggregate."""
        if not self.clips or node.this is None:
            return None
        end = self.locate(node.this).end
        start = self.locate(node.this).start
        text = self.fragment.text
        for place, bounds in self.clips.items():
            if start < place and not text[end:place].strip(" \t\r\n)"):
                return bounds
        return None

    def cut_of(self, column: Column) -> tuple[float, float] | None:
        """The bounds of the column whose values are clipped in the whole statement."""
        here = (self.table.name.casefold(), column.name.casefold())
        if self.cut is None or here != (self.cut.table, self.cut.column):
            return None
        bounds = column.number_bounds
        assert bounds is not None
        return float(bounds[0]), min(float(bounds[1]), self.cut.level)

    def locate(self, node: exp.Expr) -> Span:
        """The span of text that ``node`` was parsed from, as well as the parser remembers it."""
        return locate(node, self.fragment)

    def refuse(self, value: object, code: str, what: str, hint: str | None = None) -> NoReturn:
        """Refuse a clause by name."""
        node = value[0] if isinstance(value, list) else value
        raise NotSupportedError(
            code,
            f"{what} is not supported",
            hint=hint or "one private table with WHERE, GROUP BY, HAVING, ORDER BY, LIMIT works",
            span=self.locate(node) if isinstance(node, exp.Expr) else None,
        )

    def columns(self, node: exp.Expr) -> dict[str, Column]:
        """The private columns that ``node`` depends on, by case-folded name."""
        found = {}
        for reference in node.find_all(exp.Column):
            column = self.find_column(reference)
            found[column.name.casefold()] = column
        return found

    def find_column(
        self, reference: exp.Column, *, measure: bool = False, summed: bool = False
    ) -> Column:
        """The private column a reference depends on: its own, or the one public rows fit.

        Raises: ProgrammingError (E_UNKNOWN_TABLE, E_UNKNOWN_COLUMN, E_DOMAIN).
        """
        public = self.find_public(reference)
        if public is not None:
            joined = public[0]
            if joined.carrier is None:
                raise NotSupportedError(
                    "E_JOIN",
                    f"{printable(joined.alias)} is not joined to a column of {self.table.name}",
                    hint=f"JOIN {self.table.name} ON column = {joined.alias}.column",
                    span=self.locate(reference),
                )
            return self.table.columns[joined.carrier]
        name, qualifier = reference.name, reference.table
        column = self.table.columns.get(name.casefold())
        if qualifier and qualifier.casefold() not in self.aliases:
            known = sorted([*self.aliases, *(j.alias for j in self.joined)])
            raise ProgrammingError(
                "E_UNKNOWN_TABLE",
                f"there is no table {printable(qualifier)!r} in this statement",
                hint=suggest(qualifier, known, "tables"),
                span=self.locate(reference),
            )
        if column is None and self.is_unit(reference):
            raise NotSupportedError(
                "E_DOMAIN",
                f"{printable(name)} is the privacy unit: it can be counted and nothing else",
                hint=f"COUNT(DISTINCT {printable(name)}) works",
                span=self.locate(reference),
            )
        if column is None:
            declared = [c.name for c in self.table.columns.values()]
            raise ProgrammingError(
                "E_UNKNOWN_COLUMN",
                f"there is no column {printable(name)!r} in table {self.table.name}",
                hint=suggest(name, declared, "columns"),
                span=self.locate(reference),
            )
        if column.domain is None and not (measure and column.bounds is not None):
            if summed:
                raise ProgrammingError(
                    "E_NO_BOUNDS",
                    f"column {column.name} has no bounds: one row could change its sum by anything",
                    hint=f"declare bounds = [lowest, highest] for {column.name} in the catalog",
                    span=self.locate(reference),
                )
            reason = "is a measure with bounds" if column.bounds else "has no declared domain"
            raise ProgrammingError(
                "E_DOMAIN",
                f"column {column.name} {reason}: it cannot be used in a predicate or GROUP BY",
                hint="declare a domain (or bins) for it in the catalog",
                span=self.locate(reference),
            )
        return column

    def find_public(self, reference: exp.Column) -> tuple[Joined, int] | None:
        """The public column a reference names, if it names one.

        Raises: ProgrammingError (E_UNKNOWN_COLUMN) for a name that stands for several columns.
        """
        name, qualifier = reference.name.casefold(), reference.table.casefold()
        if qualifier:
            for joined in self.joined:
                if joined.alias == qualifier and name in joined.columns:
                    return joined, joined.columns[name]
            return None
        found = [
            (j, j.columns[name]) for j in self.joined if name in j.columns and name not in j.shared
        ]
        if len(found) + (name in self.table.columns or self.is_unit(reference)) > 1:
            raise ProgrammingError(
                "E_UNKNOWN_COLUMN",
                f"column {printable(reference.name)!r} is ambiguous",
                hint=f"write {sorted(self.aliases)[0]}.{printable(reference.name)}",
                span=self.locate(reference),
            )
        return found[0] if found else None

    def is_public(self, reference: exp.Column) -> bool:
        """Whether a reference names a column of public rows."""
        return self.find_public(reference) is not None

    def is_integer(self, reference: exp.Column) -> bool:
        """Whether a column holds integers to SQL; truth values count as such."""
        public = self.find_public(reference)
        if public is not None:
            return public[0].types[public[1]] in INTEGERS
        column = self.table.columns.get(reference.name.casefold())
        return column is not None and column.type in ("integer", "boolean")

    def written_out(self, node: exp.Expr) -> Iterator[exp.Expr]:
        """A node as it is, or for every public row with the values of that row in it.

        Nothing where it depends on public rows alone.
        """
        found = {id(r): self.find_public(r) for r in node.find_all(exp.Column)}
        joined = next((each[0] for each in found.values() if each is not None), None)
        if joined is None:
            yield node
        if joined is None or None not in found.values():
            return
        used = sorted({each[1] for each in found.values() if each is not None})
        for row in dict.fromkeys(tuple(row[k] for k in used) for row in joined.rows):
            yield self.with_values(node, dict(zip(used, row, strict=True)))

    def with_values(self, node: exp.Expr, values: dict[int, Any]) -> exp.Expr:
        """A copy of a node with the values of one public row instead of its columns."""
        tree = exp.paren(node.copy())
        for reference in list(tree.find_all(exp.Column)):
            public = self.find_public(reference)
            if public is not None:
                value = values[public[1]]
                reference.replace(as_literal(value) or exp.Literal.string(str(value)))
        tree.parent = node.parent
        return tree

    def is_unit(self, reference: exp.Column) -> bool:
        """Whether a name is that of the column of the privacy unit."""
        unit, alias = self.table.unit.column, reference.table.casefold()
        named = unit is not None and reference.name.casefold() == unit.casefold()
        return named and (not alias or alias in self.aliases)

    def single_column(self, node: exp.Expr, code: str, what: str, instead: str) -> Column | None:
        """The one column that ``node`` depends on, or None; refuse two."""
        check_scalar(node, self.locate)
        columns = self.columns(node)
        if len(columns) > 1:
            raise NotSupportedError(
                code,
                f"{what} is not supported ({', '.join(sorted(c.name for c in columns.values()))})",
                hint=instead,
                span=self.locate(node),
            )
        only = next(iter(columns.values()), None)
        check_growth(only, node, self.locate)
        return only

    def expression(self, column: Column | None, node: exp.Expr) -> Expression:
        """Render ``node`` over the name ``v``; partial functions must not give NaN."""
        if column is None:
            return Expression(None, self.render(node), self.locate(node))
        absent = undeclared(column, node, self.is_public)
        name = column.name.casefold()
        return Expression(name, self.render(node), self.locate(node), undeclared=absent)

    def render(self, node: exp.Expr) -> str:
        """SQL over ``v`` and the public columns ``p0``, ``p1``, ...."""
        tree = node.copy()
        for reference in list(tree.find_all(exp.Column)):
            public = self.find_public(reference)
            value = exp.column("v" if public is None else f"p{public[1]}")
            if reference is tree:
                tree = value
            else:
                reference.replace(value)
        for partial in list(tree.find_all(*PARTIAL)):
            text = partial.sql("duckdb", comments=False)
            guarded = exp.Var(
                this=f"(CASE WHEN isnan(CAST({text} AS DOUBLE)) THEN error('not a number') "
                f"ELSE {text} END)"
            )
            if partial is tree:
                tree = guarded
            elif partial.find_ancestor(*PARTIAL) is None:
                partial.replace(guarded)
        return str(tree.sql("duckdb", comments=False, copy=False))


def locate(node: exp.Expr, fragment: Fragment) -> Span:
    """The span of text that ``node`` was parsed from, as well as the parser remembers it."""
    metas = [part.meta for part in node.walk() if "start" in part.meta]
    if not metas:
        parent = node.parent
        return locate(parent, fragment) if parent is not None else fragment.span(0, 1)
    start = min(meta["start"] for meta in metas)
    return fragment.span(start, max(meta["end"] for meta in metas) + 1)


def suggest_table(node: exp.Table, known: list[str]) -> str:
    """The hint for a table that is not known: a name with a schema is never right."""
    for name in known:
        if node.args.get("db") and name.casefold() == node.name.casefold():
            return f"write {name} alone: tables of a catalog are in no schema"
    return suggest(node.name, known, "tables")


def suggest(name: str, known: list[str], kind: str) -> str:
    """The hint for a name that is not known: the nearest one, or all."""
    near = difflib.get_close_matches(name.casefold(), [k.casefold() for k in known], n=1)
    if near:
        return f"did you mean {next(k for k in known if k.casefold() == near[0])}?"
    return f"{kind}: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}"
