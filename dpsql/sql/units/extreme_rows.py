"""ARG_MAX and ARG_MIN for each privacy unit: of each, the row that is first in an order."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.catalog import Table


def row_taken(
    node: exp.Select, table: Table, resolve: Callable[[exp.Expr], exp.Expr]
) -> exp.Select | None:
    """A SELECT by privacy unit of ARG_MAX and ARG_MIN alone as one of the rows that these take.

    ``resolve`` writes a name as a column of the table. None where other aggregates stand beside
    them, or a unit might have no such row.
    """
    group, unit = node.args.get("group"), table.unit.column
    clauses = ("joins", "having", "qualify", "distinct", "order", "limit", "offset")
    if group is None or unit is None or any(node.args.get(each) for each in clauses):
        return None
    keys = group.expressions
    if len(keys) != 1 or not _is_column(keys[0], unit):
        return None
    taken: list[exp.Expr] = []
    items: list[exp.Expr] = []
    for item in node.expressions:
        inner = item.unalias()
        if isinstance(inner, exp.ArgMax | exp.ArgMin) and item.alias:
            parts = (resolve(each).unnest() for each in (inner.this, inner.expression))
            if not all(_is_known(each, table) for each in parts):
                return None
            taken.append(inner)
            items.append(exp.alias_(inner.this.copy(), item.alias, quoted=True))
        elif _is_column(inner, unit):
            items.append(item.copy())
        else:
            return None
    orders = {(type(each), each.expression) for each in taken}
    if len(orders) != 1 or any(each.args.get("count") for each in taken):
        return None
    by = exp.Ordered(this=taken[0].expression.copy(), desc=isinstance(taken[0], exp.ArgMax))
    window = exp.Window(
        this=exp.RowNumber(), partition_by=[keys[0].copy()], order=exp.Order(expressions=[by])
    )
    found = node.copy()
    found.set("group", None)
    found.set("expressions", items)
    test = exp.EQ(this=window, expression=exp.Literal.number(1))
    found.set("qualify", exp.Qualify(this=test))
    return found


def _is_column(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name.casefold() == name.casefold()


def _is_known(node: exp.Expr, table: Table) -> bool:
    """True if a node is a column that is never NULL."""
    column = table.columns.get(node.name.casefold()) if isinstance(node, exp.Column) else None
    return column is not None and not column.null
