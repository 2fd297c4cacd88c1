"""Scopes: what names stand for in one SELECT, and in those around it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn, Protocol

from sqlglot import exp

from dpsql.errors import ProgrammingError, Span
from dpsql.logical.expressions import ColumnId, ColumnRef, Scalar
from dpsql.logical.nodes import Plan
from dpsql.records import dataclass, field


class NotYetBoundError(Exception):
    """A form of SQL that the binder has no rule for: no refusal, and nothing that a user sees."""


class StatementText(Protocol):
    """The text of a statement, for carets."""

    def span(self, start: int, end: int) -> Span:
        """The place between two characters."""


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """A column of a table: ``*`` leaves out what is hidden.

    One that is borrowed is a unit that rows have through another table, and yields to others.
    """

    name: str
    hidden: bool = False
    borrowed: bool = False


class BindingSchema(Protocol):
    """The tables that a statement may name, case-folded."""

    def columns(self, table: str) -> Sequence[SchemaColumn] | None:
        """The columns of a table; None: there is no such table."""

    def most_rows(self, view: str) -> int | None:
        """The rows of a view that each privacy unit has at most; None where none is declared."""


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column of what stands in FROM, or of a query: ``*`` leaves out what is hidden."""

    name: str
    column: ColumnId
    hidden: bool = False
    borrowed: bool = False


@dataclass(slots=True)
class ColumnNumbers:
    """The numbers of the columns of one plan, and its text, where anybody asks for places.

    ``selects`` are those by which groups are made, and sides of set operations, by columns;
    ``items`` are those that a column is worked out by.
    """

    fragment: StatementText | None
    selects: dict[ColumnId, exp.Select] = field(default_factory=dict)
    items: dict[ColumnId, exp.Expr] = field(default_factory=dict)
    _next: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self) -> ColumnId:
        """A number that no column has."""
        return ColumnId(next(self._next))

    def place(self, node: exp.Expr) -> Span | None:
        """The text of a node as far as the parser says: of the node itself, else of its parts.

        Without a text it is a place of its own, which is like no other.
        """
        if self.fragment is None:
            return Span("", 0, 0)
        metas = [each.meta for each in node.walk() if "start" in each.meta]
        if not metas:
            return None
        return self.fragment.span(
            min(meta["start"] for meta in metas), max(meta["end"] for meta in metas) + 1
        )

    def refuse(self, node: exp.Expr, code: str, message: str, hint: str) -> NoReturn:
        """Refuse a statement with a caret. Raises: ProgrammingError."""
        raise ProgrammingError(code, message, hint=hint, span=self.place(node))


class Correlation:
    """The columns around a sub-query that it mentions; each is a parameter of the sub-query.

    ``find`` returns what a column stands for around it, None where it stands for nothing.
    """

    def __init__(self, numbers: ColumnNumbers, find: Callable[[exp.Column], Scalar | None]) -> None:
        self.numbers = numbers
        self.find = find
        self.parameters: dict[Scalar, ColumnId] = {}

    def parameter(self, node: exp.Column) -> ColumnId | None:
        """The parameter for a column around the sub-query; None where there is no such column."""
        found = self.find(node)
        if found is None:
            return None
        if found not in self.parameters:
            self.parameters[found] = self.numbers.fresh()
        return self.parameters[found]

    def values(self) -> tuple[tuple[ColumnId, Scalar], ...]:
        """The parameters, each with its value around the sub-query."""
        return tuple((column, value) for value, column in self.parameters.items())


@dataclass(frozen=True, slots=True, eq=False)
class BoundSource:
    """An element of FROM by its alias: its columns, and its own plan."""

    name: str
    columns: tuple[BoundColumn, ...]
    plan: Plan


@dataclass(slots=True)
class BindScope:
    """The names of one SELECT: its sources in order, each with its columns.

    ``merged`` are the columns that USING and NATURAL made one of, by name.
    """

    numbers: ColumnNumbers
    around: Correlation | None = None
    sources: list[BoundSource] = field(default_factory=list)
    merged: dict[str, ColumnId] = field(default_factory=dict)

    def add(self, node: exp.Expr, alias: str, query: BoundQuery) -> None:
        """Add a source. Raises: ProgrammingError (E_UNKNOWN_TABLE) where its name is taken."""
        name = alias.casefold()
        if self.has(name):
            self.numbers.refuse(
                node, "E_UNKNOWN_TABLE", f"two tables in FROM are named {alias}", "rename one by AS"
            )
        self.sources.append(BoundSource(name, query.columns, query.plan))

    def visible(self, table: str = "") -> Iterator[tuple[str, BoundColumn]]:
        """The columns of the sources, or of the one that is named, each with its source."""
        for each in self.sources:
            if table in ("", each.name):
                yield from ((each.name, column) for column in each.columns)

    def own(self, node: exp.Column) -> ColumnId | None:
        """The column of this SELECT that a name stands for.

        Raises: ProgrammingError (E_UNKNOWN_COLUMN) where it may be one or another.
        """
        name, table = node.name.casefold(), node.table.casefold()
        if not table and name in self.merged:
            return self.merged[name]
        found = owned(each for _, each in self.visible(table) if each.name.casefold() == name)
        if len({each.column for each in found}) > 1:
            self.numbers.refuse(
                node,
                "E_UNKNOWN_COLUMN",
                f"column {node.name} is in several tables",
                f"write the table before it: {self._tables_with(name)}",
            )
        return found[0].column if found else None

    def own_ref(self, node: exp.Column) -> ColumnRef | None:
        """The column of this SELECT that a name stands for, where it is mentioned."""
        column = self.own(node)
        return None if column is None else ColumnRef(column, self.numbers.place(node))

    def find(self, node: exp.Column) -> ColumnRef | None:
        """The column that a name stands for, here or in a SELECT around this one."""
        column = self.own(node)
        if column is None and self.around is not None and not self.has(node.table):
            column = self.around.parameter(node)
        return None if column is None else ColumnRef(column, self.numbers.place(node))

    def refuse_unknown(self, node: exp.Column) -> NoReturn:
        """Refuse a name that stands for nothing. Raises: ProgrammingError."""
        if node.table and not self.has(node.table):
            known = ", ".join(each.name for each in self.sources if each.name)
            self.numbers.refuse(
                node,
                "E_UNKNOWN_TABLE",
                f"no table in FROM is named {node.table}",
                f"there are: {known}",
            )
        names = sorted({each.name for _, each in self.visible(node.table.casefold())})
        hint = f"there are: {', '.join(names)}" if names else "there is no FROM"
        self.numbers.refuse(node, "E_UNKNOWN_COLUMN", f"there is no column {node.name}", hint)

    def has(self, table: str) -> bool:
        """True if a source has this name."""
        return bool(table) and any(each.name == table.casefold() for each in self.sources)

    def _tables_with(self, column: str) -> str:
        tables = (name for name, each in self.visible() if each.name.casefold() == column)
        return " or ".join(f"{name}.{column}" for name in tables if name)


class Siblings(Correlation):
    """The columns that a sub-query in FROM sees: those around its SELECT, and none beside it.

    To mention that is LATERAL, which needs no word in DuckDB.
    """

    def __init__(self, scope: BindScope) -> None:
        super().__init__(scope.numbers, scope.own_ref)
        self.around = scope.around

    def parameter(self, node: exp.Column) -> ColumnId | None:
        """The parameter for a column around. Raises: NotYetBoundError for one beside."""
        if self.find(node) is not None:
            raise NotYetBoundError("LATERAL")
        return None if self.around is None else self.around.parameter(node)


@dataclass(slots=True)
class SharedQuery:
    """A CTE or a view: its query, the CTEs that it sees, and its plan once it is first named.

    ``view`` is the name of a view, of which the schema knows more than its query.
    """

    node: exp.Expr
    names: tuple[str, ...]
    seen: SharedQueries
    view: str = ""
    bound: BoundQuery | None = None


SharedQueries = Mapping[str, SharedQuery]


def owned(columns: Iterable[BoundColumn]) -> list[BoundColumn]:
    """Columns of one name without those that are borrowed, where others are among them."""
    found = list(columns)
    return [each for each in found if not each.borrowed] or found


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query as a plan, and the columns that it has."""

    plan: Plan
    columns: tuple[BoundColumn, ...]

    @property
    def shown(self) -> tuple[BoundColumn, ...]:
        """The columns of the result."""
        return tuple(each for each in self.columns if not each.hidden)


class QueryBinder(Protocol):
    """The binder of queries that stand in others."""

    numbers: ColumnNumbers

    def query(
        self, node: exp.Expr, shared: SharedQueries, around: Correlation | None
    ) -> BoundQuery:
        """The plan of a query. Raises: ProgrammingError; NotYetBoundError."""
