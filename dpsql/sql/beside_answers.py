"""Private rows beside answers about them: the rows are counted first, and meet the answers then.

``FROM rows JOIN (SELECT k, COUNT(*) AS n FROM rows GROUP BY k) a ON rows.k = a.k`` and
``k IN (SELECT k ... HAVING COUNT(*) > 10)`` say something of a row by what was counted in its
group, with noise. So rows are grouped by their own keys and by all that meets an answer, and the
outer shell joins, filters and adds up: no row meets a noisy number.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.records import dataclass, field
from dpsql.sql.expressions import name_of
from dpsql.sql.functions import SETS
from dpsql.sql.key_sets import has_sets, keys_of
from dpsql.sql.kinds import Kinds
from dpsql.sql.met_rows import Met, Unlike
from dpsql.sql.names import find_alias, position_of
from dpsql.sql.optional_terms import OptionalTerms
from dpsql.sql.relations import Element
from dpsql.sql.rewritten import all_of, another, count_rows, divided
from dpsql.sql.sugar import has_aggregates

_ROWS = "counted rows"
"""The alias of the counted rows; answers keep their own."""
UNKNOWN = ("distinct", "windows", "laterals", "pivots", "sample")
"""Clauses that are not written otherwise."""
_ONE_VALUE = (exp.Max, exp.Min, exp.AnyValue, exp.Avg)
"""Aggregates that a number which all rows of a group share is the value of."""
_SOME = "0.5"
"""Rows that a group has at least; one with fewer is taken for empty, as noise cannot tell."""


def beside(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """The statement with such SELECTs written over counted rows; others are as they were."""
    kinds = Kinds(catalog)
    if not any(_may_meet(select) for select in tree.find_all(exp.Select)):
        return tree
    tree = tree.copy()
    for select in reversed(list(tree.find_all(exp.Select))):
        written = _written(select, kinds) if _may_meet(select) else None
        if written is not None and select is tree:
            tree = written
        elif written is not None:
            select.replace(written)
    return tree


def _may_meet(select: exp.Select) -> bool:
    counts = has_aggregates(select) or bool(select.args.get("group"))
    if not counts or any(select.args.get(key) for key in UNKNOWN):
        return False
    return bool(select.args.get("joins")) or any(
        n.args.get("query") for n in select.find_all(exp.In)
    )


def _written(select: exp.Select, kinds: Kinds) -> exp.Select | None:
    """The SELECT over counted rows; None where nothing meets an answer, or it cannot be."""
    try:
        met = Met.read(select, kinds)
        return None if met is None else Beside(met, select).written()
    except Unlike:
        return None


@dataclass(slots=True)
class Beside:
    """Writes one SELECT over rows and answers; ``carried`` and ``sums`` are asked of the rows.

    It is ``single`` where a group of rows is one row outside, too, and ``testing`` while a
    condition is written that compares an answer with what it equals.
    """

    met: Met
    select: exp.Select
    groups: list[exp.Expr] = field(default_factory=list)
    carried: list[exp.Expr] = field(default_factory=list)
    sums: list[exp.Expr] = field(default_factory=list)
    single: bool = False
    testing: bool = False

    def written(self) -> exp.Select:
        """The SELECT outside. Raises: Unlike."""
        self.groups = [self.key(node) for node in self.keys()]
        left = [test for tests in self.met.on.values() for test in tests]
        if any(self.met.is_listed(part) for node in self.groups for part in node.find_all(exp.In)):
            raise Unlike
        for test in (*self.met.outer, *left):
            self.test(test)
        for node in self.groups:
            self.over(node)
        own = [node for node in self.groups if not self.met.mentions(node)]
        self.single = self.is_single(own)
        return self.outside(own)

    def keys(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        if group is None:
            return []
        if group.args.get("all"):
            return [i.unalias() for i in self.select.expressions if not has_aggregates(i)]
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise Unlike
        return list(dict.fromkeys(key for each in group.expressions for key in keys_of(each)))

    def key(self, node: exp.Expr) -> exp.Expr:
        """A key of GROUP BY with positions and aliases written out."""
        items = self.select.expressions
        if isinstance(node, exp.Literal) and not node.is_string:
            position = position_of(node, len(items))
            if position is None:
                raise Unlike
            node = items[position].unalias()
        if isinstance(node, exp.Column) and self.met.source(node) is None:
            node = find_alias(items, node) or node
        return self.met.equal(node)

    def grouped(self, node: exp.Expr) -> exp.Expr:
        """An element of GROUP BY outside: a key, or sets of keys."""
        if not isinstance(node, SETS):
            return self.over(self.key(node.unnest()))
        copy = node.copy()
        copy.set("expressions", [self.grouped(each) for each in node.expressions])
        return copy

    @property
    def has_sets(self) -> bool:
        """Whether GROUP BY has several sets of keys."""
        return has_sets(self.select)

    def is_single(self, own: list[exp.Expr]) -> bool:
        """Whether every group of rows meets at most one row of each answer, and all of it does."""
        if self.has_sets:
            return False
        within = all(node in own for node in self.carried)
        plain = all(isinstance(n, exp.Column) for n in self.groups if self.met.mentions(n))
        return within and plain and all(map(self.met.is_unique, self.met.answers))

    # ---- the SELECT outside ---------------------------------------------------------------------

    def outside(self, own: list[exp.Expr]) -> exp.Select:
        select = self.select
        out = exp.Select(
            expressions=[
                exp.alias_(self.over(item.unalias()), name_of(item), quoted=True)
                for item in select.expressions
            ]
        )
        out.meta.update(select.meta)
        having = select.args.get("having")
        tests = [] if having is None or not self.single else [self.over(having.this)]
        if having is not None and not self.single:
            out.set("having", exp.Having(this=self.over(having.this)))
        for clause in ("qualify", "order", "limit", "offset"):
            if select.args.get(clause) is not None:
                out.set(clause, self.over(select.args[clause]))
        if select.args.get("with_") is not None:
            out.set("with_", select.args["with_"].copy())
        group = select.args.get("group")
        if self.groups and group is not None and not self.single:
            listed = self.groups if group.args.get("all") else group.expressions
            out.set("group", exp.Group(expressions=[self.grouped(node) for node in listed]))
        joins = [self.joined(each) for each in self.met.answers]
        tests += [self.test(test) for test in self.met.outer if not self.met.owners(test)]
        if self.single and any(node not in own for node in self.carried):
            raise Unlike
        out.set("from_", exp.From(this=self.counted(own)))
        out.set("joins", joins or None)
        if tests:
            out.set("where", exp.Where(this=all_of(tests)))
        return out

    def joined(self, each: Element) -> exp.Join:
        """An answer beside the counted rows, by what compares it with them and those before."""
        node = each.node.copy()
        if each.alias in self.met.on:
            on = [self.test(test) for test in self.met.on[each.alias]]
            return exp.Join(this=node, side="LEFT", on=all_of(on))
        place = self.met.answers.index(each)
        tests = [
            self.test(t) for t in self.met.outer if max(self.met.owners(t), default=-1) == place
        ]
        return exp.Join(this=node, on=all_of(tests)) if tests else exp.Join(this=node, kind="CROSS")

    def counted(self, own: list[exp.Expr]) -> exp.Subquery:
        """The rows in groups, by their keys and by what meets an answer."""
        by = [*own, *(node for node in self.carried if node not in own)]
        inner = exp.Select(
            expressions=[
                *(exp.alias_(node.copy(), f"k{self.place(node)}") for node in by),
                *(exp.alias_(node.copy(), f"a{k}") for k, node in enumerate(self.sums)),
            ]
        )
        first, *others = self.met.rows
        inner.set("from_", exp.From(this=first.node.copy()))
        inner.set("joins", [e.join.node.copy() for e in others if e.join is not None] or None)
        if self.met.inner:
            kept = [exp.paren(test.copy(), copy=False) for test in self.met.inner]
            inner.set("where", exp.Where(this=exp.and_(*kept, copy=False)))
        if by:
            inner.set("group", exp.Group(expressions=[node.copy() for node in by]))
        inner.meta.update(self.select.meta)
        return exp.Subquery(this=inner, alias=exp.TableAlias(this=_named()))

    def place(self, node: exp.Expr) -> int:
        """The number of what is carried out of the rows."""
        if node not in self.carried:
            self.carried.append(node)
        return self.carried.index(node)

    def test(self, node: exp.Expr) -> exp.Expr:
        """A condition over the counted rows and the answers."""
        self.testing = True
        found = self.over(node)
        self.testing = False
        return found

    def over(self, node: exp.Expr) -> exp.Expr:
        """An expression over the counted rows and the answers."""
        if isinstance(node, exp.Column) and not self.testing:
            node = self.met.equal(node)
        if isinstance(node, exp.Query):
            return node.copy()
        if isinstance(node, exp.Window):
            return self.window(node)
        if isinstance(node, exp.Column) and self.met.source(node) is None:
            item = find_alias(self.select.expressions, node)
            return node.copy() if item is None else exp.paren(self.over(item))
        if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
            return self.over(node.this)
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self.inside(node)
        if isinstance(node, exp.Filter | exp.AggFunc | exp.WithinGroup):
            return self.aggregate(node)
        if self.met.is_of_rows(node) and not self.is_of_keys(node):
            is_part = not isinstance(node.parent, exp.Alias | exp.Select | exp.Group | exp.Ordered)
            if isinstance(node, exp.Column) and is_part and self.met.is_coarse(node):
                raise Unlike
            return _of_rows(f"k{self.place(node)}")
        return self.inside(node)

    def is_of_keys(self, node: exp.Expr) -> bool:
        """Whether an expression is made of keys of GROUP BY, of which sets leave some out."""
        if node in self.groups or not self.has_sets or self.testing:
            return False
        return any(part in self.groups for part in node.walk())

    def inside(self, node: exp.Expr, kept: str = "") -> exp.Expr:
        copy = node.copy()
        for key, value in node.args.items():
            if key == kept:
                continue
            if isinstance(value, exp.Expr):
                copy.set(key, self.over(value))
            elif isinstance(value, list):
                copy.set(key, [self.over(e) if isinstance(e, exp.Expr) else e for e in value])
        return copy

    def window(self, node: exp.Window) -> exp.Expr:
        """A window over groups: what it is of may be an aggregate."""
        copy = self.inside(node, kept="this")
        copy.set("this", self.inside(node.this))
        return copy

    # ---- aggregates -----------------------------------------------------------------------------

    def aggregate(self, node: exp.Expr) -> exp.Expr:
        """An aggregate of rows as one of counted rows."""
        if self.met.mentions(node):
            return self.of_answers(node)
        if self.single:
            return self.counted_as(node)
        called = node.this if isinstance(node, exp.Filter) else node
        inner = called.this
        if isinstance(inner, exp.Distinct):
            raise Unlike
        if isinstance(called, exp.Count | exp.CountIf):
            total = exp.Sum(this=self.counted_as(node))
            return exp.Coalesce(this=total, expressions=[exp.Literal.number(0)])
        if isinstance(called, exp.Sum):
            return exp.Sum(this=self.counted_as(node))
        if isinstance(called, exp.Avg):
            parts = [
                exp.Sum(this=self.counted_as(another(node, kind))) for kind in (exp.Sum, exp.Count)
            ]
            return divided(parts[0], parts[1])
        raise Unlike

    def counted_as(self, node: exp.Expr) -> exp.Column:
        if node not in self.sums:
            self.sums.append(node.copy())
        return _of_rows(f"a{self.sums.index(node)}")

    def of_answers(self, node: exp.Expr) -> exp.Expr:
        """An aggregate of numbers that stand beside every row of a group."""
        inner = node.this
        if isinstance(node, exp.Filter) and isinstance(node.expression, exp.Where):
            return self.filtered(inner, node.expression.this)
        if isinstance(node, exp.Filter | exp.WithinGroup) or isinstance(inner, exp.Distinct):
            raise Unlike
        if not isinstance(inner, exp.Expr) or inner.find(exp.Query, exp.AggFunc):
            raise Unlike
        if isinstance(node, exp.Sum):
            weighted = self.weighted(inner)
            return weighted if self.single else exp.Sum(this=weighted)
        if not self.met.is_plain(inner) or not isinstance(node, _ONE_VALUE):
            raise Unlike
        if self.single:
            return exp.paren(self.over(inner))
        counted = self.counted_as(count_rows())
        if isinstance(node, exp.Avg):
            known = exp.Not(this=exp.Is(this=exp.paren(self.over(inner)), expression=exp.null()))
            rows = exp.Case(ifs=[exp.If(this=known, true=counted)])
            return divided(exp.Sum(this=self.weighted(inner)), exp.Sum(this=rows))
        some = exp.GTE(this=counted, expression=exp.Literal.number(_SOME))
        value = exp.Case(ifs=[exp.If(this=some, true=self.over(inner))])
        return exp.Min(this=value) if isinstance(node, exp.Min) else exp.Max(this=value)

    def filtered(self, called: exp.Expr, test: exp.Expr) -> exp.Expr:
        """An aggregate of the rows that meet a condition on answers."""
        if self.met.mentions(called) or not isinstance(called, exp.Count | exp.Sum):
            raise Unlike
        if isinstance(called.this, exp.Distinct):
            raise Unlike
        met = exp.If(this=self.over(test), true=self.counted_as(called))
        total = exp.Case(ifs=[met]) if self.single else exp.Sum(this=exp.Case(ifs=[met]))
        if isinstance(called, exp.Count):
            return exp.Coalesce(this=total, expressions=[exp.Literal.number(0)])
        return total

    def weighted(self, node: exp.Expr) -> exp.Expr:
        """What all rows of a group add up to: a sum of the rows times numbers beside them."""
        node = node.unnest()
        if isinstance(node, exp.Neg):
            return exp.Neg(this=exp.paren(self.weighted(node.this)))
        terms = OptionalTerms.read(node, self.met) if isinstance(node, exp.Add | exp.Sub) else None
        if terms is not None:
            return self.of_terms(terms)
        if isinstance(node, exp.Add | exp.Sub):
            sides = [exp.paren(self.weighted(each)) for each in (node.this, node.expression)]
            return type(node)(this=sides[0], expression=sides[1])
        if isinstance(node, exp.Case) and self.is_chosen(node):
            copy = node.copy()
            ifs = [
                exp.If(this=self.over(i.this), true=self.weighted(i.args["true"]))
                for i in node.args["ifs"]
            ]
            copy.set("ifs", ifs)
            if node.args.get("default") is not None:
                copy.set("default", self.weighted(node.args["default"]))
            return copy
        if isinstance(node, exp.Mul) and self.met.is_plain(node.this):
            return exp.Mul(
                this=exp.paren(self.over(node.this)),
                expression=exp.paren(self.weighted(node.expression)),
            )
        if isinstance(node, exp.Mul | exp.Div) and self.met.is_plain(node.expression):
            return type(node)(
                this=exp.paren(self.weighted(node.this)),
                expression=exp.paren(self.over(node.expression)),
            )
        if not self.met.mentions(node) and self.met.columns(node):
            return self.counted_as(exp.Sum(this=node.copy()))
        if self.met.is_plain(node):
            return exp.Mul(
                this=exp.paren(self.over(node)), expression=self.counted_as(count_rows())
            )
        raise Unlike

    def of_terms(self, terms: OptionalTerms) -> exp.Expr:
        """The sum over the rows of which no term is NULL."""
        total: exp.Expr = self.counted_as(exp.Sum(this=terms.rows))
        if terms.plain is None:
            return total
        rows = self.counted_as(exp.Count(this=terms.optional, big_int=True))
        plain = exp.Mul(this=exp.paren(self.over(terms.plain)), expression=rows)
        return exp.Add(this=total, expression=plain)

    def is_chosen(self, node: exp.Case) -> bool:
        """Whether answers alone decide which value of a CASE it is."""
        return node.this is None and all(self.met.is_plain(each.this) for each in node.args["ifs"])


def _named() -> exp.Identifier:
    return exp.to_identifier(_ROWS, quoted=True)


def _of_rows(name: str) -> exp.Column:
    return exp.column(name, _named())
