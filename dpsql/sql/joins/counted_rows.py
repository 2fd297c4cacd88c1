"""``COUNT(t.*)``, the rows of one table that are there, by what else says so.

Where no outer join can leave the table without a row, they are all rows; else those in which a
column that the table is joined by is known, since NULL is equal to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.logical.functions import is_null_where

_AFTER = ("RIGHT", "FULL")
"""Joins that may leave what stands before them without a row."""


def write_out_count(node: exp.Count) -> None:
    """Write ``COUNT(t.*)`` without the star, where the FROM clause around it says how.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT COUNT(t.*) FROM p LEFT JOIN t ON t.day = p.d", read="duckdb")
    >>> write_out_count(tree.find(exp.Count)); tree.sql("duckdb")
    'SELECT COUNT(t.day) FROM p LEFT JOIN t ON t.day = p.d'
    """
    select = node.find_ancestor(exp.Select)
    start = None if select is None else select.args.get("from_")
    if select is None or start is None:
        return
    joins = select.args.get("joins") or []
    names = [each.alias_or_name.casefold() for each in (start.this, *(j.this for j in joins))]
    name = node.this.table.casefold()
    if names.count(name) != 1:
        return
    place = names.index(name)
    sides = [(join.side or "").upper() for join in joins]
    # that a table is on, and those after it may leave it without a row
    leaving = [joins[place - 1]] if place and sides[place - 1] in ("LEFT", "FULL") else []
    leaving += [j for j, side in zip(joins[place:], sides[place:], strict=True) if side in _AFTER]
    if not leaving:
        node.set("this", exp.Star())
        node.set("big_int", True)
    elif len(leaving) == 1 and (column := _joined_by(leaving[0], node.this.table)) is not None:
        node.set("this", column)


def _joined_by(join: exp.Join, table: str) -> exp.Column | None:
    """A column of a table that is known wherever it is joined."""
    for name in join.args.get("using") or ():
        return exp.column(name.name, table)
    on = join.args.get("on")
    for test in [] if on is None else _both(on):
        sides: Sequence[exp.Expr] = (test.left, test.right) if isinstance(test, exp.EQ) else ()
        for side in sides:
            columns = list(side.find_all(exp.Column))
            is_strict = is_null_where(side, lambda _: True)
            of_table = [each.table.casefold() == table.casefold() for each in columns]
            if is_strict and len(columns) == 1 and of_table[0]:
                return columns[0].copy()
    return None


def _both(test: exp.Expr) -> list[exp.Expr]:
    """The conditions that AND joins: ``scope.conjuncts``, which needs this module."""
    inner = test.unnest()
    if not isinstance(inner, exp.And):
        return [inner]
    return [*_both(inner.left), *_both(inner.right)]
