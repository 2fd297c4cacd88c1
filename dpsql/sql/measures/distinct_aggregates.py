"""COUNT, SUM, AVG and variances of DISTINCT: the different values that have a row, as numbers.

Which declared values have a row is one vector, of which a count adds up ones and a sum the values
themselves.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.errors import Error
from dpsql.logical.functions import kinds
from dpsql.records import replace
from dpsql.sql.cells.cell_edges import check_edges
from dpsql.sql.measures.aggregates import Aggregates, Builder
from dpsql.sql.measures.centred_moments import centred, moved
from dpsql.sql.query import Aggregate, Expression
from dpsql.sql.scope import Scope, conjunction
from dpsql.sql.shell.guarded_values import clipped, spread_from, where_positive
from dpsql.sql.shell.language import check_scalar, split_test
from dpsql.sql.shell.whole_numbers import is_integer, marked

OF_ONE = (
    "bounds of a count of different values, which a unit may add to beyond them,",
    "COUNT(DISTINCT unit, contribution_bounds_per_group => (0, 1))",
)
"""Refusal of other bounds on what a unit adds to such a count: the words, and what works."""


def distinct_values(scope: Scope, value: exp.Expr) -> Expression | None:
    """An expression whose different values can be counted: over one column that has a domain.

    None for all others. Raises: ProgrammingError (E_BIN_EDGE) where it would cut through a cell.
    """
    column = _column_of(scope, value)
    if column is None:
        return None
    check_scalar(value, scope.locate)
    for tree in scope.written_out(value):
        check_edges(column, tree, scope.locate, scope.evaluator.is_same, grouping=True)
    return scope.expression(column, value)


def _column_of(scope: Scope, value: exp.Expr) -> Column | None:
    references = list(value.find_all(exp.Column))
    if not references or value.find(exp.AggFunc, exp.Query) or scope.is_listed(value):
        return None
    try:
        columns = {each.name.casefold(): each for each in map(scope.find_column, references)}
    except Error:
        return None
    (column, *others) = columns.values()
    if others or column.domain is None:
        return None
    own = isinstance(value, exp.Column) and scope.find_public(value) is None
    return None if own and column.is_coarse else column


def counted(aggregates: Aggregates, node: exp.Expr, shape: Aggregate) -> exp.Expr:
    """COUNT(DISTINCT the privacy unit's column or another), or of a CASE that keeps it.

    Where a unit has one row, its rows are counted; public rows joined to them may repeat it.
    """
    value, shape = _value(aggregates, node, shape)
    is_unit = isinstance(value, exp.Column) and aggregates.is_unit(value)
    clip, scope = aggregates.scope.clip_of(node), aggregates.scope
    most = 1 if is_unit else scope.table.unit.max_rows
    if clip is not None and not clip[0] <= 1 <= most <= clip[1]:
        scope.refuse(node, "E_EXPR_IN_AGG", *OF_ONE)
    if not is_unit:
        found = None if value is None else distinct_values(aggregates.scope, value)
        if found is None:
            aggregates.refuse(node)
        return marked(aggregates.column(replace(shape, distinct=found)), True)
    unit = aggregates.scope.table.unit
    alone = unit.max_rows == 1 and not aggregates.scope.joined
    return marked(aggregates.column(shape if alone else replace(shape, units=True)), True)


def summed(aggregates: Aggregates, node: exp.Expr, shape: Aggregate) -> exp.Expr:
    """SUM(DISTINCT a number over a column with a domain)."""
    value, shape = _value(aggregates, node, shape)
    found = _number(aggregates, node, value)
    column = aggregates.column(replace(shape, distinct=found, counts=found))
    return marked(column, value is not None and is_integer(value, aggregates.scope.is_integer))


def averaged(aggregates: Aggregates, node: exp.Expr, shape: Aggregate) -> exp.Expr:
    """AVG(DISTINCT a number over a column with a domain)."""
    value, shape = _value(aggregates, node, shape)
    found = _number(aggregates, node, value)
    assert value is not None
    inner, centre = centred(value, aggregates.known_bounds)
    counts = _number(aggregates, node, inner)
    total = aggregates.column(replace(shape, distinct=found, counts=counts))
    count = aggregates.column(replace(shape, distinct=found))
    ratio = moved(exp.Div(this=total, expression=count.copy()), centre)
    return where_positive(count, clipped(ratio, aggregates.bounds(value)))


def spread(aggregates: Aggregates, node: exp.Expr, shape: Aggregate) -> exp.Expr:
    """The variance, or its root, of different numbers over a column with a domain."""
    value, shape = _value(aggregates, node, shape)
    found = _number(aggregates, node, value)
    assert value is not None
    inner, _ = centred(value, aggregates.known_bounds)
    square = exp.Mul(this=exp.paren(inner), expression=exp.paren(inner))
    numbers = (_number(aggregates, node, each) for each in (inner, square))
    first, second = (
        aggregates.column(replace(shape, distinct=found, counts=each)) for each in numbers
    )
    count = aggregates.column(replace(shape, distinct=found))
    return spread_from(node, (first, second, count), aggregates.bounds(value))


def _value(
    aggregates: Aggregates, node: exp.Expr, shape: Aggregate
) -> tuple[exp.Expr | None, Aggregate]:
    """The expression of the different values, and the shape with the conditions it stands under."""
    listed = node.this.expressions
    if not listed:
        aggregates.refuse(node)
    value, tests = split_test(listed[0])
    if shape.running is not None:
        hint = "aggregate in a sub-query: a window over its results works"
        what = "a running sum of what counts different values"
        aggregates.scope.refuse(node, "E_WINDOW", what, hint)
    found = tuple(each for test in tests for each in conjunction(aggregates.scope, test))
    shape = replace(shape, conditions=(*shape.conditions, *found))
    return (value if len(listed) == 1 else None), shape


def _number(aggregates: Aggregates, node: exp.Expr, value: exp.Expr | None) -> Expression:
    """The numbers of which each counts once, or less a constant."""
    scope = aggregates.scope
    if scope.clip_of(node) is not None:
        hint = "LEAST(x, 100) in the aggregate itself"
        scope.refuse(node, "E_EXPR_IN_AGG", "bounds of what different values add up to", hint)
    if value is None or distinct_values(scope, value) is None:
        aggregates.refuse(node)
    (summand,) = aggregates.amount(node, value).summands
    (number,) = summand.factors
    return number


OF_DISTINCTS: dict[type[exp.Expr], Builder] = {
    exp.Count: counted,
    exp.Sum: summed,
    exp.Avg: averaged,
    **dict.fromkeys(kinds("spread"), spread),
}
"""The builder of each kind."""
