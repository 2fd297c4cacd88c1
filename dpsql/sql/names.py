"""Names in one SELECT: columns of its tables, and aliases of its items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import ProgrammingError, Span, printable
from dpsql.records import dataclass, field
from dpsql.sql.relations import Field, suggest, suggest_column
from dpsql.sql.shell.language import Locate

Place = tuple[int, int]
"""The number of a table in FROM, and of a column in it."""


@dataclass
class Names:
    """The names in one SELECT, and the expressions that they stand for.

    ``sources`` are the aliases in FROM with their columns, ``shared`` the columns that USING
    merges, ``parent`` the names of the SELECT around it. ``home`` is the table that the hint for
    an ambiguous name suggests; the first one without it.
    """

    locate: Locate
    sources: list[tuple[str, tuple[Field, ...]]] = field(default_factory=list)
    shared: dict[str, exp.Expr] = field(default_factory=dict)
    parent: Names | None = None
    home: str = ""

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
        """The expression of a column, None for an unqualified name that no source has.

        ``last`` looks at the first sources alone.
        Raises: ProgrammingError (E_UNKNOWN_TABLE, E_UNKNOWN_COLUMN).
        """
        name, qualifier = column.name.casefold(), column.table.casefold()
        if column.args.get("db"):
            self.refuse_table(column, ".".join(part.name for part in column.parts[:-1]))
        if not qualifier and name in self.shared:
            return self.shared[name].copy()
        if qualifier and qualifier not in (alias for alias, _ in self.sources[:last]):
            self.refuse_table(column, column.table)
        place = self.place(column, last)
        if place is None and qualifier:
            self.refuse_column(column)
        return None if place is None else self.sources[place[0]][1][place[1]].value.copy()

    def place(self, column: exp.Column, last: int | None = None) -> Place | None:
        """The source and column that a name stands for; None where no source has it.

        Raises: ProgrammingError (E_UNKNOWN_COLUMN) for a name that stands for several columns.
        """
        name, qualifier = column.name.casefold(), column.table.casefold()
        found: list[Place] = []
        for number, (alias, fields) in enumerate(self.sources[:last]):
            if qualifier in ("", alias) and not (qualifier and found):
                found += [(number, index) for index in _named(fields, name)]
        own = [(number, i) for number, i in found if not self.sources[number][1][i].borrowed]
        found = own or found
        if len(found) > 1:
            self.refuse_ambiguous(column)
        return found[0] if found else None

    def refuse_ambiguous(self, column: exp.Column) -> NoReturn:
        """Refuse a name that several columns have."""
        name = printable(column.name)
        table = self.home or column.table.casefold() or self.sources[0][0] or "table"
        instead = "" if self.home else ", and give columns of one table different names"
        raise ProgrammingError(
            "E_UNKNOWN_COLUMN",
            f"column {name!r} is ambiguous",
            hint=f"write {printable(table)}.{name}{instead}",
            span=self.locate(column),
        )

    def refuse_column(self, column: exp.Column) -> NoReturn:
        """Refuse a name that nothing in this SELECT has."""
        if self.parent is not None:
            self.parent.refuse_correlation(column)
        known = [each.name for _, fields in self.sources for each in fields if not each.hidden]
        raise ProgrammingError(
            "E_UNKNOWN_COLUMN",
            f"there is no column {printable(column.sql('duckdb', comments=False))!r} here",
            hint=suggest_column(column, known),
            span=self.locate(column),
        )

    def refuse_table(self, column: exp.Column, name: str) -> NoReturn:
        if self.parent is not None:
            self.parent.refuse_correlation(column)
        known = [alias for alias, _ in self.sources if alias]
        raise unknown_table(name, known, self.locate(column))

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


def _named(fields: Sequence[Field], name: str) -> list[int]:
    """The columns of one source with a name; what is hidden yields to what is written."""
    found = [index for index, each in enumerate(fields) if each.name.casefold() == name]
    return [index for index in found if not fields[index].hidden] or found


def unknown_table(name: str, known: list[str], span: Span) -> ProgrammingError:
    """Return the refusal of a name that no table has, with the nearest ones that are written."""
    known = [each for each in known if not each.startswith(" ")]
    return ProgrammingError(
        "E_UNKNOWN_TABLE",
        f"there is no table {printable(name)!r} in this statement",
        hint=suggest(name, known, "tables"),
        span=span,
    )


def position_of(node: exp.Expr, count: int) -> int | None:
    """The index that a position such as GROUP BY 1 stands for; None where there is none."""
    position = int(node.name) if node.name.isdigit() else 0
    return position - 1 if 1 <= position <= count else None


def has_name(fields: Sequence[Field], name: str) -> bool:
    """True if a column of that name is among some."""
    return bool(_named(fields, name.casefold()))


def find_alias(items: Sequence[exp.Expr], node: exp.Column) -> exp.Expr | None:
    """The expression that an unqualified name stands for as the alias of a select item."""
    for item in items:
        named = isinstance(item, exp.Alias) and item.alias.casefold() == node.name.casefold()
        if named and not node.table:
            inner: exp.Expr = item.this
            return inner
        if isinstance(item, exp.Star | exp.Column) and not node.table:
            star = item if isinstance(item, exp.Star) else item.this
            given = star.args if isinstance(star, exp.Star) else {}
            own = [*(given.get("rename") or ()), *(given.get("replace") or ())]
            found = find_alias(own, node) if own else None
            if found is not None:
                return found
    return None


def written_key(
    node: exp.Expr, items: Sequence[exp.Expr], has: Callable[[exp.Column], object]
) -> exp.Expr:
    """A key of GROUP BY with a position or an alias written out; a column comes before an alias.

    >>> from sqlglot import parse_one
    >>> items = parse_one("SELECT a % 2 AS a, b AS c FROM t").expressions
    >>> keys = parse_one("SELECT 1 FROM t GROUP BY 2, a, c").args["group"].expressions
    >>> [written_key(key, items, lambda column: column.name in "ab").sql() for key in keys]
    ['b', 'a', 'b']
    """
    found: exp.Expr | None = None
    if isinstance(node, exp.Literal) and not node.is_string:
        place = position_of(node, len(items))
        found = None if place is None else items[place].unalias()
    elif isinstance(node, exp.Column):
        found = find_alias(items, node)
        found = None if found is not None and has(node) else found
    return node if found is None else found
