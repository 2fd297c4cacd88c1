"""WHERE, ON, FILTER and CASE conditions -> conjunctions of conditions on columns."""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Column
from dpsql.sql.allowed import check_scalar
from dpsql.sql.edges import check_constant, check_edges, check_literals
from dpsql.sql.growth import check_growth
from dpsql.sql.query import Condition, Coupled, Expression
from dpsql.sql.scope import Scope

_TESTS = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean)


def conjunction(scope: Scope, tree: exp.Expr) -> tuple[Condition, ...]:
    """Split a condition at its ANDs and bind every part.

    Raises: ProgrammingError or NotSupportedError with a caret.
    """
    return tuple(condition(scope, part) for part in conjuncts(tree))


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition that are joined by AND, in the order written."""
    parts, found = [tree], []
    while parts:
        node = parts.pop()
        inner = node.unnest()
        if isinstance(inner, exp.And):
            parts += [inner.expression, inner.this]
        else:
            found.append(node)
    return found


def condition(scope: Scope, node: exp.Expr) -> Condition:
    """Bind a condition over one column, or over several at once."""
    if scope.joined:
        return _bound(scope, node)
    key = (scope.table.name, frozenset(scope.aliases), node)
    found = scope.known.get(key)
    if found is None:
        found = scope.known[key] = _bound(scope, node)
    return found


def _bound(scope: Scope, node: exp.Expr) -> Condition:
    check_scalar(node, scope.locate)
    columns = scope.columns(node)
    if len(columns) > 1:
        return _coupled(scope, node)
    column = next(iter(columns.values()), None)
    check_growth(column, node, scope.locate)
    _check_test(scope, column, node)
    return scope.expression(column, node)


def negation(scope: Scope, node: exp.Expr) -> Condition:
    """The condition that ``node`` is not true: false or NULL."""
    test = exp.Not(this=exp.Coalesce(this=exp.paren(node.copy()), expressions=[exp.false()]))
    return condition(scope, test)


def _check_test(scope: Scope, column: Column | None, node: exp.Expr) -> None:
    if column is not None:
        check_literals(column, node, scope.locate, scope.is_public)
        for tree in scope.written_out(node):
            check_edges(column, tree, scope.locate)


def _coupled(scope: Scope, node: exp.Expr) -> Coupled:
    """Replace the largest parts over single columns by x0, x1, ...; the rest couples them."""
    parts: list[Expression] = []
    span = scope.locate(node)
    tree = exp.paren(node.copy())
    _extract(scope, tree.this, parts)
    return Coupled(tree.this.sql("duckdb", comments=False), tuple(parts), span)


def _extract(scope: Scope, node: exp.Expr, parts: list[Expression]) -> None:
    if isinstance(node, exp.DataType | exp.Identifier | exp.Var | exp.Interval):
        return
    columns = scope.columns(node)
    if len(columns) > 1:
        for child in list(node.iter_expressions()):
            _extract(scope, child, parts)
        return
    if not columns:
        return
    column = next(iter(columns.values()))
    check_growth(column, node, scope.locate)
    if isinstance(node, _TESTS):
        _check_test(scope, column, node)
    else:
        for tree in scope.written_out(node):
            check_constant(column, tree, scope.locate)
    found = scope.expression(column, node)
    if found not in parts:
        parts.append(found)
    node.replace(exp.column(f"x{parts.index(found)}"))
