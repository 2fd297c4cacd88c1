"""Scalar sub-queries over a public table that depend on the row around them: joined by their keys.

``(SELECT name FROM cities c WHERE c.id = t.city)`` is a column of ``LEFT JOIN cities c ON c.id =
t.city``, where no two cities share the key; an aggregate of the cities of a key is one, too.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.logical.bind.subqueries import SubqueryBinder
from dpsql.records import dataclass
from dpsql.sql.kinds import cte_of
from dpsql.sql.relations import PublicRows, read_from
from dpsql.sql.rewritten import set_where
from dpsql.sql.sugar import has_aggregates

_KNOWN = {"expressions", "from_", "where"}
_SUMS = (exp.Min, exp.Max, exp.Sum, exp.Avg, exp.Count)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A sub-query of one value: its keys beside what they equal outside, its other conditions."""

    query: exp.Select
    pairs: tuple[tuple[exp.Column, exp.Expr], ...]
    rest: tuple[exp.Expr, ...]


def looked_up(tree: exp.Expr, binder: SubqueryBinder, public: PublicRows) -> exp.Expr:
    """The statement with such sub-queries joined; others are as they were."""
    if not any(_read(node, binder, public) for node in tree.find_all(exp.Subquery)):
        return tree
    tree = tree.copy()
    for number, node in enumerate(list(tree.find_all(exp.Subquery))):
        found, around = _read(node, binder, public), node.find_ancestor(exp.Select)
        if found is not None and around is not None:
            _join(node, found, around, f"looked up {number}")
    return tree


def _read(node: exp.Subquery, binder: SubqueryBinder, public: PublicRows) -> _Lookup | None:
    """What such a sub-query looks up; None for all others."""
    query, around = node.this, node.find_ancestor(exp.Select)
    if not isinstance(query, exp.Select) or around is None or not _is_value(node, around):
        return None
    table = _public_table(query, binder.catalog)
    if table is None or len(query.expressions) != 1 or query.args.get("where") is None:
        return None
    inside, item = binder.names(query), query.expressions[0].unalias()
    if inside is None or not inside.has_all(item):
        return None
    tests = inside.conditions(query)
    pairs = [(key, other) for key, other in tests.pairs if isinstance(key, exp.Column)]
    if not pairs or len(pairs) < len(tests.pairs) or tests.mixed:
        return None
    if _is_beside_groups(node, around) and not _are_keys(pairs, around):
        return None
    keys = [key.name for key, _ in pairs]
    is_one = isinstance(item, _SUMS) if has_aggregates(item) else _is_unique(table, keys, public)
    return _Lookup(query, tuple(pairs), tests.own) if is_one else None


def _is_value(node: exp.Subquery, around: exp.Select) -> bool:
    """Whether a sub-query is a value in the SELECT around it, which shows what it names."""
    parent = node.parent
    if isinstance(parent, exp.From | exp.Join | exp.In | exp.Exists | exp.Any | exp.All | exp.CTE):
        return False
    if node.find_ancestor(exp.Join, exp.Select) is not around or not around.args.get("from_"):
        return False
    return not any(item.is_star for item in around.expressions)


def _are_keys(pairs: list[tuple[exp.Column, exp.Expr]], around: exp.Select) -> bool:
    """Whether what a sub-query depends on are keys of GROUP BY."""
    keys = around.args["group"].expressions
    named = {key.name.casefold() for key in keys if isinstance(key, exp.Column)}
    columns = [column for _, side in pairs for column in side.find_all(exp.Column)]
    return all(column.name.casefold() in named for column in columns)


def _is_beside_groups(node: exp.Subquery, around: exp.Select) -> bool:
    """Whether a value stands beside GROUP BY and is no key itself: it follows from the keys."""
    group = around.args.get("group")
    item = next((each for each in around.expressions if any(p is node for p in each.walk())), None)
    if group is None or item is None or node.find_ancestor(exp.AggFunc, exp.Select) is not around:
        return False
    named = {each.name.casefold() for each in group.expressions}
    place = str(around.expressions.index(item) + 1)
    return not group.args.get("all") and item.alias.casefold() not in named and place not in named


def _public_table(query: exp.Select, catalog: Catalog) -> Table | None:
    """The one public table that a sub-query is of, and of nothing else."""
    found = read_from(query)
    extra = any(value for key, value in query.args.items() if key not in _KNOWN)
    if len(found) != 1 or extra or any(each is not query for each in query.find_all(exp.Query)):
        return None
    node = found[0].node
    if not isinstance(node, exp.Table) or node.args.get("db") or cte_of(node) is not None:
        return None
    table = catalog.tables.get(node.name.casefold())
    return table if table is not None and table.public else None


def _is_unique(table: Table, keys: list[str], public: PublicRows) -> bool:
    """Whether no two rows share the keys."""
    columns = {name.casefold(): values for name, (_, values) in public(table).items()}
    rows = list(zip(*(columns[key.casefold()] for key in keys), strict=True))
    return len(set(rows)) == len(rows)


def _join(node: exp.Subquery, found: _Lookup, around: exp.Select, name: str) -> None:
    """Join what a sub-query looks up, and take its value."""
    query, item = found.query, found.query.expressions[0].unalias()
    keys = [exp.alias_(key.copy(), f"{name} k{i}") for i, (key, _) in enumerate(found.pairs)]
    value = exp.alias_(item.copy(), f"{name} v", quoted=True)
    keys = [exp.alias_(each.this, each.alias, quoted=True) for each in keys]
    inner = exp.Select(expressions=[*keys, value], from_=query.args["from_"].copy())
    set_where(inner, found.rest)
    if has_aggregates(item):
        inner.set("group", exp.Group(expressions=[key.copy() for key, _ in found.pairs]))
    inner.meta.update(query.meta)
    alias = exp.to_identifier(name, quoted=True)
    equal = [
        exp.EQ(
            this=exp.column(exp.to_identifier(key.alias, quoted=True), alias.copy()),
            expression=side.copy(),
        )
        for key, (_, side) in zip(keys, found.pairs, strict=True)
    ]
    joined = exp.Subquery(this=inner, alias=exp.TableAlias(this=alias))
    join = exp.Join(this=joined, side="LEFT", on=exp.and_(*equal, copy=False))
    around.append("joins", join)
    shown: exp.Expr = exp.column(exp.to_identifier(f"{name} v", quoted=True), alias.copy())
    if _is_beside_groups(node, around):
        around.args["group"].append("expressions", shown.copy())
    if isinstance(item, exp.Count):
        shown = exp.Coalesce(this=shown, expressions=[exp.Literal.number(0)])
    place = next((part.meta for part in node.walk() if "start" in part.meta), {})
    for part in shown.walk():
        if isinstance(part, exp.Identifier):
            part.meta.update(place)
    node.replace(shown)
