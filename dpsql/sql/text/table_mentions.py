"""The tables that SQL mentions before anything is bound, and what its marks stand beside."""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.logical.functions import has
from dpsql.sql.text.lexemes import MAX_TEXT

_EXPLAIN = re.compile(r"^\s*EXPLAIN\b", re.IGNORECASE)


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
    """The place of each ``$n`` of a query: beside a column's name, or a limit; by number.

    The pair is ("column", name), ("list", name) for ANY and ALL of it, or ("limit", ""); marks
    elsewhere are left out.

    >>> parameters_of("SELECT COUNT(*) FROM t WHERE a > $1 AND b IN ($2) LIMIT $3")
    {1: ('column', 'a'), 2: ('column', 'b'), 3: ('limit', '')}
    >>> parameters_of("SELECT COUNT(*) FROM t WHERE a = ANY($1)")
    {1: ('list', 'a')}
    >>> parameters_of("EXPLAIN SELECT COUNT(*) FROM t LIMIT $1")
    {1: ('limit', '')}
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
    kind = "column"
    while above is not None and (
        isinstance(above, exp.Paren | exp.Neg | exp.Cast | exp.Tuple) or is_quantifier(above)
    ):
        kind = "list" if is_quantifier(above) else kind
        above = above.parent
    if isinstance(above, exp.Limit | exp.Offset | exp.Fetch):
        return ("limit", "")
    is_test = above is not None and has(above, "order", "equality", "sameness")
    if above is not None and (is_test or isinstance(above, exp.Between | exp.In)):
        for column in _sides(above):
            if isinstance(column, exp.Column):
                return (kind, column.name)
    return None


def is_quantifier(node: exp.Expr) -> bool:
    """Say whether a node is ANY, SOME or ALL, which compare with the values of a list."""
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    return isinstance(node, exp.Any | exp.All) or name in ("any", "some", "all")


def _sides(node: exp.Expr) -> Iterator[exp.Expr]:
    yield from (each for each in (node.args.get("this"), node.args.get("expression")) if each)


def _parse(sql: str) -> list[exp.Expr] | None:
    """The trees of a text; None for what is no SQL, or too long for a statement."""
    if len(sql) > MAX_TEXT:
        return None
    try:
        trees = sqlglot.parse(_EXPLAIN.sub("", sql), dialect="postgres")
        return [tree for tree in trees if tree is not None]
    except (SqlglotError, RecursionError):
        return None
