"""Whether a column with ids of units names the unit of its own row: ``gift_to = customer_id``.

Such a row has, and others have not, a row of its own unit whose id that is: EXISTS says so.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.sql.relations import Element, read_from


def compared_with_own(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """The statement with such comparisons as EXISTS; others are as they were."""
    if not any(table.unit_columns for table in catalog.tables.values()):
        return tree
    if not any(_read(node, catalog) for node in tree.find_all(exp.EQ, exp.NEQ)):
        return tree
    tree = tree.copy()
    for number, node in enumerate(list(tree.find_all(exp.EQ, exp.NEQ))):
        found = _read(node, catalog)
        if found is not None:
            node.replace(_written(node, *found, number))
    return tree


def _read(node: exp.Expr, catalog: Catalog) -> tuple[Table, exp.Column] | None:
    """The column of a comparison that names units, and its table."""
    select, sides = node.find_ancestor(exp.Select), (node.this.unnest(), node.expression.unnest())
    for column, unit in (sides, sides[::-1]) if select is not None else ():
        if isinstance(column, exp.Column) and isinstance(unit, exp.Column):
            found = None if select is None else _table_of(select, column, unit, catalog)
            if found is not None:
                named = exp.column(column.this.copy(), found[0])
                return found[1], named
    return None


def _table_of(
    select: exp.Select, column: exp.Column, unit: exp.Column, catalog: Catalog
) -> tuple[str, Table] | None:
    """The alias and table that one column names other units in, the other its own."""
    found = []
    for element in read_from(select):
        table = _private(element, catalog)
        if table is None or (table.unit.column or "").casefold() != unit.name.casefold():
            continue
        names = [each.casefold() for each in table.unit_columns]
        aliases = {"", element.alias}
        if column.name.casefold() in names and {column.table.casefold()} <= aliases:
            found.append((element.node.alias_or_name, table))
    same = [each for each in found if unit.table.casefold() in ("", each[0].casefold())]
    return same[0] if len(found) == len(same) == 1 else None


def _private(element: Element, catalog: Catalog) -> Table | None:
    node = element.node
    return catalog.tables.get(node.name.casefold()) if isinstance(node, exp.Table) else None


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
