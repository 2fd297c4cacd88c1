"""Columns whose keys were found together: a SELECT about all of them has their combinations.

Each is then a part of the text that names a combination.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.catalog.composite_keys import joint_columns, parts_of
from dpsql.catalog.discovery import SEPARATOR


def together(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """Return a statement whose SELECTs take columns from their combinations where they are known.

    A SELECT mentions all of the columns, by their names, or each stands for itself.
    """
    known = {name: table for name, table in catalog.tables.items() if joint_columns(table)}
    if not known:
        return tree
    for select in list(tree.find_all(exp.Select)):
        for source in _sources(select):
            if source.name.casefold() in known:
                _rewrite(select, source, known[source.name.casefold()])
    return tree


def _sources(select: exp.Select) -> Iterator[exp.Table]:
    start = select.args.get("from_")
    for clause in (start, *(select.args.get("joins") or ())):
        if clause is not None and isinstance(clause.this, exp.Table):
            yield clause.this


def _rewrite(select: exp.Select, source: exp.Table, table: Table) -> None:
    aliases = ("", source.alias_or_name.casefold())
    mentioned = [c for c in _columns(select) if c.table.casefold() in aliases]
    names = {column.name.casefold() for column in mentioned}
    for key, column in joint_columns(table).items():
        parts = {name: (place, kind) for place, (kind, name) in enumerate(parts_of(column))}
        if parts.keys() <= names:
            for each in mentioned:
                if each.name.casefold() in parts:
                    _replace(each, _part(key, *parts[each.name.casefold()]))
            return


def _columns(select: exp.Select) -> list[exp.Column]:
    """The columns that a SELECT mentions itself."""
    found = select.find_all(exp.Column)
    return [column for column in found if column.find_ancestor(exp.Select) is select]


def _part(key: str, place: int, kind: str) -> exp.Expr:
    """The value of one column of a combination; a number that is none is NULL."""
    whole = exp.column(exp.to_identifier(key, quoted=True))
    literals = (exp.Literal.string(SEPARATOR), exp.Literal.number(place + 1))
    part: exp.Expr = exp.SplitPart(this=whole, delimiter=literals[0], part_index=literals[1])
    if kind == "integer":
        part = exp.cast(exp.Nullif(this=part, expression=exp.Literal.string("")), "BIGINT")
    return part


def _replace(column: exp.Column, part: exp.Expr) -> None:
    """Put a part in the place of a column, under its name where that is shown."""
    for node in part.walk():
        node.meta.update(column.this.meta)
    if isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
        part = exp.alias_(part, column.name, quoted=True)
    column.replace(part)
