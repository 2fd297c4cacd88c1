"""What SQL mentions before anything is bound: its tables, and what its marks stand beside."""

from __future__ import annotations

from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)


def tables_of(sql: str) -> list[tuple[str, ...]] | None:
    """The names of the tables of a query, in parts, without those of its CTEs; None if unreadable.

    >>> tables_of("WITH a AS (SELECT * FROM public.t) SELECT * FROM a, generate_series(1, 2)")
    [('public', 't')]
    """
    trees = _parse(sql)
    if trees is None:
        return None
    found: list[tuple[str, ...]] = []
    for tree in trees:
        own = {each.alias_or_name.casefold() for each in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            parts = tuple(part.name for part in table.parts)
            is_own = len(parts) == 1 and parts[0].casefold() in own
            if isinstance(table.this, exp.Identifier) and not is_own:
                found.append(parts)
    return found


def parameters_of(sql: str) -> dict[int, tuple[str, str]]:
    """What each ``$n`` of a query stands beside: a column's name, or a limit; by number.

    The pair is ("column", name) or ("limit", ""); marks elsewhere are left out.

    >>> parameters_of("SELECT COUNT(*) FROM t WHERE a > $1 AND b IN ($2) LIMIT $3")
    {1: ('column', 'a'), 2: ('column', 'b'), 3: ('limit', '')}
    """
    found: dict[int, tuple[str, str]] = {}
    for tree in _parse(sql) or ():
        for mark in tree.find_all(exp.Parameter):
            text = mark.name
            place = _place(mark)
            if text.isdigit() and place is not None:
                found.setdefault(int(text), place)
    return dict(sorted(found.items()))


def _place(mark: exp.Parameter) -> tuple[str, str] | None:
    above = mark.parent
    while isinstance(above, exp.Paren | exp.Neg | exp.Cast | exp.Tuple):
        above = above.parent
    if isinstance(above, exp.Limit | exp.Offset | exp.Fetch):
        return ("limit", "")
    if isinstance(above, (*COMPARISONS, exp.Between, exp.In)):
        for column in _sides(above):
            if isinstance(column, exp.Column):
                return ("column", column.name)
    return None


def _sides(node: exp.Expr) -> Iterator[exp.Expr]:
    yield from (each for each in (node.args.get("this"), node.args.get("expression")) if each)


def _parse(sql: str) -> list[exp.Expr] | None:
    try:
        return [tree for tree in sqlglot.parse(sql, dialect="postgres") if tree is not None]
    except (SqlglotError, RecursionError):
        return None
