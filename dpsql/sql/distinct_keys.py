"""SELECT DISTINCT of keys: the same as GROUP BY them, without an aggregate."""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog

CLAUSES = ("group", "having", "qualify")


def grouped(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """Return a statement in which SELECT DISTINCT of a private table's columns groups by them.

    What the table has is not asked: the groups are those that are declared. Others stay as they
    are, those of results, of public tables and of aggregates among them.
    """
    found = [select for select in tree.find_all(exp.Select) if _is_of_keys(select, catalog)]
    for select in found:
        items = [item.unalias().copy() for item in select.expressions]
        select.set("group", exp.Group(expressions=items))
        select.set("distinct", None)
    return tree


def _is_of_keys(select: exp.Select, catalog: Catalog) -> bool:
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") or any(select.args.get(c) for c in CLAUSES):
        return False
    start = select.args.get("from_")
    source = start.this if start is not None else None
    if not isinstance(source, exp.Table) or _is_common(select, source.name):
        return False
    table = catalog.tables.get(source.name.casefold())
    if table is None or table.public:
        return False
    refused = (exp.AggFunc, exp.Window, exp.Star, exp.Query)
    return not any(item.find(*refused) for item in select.expressions)


def _is_common(select: exp.Select, name: str) -> bool:
    """Whether a name is that of a WITH around a SELECT."""
    node: exp.Expr | None = select
    while node is not None:
        clause = node.args.get("with_")
        names = [each.alias.casefold() for each in clause.expressions] if clause else []
        if name.casefold() in names:
            return True
        node = node.parent
    return False
