"""Private rows that are compared with an aggregate of private rows: answers, compared afterwards.

``SELECT COUNT(*) FROM t WHERE age > (SELECT AVG(age) FROM t)`` is asked as running totals by age,
of which the outer shell takes the one that the noisy mean points at. No row meets a noisy number,
and all of it is planned and measured together. A condition that is deeper in sub-queries which only
project moves outwards first.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog.domain import Bins
from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames
from dpsql.logical.levels import RelationLevel
from dpsql.records import dataclass, field
from dpsql.sql.compared_bins import EvenBins
from dpsql.sql.correlated import is_by_unit
from dpsql.sql.expressions import name_of
from dpsql.sql.functions import MIRRORED, has
from dpsql.sql.key_sets import written_keys
from dpsql.sql.rewritten import set_where
from dpsql.sql.scope import conjuncts
from dpsql.sql.sugar import has_aggregates

_BOUNDED = (
    *("distinct", "qualify", "limit", "offset", "having", "windows", "laterals", "pivots"),
    "with_",
)
_CARRIED = "compared"
MOST_MOVES = 20
"""Sub-queries that conditions move out of."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A condition ``value`` op ``query``: columns of rows, and an aggregate of private rows."""

    test: exp.Binary
    kind: type[exp.Binary]
    value: exp.Expr
    query: exp.Select
    rows: SubqueryNames
    around: tuple[exp.Column, ...]
    bins: EvenBins | None = None


def compared(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement with such conditions on answers; what this cannot be done for is as it was."""
    if not any(_is_side(node) for node in tree.find_all(exp.Subquery)):
        return tree
    tree = tree.copy()
    for _ in range(MOST_MOVES):
        if not any(_moved(select, binder) for select in list(tree.find_all(exp.Select))):
            break
    for select in list(tree.find_all(exp.Select)):
        found = _Rows(select, binder).comparisons() if _is_counted(select) else []
        if len(found) == 1:
            whole = _Totals(select, found[0]).whole()
            if whole is not None and select is tree:
                tree = whole
            elif whole is not None:
                select.replace(whole)
    return tree


def _is_side(node: exp.Subquery) -> bool:
    return (
        node.parent is not None
        and has(node.parent, "order", "equality")
        and node.find_ancestor(exp.Where) is not None
    )


def _is_counted(select: exp.Select) -> bool:
    return has_aggregates(select) and not any(select.args.get(key) for key in _BOUNDED[:2])


@dataclass(frozen=True, slots=True)
class _Rows:
    """A SELECT over private rows, and its conditions that compare them with an aggregate."""

    select: exp.Select
    binder: SubqueryBinder

    def comparisons(self) -> list[_Comparison]:
        """The conditions of WHERE that are such; none if what names stand for is not known."""
        where = self.select.args.get("where")
        tests = [] if where is None else conjuncts(where.this)
        rows = self.binder.names(self.select) if any(t.find(exp.Query) for t in tests) else None
        if rows is None or rows.facts is None or not rows.facts.is_private:
            return []
        found = [self.comparison(test.unnest(), rows) for test in tests]
        return [each for each in found if each is not None]

    def comparison(self, test: exp.Expr, rows: SubqueryNames) -> _Comparison | None:
        if not isinstance(test, exp.Binary) or not has(test, "order", "equality"):
            return None
        sides = test.this.unnest(), test.expression.unnest()
        for (value, query), kind in (
            (sides, type(test)),
            (sides[::-1], MIRRORED.get(type(test), type(test))),
        ):
            if isinstance(query, exp.Select) and not value.find(exp.Query):
                around = self.around(query)
                if around is None or not self.is_scalar(query) or is_by_unit(query, self.binder):
                    continue
                stored = [rows.origin(each) for each in value.find_all(exp.Column)]
                is_bare = isinstance(value, exp.Column) and not around and kind in MIRRORED
                bins = EvenBins.of(stored[0]) if is_bare and stored[0] is not None else None
                by_bins = any(each is not None and isinstance(each.domain, Bins) for each in stored)
                if bins is not None or (stored and not by_bins):
                    return _Comparison(test, kind, value, query, rows, around, bins)
        return None

    def is_scalar(self, query: exp.Select) -> bool:
        """True if a sub-query is one row of answers, as an aggregate of private rows is."""
        facts = self.binder.facts(query)
        return facts is not None and facts.level is RelationLevel.NOISY and facts.rows == 1

    def around(self, query: exp.Select) -> tuple[exp.Column, ...] | None:
        """The columns of a sub-query that are of the rows around it; None where it is not known."""
        inside = self.binder.names(query)
        if inside is None:
            return None
        own = [c for c in query.find_all(exp.Column) if c.find_ancestor(exp.Query) is query]
        return tuple(dict.fromkeys(c for c in own if not inside.has(c)))


def _moved(select: exp.Select, binder: SubqueryBinder) -> bool:
    """Move the conditions of a sub-query in FROM that only projects into the SELECT around it."""
    around = select.find_ancestor(exp.Select)
    holder = select.parent
    is_from = isinstance(holder, exp.Subquery) and isinstance(holder.parent, exp.From | exp.Join)
    if around is None or not is_from or select.args.get("group") or has_aggregates(select):
        return False
    if any(select.args.get(key) for key in _BOUNDED) or select.is_star:
        return False
    assert isinstance(holder, exp.Subquery)
    alias = holder.alias
    found = _Rows(select, binder).comparisons() if alias else []
    if not found or holder.parent is None or holder.parent.args.get("side"):
        return False
    rest = list(conjuncts(select.args["where"].this))
    for number, each in enumerate(found):
        rest = [test for test in rest if test.unnest() is not each.test]
        query = each.query.copy()
        columns = []
        for k, part in enumerate((each.value, *each.around)):
            name = f"{_CARRIED} {len(select.expressions)} {number} {k}"
            select.append("expressions", exp.alias_(part.copy(), name, quoted=True))
            columns.append(exp.column(exp.to_identifier(name, quoted=True), alias))
        for part, column in zip(each.around, columns[1:], strict=True):
            _replace(query, part, column)
        _and(around, each.kind(this=columns[0], expression=exp.Subquery(this=query)))
    set_where(select, rest)
    return True


def _replace(query: exp.Select, column: exp.Column, by: exp.Column) -> None:
    """Another column in the place of one of the rows around a sub-query."""
    for same in [node for node in query.find_all(exp.Column) if node == column]:
        same.replace(by.copy())


def _and(select: exp.Select, test: exp.Expr) -> None:
    where = select.args.get("where")
    set_where(select, [*([] if where is None else [where.this]), test])


@dataclass(slots=True)
class _Totals:
    """Writes a counting SELECT with one such condition as totals, and a SELECT that takes some."""

    select: exp.Select
    found: _Comparison
    keys: list[exp.Expr] = field(default_factory=list)
    sums: list[exp.Expr] = field(default_factory=list)
    understood: bool = True

    def whole(self) -> exp.Select | None:
        """The SELECT around all of it; None where an aggregate cannot be added up."""
        select, items = self.select, self.select.expressions
        keys = written_keys(select, self.found.rows.has)
        if keys is None:
            return None
        self.keys = keys
        outer = exp.Select(expressions=[self.item(item) for item in items])
        for clause in ("having", "order", "limit", "offset"):
            if select.args.get(clause) is not None:
                outer.set(clause, self.over(select.args[clause]))
        if select.args.get("with_") is not None:
            outer.set("with_", select.args["with_"].copy())
        outer.meta.update(select.meta)
        if not self.understood or not self.sums:
            return None
        outer.set("from_", exp.From(this=exp.Subquery(this=self.taken(), alias=_named("q"))))
        names = [exp.column(f"g{k}", "q") for k in range(len(self.keys))]
        outer.set("group", exp.Group(expressions=names) if names else None)
        return outer

    def item(self, item: exp.Expr) -> exp.Expr:
        return exp.alias_(self.over(item.unalias()), name_of(item), quoted=True)

    def over(self, node: exp.Expr) -> exp.Expr:
        """An expression over the totals: its keys and aggregates are columns of them."""
        if node in self.keys:
            return exp.column(f"g{self.keys.index(node)}", "q")
        if isinstance(node, exp.Filter | exp.AggFunc):
            return self.added(node)
        if isinstance(node, exp.Query | exp.Window):
            self.understood = False
        copy = node.copy()
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                copy.set(key, self.over(value))
            elif isinstance(value, list):
                copy.set(key, [self.over(e) if isinstance(e, exp.Expr) else e for e in value])
        return copy

    def added(self, node: exp.Expr) -> exp.Expr:
        """An aggregate of rows as one of totals."""
        called = node.this if isinstance(node, exp.Filter) else node
        inner = called.this
        plain = not isinstance(inner, exp.Distinct)
        if isinstance(called, exp.Count | exp.CountIf) and plain:
            return exp.Coalesce(this=self.sum_of(node), expressions=[exp.Literal.number(0)])
        if isinstance(called, exp.Sum) and plain:
            return self.sum_of(node)
        if isinstance(called, exp.Avg) and plain:
            parts = []
            for kind in (exp.Sum, exp.Count):
                part = node.copy()
                bare = part.this if isinstance(part, exp.Filter) else part
                fresh = kind(this=inner.copy())
                if bare is part:
                    part = fresh
                else:
                    bare.replace(fresh)
                parts.append(self.sum_of(part))
            return exp.paren(exp.Div(this=parts[0], expression=parts[1]), copy=False)
        self.understood = False
        return node.copy()

    def sum_of(self, node: exp.Expr) -> exp.Expr:
        if node not in self.sums:
            self.sums.append(node.copy())
        return exp.Sum(this=exp.column(f"a{self.sums.index(node)}", "q"))

    @property
    def is_running(self) -> bool:
        """Whether what meets the condition is the rows up to a value."""
        return self.found.kind in MIRRORED

    def taken(self) -> exp.Select:
        """The totals that meet the condition."""
        if self.found.bins is not None:
            keys = [f"g{k}" for k in range(len(self.keys))]
            above, asked = self.found.kind in (exp.GT, exp.GTE), (self.totals(), self.found.query)
            return self.found.bins.taken(*asked, keys, len(self.sums), above)
        own = ["c0", *(f"k{k}" for k in range(len(self.found.around)))]
        keys = [f"g{k}" for k in range(len(self.keys))]
        names = [*keys, *own[1:], *(f"a{k}" for k in range(len(self.sums)))]
        out = exp.Select(expressions=[exp.column(name, "r") for name in names])
        out.set("from_", exp.From(this=exp.Subquery(this=self.totals(), alias=_named("r"))))
        query = self.found.query.copy()
        for k, column in enumerate(self.found.around):
            _replace(query, column, exp.column(f"k{k}", "r"))
        test = self.found.kind(this=exp.column("c0", "r"), expression=exp.Subquery(this=query))
        out.set("where", exp.Where(this=test))
        if self.is_running:
            parts = [exp.column(name, "r") for name in [*keys, *own[1:]]]
            descends = self.found.kind in (exp.LT, exp.LTE)
            order = exp.Order(expressions=[exp.Ordered(this=exp.column("c0", "r"), desc=descends)])
            first = exp.Window(this=exp.RowNumber(), partition_by=parts, order=order)
            out.set(
                "qualify", exp.Qualify(this=exp.EQ(this=first, expression=exp.Literal.number(1)))
            )
        return out

    def totals(self) -> exp.Select:
        """Groups by all keys and by what is compared, added up as far as each value."""
        by = [*self.keys, *self.found.around]
        keys = [(f"g{k}", node) for k, node in enumerate(self.keys)]
        keys += [(f"k{k}", node) for k, node in enumerate(self.found.around)]
        items = [exp.alias_(node.copy(), name) for name, node in keys]
        items.append(exp.alias_(self.found.value.copy(), "c0"))
        for k, node in enumerate(self.sums):
            items.append(exp.alias_(self.running(node.copy(), by), f"a{k}"))
        out = self.select.copy()
        for clause in ("with_", "group", "having", "order", "limit", "offset"):
            out.set(clause, None)
        out.set("expressions", items)
        group = [*(node.copy() for node in by), self.found.value.copy()]
        out.set("group", exp.Group(expressions=group))
        tests = conjuncts(self.select.args["where"].this)
        set_where(out, [each for each in tests if each.unnest() is not self.found.test])
        return out

    def running(self, node: exp.Expr, by: Sequence[exp.Expr]) -> exp.Expr:
        if not self.is_running:
            return node
        descends = self.found.kind in (exp.GT, exp.GTE)
        ordered = exp.Ordered(this=self.found.value.copy(), desc=descends)
        return exp.Window(
            this=exp.Sum(this=node),
            partition_by=[each.copy() for each in by],
            order=exp.Order(expressions=[ordered]),
        )


def _named(alias: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(alias))
