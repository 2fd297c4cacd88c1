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
from dpsql.logical.functions import conjuncts, has_aggregates
from dpsql.records import dataclass, replace
from dpsql.sql.relations import read_from
from dpsql.sql.rewrites.tree_parts import set_where

_KNOWN = {"expressions", "from_", "where"}
_SUMS = (exp.Min, exp.Max, exp.Sum, exp.Avg, exp.Count)
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


def join_public_lookups(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement with sub-queries of one value over public rows joined; others are as they were.

    ``(SELECT name FROM cities c WHERE c.id = t.city)`` is a column of ``LEFT JOIN cities c ON c.id
    = t.city``, where no two cities share the key; an aggregate of the cities of a key is one, too.
    """
    found = [_of_public(node, binder) for node in tree.find_all(exp.Subquery)]
    if not any(found):
        return tree
    tree = tree.copy()
    for number, node in enumerate(list(tree.find_all(exp.Subquery))):
        lookup, around = found[number], node.find_ancestor(exp.Select)
        if lookup is not None and around is not None:
            place = next((part.meta for part in node.walk() if "start" in part.meta), {})
            for part in lookup.join(node, around, number).find_all(exp.Identifier):
                part.meta.update(place)
    return tree


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A sub-query of one value: its keys beside what they equal outside, its other conditions.

    It is ``grouped`` by its keys where these may be those of several rows.
    """

    query: exp.Select
    value: exp.Expr
    pairs: Sequence[tuple[exp.Expr, exp.Expr]]
    own: Sequence[exp.Expr]
    grouped: bool = True

    def join(self, node: exp.Subquery, around: exp.Select, number: int) -> exp.Expr:
        """Join what the sub-query looks up, and put its value in its place, which is returned."""
        alias = f"looked up {number}"
        keys = [f"{alias} by {k}" for k in range(len(self.pairs))]  # no column is called so
        own = [each.copy() for each, _ in self.pairs]
        items = [exp.alias_(each, key, quoted=True) for key, each in zip(keys, own, strict=True)]
        inner = self.query.copy()
        inner.set("expressions", [*items, exp.alias_(self.value.copy(), alias, quoted=True)])
        if self.grouped:
            inner.set("group", exp.Group(expressions=[each.copy() for each in own]))
        set_where(inner, self.own)
        met = [to.copy() for _, to in self.pairs]
        on = [exp.EQ(this=_of(k, alias), expression=to) for k, to in zip(keys, met, strict=True)]
        quoted = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
        joined = exp.Subquery(this=inner, alias=quoted)
        around.append("joins", exp.Join(this=joined, side="LEFT", on=exp.and_(*on, copy=False)))
        found: exp.Expr = _of(alias, alias)
        if _is_count(self.value):
            none = self.value.transform(_none_counted)
            found = exp.Coalesce(this=found, expressions=[none])
        node.replace(found)
        return found


def _join(node: exp.Subquery, number: int, binder: SubqueryBinder) -> None:
    """Join one sub-query to the SELECT around it, if it is such a one."""
    query, around = node.this, node.find_ancestor(exp.Select)
    is_test = isinstance(node.parent, exp.Binary) and node.find_ancestor(exp.Where) is not None
    if not isinstance(query, exp.Select) or around is None:
        return
    by_unit = is_by_unit(query, binder)
    is_item = not by_unit and _is_item(node, binder)
    if not (is_test or is_item or by_unit):
        return
    if len(query.expressions) != 1 or query.args.get("group"):
        return
    value = query.expressions[0].unalias()
    if not has_aggregates(query):
        if not (is_item and binder.is_public(query)):
            return
        single = exp.EQ(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(1))
        value = exp.Case(ifs=[exp.If(this=single, true=exp.AnyValue(this=value.copy()))])
    inside = binder.names(query)
    tests = None if inside is None else inside.conditions(query)
    if inside is None or tests is None or tests.mixed or not tests.pairs:
        return
    value = value if by_unit or _is_count(value) else _of_some(value)
    found = _Lookup(query, value, tests.pairs, tests.own)
    own = [one for one, _ in tests.pairs if isinstance(one, exp.Column)]
    stored = [inside.origin(each) for each in own]
    if math.prod(each.size for each in stored if each and each.domain is not None) > MOST_GROUPS:
        found = _restricted(found, around, node, binder)
    found.join(node, around, number)


def _of_public(node: exp.Subquery, binder: SubqueryBinder) -> _Lookup | None:
    """The value that such a sub-query looks up; None for all others."""
    query, around = node.this, node.find_ancestor(exp.Select)
    if not isinstance(query, exp.Select) or around is None or not _is_value(node, around):
        return None
    if len(query.expressions) != 1 or query.args.get("where") is None or not _is_plain(query):
        return None
    inside, item = binder.names(query), query.expressions[0].unalias()
    if inside is None or not inside.has_all(item):
        return None
    tests = inside.conditions(query)
    pairs = [(key, other) for key, other in tests.pairs if isinstance(key, exp.Column)]
    if not pairs or len(pairs) < len(tests.pairs) or tests.mixed:
        return None
    if _is_beside_groups(node, around):
        return None
    if inside.facts is None or not inside.facts.is_public:
        return None
    grouped = has_aggregates(item)
    keys = {inside.column(key) for key, _ in pairs}
    is_one = isinstance(item, _SUMS) if grouped else inside.facts.rows == 1
    is_one = is_one or (not grouped and binder.is_unique(inside.plan, keys, known=True))
    return _Lookup(query, item, pairs, tests.own, grouped) if is_one else None


def _is_value(node: exp.Subquery, around: exp.Select) -> bool:
    """True if a sub-query is a value in the SELECT around it, which shows what it names."""
    parent = node.parent
    if isinstance(parent, exp.From | exp.Join | exp.In | exp.Exists | exp.Any | exp.All | exp.CTE):
        return False
    if node.find_ancestor(exp.Join, exp.Select) is not around or not around.args.get("from_"):
        return False
    return not any(item.is_star for item in around.expressions)


def _is_beside_groups(node: exp.Subquery, around: exp.Select) -> bool:
    """True if a value stands beside GROUP BY and is no key itself: it follows from the keys."""
    group = around.args.get("group")
    item = next((each for each in around.expressions if any(p is node for p in each.walk())), None)
    if group is None or item is None or node.find_ancestor(exp.AggFunc, exp.Select) is not around:
        return False
    named = {each.name.casefold() for each in group.expressions}
    place = str(around.expressions.index(item) + 1)
    return not group.args.get("all") and item.alias.casefold() not in named and place not in named


def _is_plain(query: exp.Select) -> bool:
    """True where a sub-query has items, FROM and WHERE alone, and sub-queries in FROM alone."""
    clause = query.args.get("from_")
    within = [query, *([] if clause is None else clause.find_all(exp.Query))]
    extra = any(value for key, value in query.args.items() if key not in _KNOWN)
    return not extra and all(
        any(each is one for one in within) for each in query.find_all(exp.Query)
    )


def _may_join(node: exp.Subquery) -> bool:
    return not isinstance(node.parent, exp.From | exp.Join | exp.In | exp.SetOperation)


def is_by_unit(query: exp.Select, binder: SubqueryBinder) -> bool:
    """True if a sub-query is of the rows of one privacy unit, which one around it names alone."""
    inside = binder.names(query)
    own = [] if inside is None else [one for one, _ in inside.conditions(query).pairs]
    if inside is None or len(own) != 1:
        return False
    return isinstance(own[0], exp.Column) and inside.holds_unit(own[0])


def _is_item(node: exp.Subquery, binder: SubqueryBinder) -> bool:
    """True if a sub-query is in an item of a SELECT that shows answers as they are."""
    around = node.find_ancestor(exp.Select)
    if around is None or around.args.get("group") or has_aggregates(around):
        return False
    if not any(part is node for item in around.expressions for part in item.walk()):
        return False
    names = binder.names(around)
    return names is not None and names.facts is not None and not names.facts.is_private


def _of(name: str, alias: str) -> exp.Column:
    return exp.column(*(exp.to_identifier(each, quoted=True) for each in (name, alias)))


def _of_some(value: exp.Expr) -> exp.Expr:
    """A value that is NULL for a group without rows."""
    some = exp.GTE(this=exp.Count(this=exp.Star()), expression=exp.Literal.number("0.5"))
    return exp.Case(ifs=[exp.If(this=some, true=value.copy())])


def _is_count(value: exp.Expr) -> bool:
    return {type(each) for each in value.find_all(exp.AggFunc)} == {exp.Count}


def _none_counted(node: exp.Expr) -> exp.Expr:
    return exp.Literal.number(0) if isinstance(node, exp.Count) else node


def _restricted(
    found: _Lookup, around: exp.Select, node: exp.Subquery, binder: SubqueryBinder
) -> _Lookup:
    """Ask for the groups that the SELECT around looks at, where that is over one public table."""
    elements = read_from(around)
    if len(elements) != 1 or not binder.is_public(elements[0].node):
        return found
    where = around.args.get("where")
    tests = [] if where is None else conjuncts(where.this)
    public = [
        test
        for test in tests
        if not any(each is node for each in test.walk())
        and all(map(binder.is_public, test.find_all(exp.Query)))
    ]
    keys = [exp.alias_(theirs.copy(), f"l{k}") for k, (_, theirs) in enumerate(found.pairs)]
    listed = exp.Select(
        expressions=keys, from_=around.args["from_"].copy(), distinct=exp.Distinct()
    )
    set_where(listed, public)
    alias = exp.TableAlias(this=exp.to_identifier("looked at", quoted=True))
    query = found.query.copy()
    query.append("joins", exp.Join(this=exp.Subquery(this=listed, alias=alias)))
    keyed = [_of(f"l{k}", "looked at") for k in range(len(keys))]
    pairs = [(key, to) for key, (_, to) in zip(keyed, found.pairs, strict=True)]
    met = zip(found.pairs, keyed, strict=True)
    equal = [exp.EQ(this=own.copy(), expression=key.copy()) for (own, _), key in met]
    return replace(found, query=query, pairs=pairs, own=[*found.own, *equal])
