"""What SQL mentions before anything is bound: its tables, and what its marks stand beside."""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.sql.functions import has
from dpsql.sql.lexemes import MAX_TEXT

_ALL_COLUMNS = re.compile(r"\s*SELECT\s+\*\s+FROM\b", re.IGNORECASE)
_EXPLAIN = re.compile(r"^\s*EXPLAIN\b", re.IGNORECASE)
_NEVER = ("1=0", "0=1", "FALSE", "1=2", "(1=0)", "1<>1", "0<>0")


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


def columns_named(sql: str) -> list[str]:
    """The names of the columns of a query; ``*`` for all of a table, nothing if unreadable.

    >>> columns_named("SELECT *, a.b, count(*) AS n FROM a")
    ['*', 'b', 'n']
    """
    trees = _parse(sql) or []
    selects = [tree.selects for tree in trees if isinstance(tree, exp.Query)]
    return ["*" if each.is_star else each.alias_or_name for each in selects[0]] if selects else []


def asked_for_no_rows(sql: str) -> tuple[str, ...] | None:
    """The table of a query for its columns alone: all of it, of which by its text no row is left.

    >>> asked_for_no_rows('SELECT * FROM "a" WHERE 1 = 0'), asked_for_no_rows("SELECT * FROM a")
    (('a',), None)
    >>> asked_for_no_rows("SELECT * FROM a FETCH FIRST ROW ONLY")
    """
    if not _ALL_COLUMNS.match(sql):
        return None
    trees = _parse(sql) or []
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Select) or len(tree.selects) != 1 or not tree.is_star:
        return None
    table = tree.args["from_"].this if tree.args.get("from_") else None
    rest = {key for key, value in tree.args.items() if value}
    where, limit = tree.args.get("where"), tree.args.get("limit")
    never = where is not None and where.this.sql().upper().replace(" ", "") in _NEVER
    none = isinstance(limit, exp.Limit) and limit.expression.sql() == "0"
    known = rest <= {"kind", "expressions", "from_", "where", "limit"} and (never or where is None)
    if not isinstance(table, exp.Table) or not known or not (never or none):
        return None
    plain = not any(table.args.get(key) for key in ("joins", "pivots", "sample", "laterals"))
    plain = plain and not table.alias_column_names
    named = isinstance(table.this, exp.Identifier)
    return tuple(part.name for part in table.parts) if plain and named else None


def parameters_of(sql: str) -> dict[int, tuple[str, str]]:
    """What each ``$n`` of a query stands beside: a column's name, or a limit; by number.

    The pair is ("column", name) or ("limit", ""); marks elsewhere are left out.

    >>> parameters_of("SELECT COUNT(*) FROM t WHERE a > $1 AND b IN ($2) LIMIT $3")
    {1: ('column', 'a'), 2: ('column', 'b'), 3: ('limit', '')}
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
    while isinstance(above, exp.Paren | exp.Neg | exp.Cast | exp.Tuple):
        above = above.parent
    if isinstance(above, exp.Limit | exp.Offset | exp.Fetch):
        return ("limit", "")
    is_test = above is not None and has(above, "order", "equality", "sameness")
    if above is not None and (is_test or isinstance(above, exp.Between | exp.In)):
        for column in _sides(above):
            if isinstance(column, exp.Column):
                return ("column", column.name)
    return None


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
