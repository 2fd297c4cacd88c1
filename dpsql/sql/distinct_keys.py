"""SELECT DISTINCT of keys: the same as GROUP BY them. Of what groups show: a SELECT over them."""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.sql.expressions import SHOWN, name_of
from dpsql.sql.kinds import cte_of
from dpsql.sql.sugar import has_aggregates

CLAUSES = ("group", "having", "qualify")
_AFTER = ("order", "limit", "offset")


def grouped(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """Return a statement in which SELECT DISTINCT of a private table's columns groups by them.

    What the table has is not asked: the groups are those that are declared. One of what groups
    show is a SELECT DISTINCT over them. Others stay as they are, those of results and of public
    tables among them.
    """
    found = [each for each in tree.find_all(exp.Select) if each.args.get("distinct") is not None]
    for select in found:
        if _is_of_keys(select, catalog):
            items = [item.unalias().copy() for item in select.expressions]
            select.set("group", exp.Group(expressions=items))
            select.set("distinct", None)
            select.meta[SHOWN] = True
            continue
        outer = _over_groups(select)
        if outer is not None and select is tree:
            tree = outer
        elif outer is not None:
            select.replace(outer)
    return tree


def _over_groups(select: exp.Select) -> exp.Select | None:
    """SELECT DISTINCT of groups as one over a sub-query of theirs; None for all others."""
    groups = select.args.get("group") is not None or has_aggregates(select)
    if not groups or select.args["distinct"].args.get("on") or select.is_star:
        return None
    items = [item.unalias() for item in select.expressions]
    names = [exp.to_identifier(f"d {place}", quoted=True) for place in range(len(items))]
    shown = {name_of(item).casefold() for item in select.expressions}
    after = {name: select.args[name].copy() for name in _AFTER if select.args.get(name)}
    for each in after["order"].expressions if "order" in after else ():
        named = isinstance(each.this, exp.Column) and each.this.name.casefold() in shown
        if each.this in items:
            each.set("this", exp.column(names[items.index(each.this)].copy()))
        elif not named and not isinstance(each.this, exp.Literal | exp.Var):
            return None
    inner = select.copy()
    for name in ("distinct", "with_", *_AFTER):
        inner.set(name, None)
    pairs = list(zip(items, names, strict=True))
    inner.set("expressions", [exp.alias_(item.copy(), name.copy()) for item, name in pairs])
    source = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("groups")))
    return exp.Select(
        expressions=[
            exp.alias_(exp.column(name.copy()), name_of(item), quoted=True)
            for item, name in zip(select.expressions, names, strict=True)
        ],
        from_=exp.From(this=source),
        distinct=exp.Distinct(),
        with_=select.args.get("with_"),
        **after,
    )


def _is_of_keys(select: exp.Select, catalog: Catalog) -> bool:
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") or any(select.args.get(c) for c in CLAUSES):
        return False
    start = select.args.get("from_")
    source = start.this if start is not None else None
    if not isinstance(source, exp.Table) or cte_of(source) is not None:
        return False
    table = catalog.tables.get(source.name.casefold())
    if table is None or table.public:
        return False
    refused = (exp.AggFunc, exp.Window, exp.Star, exp.Query)
    return not any(item.find(*refused) for item in select.expressions)
