"""Groups that no row is in, where it matters whether they exist.

A measured SELECT shows every declared group: that its keys are public has this price, and at the
top of a statement an empty group is read off its number. To the next operator it is a row like any
other. Wherever one row decides about others or about what they show (IS NULL after an outer join,
INTERSECT and EXCEPT, IN, EXISTS, counts and means of groups, LIMIT below the top) SQL asks which
groups exist. Who wrote a HAVING that says how many rows a group has at least has said
it; else it is asked of the noisy number of rows, by one test. What stays as it is: joins that show
groups, windows, which are over what is shown, and sums of noisy numbers, to which an empty group
adds 0 on average.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.records import dataclass, field
from dpsql.sql.declared_views import view_tree
from dpsql.sql.kinds import Kind, Kinds, cte_of, once
from dpsql.sql.names import position_of
from dpsql.sql.relations import Element, read_from
from dpsql.sql.rewritten import ERRORS, all_of, with_rows
from dpsql.sql.sugar import has_aggregates

NOTE = (
    f"where it matters which groups exist, those do whose noisy number of rows is over {ERRORS} "
    "standard errors: HAVING COUNT(*) > ... says otherwise"
)
ASKED = "asked for existence"
"""Marks a SELECT that leaves empty groups out, and the name of a view whose groups are."""
_LEAST = (exp.GT, exp.GTE)
_KEPT = ("RIGHT", "FULL")
"""Joins after which a table before them may have no partner."""


def existing(
    tree: exp.Expr, catalog: Catalog, asked: bool = False, is_view: bool = False
) -> exp.Expr:
    """Return a query whose groups are asked for existence where that matters; itself if nowhere.

    Args:
        tree: a statement, or the query of a view; it is not changed.
        catalog: of its tables.
        asked: that it matters around the view.
        is_view: that it stands within a statement, where LIMIT leaves rows to the next operator.
    """
    copy = tree.copy()
    groups = _Groups(catalog)
    groups.read(copy, asked, top=not is_view)
    return copy if groups.found else tree


@dataclass(frozen=True, slots=True)
class _Traced(Kinds):
    """Kinds of what is in FROM, views among them, with columns of units traced to their tables."""

    views: dict[str, exp.Expr] = field(default_factory=dict, compare=False)

    def view(self, node: exp.Expr) -> exp.Expr | None:
        """Return the query of the view that a name in FROM stands for."""
        name = node.name.casefold() if isinstance(node, exp.Table) else ""
        if name in self.catalog.tables or name not in self.catalog.views:
            return None
        if not isinstance(node, exp.Table) or cte_of(node) is not None:
            return None
        if name not in self.views:
            self.views[name] = view_tree(node, self.catalog)
        return self.views[name]

    def of_table(self, node: exp.Table) -> Kind | None:
        """A CTE, a table or a view of the catalog."""
        view = self.view(node)
        return Kinds.of_table(self, node) if view is None else self.of(view)

    def names(self, node: exp.Expr) -> set[str] | None:
        """The columns of an element of FROM, or of a view."""
        view = None if node.args.get("alias") and node.alias_column_names else self.view(node)
        return Kinds.names(self, node if view is None else view)

    def of_select(self, select: exp.Select) -> Kind | None:
        """Rows that are grouped are answers, unless every group is of one privacy unit."""
        found = self.joined([self.of(each.node) for each in read_from(select)])
        if found != "rows" or not (select.args.get("group") or has_aggregates(select)):
            return found
        keys = [column for key in _keys(select) for column in key.find_all(exp.Column)]
        return "rows" if any(self.is_of_unit(select, key) for key in keys) else "answers"

    def is_of_unit(self, select: exp.Select, column: exp.Column) -> bool:
        """Tell whether a column holds a unit, or a key that one unit has alone."""
        name = column.name.casefold()
        return any(
            self.holds_unit(each.node, name)
            for each in read_from(select)
            if column.table.casefold() in ("", each.alias)
        )

    @once
    def holds_unit(self, node: exp.Expr, name: str) -> bool:
        """Tell whether a column of an element of FROM holds a unit."""
        inner = self.inside(node)
        while isinstance(inner, exp.SetOperation):
            inner = inner.this.unnest()
        if isinstance(inner, exp.Table):
            table = self.catalog.tables.get(inner.name.casefold())
            return table is not None and name in _units(table)
        if not isinstance(inner, exp.Select):
            return False
        item = self.keys(node, inner).get(name)
        if item is None and inner.is_star:
            return any(self.holds_unit(each.node, name) for each in read_from(inner))
        return isinstance(item, exp.Column) and self.is_of_unit(inner, item)

    def inside(self, node: exp.Expr) -> exp.Expr:
        """Return the query that an element of FROM stands for, where it stands for one."""
        while True:
            cte = cte_of(node) if isinstance(node, exp.Table) else None
            inner = cte.this if cte is not None else self.view(node)
            inner = node.this if isinstance(node, exp.Subquery) else inner
            if inner is None:
                return node
            node = inner


class _Groups:
    """Goes through a statement from its top; ``found`` says that groups were asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        # What is found is kept: the HAVING that is added here makes no other kind of anything.
        self.kinds = _Traced(catalog, {("kept",): None})
        self.done: set[tuple[int, bool]] = set()
        self.found = False

    def read(self, node: exp.Expr, asked: bool, top: bool = False) -> None:
        """Go through a query, or what stands in FROM, of which existence is ``asked`` or not."""
        asked = asked or (not top and bool(node.args.get("limit")))
        if (id(node), asked) in self.done or (id(node), True) in self.done:
            return
        self.done.add((id(node), asked))
        if isinstance(node, exp.Subquery):
            self.read(node.this, asked, top)
        elif isinstance(node, exp.SetOperation):
            for side in (node.this, node.expression):
                self.read(side, asked or not isinstance(node, exp.Union))
        elif isinstance(node, exp.Table):
            self.named(node, asked)
        elif isinstance(node, exp.Select):
            self.select(node, asked)

    def named(self, node: exp.Table, asked: bool) -> None:
        """Go through the CTE of a name, or note that a view is asked for its groups."""
        cte = cte_of(node)
        if cte is not None:
            self.read(cte.this, asked)
        elif asked and self.kinds.view(node) is not None:
            node.meta[ASKED] = self.found = True

    def select(self, select: exp.Select, asked: bool) -> None:
        """Ask for the groups of a SELECT that is measured, else for those of its tables."""
        sources = read_from(select)
        is_of_rows = self.kinds.joined([self.kinds.of(each.node) for each in sources]) == "rows"
        for query in _own(select, exp.Query):
            is_tested = isinstance(query.parent, exp.In | exp.Exists)
            self.read(query, asked=is_tested and not is_of_rows)
        if is_of_rows:
            self.rows(select, asked, sources)
            return
        asked = asked or self.counts(select, sources)
        if any(self.is_least(test, sources) for test in _tests(select.args.get("where"))):
            asked = False
        for each, needed in zip(sources, self.needed(select, sources), strict=True):
            self.read(each.node, asked or needed)

    def rows(self, select: exp.Select, asked: bool, sources: tuple[Element, ...]) -> None:
        """Leave out empty groups of a SELECT over rows, unless public rows have one each."""
        for each in sources:
            self.read(each.node, asked=False)
        group, having = select.args.get("group"), select.args.get("having")
        if not asked or group is None or self.kinds.of(select) != "answers":
            return
        if any(each.join is not None and each.join.side for each in sources):
            return
        counts = {item.alias.casefold() for item in select.expressions if item.find(exp.Count)}
        for test in _tests(having):
            if isinstance(test, _LEAST) and (
                test.this.find(exp.Count) or test.this.name.casefold() in counts - {""}
            ):
                return
        tests = [with_rows(), *([] if having is None else [having.this])]
        select.set("having", exp.Having(this=all_of(tests)))
        select.meta[ASKED] = self.found = True

    def counts(self, select: exp.Select, sources: tuple[Element, ...]) -> bool:
        """Tell whether an aggregate depends on how many groups there are."""
        if select.args.get("group") is None and not has_aggregates(select):
            return False
        many = [each for each in sources if self.has_groups(each.node)]
        called = [
            each
            for each in _own(select, exp.AggFunc)
            if not isinstance(each.parent, exp.Window)
            and not (isinstance(each, exp.Sum) and self.is_noisy(each, many))
        ]
        return len(many) > 1 or bool(many and called)

    def needed(self, select: exp.Select, sources: tuple[Element, ...]) -> list[bool]:
        """Tell of each element of FROM whether it is asked which of its rows there are.

        An outer join shows an empty group as the top of a statement does; it is asked for where
        IS NULL tells rows with a partner from those without.
        """
        tested = [each.this for each in _own(select, exp.Is) if isinstance(each.this, exp.Column)]
        needed = []
        for place, each in enumerate(sources):
            side = "" if each.join is None else each.join.side
            later = any(other.join and other.join.side in _KEPT for other in sources[place + 1 :])
            names = self.kinds.names(each.node) or set()
            is_tested = any(
                column.table.casefold() == each.alias
                or (not column.table and column.name.casefold() in names)
                for column in tested
            )
            is_half = each.join is not None and each.join.kind in ("SEMI", "ANTI")
            needed.append(is_half or (is_tested and (side in ("LEFT", "FULL") or later)))
        return needed

    def has_groups(self, node: exp.Expr) -> bool:
        """Tell whether a table may have groups of private rows, and not one row alone."""
        inner = self.kinds.inside(node)
        if self.kinds.of(node) != "answers":
            return False
        if not isinstance(inner, exp.Select):
            return True
        grouped = inner.args.get("group") is not None
        if grouped or has_aggregates(inner):
            return grouped
        return any(self.has_groups(each.node) for each in read_from(inner))

    def is_least(self, test: exp.Expr, sources: tuple[Element, ...]) -> bool:
        """Tell whether a condition asks for a noisy number to be large enough."""
        return isinstance(test, _LEAST) and self.is_noisy(test.this, list(sources))

    def is_noisy(self, node: exp.Expr, sources: list[Element]) -> bool:
        """Tell whether an expression mentions a noisy number of one of the sources."""
        return any(
            self.is_noisy_column(each.node, column.name.casefold())
            for column in node.find_all(exp.Column)
            for each in sources
            if column.table.casefold() in ("", each.alias)
        )

    def is_noisy_column(self, node: exp.Expr, name: str) -> bool:
        """Tell whether a column of an element of FROM is made of noisy numbers."""
        inner = self.kinds.inside(node)
        while isinstance(inner, exp.SetOperation):
            inner = inner.this.unnest()
        if not isinstance(inner, exp.Select) or self.kinds.of(inner) != "answers":
            return False
        item = self.kinds.keys(node, inner).get(name)
        if item is not None and has_aggregates(item):
            return True
        below = list(read_from(inner))
        if item is None and inner.is_star:
            return any(self.is_noisy_column(each.node, name) for each in below)
        return item is not None and self.is_noisy(item, below)


def _own(select: exp.Select, kind: type[exp.Expr]) -> list[Any]:
    """Return the nodes of a kind in a SELECT, besides FROM, WITH and what its sub-queries hold."""
    clauses = [
        *select.expressions,
        *(select.args.get(key) for key in ("where", "group", "having", "qualify", "order")),
        *(select.args.get("windows") or ()),
        *(join.args.get("on") for join in select.args.get("joins") or ()),
    ]
    found = (node for part in clauses if part is not None for node in part.find_all(kind))
    return [node for node in found if node.parent_select is select]


def _keys(select: exp.Select) -> list[exp.Expr]:
    """Return what a SELECT groups by, positions and aliases written out."""
    group, items = select.args.get("group"), select.expressions
    if group is None:
        return []
    if group.args.get("all"):
        return [item.unalias() for item in items if not item.find(exp.AggFunc)]
    named = {item.alias.casefold(): item.this for item in items if isinstance(item, exp.Alias)}
    found = []
    for node in group.find_all(exp.Column, exp.Literal):
        place = position_of(node, len(items)) if isinstance(node, exp.Literal) else None
        if place is not None:
            found.append(items[place].unalias())
        else:
            found += [
                node,
                *([named[node.name.casefold()]] if node.name.casefold() in named else []),
            ]
    return found


def _units(table: Table) -> set[str]:
    """Return the columns of a table that hold its unit, or keys that one unit has alone."""
    unit, way = table.unit, table.unit.through
    names = [*table.keys, *table.unit_keys, *table.unit_columns]
    names += [] if unit.column is None else [unit.column]
    names += [] if way is None else [own for own, _ in way.on]
    return {name.casefold() for name in names}


def _tests(clause: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions of a WHERE or HAVING that hold together."""
    if clause is None:
        return []
    inner = clause.this.unnest()
    return list(inner.flatten()) if isinstance(inner, exp.And) else [inner]
