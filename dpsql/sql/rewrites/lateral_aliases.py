"""Names of earlier select items in later ones and in WHERE, as DuckDB and Snowflake take them.

A column of the tables comes before a select item of that name. What a name stands for is written
in its place before anything else is done, so that the statement means what it would mean with the
expression typed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from sqlglot import exp

from dpsql.catalog.catalog import PublicRows
from dpsql.errors import ProgrammingError
from dpsql.sql.names import find_alias
from dpsql.sql.relations import FromElement, Relation, names_within
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import Locate, over_parts

MAX_SIZE = 20_000
"""Most nodes of a SELECT after names are replaced: each item may double the one before it."""


def expand_aliases(
    select: exp.Select, columns: Callable[[], Collection[str]], locate: Locate
) -> exp.Select:
    """Return a SELECT whose items and WHERE name no other item.

    ``columns`` gives the case-folded names of the columns of its tables, asked only where needed.
    Raises: ProgrammingError (E_TOO_COMPLEX).

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT a / 2 AS h, h + 1 AS k, COUNT(*) FROM t WHERE h > b GROUP BY h, k")
    >>> expand_aliases(tree, lambda: {"a", "b"}, lambda node: (0, 0)).sql()
    'SELECT a / 2 AS h, (a / 2) + 1 AS "k", COUNT(*) FROM t WHERE (a / 2) > b GROUP BY h, k'
    """
    named = named_items(select)
    taken = named.difference(columns()) if named else named
    if not taken:
        return select
    names, where = _Names(taken, locate), select.args.get("where")
    for item in select.expressions:
        names.items.append(names.item(item))
    changed: dict[str, Any] = {"expressions": names.items}
    if where is not None:
        changed["where"] = exp.Where(this=names.replace(where.this))
    out = exp.Select(**{**select.args, **changed})
    out.meta.update(select.meta)
    return out


def named_items(select: exp.Select) -> set[str]:
    """The case-folded aliases of items that items or WHERE name; tables may have such columns."""
    items, where = select.expressions, select.args.get("where")
    aliases = {each.alias.casefold() for each in items if isinstance(each, exp.Alias)}
    parts = [*items, *([] if where is None else [where])] if aliases else []
    return aliases & {name for part in parts for name in _named(part)}


def columns_of(found: Iterable[tuple[FromElement, Relation]], public: PublicRows) -> set[str]:
    """The case-folded names of the columns of what stands in FROM."""
    names: list[str] = []
    for element, relation in found:
        alias = element.node.args.get("alias")
        names += [each.name for each in (alias.args.get("columns") or [])] if alias else []
        names += [name for name, _ in names_within(relation, public)]
    return {name.casefold() for name in names}


def _named(node: exp.Expr) -> Iterable[str]:
    """The names without a table in an expression, those of sub-queries too."""
    columns = (each for each in node.find_all(exp.Column) if not each.table)
    return (each.name.casefold() for each in columns)


class _Names:
    """The select items that names may stand for, up to the one that is read."""

    def __init__(self, taken: Collection[str], locate: Locate) -> None:
        self.taken, self.locate = taken, locate
        self.items: list[exp.Expr] = []
        self.size = 0

    def item(self, item: exp.Expr) -> exp.Expr:
        """A select item under the name that it has as written."""
        inner = item.unalias()
        found = self.replace(inner)
        return item if found == inner else exp.alias_(found, name_of(item), quoted=True, copy=False)

    def replace(self, node: exp.Expr) -> exp.Expr:
        """A copy of an expression over columns alone; what has names of its own stays."""
        if isinstance(node, exp.Query):
            return node.copy()
        if isinstance(node, exp.Column):
            return self.column(node)
        return over_parts(node, self.replace)

    def column(self, node: exp.Column) -> exp.Expr:
        taken = not node.table and node.name.casefold() in self.taken
        found = find_alias(self.items[::-1], node) if taken else None
        if found is None:
            return node.copy()
        self.size += sum(1 for _ in found.walk())
        if self.size > MAX_SIZE:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                "the statement is too long once the names of its columns are written out",
                hint="use fewer columns of columns",
                span=self.locate(node),
            )
        return _closed(found.copy())


def _closed(node: exp.Expr) -> exp.Expr:
    """An expression that may stand anywhere within another."""
    whole = isinstance(node, exp.Func | exp.Column | exp.Literal | exp.Paren)
    return node if whole and not isinstance(node, exp.Connector) else exp.paren(node, copy=False)
