"""SEMI and ANTI JOIN as EXISTS; EXISTS over public rows or answers as IN, by one equality.

A row stays, or goes, where it has a partner: what is joined adds neither columns nor rows.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.logical.bind.subqueries import SubqueryBinder
from dpsql.sql.rewrites.tree_parts import set_where

_HALF = ("SEMI", "ANTI")


def as_conditions(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement without SEMI and ANTI joins, and EXISTS over public rows and answers."""
    joins = [join for join in tree.find_all(exp.Join) if join.args.get("kind") in _HALF]
    if not joins and tree.find(exp.Exists) is None:
        return tree
    tree = tree.copy()
    for select in list(tree.find_all(exp.Select)):
        _write_out(select)
    for node in list(tree.find_all(exp.Exists)):
        found = _as_membership(node, binder)
        if found is not None:
            node.replace(found)
    return tree


def _write_out(select: exp.Select) -> None:
    """Write the SEMI and ANTI joins of a SELECT as conditions, unless others keep rows without."""
    joins = select.args.get("joins") or []
    half = [join for join in joins if join.args.get("kind") in _HALF]
    whole = any(join.args.get("side") in ("RIGHT", "FULL") for join in joins)
    start = select.args.get("from_")
    if not half or whole or start is None:
        return
    for join in half:
        test = _test_of(join, start.this.alias_or_name)
        if test is None or join.args.get("method"):
            continue
        query = exp.Select(
            expressions=[exp.Literal.number(1)],
            from_=exp.From(this=join.this.copy()),
            where=exp.Where(this=test),
        )
        found: exp.Expr = exp.Exists(this=query)
        if join.args["kind"] == "ANTI":
            found = exp.Not(this=found)
        where = select.args.get("where")
        set_where(select, [*([] if where is None else [where.this]), found])
        joins.remove(join)
    select.set("joins", joins)


def _test_of(join: exp.Join, first: str) -> exp.Expr | None:
    """The condition of a join; columns of USING are those of the first table."""
    if join.args.get("on") is not None:
        test: exp.Expr = join.args["on"].copy()
        return test
    using, alias = join.args.get("using"), join.this.alias_or_name
    if not using or not first or not alias:
        return None
    pairs = [
        exp.EQ(this=exp.column(each.name, first), expression=exp.column(each.name, alias))
        for each in using
    ]
    return exp.and_(*pairs, copy=False)


def _as_membership(node: exp.Exists, binder: SubqueryBinder) -> exp.Expr | None:
    """EXISTS with one equality with what is around as IN; None where rows are private."""
    query = node.this
    if not isinstance(query, exp.Select) or query.args.get("group") or query.args.get("limit"):
        return None
    inside = binder.names(query)
    if inside is None or inside.facts is None or inside.facts.is_private:
        return None
    found = inside.conditions(query)
    if len(found.pairs) != 1 or found.mixed:
        return None
    ((listed, outer),) = found.pairs
    known = exp.Not(this=exp.Is(this=exp.paren(listed.copy()), expression=exp.null()))
    inner = query.copy()
    inner.set("expressions", [listed.copy()])
    set_where(inner, [*found.own, known])
    member = exp.In(this=exp.paren(outer.copy()), query=exp.Subquery(this=inner))
    return exp.Coalesce(this=member, expressions=[exp.false()])
