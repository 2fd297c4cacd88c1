"""Bounds that a statement sets for what each row adds to a sum."""

from __future__ import annotations

import math

from sqlglot import exp

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import Bins
from dpsql.errors import ProgrammingError
from dpsql.sql.scope import Scope
from dpsql.sql.text.clauses import PER_ROW, RowBounds


def clip_within(
    scope: Scope, node: exp.Expr, clip: tuple[float, float]
) -> tuple[float, float] | None:
    """Contribution bounds within the declared ones; literals never widen what is declared.

    None for bins that all lie between them.

    Raises: ProgrammingError (E_DEGENERATE_BOUNDS); NotSupportedError (E_EXPR_IN_AGG).
    """
    column = clipped_column(scope, node)
    if scope.table.unit.max_rows > 1 and not isinstance(clip, RowBounds):
        scope.refuse(
            node,
            "E_EXPR_IN_AGG",
            f"contribution_bounds_per_group where a unit has {scope.table.unit.max_rows} rows",
            f"{PER_ROW} => ({clip[0]:g}, {clip[1]:g}) bounds each row",
        )
    if isinstance(column.domain, Bins):
        least, most = column.number_bounds or (-math.inf, math.inf)
        if clip[0] <= least and most <= clip[1]:
            return None
        scope.refuse(
            node,
            "E_EXPR_IN_AGG",
            "contribution_bounds_per_group on a column in bins",
            "declare bounds instead of bins, or a domain of single values",
        )
    low, high = clip
    if column.bounds is not None:
        low, high = max(low, float(column.bounds[0])), min(high, float(column.bounds[1]))
    if not low < high:
        raise ProgrammingError(
            "E_DEGENERATE_BOUNDS",
            f"no value of {column.name} lies between {clip[0]:g} and {clip[1]:g}",
            hint="bounds within the declared ones",
            span=scope.locate(node),
        )
    return low, high


def within(node: exp.Expr, clip: tuple[float, float]) -> exp.Expr:
    """An expression clipped to bounds."""
    low, high = (exp.convert(bound) for bound in clip)
    return exp.Least(this=exp.Greatest(this=node.copy(), expressions=[low]), expressions=[high])


def clipped_column(scope: Scope, node: exp.Expr) -> Column:
    """The column that the argument of a clipped sum is of. Raises: NotSupportedError."""
    column = node.find(exp.Column)
    if column is None:
        scope.refuse(
            node,
            "E_EXPR_IN_AGG",
            "bounds of what is about no column",
            f"{PER_ROW} => (0, 100) bounds a column",
        )
    return scope.find_column(column, measure=True, summed=True)
