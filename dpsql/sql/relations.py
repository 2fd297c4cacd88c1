"""The elements of FROM as they are written, and the relations that they stand for.

A relation is rows of a private table, a SELECT that is measured, a public table or a table of the
outer shell. The one reader of FROM and JOIN is ``read_from``; who is given its elements says which
of them work there.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.catalog.catalog import PublicRows
from dpsql.errors import NotSupportedError, ProgrammingError, nearest, printable
from dpsql.records import dataclass, field
from dpsql.sql.query import Query
from dpsql.sql.shell.language import Locate
from dpsql.sql.shell.whole_numbers import INTEGERS
from dpsql.sql.text.misspelled_words import hint_of_text

_OF_THE_SYSTEM = ("information_schema", "pg_catalog")
WHOLE = "whole"
"""The mark of a join of whose rows those without a match are listed beside it."""
_KINDS = {"", "INNER", "CROSS", "OUTER"}
_CLAUSES = {"sample": ("E_SAMPLE", "sampling"), "joins": ("E_JOIN", "a nested join")}


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """The join of an element of FROM to those before it.

    ``method`` is NATURAL, ASOF or POSITIONAL, ``side`` LEFT, RIGHT or FULL where rows without a
    match stay; ``using`` are the columns that both have, ``on`` is the condition. One that
    ``is_whole`` is of ON alone, since the rows without a match are listed beside it.
    """

    node: exp.Join
    method: str
    side: str
    kind: str
    using: tuple[exp.Expr, ...]
    on: exp.Expr | None
    is_whole: bool = False

    @property
    def is_plain(self) -> bool:
        """True if its rows are the pairs of rows that meet the condition."""
        return not self.method and self.kind in _KINDS


@dataclass(frozen=True, slots=True, eq=False)
class FromElement:
    """One element of FROM as it is written: its alias, and the join that adds it."""

    alias: str
    node: exp.Expr
    join: Join | None = None


def read_from(select: exp.Expr) -> tuple[FromElement, ...]:
    """The elements of the FROM clause of a SELECT, in the order written."""
    clause = select.args.get("from_")
    joins = select.args.get("joins") or []
    if clause is None:
        return ()
    written = [(clause.this, None), *((join.this, _read_join(join)) for join in joins)]
    return tuple(FromElement(node.alias_or_name.casefold(), node, join) for node, join in written)


def _read_join(join: exp.Join) -> Join:
    method, side, kind = join.args.get("method") or "", join.side or "", join.kind or ""
    using = tuple(join.args.get("using") or ())
    on, is_whole = join.args.get("on"), WHOLE in join.meta
    return Join(join, str(method), side.upper(), kind.upper(), using, on, is_whole)


def find_clause(
    node: exp.Expr, known: Collection[str] = ("this", "alias", "db", "catalog")
) -> tuple[str, str, Any] | None:
    """The first clause of an element of FROM that is not ``known``: its code, name and value."""
    for key, value in node.args.items():
        if value and key not in known:
            return *_CLAUSES.get(key, ("E_STATEMENT", key.strip("_").upper())), value
    return None


def find_table(catalog: Catalog, node: exp.Table, others: Sequence[str], locate: Locate) -> Table:
    """The table of the catalog that a name in FROM stands for; ``others`` would work there, too.

    Raises: ProgrammingError (E_UNKNOWN_TABLE).
    """
    table = catalog.tables.get(node.name.casefold()) or catalog.derived.get(node.name.casefold())
    if table is None or node.args.get("db"):
        full = ".".join(part.name for part in node.parts)
        known = [*(each.name for each in catalog.tables.values()), *others]
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no table {printable(full)!r} in the catalog",
            hint=_suggest_table(node, known),
            span=locate(node),
        )
    return table


def rows_of(values: exp.Values) -> list[list[exp.Expr]]:
    """The rows of a VALUES list as they are written."""
    return [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A column by name: the expression it stands for.

    A ``hidden`` one, the column of the privacy unit, passes through ``*`` but is not shown by it.
    A ``borrowed`` one is a unit that rows have through another table: it yields to others.
    """

    name: str
    value: exp.Expr
    hidden: bool = False
    borrowed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PrivateRows:
    """Rows of one private table that public rows may be joined to: projected and filtered.

    ``names`` are the aliases in use within. ``plain`` is the table itself, as it is declared.
    """

    source: exp.Table
    joins: tuple[exp.Join, ...]
    where: tuple[exp.Expr, ...]
    fields: tuple[Field, ...]
    names: frozenset[str]
    plain: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredSelect:
    """A SELECT that aggregates the rows of a private table; it is measured where it is used.

    ``as_written`` says that it is the statement itself, over tables of the catalog.
    """

    query: Query
    node: exp.Expr
    as_written: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(output.name for output in self.query.shell.outputs)


@dataclass(frozen=True, slots=True, eq=False)
class PublicTable:
    """A public table of the catalog, not yet read."""

    table: Table
    node: exp.Table


@dataclass(frozen=True, slots=True)
class ColumnDerivative:
    """The derivative of a column by an aggregate of one select: ``origin`` tells of which cell.

    It is a column of its own unless it is ``one``.
    """

    origin: int
    aggregate: int
    one: bool


@dataclass(frozen=True, slots=True)
class ShellColumn:
    """A column of the shell: its name and DuckDB type; whether it depends on noisy numbers.

    ``error`` says that its standard error stands beside it. ``slopes`` are there where it is
    smooth arithmetic over noisy numbers. ``whole`` says that it is an integer to SQL, of whatever
    type.
    """

    name: str
    kind: str
    noisy: bool = False
    error: bool = False
    slopes: tuple[ColumnDerivative, ...] = ()
    whole: bool = False

    @property
    def is_whole(self) -> bool:
        """True if a column is an integer, by its type or as a noisy count is."""
        return self.whole or self.kind in INTEGERS

    @property
    def is_estimate(self) -> bool:
        """True if a column is an integer to SQL that noise has made a DOUBLE."""
        return self.whole and self.noisy and self.kind not in INTEGERS


@dataclass(frozen=True, slots=True)
class ShellTable:
    """A table of the shell: columns ``c0``, ``c1``, ..., errors ``e0``, ..., and an order ``i``.

    ``rows`` bounds the number of its rows; ``unique`` lists sets of columns that no two rows agree
    on. ``private`` says that it depends on a private table, ``chosen`` that noisy numbers decide
    which rows it has. ``origins`` are the selects whose cells are numbered in ``r0``, ...; slope 1
    of column 0 is ``d0_1``. ``listed`` tells, for columns that are public, the values of all rows
    that could be there: no more rows of it agree on such columns than these do. ``agreeing`` bounds
    how many rows agree on some columns, or how many combinations of others these have.
    """

    name: str
    traits: tuple[ShellColumn, ...]
    rows: int
    private: bool
    unique: tuple[frozenset[int], ...] = ()
    chosen: bool = False
    origins: tuple[int, ...] = ()
    listed: Callable[[], Mapping[int, Sequence[Any]]] = field(default=dict, compare=False)
    agreeing: Callable[[frozenset[int], frozenset[int] | None], int] = field(
        default=lambda known, wanted: sys.maxsize, compare=False
    )

    def traces(self) -> list[str]:
        """The columns that have the slopes in noisy numbers, and their origins."""
        return [*self.slope_names(), *(f"r{m}" for m in range(len(self.origins)))]

    def slope_names(self) -> list[str]:
        """The columns of slopes, in order."""
        return [
            f"d{index}_{part}"
            for index, trait in enumerate(self.traits)
            for part, slope in enumerate(trait.slopes)
            if not slope.one
        ]


Relation: TypeAlias = PrivateRows | MeasuredSelect | PublicTable | ShellTable


def names_within(relation: Relation, public: PublicRows) -> list[tuple[str, bool]]:
    """The columns of a relation by name, and whether they are hidden."""
    if isinstance(relation, PrivateRows):
        return [(each.name, each.hidden) for each in relation.fields]
    if isinstance(relation, PublicTable):
        return [(name, False) for name in public(relation.table)]
    if isinstance(relation, MeasuredSelect):
        return [(name, False) for name in relation.names]
    return [(trait.name, False) for trait in relation.traits]


def renamed(names: Sequence[str], alias: exp.Expr | None, locate: Locate) -> list[str]:
    """Column names after those of an alias such as ``t(a, b)``.

    Raises: NotSupportedError (E_STATEMENT) for more names than columns.
    """
    given = [] if alias is None else [c.name for c in alias.args.get("columns") or []]
    if alias is not None and len(given) > len(names):
        raise NotSupportedError(
            "E_STATEMENT",
            "more names than columns is not supported",
            hint="name the columns once",
            span=locate(alias),
        )
    return [*given, *names[len(given) :]]


def renamed_fields(
    fields: Sequence[Field], alias: exp.Expr | None, locate: Locate
) -> tuple[Field, ...]:
    """Columns under the names of an alias such as ``t(a, b)``; hidden ones keep theirs."""
    shown = iter(renamed([each.name for each in fields if not each.hidden], alias, locate))
    return tuple(f if f.hidden else Field(next(shown), f.value) for f in fields)


def column_of(name: str, table: str) -> exp.Column:
    """A column by the exact names of itself and its table."""
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(table, quoted=True))


def _suggest_table(node: exp.Table, known: list[str]) -> str:
    """The hint for a table that is not known, or not by this schema."""
    if node.text("db").casefold() in _OF_THE_SYSTEM:
        return "SHOW TABLES lists the tables of the catalog, DESCRIBE t the columns of one"
    for name in known:
        if node.args.get("db") and name.casefold() == node.name.casefold():
            return f"write {name}: tables of a catalog are in the schemas main and public"
    return suggest(node.name, known, "tables")


def suggest(name: str, known: list[str], kind: str) -> str:
    """The hint for a name that is not known: the nearest one, or all."""
    near = nearest(name.casefold(), [k.casefold() for k in known])
    if near is not None:
        return f"did you mean {next(k for k in known if k.casefold() == near)}?"
    return f"{kind}: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}"


def suggest_column(column: exp.Column, known: list[str]) -> str:
    """The hint for a column that is not known, which may be a text in other quotes."""
    hint = suggest(column.name, known, "columns")
    text = None if hint.startswith("did") else hint_of_text(column)
    return f"{text}; {hint}" if text else hint


PUBLIC = "public"
"""The mark of a literal that stands for a public value rather than for text of a statement."""


def as_literal(value: Any) -> exp.Expr | None:
    """A public value as a literal, None where it cannot be written as one.

    >>> as_literal(-3).sql(), as_literal("it's").sql()
    ('-3', "'it''s'")
    """
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return None
        number = exp.Literal.number(repr(abs(value)))
        return exp.Neg(this=number) if value < 0 else number
    if isinstance(value, str):
        text = exp.Literal.string(value)
        text.meta[PUBLIC] = True
        return text
    if isinstance(value, dt.date | dt.time):
        instant = isinstance(value, dt.datetime)
        kind = exp.DType.TIMESTAMP if instant else exp.DType.DATE
        kind = exp.DType.TIME if isinstance(value, dt.time) else kind
        text = exp.Literal.string(str(value))
        return exp.Cast(this=text, to=exp.DataType(this=kind))
    return None


def as_values(rows: Sequence[Sequence[Any]], names: Sequence[str], alias: str) -> exp.Expr | None:
    """Public rows as a VALUES list with names, None where a value cannot be written."""
    written = [[as_literal(value) for value in row] for row in rows]
    if any(value is None for row in written for value in row):
        return None
    columns = [exp.to_identifier(name, quoted=True) for name in names]
    return exp.Values(
        expressions=[exp.Tuple(expressions=row) for row in written],
        alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=columns),
    )


_TIMES: dict[object, type[dt.date] | type[dt.time]] = {
    exp.DType.DATE: dt.date,
    exp.DType.TIMESTAMP: dt.datetime,
    exp.DType.TIMESTAMPNTZ: dt.datetime,
    exp.DType.TIME: dt.time,
}


def read_literal(node: exp.Expr, refuse: Callable[[exp.Expr], NoReturn]) -> Any:
    """The value of a literal in a VALUES list; ``refuse`` says no to anything else."""
    inner = node.unnest()
    if isinstance(inner, exp.Null):
        return None
    if isinstance(inner, exp.Boolean):
        return bool(inner.this)
    if isinstance(inner, exp.Neg):
        value = read_literal(inner.this, refuse)
        if isinstance(value, int | float):
            return -value
    kind = _TIMES.get(inner.to.this) if isinstance(inner, exp.Cast) else None
    inner = inner.this if kind is not None else inner
    if isinstance(inner, exp.Literal):
        try:
            if kind is not None:
                return kind.fromisoformat(inner.name)
            if inner.is_string:
                return inner.name
            return int(inner.name) if inner.name.isdigit() else float(inner.name)
        except ValueError:
            pass
    refuse(node)


def common_type(values: Sequence[Any]) -> str:
    """The DuckDB type of a column of literals."""
    known = {type(value) for value in values if value is not None}
    for kinds, name in (
        ({bool}, "BOOLEAN"),
        ({int}, "BIGINT"),
        ({int, float}, "DOUBLE"),
        ({dt.date}, "DATE"),
        ({dt.datetime}, "TIMESTAMP"),
        ({dt.time}, "TIME"),
    ):
        if known and known <= kinds:
            return name
    return "VARCHAR"
