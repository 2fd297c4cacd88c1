"""COUNT(DISTINCT ...) of what is not the privacy unit: how many values of a column have a row."""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.errors import Error
from dpsql.sql.edges import check_edges
from dpsql.sql.language import check_scalar
from dpsql.sql.query import Expression
from dpsql.sql.scope import Scope


def split_test(counted: list[exp.Expr]) -> tuple[exp.Expr | None, list[exp.Expr]]:
    """The one expression that is counted, and the test of a CASE around it that is NULL elsewhere.

    >>> from sqlglot import parse_one
    >>> split_test([parse_one("CASE WHEN a > 1 THEN b END")])[0].sql()
    'b'
    """
    node, branch, rest = counted[0].unnest(), None, None
    if isinstance(node, exp.Case) and node.this is None and len(node.args["ifs"]) == 1:
        branch, rest = node.args["ifs"][0], node.args.get("default")
    elif isinstance(node, exp.If):
        branch, rest = node, node.args.get("false")
    tests = []
    if branch is not None and isinstance(rest, exp.Null | None):
        node, tests = branch.args["true"].unnest(), [branch.this]
    return (node if len(counted) == 1 else None), tests


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
