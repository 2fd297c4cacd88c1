"""What stands in FROM, by the text and the catalog: rows of persons, answers about them, or public.

Asked before anything is bound, so that a SELECT can be written otherwise first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.records import dataclass, field
from dpsql.sql.expressions import name_of
from dpsql.sql.names import find_alias, names_of
from dpsql.sql.relations import read_from
from dpsql.sql.sugar import has_aggregates

Kind = Literal["rows", "answers", "public"]
"""Rows of privacy units, what was counted of such rows, or neither."""
P = ParamSpec("P")
T = TypeVar("T")


def once(read: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Answer what is asked again within a question: each CTE may name the one before it twice.

    Nothing is kept after a question, since trees are written otherwise between two of them.
    """

    @wraps(read)
    def asked(self: Kinds, /, *about: P.args, **named: P.kwargs) -> T:
        key = read.__name__, id(about[0]), about[1:]
        if key in self.known:
            found: T = self.known[key]
            return found
        is_whole = not self.known
        self.known[key] = None
        try:
            found = self.known[key] = read(self, *about, **named)
            return found
        finally:
            if is_whole:
                self.known.clear()

    return asked


@dataclass(frozen=True, slots=True)
class Kinds:
    """Tells what the elements of FROM are, and the names of their columns."""

    catalog: Catalog
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict, compare=False)

    @once
    def of(self, node: exp.Expr) -> Kind | None:
        """The kind of a table, a sub-query or a CTE; None where the text does not say it."""
        if isinstance(node, exp.Subquery):
            return self.of(node.this)
        if isinstance(node, exp.Values):
            return "public"
        if isinstance(node, exp.Table):
            return self.of_table(node)
        if isinstance(node, exp.SetOperation):
            return self.joined([self.of(node.this), self.of(node.expression)])
        return self.of_select(node) if isinstance(node, exp.Select) else None

    def of_table(self, node: exp.Table) -> Kind | None:
        """A CTE, which hides a table of its name, or a table of the catalog; views are not read."""
        if node.args.get("db") or not isinstance(node.this, exp.Identifier):
            return None
        cte = cte_of(node)
        if cte is not None:
            return self.of(cte.this)
        table = self.catalog.tables.get(node.name.casefold())
        if table is None:
            return None
        return "public" if table.public else "rows"

    def of_select(self, select: exp.Select) -> Kind | None:
        """Rows that are grouped are answers, unless every group is of one privacy unit."""
        found = self.joined([self.of(each.node) for each in read_from(select)])
        if found != "rows":
            return found
        group = select.args.get("group")
        grouped = group is not None or has_aggregates(select)
        by_unit = group is not None and any(map(self.is_unit, group.find_all(exp.Column)))
        return "answers" if grouped and not by_unit else "rows"

    @once
    def is_coarse(self, node: exp.Expr, name: str) -> bool:
        """Whether a column of an element shows something of a cell, and not the value of a row."""
        inner = _inside(node)
        if isinstance(inner, exp.Table):
            cte = cte_of(inner)
            table = self.catalog.tables.get(inner.name.casefold())
            if cte is not None:
                return self.is_coarse(cte, name)
            return table is not None and name in table.columns and table.columns[name].is_coarse
        if not isinstance(inner, exp.Select):
            return isinstance(inner, exp.SetOperation)
        for item in inner.expressions:
            if not item.is_star and name_of(item).casefold() == name:
                return self.is_coarse_item(inner, item.unalias())
        return any(self.is_coarse(each.node, name) for each in read_from(inner))

    def is_coarse_item(self, select: exp.Select, item: exp.Expr) -> bool:
        """Expressions over columns are checked on their cells; columns and aggregates are not."""
        if not isinstance(item, exp.Column) and not item.find(exp.AggFunc, exp.Window):
            return False
        return any(
            self.is_coarse(each.node, column.name.casefold())
            for column in item.find_all(exp.Column)
            for each in read_from(select)
            if column.table.casefold() in ("", each.alias)
        )

    def is_optional(self, node: exp.Expr, name: str) -> bool:
        """Whether a column of rows may be NULL, as far as the catalog says."""
        if not isinstance(node, exp.Table) or cte_of(node) is not None:
            return True
        table = self.catalog.tables.get(node.name.casefold())
        known = table is not None and not table.public and name in table.columns
        return table is None or not known or table.columns[name].null

    def keys(self, node: exp.Expr, select: exp.Select) -> dict[str, exp.Expr]:
        """What the columns of a sub-query are, by their case-folded names."""
        alias, items = node.args.get("alias"), select.expressions
        given = [] if alias is None else [each.name for each in alias.args.get("columns") or []]
        names = [*given, *(name_of(item) for item in items[len(given) :])]
        return {n.casefold(): item.unalias() for n, item in zip(names, items, strict=False)}

    def aliased(self, select: exp.Select, key: exp.Expr) -> exp.Expr | None:
        """The item whose alias a key of GROUP BY is; a column of that name comes before it."""
        if not isinstance(key, exp.Column) or key.table:
            return None
        item = find_alias(select.expressions, key)
        below = [self.names(each.node) for each in read_from(select)]
        return None if any(n is None or key.name.casefold() in n for n in below) else item

    def joined(self, kinds: list[Kind | None]) -> Kind | None:
        if None in kinds:
            return None
        return "rows" if "rows" in kinds else "answers" if "answers" in kinds else "public"

    def is_unit(self, column: exp.Column) -> bool:
        """Whether a name is that of a unit somewhere, or of what rows belong to a unit by."""
        return any(column.name.casefold() in _units(t) for t in self.catalog.tables.values())

    @once
    def names(self, node: exp.Expr) -> set[str] | None:
        """The case-folded names of the columns of an element; None where they are not known."""
        alias = node.args.get("alias")
        given = [] if alias is None else alias.args.get("columns") or []
        if given:
            return {each.name.casefold() for each in given}
        inner = _inside(node)
        if isinstance(inner, exp.Table):
            cte = cte_of(inner)
            table = self.catalog.tables.get(inner.name.casefold())
            if cte is None:
                unknown = table is None or bool(inner.args.get("db"))
                return (
                    None
                    if table is None or unknown
                    else {name.casefold() for name, _ in names_of(table)}
                )
            return self.names(cte)
        while isinstance(inner, exp.SetOperation):
            inner = inner.this.unnest()
        if not isinstance(inner, exp.Select):
            return None
        if not inner.is_star:
            return {name_of(item).casefold() for item in inner.expressions}
        below = [self.names(each.node) for each in read_from(inner)]
        known = [each for each in below if each is not None]
        return set().union(*known) if len(known) == len(below) else None


def _inside(node: exp.Expr) -> exp.Expr:
    """What a CTE or parentheses in FROM hold; else the node itself."""
    if isinstance(node, exp.CTE):
        found: exp.Expr = node.this.unnest()
        return found
    return node.unnest() if isinstance(node, exp.Subquery) else node


def cte_of(node: exp.Table) -> exp.CTE | None:
    """The CTE that a name in FROM stands for; those after it in WITH are not known to it."""
    for clause, own in _clauses_around(node):
        for cte in clause.expressions:
            if cte is own:
                break
            if cte.alias.casefold() == node.name.casefold() and not node.args.get("db"):
                found: exp.CTE = cte
                return found
    return None


def _clauses_around(node: exp.Expr) -> Iterator[tuple[exp.With, exp.Expr | None]]:
    """Every WITH around a node, with the CTE in it that the node stands in."""
    own, around = None, node.parent
    while around is not None:
        clause = around.args.get("with_")
        if clause is not None:
            yield clause, own
        own = around if isinstance(around, exp.CTE) else own
        around = around.parent


def _units(table: Table) -> set[str]:
    way = table.unit.through
    names = [] if table.unit.column is None else [table.unit.column]
    return {name.casefold() for name in (*names, *([] if way is None else [o for o, _ in way.on]))}
