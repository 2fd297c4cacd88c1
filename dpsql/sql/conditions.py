"""WHERE, ON, FILTER and CASE conditions -> signed products of single-column conditions.

OR and NOT across columns and comparisons between columns are decided on the classes of cells that
the condition can tell apart, then written as disjoint products, or as everything less disjoint
products where that takes fewer. Source: HDMM, appendix A (disjunctions).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsql.catalog import Column
from dpsql.errors import Span
from dpsql.sql.edges import check_constant, check_edges, check_growth, check_literals
from dpsql.sql.language import check_scalar
from dpsql.sql.query import Condition, Coupled, Expression, Query
from dpsql.sql.scope import Scope
from dpsql.workload.term import MAX_CELLS, MAX_PRODUCTS, Pattern, too_large

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
    key = (scope.table.name, scope.alias, node)
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


Mask = NDArray[np.bool_]
Box = dict[str, Mask]

ORDERED = 4
"""Columns up to which every order of them is tried."""


@dataclass(frozen=True, slots=True)
class ValueClasses:
    """The cells of a column that a condition cannot tell apart.

    ``labels`` gives the class of every cell, ``values`` the values of the parts on every class.
    """

    labels: NDArray[np.int64]
    values: tuple[tuple[Any, ...], ...]


def classify(columns: Sequence[Sequence[Any]], size: int) -> ValueClasses:
    """Group cells by the values of several expressions on them; NULL is a value like others.

    >>> classify([[True, False, True], [1, 1, 1]], 3).labels.tolist()
    [0, 1, 0]
    """
    found: dict[tuple[Any, ...], int] = {}
    labels = np.empty(size, dtype=np.int64)
    for cell, values in enumerate(zip(*columns, strict=True)):
        labels[cell] = found.setdefault(tuple((type(v), v) for v in values), len(found))
    return ValueClasses(labels, tuple(tuple(value for _, value in key) for key in found))


def check_combinations(classes: Mapping[str, ValueClasses], span: Span) -> None:
    """Refuse a condition over too many combinations of values.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    count = math.prod(len(each.values) for each in classes.values())
    if count > MAX_CELLS:
        raise too_large(count, classes, span)


def decompose(pattern: Pattern) -> list[tuple[int, Box]] | None:
    """Write a pattern as a signed sum of products of masks; None where that takes too many.

    A column that a product leaves out is not restricted.

    >>> truth = np.array([[True, True], [True, False]])
    >>> found = decompose(Pattern({"a": np.arange(2), "b": np.arange(2)}, truth))
    >>> [(sign, {n: m.tolist() for n, m in box.items()}) for sign, box in found]
    [(1, {'a': [True, False]}), (1, {'a': [False, True], 'b': [True, False]})]
    """
    names = tuple(pattern.labels)
    found = [(1, box) for box in _fewest(pattern.truth, names)]
    if len(found) > 2:
        rest = _fewest(~pattern.truth, names)
        if len(rest) + 1 < len(found):
            everything: Box = {}
            found = [(1, everything), *((-1, box) for box in rest)]
    if len(found) > MAX_PRODUCTS:
        return None
    labels = pattern.labels
    return [(sign, {name: mask[labels[name]] for name, mask in box.items()}) for sign, box in found]


def conditions_of(query: Query) -> Iterator[Condition]:
    """Every condition of a query."""
    yield from query.where
    for aggregate in query.aggregates:
        yield from aggregate.conditions
        for summand in aggregate.summands:
            yield from summand.conditions


def connected(coupled: Sequence[Coupled]) -> list[tuple[Coupled, ...]]:
    """Group conditions that share columns, directly or through others."""
    groups: list[tuple[set[str | None], list[Coupled]]] = []
    for each in coupled:
        columns: set[str | None] = {part.column for part in each.parts if part.column}
        members = [each]
        apart = []
        for known, inside in groups:
            if known & columns:
                columns |= known
                members = [*inside, *members]
            else:
                apart.append((known, inside))
        groups = [*apart, (columns, members)]
    return [tuple(members) for _, members in groups]


def intersect(patterns: Sequence[Pattern]) -> list[tuple[int, Box]] | None:
    """Patterns over different columns together as products; None where that takes too many."""
    found: list[tuple[int, Box]] = [(1, {})]
    for pattern in patterns:
        boxes = decompose(pattern)
        if boxes is None:
            return None
        pairs = itertools.product(found, boxes)
        found = [(one * two, {**left, **right}) for (one, left), (two, right) in pairs]
    return found


def join(patterns: Sequence[Pattern]) -> Pattern | None:
    """Patterns over different columns as one; None where there is none, or too many combinations.

    >>> join([]) is None
    True
    """
    found: Pattern | None = None
    for pattern in patterns:
        found = pattern if found is None else found.joined(pattern)
        if found is None:
            return None
    return found


def _fewest(truth: Mask, names: Sequence[str]) -> list[Box]:
    """The disjoint products of the best order of columns found."""
    orders: Iterator[tuple[int, ...]] = iter([tuple(range(truth.ndim))])
    if truth.ndim <= ORDERED:
        orders = itertools.permutations(range(truth.ndim))
    found = (_boxes(truth.transpose(o), [names[i] for i in o]) for o in orders)
    return min((list(itertools.islice(boxes, MAX_PRODUCTS + 1)) for boxes in found), key=len)


def _boxes(truth: Mask, names: Sequence[str]) -> Iterator[Box]:
    if not truth.any():
        return
    if truth.all():
        yield {}
        return
    flat = truth.reshape(len(truth), -1)
    rows, first, labels = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    labels = labels.reshape(-1)
    for index in np.argsort(first):
        if not rows[index].any():
            continue
        here = labels == index
        mask = {} if here.all() else {names[0]: here}
        if truth.ndim == 1:
            yield mask
        else:
            for box in _boxes(rows[index].reshape(truth.shape[1:]), names[1:]):
                yield {**mask, **box}
