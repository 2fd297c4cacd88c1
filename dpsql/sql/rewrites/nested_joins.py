"""Joins in parentheses: written without these, or as a SELECT of all columns under their alias."""

from __future__ import annotations

from sqlglot import exp

_INNER = {"", "INNER", "CROSS"}


def write_out_nested(tree: exp.Expr) -> None:
    """Write nested joins of FROM without parentheses where that says the same, in place.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT 1 FROM a JOIN (b JOIN c ON b.x = c.x) ON a.y = c.y", "duckdb")
    >>> write_out_nested(tree)
    >>> tree.sql("duckdb")
    'SELECT 1 FROM a, b JOIN c ON (b.x = c.x) AND (a.y = c.y)'
    """
    for node in list(tree.find_all(exp.Subquery)):
        first = node.this
        if isinstance(first, exp.Table) and first.args.get("joins") and node.args.get("alias"):
            joins = first.args["joins"]
            first.set("joins", None)
            select = exp.Select(expressions=[exp.Star()], from_=exp.From(this=first), joins=joins)
            node.set("this", select)
    for select in list(tree.find_all(exp.Select)):
        _open(select)


def _open(select: exp.Select) -> None:
    """Write the joins of one SELECT one after another."""
    clause, joins = select.args.get("from_"), select.args.get("joins") or []
    inner = None if clause is None else _nested(clause.this)
    found: list[exp.Join] = []
    if clause is not None and inner is not None:
        clause.set("this", inner[0])
        found += inner[1]
    for join in joins:
        found += _one_by_one(join) or [join]
    if found != joins:
        select.set("joins", found)


def _one_by_one(join: exp.Join) -> list[exp.Join] | None:
    """The joins that a join of a nested one stands for; None where it is to be left."""
    inner, on = _nested(join.this), join.args.get("on")
    if inner is None or on is None:
        return None
    first, joins = inner
    last = joins[-1]
    if not all(map(_is_inner, [join, *joins])) or last.args.get("on") is None:
        return None
    later = {each.this.alias_or_name.casefold() for each in joins}
    if all(each.table and each.table.casefold() not in later for each in on.find_all(exp.Column)):
        return [exp.Join(this=first, on=on), *joins]
    both = [exp.paren(each, copy=False) for each in (last.args["on"], on)]
    last.set("on", exp.and_(*both, copy=False))
    return [exp.Join(this=first), *joins]


def _nested(node: exp.Expr) -> tuple[exp.Table, list[exp.Join]] | None:
    """The first table and the joins of a nested join without an alias."""
    inner = node.this if isinstance(node, exp.Subquery) and not node.args.get("alias") else node
    if not isinstance(inner, exp.Table) or not inner.args.get("joins"):
        return None
    joins = list(inner.args["joins"])
    inner = inner.copy()
    inner.set("joins", None)
    return inner, joins


def _is_inner(join: exp.Join) -> bool:
    return not (join.side or join.args.get("method") or join.args.get("using")) and (
        join.kind.upper() in _INNER
    )
