"""Literals against declared domains: text must be a declared value, cuts must fall on cell edges.

A predicate is evaluated on one representative of each cell. For unit cells that is the value
itself. For bins and calendar periods it is exact only when the predicate cannot split a cell, which
these checks make sure of.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Iterator
from fractions import Fraction

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.catalog.domain import PERIODS, Bins, Periods, Values, floor_period
from dpsql.errors import ProgrammingError, printable
from dpsql.sql.allowed import Locate

_MIRROR: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_COARSER = {
    "day": PERIODS,
    "week": ("week",),
    "month": ("month", "quarter", "year"),
    "quarter": ("quarter", "year"),
    "year": ("year",),
}
_CALENDAR: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
}
_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren)


def check_literals(column: Column, tree: exp.Expr, locate: Locate) -> None:
    """Refuse a text literal compared with a text column whose declared values lack it.

    Raises: ProgrammingError (E_NOT_IN_DOMAIN) with the nearest declared values.
    """
    if column.type != "text" or not isinstance(column.domain, Values):
        return
    declared = [str(value) for value in column.cells if value is not None]
    for literal in _compared(tree):
        if literal.is_string and literal.name not in declared:
            folded = {value.casefold(): value for value in declared}
            near = difflib.get_close_matches(literal.name.casefold(), list(folded), n=3, cutoff=0.4)
            shown = [folded[key] for key in near] or declared[:10]
            intro = "nearest declared values" if near else "declared values"
            raise ProgrammingError(
                "E_NOT_IN_DOMAIN",
                f"{printable(literal.name)!r} is not a declared value of {column.name}",
                hint=f"{intro}: {', '.join(map(repr, shown))}",
                span=locate(literal),
            )


def _compared(tree: exp.Expr) -> Iterator[exp.Literal]:
    """Literals that are compared for equality with the bare column."""
    for node in tree.find_all(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In):
        if isinstance(node, exp.In):
            sides, bare = list(node.expressions), node.this
        else:
            left, right = node.this, node.expression
            bare, sides = (left, [right]) if isinstance(left, exp.Column) else (right, [left])
        if isinstance(bare, exp.Column):
            yield from (side for side in sides if isinstance(side, exp.Literal))


def check_edges(column: Column, tree: exp.Expr, locate: Locate, *, grouping: bool = False) -> None:
    """Refuse an expression that would cut through a cell of a binned or calendar column.

    Raises: ProgrammingError (E_BIN_EDGE).
    """
    domain = column.domain
    if isinstance(domain, Bins) or (isinstance(domain, Periods) and domain.unit != "day"):
        if grouping:
            if not isinstance(tree.unnest(), exp.Column):
                _check_constant(column, domain, tree, locate)
        else:
            _check_condition(column, domain, tree, locate)


def check_constant(column: Column, tree: exp.Expr, locate: Locate) -> None:
    """Refuse an expression that differs within a cell of a binned or calendar column.

    Raises: ProgrammingError (E_BIN_EDGE).
    """
    domain = column.domain
    if isinstance(domain, Bins) or (isinstance(domain, Periods) and domain.unit != "day"):
        _check_constant(column, domain, tree, locate)


def _check_condition(
    column: Column, domain: Bins | Periods, tree: exp.Expr, locate: Locate
) -> None:
    if isinstance(tree, _LOGIC):
        for inner in tree.iter_expressions():
            _check_condition(column, domain, inner, locate)
        return
    if not tree.find(exp.Column):
        return
    if isinstance(tree, exp.Column):
        raise _refuse(column, domain, tree, locate)
    if isinstance(tree, exp.Is) and isinstance(tree.this, exp.Column):
        return
    if isinstance(tree, exp.Between) and isinstance(tree.this, exp.Column):
        _check_cut(column, domain, exp.GTE, tree.args["low"], locate)
        _check_cut(column, domain, exp.LTE, tree.args["high"], locate)
        return
    if type(tree) in _MIRROR and isinstance(tree.this, exp.Column):
        _check_cut(column, domain, type(tree), tree.expression, locate)
        return
    if type(tree) in _MIRROR and isinstance(tree.expression, exp.Column):
        _check_cut(column, domain, _MIRROR[type(tree)], tree.this, locate)
        return
    for part in tree.iter_expressions():
        if part.find(exp.Column):
            _check_constant(column, domain, part, locate)


def _check_constant(column: Column, domain: Bins | Periods, tree: exp.Expr, locate: Locate) -> None:
    """Accept what is constant on every cell: calendar functions, conditions, functions of those."""
    if isinstance(domain, Periods) and _calendar_unit(tree.unnest()) in _COARSER[domain.unit]:
        return
    if isinstance(tree, exp.Predicate | exp.Connector | exp.Not):
        _check_condition(column, domain, tree, locate)
        return
    parts = [part for part in tree.iter_expressions() if part.find(exp.Column)]
    if isinstance(tree, exp.Column) or any(isinstance(part, exp.Column) for part in parts):
        raise _refuse(column, domain, tree, locate)
    for part in parts:
        _check_constant(column, domain, part, locate)


def _calendar_unit(tree: exp.Expr) -> str | None:
    if type(tree) in _CALENDAR and isinstance(tree.this, exp.Column):
        return _CALENDAR[type(tree)]
    if isinstance(tree, exp.TimestampTrunc | exp.DateTrunc) and isinstance(tree.this, exp.Column):
        return str(tree.args["unit"].name).lower()
    if isinstance(tree, exp.Extract) and isinstance(tree.expression, exp.Column):
        return str(tree.name).lower()
    return None


def _check_cut(
    column: Column, domain: Bins | Periods, operator: type, bound: exp.Expr, locate: Locate
) -> None:
    """Check that {v operator bound} is a union of cells."""
    value = _constant(bound)
    after = operator in (exp.LTE, exp.GT)
    if isinstance(domain, Periods):
        if isinstance(value, dt.date):
            day = value + dt.timedelta(days=1) if after and value != dt.date.max else value
            inside = domain.start < day < domain.end
            if not inside or floor_period(day, domain.unit) == day:
                return
    elif isinstance(value, Fraction):
        lo, hi = domain.edges[0], domain.edges[-1]
        if value > hi or (value == hi and after) or value < lo or (value == lo and not after):
            return
        if column.type == "integer" and after:
            value = Fraction(value.__floor__() + 1)
            after = False
        if not after and value in domain.edges and value != hi:
            return
    raise _refuse(column, domain, bound, locate)


def _constant(tree: exp.Expr) -> Fraction | dt.date | None:
    tree = tree.unnest()
    if isinstance(tree, exp.Neg):
        value = _constant(tree.this)
        return -value if isinstance(value, Fraction) else None
    if isinstance(tree, exp.Cast):
        tree = tree.this
    if not isinstance(tree, exp.Literal):
        return None
    try:
        return dt.date.fromisoformat(tree.name) if tree.is_string else Fraction(tree.name)
    except ValueError:
        return None


def _refuse(
    column: Column, domain: Bins | Periods, node: exp.Expr, locate: Locate
) -> ProgrammingError:
    if isinstance(domain, Periods):
        hint = f"cuts must fall between {domain.unit}s; date_trunc, year, quarter and month work"
    else:
        edges = [int(e) if e.denominator == 1 else float(e) for e in domain.edges]
        shown = edges if len(edges) <= 12 else [*edges[:6], "...", *edges[-3:]]
        listed = ", ".join(map(str, shown))
        hint = f"compare {column.name} with bin edges by < or >=; edges: {listed}"
    return ProgrammingError(
        "E_BIN_EDGE",
        f"this would cut through a cell of {column.name}",
        hint=hint,
        span=locate(node),
    )
