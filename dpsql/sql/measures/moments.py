"""CORR, COVAR, REGR, SKEWNESS and KURTOSIS: expressions over sums of powers and products.

All of them are of one set of rows, those without a NULL among what they are about, so that their
sums are measured together and fit each other. They are moments about the mean, divided by counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from sqlglot import exp, parse_one

from dpsql.records import replace
from dpsql.sql.measures.aggregates import Aggregates
from dpsql.sql.measures.centred_moments import centred, moved
from dpsql.sql.measures.sums import among, amount
from dpsql.sql.query import Aggregate
from dpsql.sql.shell.derivative import guard
from dpsql.sql.shell.guarded_values import clipped, where_positive
from dpsql.sql.shell.whole_numbers import marked

COVARIANCE = "(xy - x * y / n)"
SPREAD = "(xx - x * x / n)"
SPREAD_Y = "(yy - y * y / n)"
SLOPE = f"({COVARIANCE} / NULLIF({SPREAD}, 0))"

PAIRS: dict[type[exp.Expr], tuple[str, str, int]] = {
    exp.CovarPop: (f"{COVARIANCE} / n", "", 0),
    exp.CovarSamp: (f"{COVARIANCE} / (n - 1)", "", 1),
    exp.RegrSlope: (SLOPE, SPREAD, 0),
    exp.RegrIntercept: (f"mean_y - {SLOPE} * mean_x", SPREAD, 0),
    exp.RegrAvgx: ("mean_x", "", 0),
    exp.RegrAvgy: ("mean_y", "", 0),
    exp.RegrSxy: (COVARIANCE, "", 0),
    exp.RegrSxx: (SPREAD, "", 0),
    exp.RegrSyy: (SPREAD_Y, "", 0),
    exp.RegrR2: (f"{COVARIANCE} * {COVARIANCE} / ({SPREAD} * {SPREAD_Y})", SPREAD, 0),
    exp.Corr: (f"{COVARIANCE} / (SQRT({SPREAD}) * SQRT({SPREAD_Y}))", SPREAD, 0),
}
"""Aggregates of y and x as DuckDB defines them, what must be positive, and what ``n`` is above."""

RANGES: dict[type[exp.Expr], tuple[float, float]] = {
    exp.Corr: (-1.0, 1.0),
    exp.RegrR2: (0.0, 1.0),
    exp.RegrSxx: (0.0, float("inf")),
    exp.RegrSyy: (0.0, float("inf")),
}
"""Bounds of the values of aggregates of two columns, whatever the data are."""

KEPT = 64
"""Formulas that are remembered as they are parsed."""

SECOND = "(x2 / n - x / n * x / n)"
THIRD = "(x3 / n - 3 * x / n * x2 / n + 2 * x / n * x / n * x / n)"
FOURTH = (
    "(x4 / n - 4 * x / n * x3 / n + 6 * x / n * x / n * x2 / n - 3 * x / n * x / n * x / n * x / n)"
)
SKEWNESS = f"SQRT(n * (n - 1)) / (n - 2) * {THIRD} / ({SECOND} * SQRT({SECOND}))"
KURTOSIS = (
    f"(n - 1) * ((n + 1) * {FOURTH} / ({SECOND} * {SECOND}) - 3 * (n - 1)) / ((n - 2) * (n - 3))"
)


def paired(aggregates: Aggregates, node: exp.Expr, shape: Aggregate) -> exp.Expr:
    """An aggregate of two expressions, over the rows where neither is NULL."""
    if node.expression is None or node.args.get("expressions"):
        aggregates.refuse(node)
    (y, from_y), (x, from_x) = (
        centred(each, aggregates.known_bounds, lone=aggregates.weights.lone)
        for each in (node.this, node.expression)
    )
    both = amount(aggregates.scope, _times(y, x))
    found: dict[str, exp.Expr] = {"n": aggregates.column(replace(shape, summands=both.counted))}
    if isinstance(node, exp.RegrCount):
        return marked(aggregates.column(replace(shape, summands=both.counted)), True)
    for each in (y, x):
        aggregates.check_varied(node, each)
    text, positive, least = PAIRS[type(node)]
    means = {
        "mean_y": moved(parse_one("y / n"), from_y),
        "mean_x": moved(parse_one("x / n"), from_x),
    }
    text = _with_means(text, means)
    sums = {"x": x, "y": y, "xx": _times(x, x), "yy": _times(y, y), "xy": _times(y, x)}
    for name in (each for each in sums if each in _names(text)):
        within = among(amount(aggregates.scope, sums[name]).summands, both.counted)
        found[name] = aggregates.column(replace(shape, summands=within))
    value = clipped(_filled(text, found), RANGES.get(type(node)))
    varied = SPREAD_Y if isinstance(node, exp.Corr | exp.RegrR2) else ""
    if isinstance(node, exp.RegrR2) and y.find(exp.Column) is None:
        value, varied = exp.Literal.number("1.0"), ""  # a line fits a constant exactly
    for test in (positive, varied):
        value = where_positive(_filled(test, found), value) if test else value
    return where_positive(found["n"], value, least)


def of_powers(aggregates: Aggregates, node: exp.Expr, shape: Aggregate) -> exp.Expr:
    """A standardised moment of the third or fourth order."""
    text, least = (SKEWNESS, 2) if isinstance(node, exp.Skewness) else (KURTOSIS, 3)
    inner, _ = aggregates.centred(node)
    power, found = inner, dict[str, exp.Expr]()
    for name in ("x", "x2", "x3", "x4"):
        if name in _names(text):
            summed = amount(aggregates.scope, power)
            found[name] = aggregates.column(replace(shape, summands=summed.summands))
        power = _times(power, inner)
    counted = amount(aggregates.scope, inner).counted
    found["n"] = aggregates.column(replace(shape, summands=counted))
    value = where_positive(_filled(SECOND, found), _filled(text, found))
    return where_positive(found["n"], value, least)


OF_MOMENTS = dict.fromkeys((*PAIRS, exp.RegrCount), paired)
OF_MOMENTS |= dict.fromkeys((exp.Skewness, exp.Kurtosis), of_powers)
"""The builder of each kind."""


def _times(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Mul(this=exp.paren(left.copy()), expression=exp.paren(right.copy()))


@lru_cache(KEPT)
def _parsed(text: str) -> exp.Expr:
    """A formula, which is not to be changed: those of a thousand pairs are the same few."""
    return parse_one(text, read="duckdb")


def _names(text: str) -> set[str]:
    return {column.name for column in _parsed(text).find_all(exp.Column)}


def _with_means(text: str, means: Mapping[str, exp.Expr]) -> str:
    def fill(node: exp.Expr) -> exp.Expr:
        is_mean = isinstance(node, exp.Column) and node.name in means
        return exp.paren(means[node.name].copy()) if is_mean else node

    return _parsed(text).transform(fill).sql("duckdb") if text else ""


def _filled(text: str, found: Mapping[str, exp.Expr]) -> exp.Expr:
    """A formula over the columns of sums; what keeps it from being undefined is marked so."""

    def fill(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Nullif | exp.Greatest):
            return guard(node)
        return found[node.name].copy() if isinstance(node, exp.Column) else node

    return exp.paren(_parsed(text).transform(fill))
