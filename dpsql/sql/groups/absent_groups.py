"""Groups that no row is in: asked for existence where the logical plan says that it matters.

The rule is ``logical.existence``. What it asks for is written as the HAVING that every later step
knows: the noisy number of rows is above what noise alone makes likely.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import PublicRows
from dpsql.errors import Error
from dpsql.logical.bind.binder import bind_query
from dpsql.logical.bind.catalog_schema import CatalogSchema
from dpsql.logical.bind.scope import NotYetBoundError
from dpsql.logical.existence import groups_asked
from dpsql.logical.expressions import ColumnId
from dpsql.logical.rules import ruled
from dpsql.sql.rewrites.tree_parts import ERRORS, all_of, with_rows

NOTE = (
    "where it matters which groups exist, those do whose noisy number of rows is over half a row "
    f"and {ERRORS} standard errors: HAVING COUNT(*) > ... says otherwise"
)


def existing(tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
    """Return a query whose groups are asked for existence where that matters; itself if nowhere.

    One without a plan stays as it is: it is refused later, or of a form that is not bound yet.

    Args:
        tree: it is not changed.
        catalog: of its tables.
        public: tells the columns of public tables.
    """
    if not any(_may_be_asked(each, tree) for each in tree.find_all(exp.Query)):
        return tree
    selects: dict[ColumnId, exp.Select] = {}
    try:
        bound = bind_query(tree, CatalogSchema(catalog, public), None, selects)
        asked = groups_asked(ruled(bound), catalog)
    except (Error, NotYetBoundError):
        return tree
    found = {id(selects[column]) for column in asked if column in selects}
    if not found:
        return tree
    copy = tree.copy()
    for old, new in list(zip(tree.find_all(exp.Select), copy.find_all(exp.Select), strict=True)):
        if id(old) in found:
            _ask(new)
    return copy


def _may_be_asked(query: exp.Expr, tree: exp.Expr) -> bool:
    """Say whether a query has groups that something within the statement is made of."""
    grouped = query.args.get("group") is not None or query.args.get("distinct") is not None
    return isinstance(query, exp.SetOperation) or (grouped and query is not tree)


def _ask(select: exp.Select) -> None:
    """Keep the groups that have rows; values that are listed are groups."""
    if select.args.get("group") is None:
        if select.is_star:
            return  # refused later, in its own words
        items = [item.unalias().copy() for item in select.expressions]
        select.set("distinct", None)
        select.set("group", exp.Group(expressions=items))
    having = select.args.get("having")
    tests = [with_rows(), *([] if having is None else [having.this])]
    select.set("having", exp.Having(this=all_of(tests)))
