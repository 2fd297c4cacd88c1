"""INTERSECT, EXCEPT and UNION of keys of private rows, without their unit: which keys have rows.

``SELECT brand FROM shop_sales INTERSECT SELECT brand FROM web_sales`` asks which values anybody
has. No row can say that of others, so each side becomes an answer: the keys whose noisy number of
rows is above what noise alone makes likely. They are declared keys, of which each has a count.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.sql.kinds import Kinds
from dpsql.sql.relations import read_from
from dpsql.sql.rewritten import ERRORS, with_rows
from dpsql.sql.sugar import has_aggregates

COUNTED = "counted keys"
"""Marks a SELECT that was written so."""
NOTE = (
    f"a side of a set operation has the keys whose noisy number of rows is over {ERRORS} standard "
    "errors; GROUP BY with HAVING COUNT(*) > 10 says otherwise"
)
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "distinct", "with_", "kind"}


def counted(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """The statement with such sides as answers; others are as they were."""
    tree, kinds = tree.copy(), Kinds(catalog)
    for whole in reversed(list(tree.find_all(exp.SetOperation))):
        if not whole.args.get("distinct"):
            continue
        sides = [side.unnest() for side in (whole.this, whole.expression)]
        lists = [side for side in sides if _lists_keys(side, kinds, isinstance(whole, exp.Union))]
        if all(side in lists or kinds.of(side) != "rows" for side in sides):
            for side in lists:
                _count(side)
    return tree


def _lists_keys(select: exp.Expr, kinds: Kinds, is_union: bool) -> bool:
    """Whether a SELECT over private rows lists columns with a domain, and no unit or other key.

    DISTINCT keys are those that are declared, which UNION has as they are.
    """
    if not isinstance(select, exp.Select):
        return False
    group, distinct = select.args.get("group"), select.args.get("distinct")
    used = {key for key, value in select.args.items() if value}
    items = [item.unalias() for item in select.expressions]
    if not used <= _CLAUSES or has_aggregates(select) or (is_union and (group or distinct)):
        return False
    if distinct is not None and distinct.args.get("on"):
        return False
    if group is not None and {*group.args["expressions"]} != {*items}:
        return False
    elements = [each.node for each in read_from(select)]
    if "rows" not in map(kinds.of, elements) or any(item.is_star for item in items):
        return False
    return all(
        item.find(exp.Column)
        and not kinds.is_coarse_item(select, item)
        and not item.find(exp.Query, exp.Window)
        and all(kinds.has_cells(select, column) for column in item.find_all(exp.Column))
        for item in items
    )


def _count(select: exp.Select) -> None:
    """Group by all items, and keep the groups with rows."""
    items = [item.unalias().copy() for item in select.expressions]
    select.set("distinct", None)
    select.set("group", exp.Group(expressions=items))
    select.set("having", exp.Having(this=with_rows()))
    select.meta[COUNTED] = True
