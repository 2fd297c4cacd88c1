"""Queries of which no row can come, by their text: tools ask them for their columns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.logical.functions import called
from dpsql.records import replace
from dpsql.sql.text.parse import Statement

_COMPARED: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_Ctes = Mapping[str, bool]


def columns_alone(statement: Statement, known: Catalog) -> Statement:
    """A SELECT of which no row can come, as one that is known by its columns.

    Any other, and one that mentions what is not known, stays as it is.
    """
    if statement.kind != "select" or statement.tree is None or not has_no_row(statement.tree):
        return statement
    columns = statement.columns
    if statement.fragment.reader is None:
        from dpsql.dialect.columns import library_typing  # few statements have no row

        typing = library_typing(known)
        columns = typing.query(statement.tree.copy(), {})
        columns = None if typing.is_missing else columns
    if not columns or any(each.type is None for each in columns):
        return statement
    return replace(statement, kind="empty", columns=columns)


def has_no_row(node: exp.Expr, ctes: _Ctes | None = None) -> bool:
    """Say whether no row can come of a query: LIMIT 0 or a false WHERE, there or where it reads.

    >>> from sqlglot import parse_one
    >>> texts = "SELECT a FROM (SELECT * FROM t LIMIT 0) q", "SELECT COUNT(*) FROM t WHERE 1 = 0"
    >>> [has_no_row(parse_one(each)) for each in texts]
    [True, False]
    """
    ctes = ctes or {}
    clause = node.args.get("with_")
    for cte in () if clause is None else clause.expressions:
        is_recursive = clause is not None and bool(clause.args.get("recursive"))
        ctes = {**ctes, cte.alias.casefold(): not is_recursive and has_no_row(cte.this, ctes)}
    limit = node.args.get("limit")
    count = limit.args.get("expression") or limit.args.get("count") if limit is not None else None
    if count is not None and constant(count) == 0 and isinstance(count.unnest(), exp.Literal):
        return True
    match node:
        case exp.Subquery():
            return has_no_row(node.this, ctes)
        case exp.Union():
            return has_no_row(node.this, ctes) and has_no_row(node.expression, ctes)
        case exp.Intersect():
            return has_no_row(node.this, ctes) or has_no_row(node.expression, ctes)
        case exp.Except():
            return has_no_row(node.this, ctes)
        case exp.Table():
            name = node.name.casefold()
            return _joined(node, ctes, not node.db and ctes.get(name, False))
        case exp.Select():
            return _select_has_none(node, ctes)
    return False


def _select_has_none(node: exp.Select, ctes: _Ctes) -> bool:
    having = node.args.get("having")
    if having is not None and constant(having.this) is False:
        return True
    if node.args.get("group") is None and (having is not None or _is_aggregated(node)):
        return False  # one row of none
    group = node.args.get("group")
    if group is not None and any(group.args.get(k) for k in ("rollup", "cube", "grouping_sets")):
        return False  # the set of all rows has one row
    where, clause = node.args.get("where"), node.args.get("from_")
    if where is not None and constant(where.this) is False:
        return True
    return clause is not None and _joined(node, ctes, has_no_row(clause.this, ctes))


def _joined(node: exp.Expr, ctes: _Ctes, none: bool) -> bool:
    """Say whether a chain of joins has no row; ``none`` says it of the first."""
    for join in node.args.get("joins") or ():
        other, side = has_no_row(join.this, ctes), join.side.upper()
        kept = {"LEFT": none, "RIGHT": other, "FULL": none and other}
        is_anti = join.kind.upper() == "ANTI"
        none = none if is_anti else kept.get(side, none or other)
    return none


def _is_aggregated(node: exp.Select) -> bool:
    """Say whether a SELECT has aggregates of its own, none of windows or of sub-queries."""
    for item in node.expressions:
        for found in item.find_all(exp.AggFunc, exp.AnonymousAggFunc):
            windowed = found.find_ancestor(exp.Window, exp.Select)
            inside = windowed is node or isinstance(windowed, exp.Window)
            is_window = isinstance(windowed, exp.Window) and called(windowed.this) is found
            if inside and not is_window:
                return True
    return False


def constant(node: exp.Expr) -> Any:
    """The value of a condition of constants: a number, a text, True or False; None if not known.

    A condition that is never true counts as false.

    >>> from sqlglot import parse_one
    >>> [constant(parse_one(each)) for each in ("1 = 0", "a AND (0 > 1)", "NOT 1 < 2", "a OR 2=1")]
    [False, False, False, None]
    """
    match node:
        case exp.Paren():
            return constant(node.this)
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            return node.name if node.is_string else float(node.name.replace("_", ""))
        case exp.Neg():
            value = constant(node.this)
            return -value if isinstance(value, float) else None
        case exp.Cast() if node.to.this == exp.DType.BOOLEAN:
            value = constant(node.this)
            return {"t": True, "true": True, "f": False, "false": False}.get(
                str(value).lower(), bool(value) if isinstance(value, float) else None
            )
        case exp.Not():
            value = constant(node.this)
            return not value if isinstance(value, bool) else None
        case exp.And():
            sides = constant(node.this), constant(node.expression)
            return False if False in _booleans(sides) else True if sides == (True, True) else None
        case exp.Or():
            sides = constant(node.this), constant(node.expression)
            return True if True in _booleans(sides) else False if sides == (False, False) else None
        case exp.Binary() if type(node) in _COMPARED:
            left, right = constant(node.this), constant(node.expression)
            if type(left) is type(right) and left is not None:
                return _COMPARED[type(node)](left, right)
    return None


def _booleans(values: tuple[Any, ...]) -> list[bool]:
    return [each for each in values if isinstance(each, bool)]
