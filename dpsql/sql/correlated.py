"""Scalar sub-queries that depend on the row around them by equalities: joined by their keys.

``WHERE n > (SELECT AVG(n) FROM t WHERE t.k = s.k)`` over tables of the shell is a LEFT JOIN with
``SELECT k, AVG(n) FROM t GROUP BY k``. A group in which less than half a row is counted is taken
for an empty one, whose aggregate is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from dpsql.logical.bind.subqueries import SubqueryBinder
from dpsql.sql.relations import read_from
from dpsql.sql.rewritten import set_where
from dpsql.sql.scope import conjuncts
from dpsql.sql.sugar import has_aggregates

OVER_GROUPS = "over groups"
"""Marks a SELECT that is over the groups of another."""
MOST_GROUPS = 100_000
"""Groups of a sub-query by all declared keys; of more, those are asked for that are looked at."""


def decorrelated(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement with such sub-queries joined; others are as they were."""
    if not any(_may_join(node) for node in tree.find_all(exp.Subquery)):
        return tree
    tree = tree.copy()
    for number, node in enumerate(list(tree.find_all(exp.Subquery))):
        _join(node, number, binder)
    return tree


def _join(node: exp.Subquery, number: int, binder: SubqueryBinder) -> None:
    """Join one sub-query to the SELECT around it, if it is such a one."""
    query, around = node.this, node.find_ancestor(exp.Select)
    is_test = isinstance(node.parent, exp.Binary) and node.find_ancestor(exp.Where) is not None
    if not isinstance(query, exp.Select) or around is None:
        return
    by_unit = is_by_unit(query, binder)
    if not (is_test or _is_item(node) or by_unit):
        return
    if len(query.expressions) != 1 or query.args.get("group"):
        return
    if not has_aggregates(query):
        if not (_is_item(node) and binder.is_public(query)):
            return
        (item,) = query.expressions
        single = exp.EQ(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(1))
        value = exp.AnyValue(this=item.unalias())
        query.set("expressions", [exp.Case(ifs=[exp.If(this=single, true=value)])])
    inside = binder.names(query)
    tests = None if inside is None else inside.conditions(query)
    if inside is None or tests is None or tests.mixed or not tests.pairs:
        return
    met = tests.pairs
    alias = f"looked up {number}"
    inner = query.copy()
    value = query.expressions[0].unalias()
    own = [one for one, _ in met]
    keys = [f"{alias} by {k}" for k in range(len(own))]  # no column around it is called so
    items = [exp.alias_(each.copy(), key, quoted=True) for key, each in zip(keys, own, strict=True)]
    shown = value.copy() if by_unit else _of_some(value)
    inner.set("expressions", [*items, exp.alias_(shown, alias, quoted=True)])
    inner.set("group", exp.Group(expressions=[each.copy() for each in own]))
    asked = list(tests.own)
    stored = [inside.origin(each) for each in own if isinstance(each, exp.Column)]
    if math.prod(each.size for each in stored if each and each.domain is not None) > MOST_GROUPS:
        _restrict(inner, met, around, node, asked, binder)
    set_where(inner, asked)
    quoted = exp.to_identifier(alias, quoted=True)
    on = [exp.EQ(this=_of(k, alias), expression=to) for k, (_, to) in zip(keys, met, strict=True)]
    join = exp.Join(
        this=exp.Subquery(this=inner, alias=exp.TableAlias(this=quoted)),
        side="LEFT",
        on=exp.and_(*on, copy=True),
    )
    around.append("joins", join)
    found: exp.Expr = _of(alias, alias)
    if _is_count(value):
        found = exp.Coalesce(this=found, expressions=[value.transform(_none_counted)])
    node.replace(found)


def _may_join(node: exp.Subquery) -> bool:
    return not isinstance(node.parent, exp.From | exp.Join | exp.In | exp.SetOperation)


def is_by_unit(query: exp.Select, binder: SubqueryBinder) -> bool:
    """Whether a sub-query is of the rows of one privacy unit, which one around it names alone."""
    inside = binder.names(query)
    own = [] if inside is None else [one for one, _ in inside.conditions(query).pairs]
    if inside is None or len(own) != 1:
        return False
    return isinstance(own[0], exp.Column) and inside.holds_unit(own[0])


def _is_item(node: exp.Subquery) -> bool:
    """Whether a sub-query is in an item of a SELECT over its own groups."""
    around = node.find_ancestor(exp.Select)
    return around is not None and bool(around.meta.get(OVER_GROUPS))


def _of(name: str, alias: str) -> exp.Column:
    return exp.column(*(exp.to_identifier(each, quoted=True) for each in (name, alias)))


def _of_some(value: exp.Expr) -> exp.Expr:
    """A value that is NULL for a group without rows; a count of none is 0."""
    if _is_count(value):
        return value.copy()
    some = exp.GTE(this=exp.Count(this=exp.Star()), expression=exp.Literal.number("0.5"))
    return exp.Case(ifs=[exp.If(this=some, true=value.copy())])


def _is_count(value: exp.Expr) -> bool:
    return all(isinstance(each, exp.Count) for each in value.find_all(exp.AggFunc))


def _none_counted(node: exp.Expr) -> exp.Expr:
    return exp.Literal.number(0) if isinstance(node, exp.Count) else node


def _restrict(
    inner: exp.Select,
    met: Sequence[tuple[exp.Expr, exp.Expr]],
    around: exp.Select,
    node: exp.Subquery,
    asked: list[exp.Expr],
    binder: SubqueryBinder,
) -> None:
    """Ask for the groups that the SELECT around looks at, where that is over one public table."""
    elements = read_from(around)
    if len(elements) != 1 or not binder.is_public(elements[0].node):
        return
    where = around.args.get("where")
    tests = [] if where is None else conjuncts(where.this)
    public = [
        test
        for test in tests
        if not any(each is node for each in test.walk())
        and all(map(binder.is_public, test.find_all(exp.Query)))
    ]
    keys = [exp.alias_(theirs.copy(), f"l{k}") for k, (_, theirs) in enumerate(met)]
    listed = exp.Select(
        expressions=keys, from_=around.args["from_"].copy(), distinct=exp.Distinct()
    )
    set_where(listed, public)
    alias = exp.TableAlias(this=exp.to_identifier("looked at", quoted=True))
    inner.append("joins", exp.Join(this=exp.Subquery(this=listed, alias=alias)))
    for k, (own, _) in enumerate(met):
        asked.append(exp.EQ(this=own.copy(), expression=_of(f"l{k}", "looked at")))
    keyed = [_of(f"l{k}", "looked at") for k in range(len(met))]
    inner.set("group", exp.Group(expressions=[each.copy() for each in keyed]))
    for item, key in zip(inner.expressions, keyed, strict=False):
        item.set("this", key)
