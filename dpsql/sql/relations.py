"""What stands in FROM: rows of a private table, rows of a public one, or a table of the shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.sql.language import Locate
from dpsql.sql.names import suggest
from dpsql.sql.query import Query
from dpsql.sql.whole import INTEGERS


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A column by name: the expression it stands for.

    A ``hidden`` one, the column of the privacy unit, passes through ``*`` but is not shown by it.
    """

    name: str
    value: exp.Expr
    hidden: bool = False


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
class Leaf:
    """A SELECT that aggregates the rows of a private table; it is measured where it is used."""

    query: Query
    node: exp.Expr

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
class Slope:
    """The derivative of a column by an aggregate of one select: ``origin`` tells of which cell.

    It is a column of its own unless it is ``one``.
    """

    origin: int
    aggregate: int
    one: bool


@dataclass(frozen=True, slots=True)
class Trait:
    """A column of the shell: its name and DuckDB type; whether it depends on noisy numbers.

    ``error`` says that its standard error stands beside it. ``slopes`` are there where it is
    smooth arithmetic over noisy numbers. ``whole`` says that it is an integer to SQL, of whatever
    type.
    """

    name: str
    kind: str
    noisy: bool = False
    error: bool = False
    slopes: tuple[Slope, ...] = ()
    whole: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is an integer, by its type or as a noisy count is."""
        return self.whole or self.kind in INTEGERS


@dataclass(frozen=True, slots=True)
class Known:
    """A table of the shell: columns ``c0``, ``c1``, ..., errors ``e0``, ..., and an order ``i``.

    ``rows`` bounds the number of its rows; ``unique`` lists sets of columns that no two rows agree
    on. ``private`` says that it depends on a private table, ``chosen`` that noisy numbers decide
    which rows it has. ``origins`` are the selects whose cells are numbered in ``r0``, ...; slope 1
    of column 0 is ``d0_1``.
    """

    name: str
    traits: tuple[Trait, ...]
    rows: int
    private: bool
    unique: tuple[frozenset[int], ...] = ()
    chosen: bool = False
    origins: tuple[int, ...] = ()

    def traces(self) -> list[str]:
        """The columns that say how it depends on noisy numbers."""
        return [*self.slope_names(), *(f"r{m}" for m in range(len(self.origins)))]

    def slope_names(self) -> list[str]:
        """The columns of slopes, in order."""
        return [
            f"d{index}_{part}"
            for index, trait in enumerate(self.traits)
            for part, slope in enumerate(trait.slopes)
            if not slope.one
        ]


Relation: TypeAlias = PrivateRows | Leaf | PublicTable | Known


@dataclass
class Names:
    """What the names of one SELECT stand for."""

    locate: Locate
    sources: list[tuple[str, tuple[Field, ...]]] = field(default_factory=list)
    shared: dict[str, exp.Expr] = field(default_factory=dict)
    parent: Names | None = None

    def add(self, alias: str, fields: Sequence[Field], node: exp.Expr) -> None:
        """Add a source; two of one name are refused."""
        if alias and alias in (known for known, _ in self.sources):
            raise ProgrammingError(
                "E_UNKNOWN_TABLE",
                f"two tables in FROM are named {printable(alias)!r}",
                hint="give each its own alias: FROM a AS one JOIN a AS two",
                span=self.locate(node),
            )
        self.sources.append((alias, tuple(fields)))

    def find(self, column: exp.Column, last: int | None = None) -> exp.Expr | None:
        """What a column stands for, None for an unqualified name that no source has.

        ``last`` looks at the first sources alone.
        Raises: ProgrammingError (E_UNKNOWN_TABLE, E_UNKNOWN_COLUMN).
        """
        name, qualifier = column.name.casefold(), column.table.casefold()
        sources = self.sources[:last]
        if column.args.get("db"):
            self.refuse_table(column, ".".join(part.name for part in column.parts[:-1]))
        if not qualifier and name in self.shared:
            return self.shared[name].copy()
        if qualifier:
            named = [fields for alias, fields in sources if alias == qualifier]
            if not named:
                self.refuse_table(column, column.table)
            sources = [(qualifier, named[0])]
        found = [each for _, fields in sources for each in _named(fields, name)]
        if len(found) > 1:
            raise ProgrammingError(
                "E_UNKNOWN_COLUMN",
                f"column {printable(column.name)!r} is ambiguous",
                hint=f"write {printable(sources[0][0] or 'table')}.{printable(column.name)}, "
                "and give columns of one table different names",
                span=self.locate(column),
            )
        if not found and qualifier:
            self.refuse_column(column)
        return found[0].value.copy() if found else None

    def refuse_column(self, column: exp.Column) -> NoReturn:
        """Refuse a name that nothing in this SELECT has."""
        if self.parent is not None:
            self.parent.refuse_correlation(column)
        known = [each.name for _, fields in self.sources for each in fields if not each.hidden]
        raise ProgrammingError(
            "E_UNKNOWN_COLUMN",
            f"there is no column {printable(column.sql('duckdb', comments=False))!r} here",
            hint=suggest(column.name, known, "columns"),
            span=self.locate(column),
        )

    def refuse_table(self, column: exp.Column, name: str) -> NoReturn:
        if self.parent is not None:
            self.parent.refuse_correlation(column)
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no table {printable(name)!r} in this statement",
            hint=suggest(name, [alias for alias, _ in self.sources if alias], "tables"),
            span=self.locate(column),
        )

    def refuse_correlation(self, column: exp.Column) -> None:
        """Refuse a column of a sub-query that belongs to the SELECT around it."""
        name, qualifier = column.name.casefold(), column.table.casefold()
        for alias, fields in self.sources:
            if qualifier in ("", alias) and any(f.name.casefold() == name for f in fields):
                raise ProgrammingError(
                    "E_SUBQUERY",
                    f"the sub-query depends on {printable(column.name)} of the SELECT around it",
                    hint="join the two on their keys instead",
                    span=self.locate(column),
                )
        if self.parent is not None:
            self.parent.refuse_correlation(column)

    def star(self, node: exp.Expr) -> list[Field]:
        """The columns that ``*`` or ``table.*`` stand for, hidden ones among them."""
        out: list[Field] = []
        merged: set[str] = set()
        qualifier = node.table.casefold() if isinstance(node, exp.Column) else ""
        if qualifier and qualifier not in (alias for alias, _ in self.sources):
            assert isinstance(node, exp.Column)
            self.refuse_table(node, node.table)
        for alias, fields in self.sources:
            if qualifier in ("", alias):
                for each in fields:
                    name = each.name.casefold()
                    if name in self.shared and not qualifier:
                        if name in merged:
                            continue
                        merged.add(name)
                        out.append(Field(each.name, self.shared[name].copy()))
                    else:
                        out.append(Field(each.name, each.value.copy(), each.hidden))
        return out


def _named(fields: Sequence[Field], name: str) -> list[Field]:
    """The columns of one source with a name; what is hidden yields to what is written."""
    found = [each for each in fields if each.name.casefold() == name]
    return [each for each in found if not each.hidden] or found


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


def find_alias(items: Sequence[exp.Expr], node: exp.Column) -> exp.Expr | None:
    """What an unqualified name stands for as the alias of a select item."""
    for item in items:
        named = isinstance(item, exp.Alias) and item.alias.casefold() == node.name.casefold()
        if named and not node.table:
            inner: exp.Expr = item.this
            return inner
    return None


def column_of(name: str, table: str) -> exp.Column:
    """A column by the exact names of itself and its table."""
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(table, quoted=True))
