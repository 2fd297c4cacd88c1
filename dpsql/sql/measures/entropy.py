"""ENTROPY: how many bits the value of a row tells, from the counts of all values."""

from __future__ import annotations

import math

from sqlglot import exp

from dpsql.catalog.catalog import Column
from dpsql.records import replace
from dpsql.sql.cells.evaluate import Operand
from dpsql.sql.measures.aggregates import Aggregates, Builder
from dpsql.sql.measures.distinct_aggregates import distinct_values
from dpsql.sql.query import Aggregate, Condition, Summand
from dpsql.sql.relations import as_literal
from dpsql.sql.scope import condition
from dpsql.sql.shell.derivative import guard
from dpsql.sql.shell.guarded_values import where_positive

MOST = 256
"""Most values, each of which is counted."""
_INSTEAD = "GROUP BY the column, and COUNT(*) of each group: what is shown can be worked on outside"


def write_entropy(aggregates: Aggregates, node: exp.Expr, shape: Aggregate) -> exp.Expr:
    """ENTROPY of a column that lists its values, or of an expression over one.

    ``log2(n)`` less the sum of ``count * log2(count) / n``; what is below zero counts as zero.
    """
    if str(node.this).lower() != "entropy" or len(node.expressions) != 1:
        aggregates.refuse(node)
    value = node.expressions[0]
    counts = [
        aggregates.column(replace(shape, summands=(Summand(conditions=(each,)),)))
        for each in _values(aggregates, node, value)
    ]
    logs = [_times_log(each) for each in counts]
    whole = exp.paren(_added([guard(_above_zero(each)) for each in counts]), copy=False)
    rest = exp.Div(this=exp.paren(_added(logs), copy=False), expression=whole.copy())
    bits = exp.Sub(this=_log(whole.copy()), expression=rest)
    zero = exp.Literal.number("0.0")
    return exp.Coalesce(this=where_positive(whole, bits), expressions=[zero])


def _values(aggregates: Aggregates, node: exp.Expr, value: exp.Expr) -> list[Condition]:
    """The conditions that an expression has one of its values."""
    scope = aggregates.scope
    found = distinct_values(scope, value)
    column: Column | None = None
    if found is not None and not scope.joined:
        column = scope.find_column(next(value.find_all(exp.Column)))
    if found is None or column is None or column.other is not None:
        scope.refuse(node, "E_EXPR_IN_AGG", "ENTROPY of what does not list its values", _INSTEAD)
    _, values = scope.evaluator.values(Operand(scope.table.name, column), found)
    literals = [as_literal(each) for each in dict.fromkeys(values) if each is not None]
    if len(literals) > MOST or any(each is None for each in literals):
        what = f"ENTROPY of {len(literals):,} values"
        scope.refuse(node, "E_EXPR_IN_AGG", what, f"at most {MOST}; {_INSTEAD}")
    left = exp.paren(value.copy(), copy=False)
    tests = [exp.EQ(this=left.copy(), expression=each) for each in literals]
    return [condition(scope, each) for each in tests]


def _above_zero(count: exp.Expr) -> exp.Expr:
    return exp.Greatest(this=count.copy(), expressions=[exp.Literal.number("0.0")])


def _log(node: exp.Expr) -> exp.Expr:
    """A logarithm to the base of 2."""
    base = exp.Literal.number(repr(math.log(2)))
    return exp.paren(exp.Div(this=exp.Ln(this=node), expression=base), copy=False)


def _times_log(count: exp.Expr) -> exp.Expr:
    """``x * log2(x)``; zero where ``x`` is not above zero."""
    test = exp.GT(this=count.copy(), expression=exp.Literal.number(0))
    product = exp.Mul(this=count.copy(), expression=_log(count.copy()))
    default = exp.Literal.number("0.0")
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=test, true=product)], default=default))


def _added(parts: list[exp.Expr]) -> exp.Expr:
    """A sum as a balanced tree: one of hundreds of parts is not nested too deeply."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    left, right = _added(parts[:half]), _added(parts[half:])
    return exp.paren(exp.Add(this=left, expression=right), copy=False)


OF_VALUES: dict[type[exp.Expr], Builder] = {exp.AnonymousAggFunc: write_entropy}
"""The builder of each kind."""
