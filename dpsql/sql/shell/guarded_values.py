"""Expressions that hold a noisy value back where it says nothing, and keep its derivative."""

from __future__ import annotations

import math

from sqlglot import exp

from dpsql.logical.functions import has
from dpsql.sql.shell.derivative import guard


def where_positive(count: exp.Expr, value: exp.Expr, least: int = 0) -> exp.Expr:
    """NULL unless a noisy count is above ``least``."""
    test = exp.GT(this=count.copy(), expression=exp.Literal.number(least))
    return exp.Paren(this=guard(exp.Case(ifs=[exp.If(this=test, true=value)])))


def where_known(value: exp.Expr, then: exp.Expr) -> exp.Expr:
    """NULL unless a value is known: GREATEST and LEAST pass over NULL."""
    known = exp.Not(this=exp.Is(this=value.copy(), expression=exp.null()))
    return exp.Paren(this=guard(exp.Case(ifs=[exp.If(this=known, true=then)])))


def clipped(value: exp.Expr, bounds: tuple[float, float] | None) -> exp.Expr:
    """A value within bounds; its derivative stays that of the value."""
    if bounds is None:
        return value
    out = guard(exp.Greatest(this=value, expressions=[_number(bounds[0])]))
    if math.isfinite(bounds[1]):
        out = guard(exp.Least(this=out, expressions=[_number(bounds[1])]))
    return out


def _number(value: float) -> exp.Expr:
    literal = exp.Literal.number(repr(abs(value)))
    return exp.paren(exp.Neg(this=literal)) if value < 0 else literal


def spread_from(
    called: exp.Expr,
    sums: tuple[exp.Expr, exp.Expr, exp.Expr],
    bounds: tuple[float, float] | None = None,
) -> exp.Expr:
    """A variance or its root: of all values, or estimated from a sample of them.

    Args:
        called: the aggregate, of which the table of functions says which of these it is.
        sums: of values, of their squares, and their number.
        bounds: of a value; a variance is at most the square of half their distance.
    """
    first, second, count = sums
    mean = exp.paren(exp.Div(this=first, expression=count.copy()))
    variance: exp.Expr = exp.Sub(
        this=exp.Div(this=second, expression=count.copy()),
        expression=exp.Mul(this=mean, expression=mean.copy()),
    )
    most = math.inf if bounds is None else ((bounds[1] - bounds[0]) / 2) ** 2
    variance = clipped(variance, (0.0, most))
    least = int(has(called, "sample"))
    if least:
        rest = exp.paren(exp.Sub(this=count.copy(), expression=exp.Literal.number(least)))
        variance = exp.Div(this=exp.Mul(this=variance, expression=count.copy()), expression=rest)
    if has(called, "root"):
        variance = exp.Sqrt(this=variance)
    return where_positive(count, variance, least)
