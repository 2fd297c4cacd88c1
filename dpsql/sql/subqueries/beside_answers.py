"""Private rows beside answers about them: the rows are counted first, and meet the answers then.

``FROM rows JOIN (SELECT k, COUNT(*) AS n FROM rows GROUP BY k) a ON rows.k = a.k`` and
``k IN (SELECT k ... HAVING COUNT(*) > 10)`` say something of a row by what was counted in its
group, with noise. So rows are grouped by their own keys and by all that meets an answer, and the
outer shell joins, filters and adds up: no row meets a noisy number.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.logical.bind.subqueries import SubqueryBinder
from dpsql.logical.functions import SETS, has, has_aggregates
from dpsql.records import dataclass, field
from dpsql.sql.groups.key_sets import has_sets, keys_of
from dpsql.sql.names import find_alias, written_key
from dpsql.sql.relations import FromElement
from dpsql.sql.rewrites.tree_parts import (
    aggregate_like,
    all_of,
    count_rows,
    divided,
    error_of_sum,
    is_of_existence,
)
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.guarded_values import spread_from
from dpsql.sql.shell.language import split_test
from dpsql.sql.subqueries.optional_terms import OptionalTerms
from dpsql.sql.subqueries.rows_and_answers import NotExpressible, RowsAndAnswers, choosing, outwards
from dpsql.sql.subqueries.running_totals import ROWS, Comparison

UNKNOWN = ("windows", "laterals", "pivots", "sample")
"""Clauses that are not written otherwise."""
_ONE_VALUE = (exp.Max, exp.Min, exp.AnyValue, exp.Avg)
"""Aggregates that a number which all rows of a group share is the value of."""
_SOME = "0.5"
"""Rows that a group has at least; one with fewer is taken for empty, as noise cannot tell."""


def beside(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement with such SELECTs written over counted rows; others are as they were."""
    if not any(_may_meet(select) or any(choosing(select)) for select in tree.find_all(exp.Select)):
        return tree
    tree = outwards(tree.copy(), binder)
    for select in reversed(list(tree.find_all(exp.Select))):
        for _ in range(2):  # the counted rows may be groups that values are looked up for
            written = _written(select, binder) if _may_meet(select) else None
            if written is None:
                break
            if select is tree:
                tree = written
            else:
                select.replace(written)
            select = written
    return tree


def _may_meet(select: exp.Select) -> bool:
    counts = has_aggregates(select) or bool(select.args.get("group"))
    if not counts or any(select.args.get(key) for key in UNKNOWN):
        return False
    items = any(item.find(exp.Subquery) for item in select.expressions)
    joins = bool(select.args.get("joins")) or items or any(choosing(select))
    return joins or any(n.args.get("query") for n in select.find_all(exp.In))


def _written(select: exp.Select, binder: SubqueryBinder) -> exp.Select | None:
    """The SELECT over counted rows; None where nothing meets an answer, or it cannot be."""
    try:
        sides = RowsAndAnswers.read(select, binder)
        if sides is None:
            return None
        compared = Comparison.of(sides)
        written = None if compared is None else EagerAggregation(sides, select, compared).written()
        return EagerAggregation(sides, select).written() if written is None else written
    except (NotExpressible, ProgrammingError):
        return None


@dataclass(slots=True)
class EagerAggregation:
    """Writes one SELECT over rows and answers; ``carried`` and ``sums`` are asked of the rows.

    ``compared`` is the condition that running totals meet. It is ``single`` where a group of rows
    is one row outside, too, and ``testing`` while a condition is written that compares an answer
    with what it equals.
    """

    sides: RowsAndAnswers
    select: exp.Select
    compared: Comparison | None = None
    groups: list[exp.Expr] = field(default_factory=list)
    carried: list[exp.Expr] = field(default_factory=list)
    sums: list[exp.Expr] = field(default_factory=list)
    single: bool = False
    testing: bool = False

    def written(self) -> exp.Select | None:
        """The SELECT outside; None where running totals do not have all that is asked for.

        Raises: NotExpressible.
        """
        self.groups = [self.key(node) for node in self.keys()]
        left = [test for tests in self.sides.on.values() for test in tests]
        if any(self.sides.asks(node) for node in self.groups):
            raise NotExpressible
        for test in (*self.outer, *left, *self.asked):
            self.test(test)
        for node in self.groups:
            self.over(node)
        own = [node for node in self.groups if not self.sides.mentions(node)]
        self.single = self.is_single(own)
        out = self.outside(own)
        is_told = self.compared is not None and self.compared.value in (*own, *self.carried)
        return None if is_told else out

    @property
    def outer(self) -> list[exp.Expr]:
        """The conditions that meet an answer, but for that of running totals."""
        own = None if self.compared is None else self.compared.test
        return [test for test in self.sides.outer if test is not own]

    @property
    def asked(self) -> list[exp.Expr]:
        """The answer that running totals are compared with."""
        return [] if self.compared is None else [self.compared.query]

    def keys(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        if group is None:
            return []
        if group.args.get("all"):
            return [i.unalias() for i in self.select.expressions if not has_aggregates(i)]
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise NotExpressible
        return list(dict.fromkeys(key for each in group.expressions for key in keys_of(each)))

    def key(self, node: exp.Expr) -> exp.Expr:
        """A key of GROUP BY with positions and aliases written out."""
        return self.sides.equal(written_key(node, self.select.expressions, self.sides.names.has))

    def grouped(self, node: exp.Expr) -> exp.Expr:
        """An element of GROUP BY outside: a key, or sets of keys."""
        if not isinstance(node, SETS):
            return self.over(self.key(node.unnest()))
        copy = node.copy()
        copy.set("expressions", [self.grouped(each) for each in node.expressions])
        return copy

    @property
    def has_sets(self) -> bool:
        """True if GROUP BY has several sets of keys."""
        return has_sets(self.select)

    def is_single(self, own: list[exp.Expr]) -> bool:
        """True if every group of rows meets at most one row of each answer, and all of it does."""
        if self.has_sets:
            return False
        if self.compared is not None and not (own and self.compared.is_one):
            return False
        within = all(node in own for node in self.carried)
        plain = all(isinstance(n, exp.Column) for n in self.groups if self.sides.mentions(n))
        return within and plain and all(map(self.sides.is_unique, self.sides.answers))

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
        for clause in ("distinct", "qualify", "order", "limit", "offset"):
            if select.args.get(clause) is not None:
                out.set(clause, self.over(select.args[clause]))
        if select.args.get("with_") is not None:
            out.set("with_", select.args["with_"].copy())
        group = select.args.get("group")
        if self.groups and group is not None and not self.single:
            listed = self.groups if group.args.get("all") else group.expressions
            out.set("group", exp.Group(expressions=[self.grouped(node) for node in listed]))
        joins = [self.joined(each) for each in self.sides.answers]
        tests += [self.test(test) for test in self.outer if not self.sides.owners(test)]
        if self.single and any(node not in own for node in self.carried):
            self.single = False  # an item chooses rows within the groups
            self.sums.clear()
            return self.outside(own)
        out.set("from_", exp.From(this=self.counted(own)))
        out.set("joins", joins or None)
        if tests:
            out.set("where", exp.Where(this=all_of(tests)))
        return out

    def joined(self, each: FromElement) -> exp.Join:
        """An answer beside the counted rows, by what compares it with them and those before."""
        node = each.node.copy()
        if each.alias in self.sides.on:
            on = [self.test(test) for test in self.sides.on[each.alias]]
            return exp.Join(this=node, side="LEFT", on=all_of(on))
        place = self.sides.answers.index(each)
        tests = [self.test(t) for t in self.outer if max(self.sides.owners(t), default=-1) == place]
        return exp.Join(this=node, on=all_of(tests)) if tests else exp.Join(this=node, kind="CROSS")

    def counted(self, own: list[exp.Expr]) -> exp.Subquery:
        """The rows in groups, by their keys and by what meets an answer."""
        by = [*own, *(node for node in self.carried if node not in own)]
        keys = {f"k{self.place(node)}": node for node in by}
        sums = {f"a{k}": node for k, node in enumerate(self.sums)}
        if self.compared is not None:
            by, sums = self.compared.grouped(by, sums)
        items = {**keys, **sums}
        inner = exp.Select(expressions=[exp.alias_(e.copy(), name) for name, e in items.items()])
        first, *others = self.sides.rows
        inner.set("from_", exp.From(this=first.node.copy()))
        inner.set("joins", [e.join.node.copy() for e in others if e.join is not None] or None)
        if self.sides.inner:
            kept = [exp.paren(test.copy(), copy=False) for test in self.sides.inner]
            inner.set("where", exp.Where(this=exp.and_(*kept, copy=False)))
        if by:
            inner.set("group", exp.Group(expressions=[node.copy() for node in by]))
        inner.meta.update(self.select.meta)
        if self.compared is not None:
            inner = self.compared.taken(inner, self.test(self.compared.query), list(keys))
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
            node = self.sides.same(self.sides.equal(node), self.groups)
        if isinstance(node, exp.Query):
            return self.query(node)
        if isinstance(node, exp.Window):
            return self.window(node)
        if isinstance(node, exp.Column) and self.sides.source(node) is None:
            item = find_alias(self.select.expressions, node)
            return node.copy() if item is None else exp.paren(self.over(item))
        if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
            return self.over(node.this)
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self.inside(node)
        if is_of_existence(node) and not self.single:
            return error_of_sum(self.counted_as(count_rows()))
        if isinstance(node, exp.Filter | exp.AggFunc | exp.WithinGroup):
            return self.aggregate(node)
        if self.sides.is_of_rows(node) and not self.is_of_keys(node):
            is_part = not isinstance(node.parent, exp.Alias | exp.Select | exp.Group | exp.Ordered)
            if isinstance(node, exp.Column) and is_part and self.sides.is_coarse(node):
                raise NotExpressible
            return _of_rows(f"k{self.place(node)}")
        return self.inside(node)

    def query(self, node: exp.Query) -> exp.Expr:
        """A sub-query; what it mentions of the rows around it is of the counted ones."""
        copy = node.copy()
        for own, new in list(
            zip(node.find_all(exp.Column), copy.find_all(exp.Column), strict=True)
        ):
            if self.sides.is_own(own):
                new.replace(self.over(own.copy()))
        return copy

    def is_of_keys(self, node: exp.Expr) -> bool:
        """True if an expression is made of keys of GROUP BY, of which sets leave some out."""
        if node in self.groups or self.testing:
            return False
        if self.has_sets:
            return any(part in self.groups for part in node.walk())
        return self.is_made(node)

    def is_made(self, node: exp.Expr) -> bool:
        """True if all columns of an expression are in keys that it has whole."""
        if isinstance(node, exp.Column) or node in self.groups:
            return node in self.groups and not any(
                map(self.sides.is_coarse, self.sides.columns(node))
            )
        return all(map(self.is_made, node.iter_expressions()))

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
        if self.sides.mentions(node):
            return self.of_answers(node)
        if self.single and self.compared is None:
            return self.counted_as(node)
        called = node.this if isinstance(node, exp.Filter) else node
        inner = called.this
        if isinstance(inner, exp.Distinct):
            raise NotExpressible
        if isinstance(called, exp.Count | exp.CountIf):
            total = self.total(node)
            zero = exp.Literal.number(0)
            return total if self.single else exp.Coalesce(this=total, expressions=[zero])
        if isinstance(called, exp.Sum):
            return self.total(node)
        if isinstance(called, exp.Avg):
            return divided(
                *(self.total(aggregate_like(node, kind)) for kind in (exp.Sum, exp.Count))
            )
        if has(called, "spread"):
            return self.spread(node, called)
        raise NotExpressible

    def spread(self, node: exp.Expr, called: exp.Expr) -> exp.Expr:
        """A variance of the rows, or the root of one, as totals of their numbers and squares."""
        value = exp.paren(called.this.copy())
        square = exp.Mul(this=value, expression=value.copy())
        one = aggregate_like(node, exp.Sum)
        two = one.copy().transform(lambda x: exp.Sum(this=square) if isinstance(x, exp.Sum) else x)
        first, second, rows = map(self.total, (one, two, aggregate_like(node, exp.Count)))
        return spread_from(called, (first, second, rows))

    def total(self, node: exp.Expr) -> exp.Expr:
        """A sum of the rows as one of counted rows."""
        total = self.counted_as(node)
        return total if self.single else exp.Sum(this=total)

    def counted_as(self, node: exp.Expr) -> exp.Column:
        if node not in self.sums:
            self.sums.append(node.copy())
        return _of_rows(f"a{self.sums.index(node)}")

    def of_answers(self, node: exp.Expr) -> exp.Expr:
        """An aggregate of numbers that stand beside every row of a group."""
        inner = node.this
        if isinstance(node, exp.Filter) and isinstance(node.expression, exp.Where):
            return self.filtered(inner, node.expression.this)
        if isinstance(node, exp.Count | exp.Sum | exp.Avg):
            value, tests = split_test(inner)
            if tests:
                called = node.copy()
                called.set("this", value.copy())
                return self.filtered(called, exp.and_(*tests))
        if isinstance(node, exp.Filter | exp.WithinGroup) or isinstance(inner, exp.Distinct):
            raise NotExpressible
        if not isinstance(inner, exp.Expr) or self.sides.parts(inner, exp.AggFunc):
            raise NotExpressible
        if isinstance(node, exp.Sum):
            weighted = self.weighted(inner)
            return weighted if self.single else exp.Sum(this=weighted)
        if not self.sides.is_plain(inner) or not isinstance(node, _ONE_VALUE):
            raise NotExpressible
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
        if isinstance(called, exp.Avg) and not self.single:
            sides = (aggregate_like(called, kind) for kind in (exp.Sum, exp.Count))
            return divided(*(self.filtered(each, test) for each in sides))
        if self.sides.mentions(called) or not isinstance(called, exp.Count | exp.Sum):
            raise NotExpressible
        if isinstance(called.this, exp.Distinct):
            raise NotExpressible
        shown = exp.If(this=self.over(test), true=self.counted_as(called))
        total = exp.Case(ifs=[shown]) if self.single else exp.Sum(this=exp.Case(ifs=[shown]))
        if isinstance(called, exp.Count):
            return exp.Coalesce(this=total, expressions=[exp.Literal.number(0)])
        return total

    def weighted(self, node: exp.Expr) -> exp.Expr:
        """The total over all rows of a group: a sum of the rows times numbers beside them."""
        node = node.unnest()
        if isinstance(node, exp.Neg):
            return exp.Neg(this=exp.paren(self.weighted(node.this)))
        terms = (
            OptionalTerms.read(node, self.sides) if isinstance(node, exp.Add | exp.Sub) else None
        )
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
        if isinstance(node, exp.Mul) and self.sides.is_plain(node.this):
            return exp.Mul(
                this=exp.paren(self.over(node.this)),
                expression=exp.paren(self.weighted(node.expression)),
            )
        if isinstance(node, exp.Mul | exp.Div) and self.sides.is_plain(node.expression):
            return type(node)(
                this=exp.paren(self.weighted(node.this)),
                expression=exp.paren(self.over(node.expression)),
            )
        if not self.sides.mentions(node) and self.sides.columns(node):
            return self.counted_as(exp.Sum(this=node.copy()))
        if self.sides.is_plain(node):
            return exp.Mul(
                this=exp.paren(self.over(node)), expression=self.counted_as(count_rows())
            )
        raise NotExpressible

    def of_terms(self, terms: OptionalTerms) -> exp.Expr:
        """The sum over the rows of which no term is NULL."""
        total: exp.Expr = self.counted_as(exp.Sum(this=terms.rows))
        if terms.plain is None:
            return total
        rows = self.counted_as(exp.Count(this=terms.optional, big_int=True))
        plain = exp.Mul(this=exp.paren(self.over(terms.plain)), expression=rows)
        return exp.Add(this=total, expression=plain)

    def is_chosen(self, node: exp.Case) -> bool:
        """True if answers alone decide which value of a CASE it is."""
        return node.this is None and all(
            self.sides.is_plain(each.this) for each in node.args["ifs"]
        )


def _named() -> exp.Identifier:
    return exp.to_identifier(ROWS, quoted=True)


def _of_rows(name: str) -> exp.Column:
    return exp.column(name, _named())
