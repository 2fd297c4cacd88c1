"""SELECT DISTINCT of keys: the same as GROUP BY them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import PublicRows
from dpsql.sql.shell.expressions import SHOWN

if TYPE_CHECKING:
    from dpsql.logical.bind.subqueries import SubqueryBinder

CLAUSES = ("group", "having", "qualify")


def grouped(tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
    """Return a statement in which SELECT DISTINCT of a private table's columns groups by them.

    What the table has is not asked: the groups are those that are declared. Others stay as they
    are, those of results and of public tables among them.
    """
    found = [each for each in tree.find_all(exp.Select) if each.args.get("distinct") is not None]
    if not found:
        return tree
    from dpsql.logical.bind.subqueries import SubqueryBinder  # most statements have none

    binder = SubqueryBinder(catalog, public)
    for select in found:
        if _is_of_keys(select, binder):
            items = [item.unalias().copy() for item in select.expressions]
            select.set("group", exp.Group(expressions=items))
            select.set("distinct", None)
            select.meta[SHOWN] = True
    return tree


def _is_of_keys(select: exp.Select, binder: SubqueryBinder) -> bool:
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") or any(select.args.get(c) for c in CLAUSES):
        return False
    names = binder.names(select)
    if names is None or names.facts is None or not names.facts.is_rows or names.facts.stays:
        return False
    refused = (exp.AggFunc, exp.Window, exp.Star, exp.Query)
    return not any(item.find(*refused) for item in select.expressions)
