"""Standard errors of expressions over aggregates, as SQL: the first-order (delta) method.

An affine expression gets its exact standard error; a ratio gets the usual first-order one. The
result is an expression over the columns ``c{i}_{j}``, the covariances of the aggregates.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

Gradient = dict[int, str]

#: Nodes that pass the error of their first argument through.
_THROUGH = (
    exp.Paren,
    exp.Cast,
    exp.TryCast,
    exp.Round,
    exp.Coalesce,
    exp.Nullif,
    exp.Greatest,
    exp.Least,
)


class NoDerivative(Exception):
    """The expression has no derivative that this module knows."""


def stddev_sql(
    tree: exp.Expr, covariances: set[tuple[int, int]], unknown: Collection[int] = ()
) -> str | None:
    """Return SQL for the standard error of ``tree``; note the covariances it needs.

    ``tree`` is over columns ``a{j}`` (aggregates) and ``k{i}`` (keys). ``None`` when the error is
    not known in closed form, as for the aggregates listed in ``unknown``.
    """
    try:
        slopes = gradient(tree)
    except NoDerivative:
        return None
    if slopes.keys() & set(unknown):
        return None
    if not slopes:
        return "0.0"
    terms = []
    for i in slopes:
        for j in slopes:
            pair = (min(i, j), max(i, j))
            covariances.add(pair)
            terms.append(f"({slopes[i]}) * ({slopes[j]}) * c{pair[0]}_{pair[1]}")
    return f"sqrt(greatest(0.0, {' + '.join(terms)}))"


def gradient(tree: exp.Expr) -> Gradient:
    """Return the partial derivatives by aggregate, as SQL texts; absent means zero.

    >>> from sqlglot import parse_one
    >>> gradient(parse_one("3 * a0 - a1 / 2"))
    {0: '(3) * (1)', 1: '-((1) / (2))'}

    A value that is clipped has the slope of the value itself, which is its first argument.
    Raises: NoDerivative.
    """
    if not any(column.name.startswith("a") for column in tree.find_all(exp.Column)):
        return {}
    if isinstance(tree, exp.Greatest | exp.Least | exp.Coalesce) and any(
        gradient(part) for part in tree.expressions
    ):
        raise NoDerivative
    match tree:
        case exp.Column():
            return {int(tree.name[1:]): "1"}
        case exp.Neg():
            return {i: f"-({slope})" for i, slope in gradient(tree.this).items()}
        case exp.Add() | exp.Sub():
            left, right = gradient(tree.this), gradient(tree.expression)
            if isinstance(tree, exp.Sub):
                right = {i: f"-({slope})" for i, slope in right.items()}
            return _plus(left, right)
        case exp.Mul():
            return _plus(
                _times(gradient(tree.this), _sql(tree.expression)),
                _times(gradient(tree.expression), _sql(tree.this)),
            )
        case exp.Div():
            above, below = _sql(tree.this), _sql(tree.expression)
            left = {i: f"({s}) / ({below})" for i, s in gradient(tree.this).items()}
            right = {
                i: f"-({above}) * ({s}) / (({below}) * ({below}))"
                for i, s in gradient(tree.expression).items()
            }
            return _plus(left, right)
        case exp.Sqrt():
            root = f"nullif(2 * {_sql(tree)}, 0)"
            return {i: f"({s}) / {root}" for i, s in gradient(tree.this).items()}
        case exp.Case() if tree.args.get("default") is None and len(tree.args["ifs"]) == 1:
            return gradient(tree.args["ifs"][0].args["true"])
        case _ if isinstance(tree, _THROUGH):
            return gradient(tree.this)
    raise NoDerivative


def _sql(tree: exp.Expr) -> str:
    return tree.sql("duckdb")


def _times(slopes: Gradient, factor: str) -> Gradient:
    return {i: f"({factor}) * ({slope})" for i, slope in slopes.items()}


def _plus(left: Gradient, right: Gradient) -> Gradient:
    both = {i: f"{left[i]} + {right[i]}" for i in left if i in right}
    return {**left, **right, **both}
