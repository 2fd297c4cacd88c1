"""True if a column with ids of units names the unit of its own row: ``gift_to = customer_id``.

Such a row has, and others have not, a row of its own unit whose id that is: EXISTS says so.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.errors import ProgrammingError
from dpsql.logical.bind.subqueries import SubqueryBinder, SubqueryNames


def compared_with_own(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement with such comparisons as EXISTS; others are as they were."""
    if not any(table.unit_columns for table in binder.catalog.tables.values()):
        return tree
    found = [_read(node, binder) for node in tree.find_all(exp.EQ, exp.NEQ)]
    if not any(found):
        return tree
    tree = tree.copy()
    nodes = list(tree.find_all(exp.EQ, exp.NEQ))
    for number, (node, asked) in enumerate(zip(nodes, found, strict=True)):
        if asked is not None:
            node.replace(_written(node, *asked, number))
    return tree


def _read(node: exp.Expr, binder: SubqueryBinder) -> tuple[Table, exp.Column] | None:
    """The column of a comparison that names units, and its table."""
    select, sides = node.find_ancestor(exp.Select), (node.this.unnest(), node.expression.unnest())
    if select is None or not all(isinstance(side, exp.Column) for side in sides):
        return None
    names = binder.names(select)
    if names is None:
        return None
    for column, unit in (sides, sides[::-1]):
        try:
            table = _table_of(names, column, unit, binder)
        except ProgrammingError:
            return None  # refused by who compiles it
        if table is not None:
            return table
    return None


def _table_of(
    names: SubqueryNames, column: exp.Column, unit: exp.Column, binder: SubqueryBinder
) -> tuple[Table, exp.Column] | None:
    """The table that one column names other units in, beside the unit of the same row."""
    stored = names.stored(column)
    if stored is None or not names.holds_unit(unit):
        return None
    table = binder.catalog.find(stored[0])
    alias = names.source(names.column(column))
    if not alias or alias != names.source(names.column(unit)):
        return None
    if stored[1] not in map(str.casefold, table.unit_columns):
        return None
    return table, exp.column(column.this.copy(), alias)


def _written(node: exp.Expr, table: Table, column: exp.Column, number: int) -> exp.Expr:
    alias = f"own {number}"
    source = exp.Table(this=exp.to_identifier(table.name, quoted=True))
    source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    own = exp.column(str(table.unit.column), alias, quoted=True)
    inner = exp.Select(expressions=[exp.Literal.number(1)], from_=exp.From(this=source))
    inner.set("where", exp.Where(this=exp.EQ(this=own, expression=column.copy())))
    inner.meta.update(column.this.meta)
    found = exp.Exists(this=inner)
    if isinstance(node, exp.EQ):
        return found
    known = exp.Not(this=exp.Is(this=column.copy(), expression=exp.null()))
    return exp.paren(exp.and_(exp.Not(this=found), known, copy=False), copy=False)
