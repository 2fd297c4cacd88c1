"""Rows that windows number: which columns tell them apart, as the text of a SELECT says."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.names import find_alias


def ranked(select: exp.Expr) -> tuple[frozenset[int], ...]:
    """The places of columns that no two rows of a SELECT agree on: parts, and a number in them.

    ROW_NUMBER is one, and so are RANK and DENSE_RANK where the order tells all groups apart.

    >>> from sqlglot import parse_one
    >>> ranked(parse_one("SELECT a, RANK() OVER (PARTITION BY a ORDER BY b) FROM t GROUP BY a, b"))
    (frozenset({0, 1}),)
    """
    if not isinstance(select, exp.Select) or any(item.is_star for item in select.expressions):
        return ()
    items = [item.unalias() for item in select.expressions]
    found = []
    for place, item in enumerate(items):
        if isinstance(item, exp.Window) and _tells_apart(select, item):
            parts = [_place(items, part) for part in item.args.get("partition_by") or ()]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                found.append(frozenset({place, *known}))
    return tuple(found)


def _tells_apart(select: exp.Select, window: exp.Window) -> bool:
    """True if a window numbers the rows of a part, each differently."""
    if window.args.get("alias") or window.args.get("spec"):
        return False
    if isinstance(window.this, exp.RowNumber):
        return True
    group, order = select.args.get("group"), window.args.get("order")
    if not isinstance(window.this, exp.Rank | exp.DenseRank) or group is None or order is None:
        return False
    if any(value for key, value in group.args.items() if key != "expressions"):
        return False
    by = [*(window.args.get("partition_by") or ()), *(each.this for each in order.expressions)]
    return all(_is_key(select, key, by) for key in group.expressions)


def _is_key(select: exp.Select, key: exp.Expr, by: list[exp.Expr]) -> bool:
    if not isinstance(key, exp.Column):
        return False
    item = find_alias(select.expressions, key)
    return item is None and any(_is_same(key, each) for each in by)


def _place(items: list[exp.Expr], part: exp.Expr) -> int | None:
    return next((k for k, item in enumerate(items) if _is_same(item, part)), None)


def _is_same(one: exp.Expr, other: exp.Expr) -> bool:
    """True if two names are of one column."""
    if not isinstance(one, exp.Column) or not isinstance(other, exp.Column):
        return False
    tables = {one.table.casefold(), other.table.casefold()} - {""}
    return one.name.casefold() == other.name.casefold() and len(tables) <= 1
