"""DP_REPORT: an answer and what is known of its noise, as text in JSON.

The layout is that of ZetaSQL's reports. ``noise_confidence_interval`` is about the noise alone for
counts and sums, around the answer for all else, as it is there. What is said of bounds is what the
catalog or the statement says: no number of values inside or outside of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from sqlglot import exp

from dpsql.logical.functions import has
from dpsql.records import replace
from dpsql.sql.measures.aggregates import Aggregates
from dpsql.sql.rewrites.lists import rank_parts
from dpsql.sql.shell.expressions import sql_of

LEVEL = "0.95"
"""Confidence level of intervals."""
Tree: TypeAlias = "str | Mapping[str, Tree] | list[Tree]"
"""SQL of JSON, objects by name and lists of such."""


def report_of(
    value: str,
    stddev: str | None,
    interval: tuple[str, str],
    bounds: tuple[str, str] | None,
    whole: bool,
) -> dict[str, Tree]:
    """The report of one answer; ``stddev`` and the ends of the interval are SQL of numbers."""
    result: dict[str, Tree] = {
        "noise_confidence_interval": {
            "confidence_level": LEVEL,
            "lower_bound": number(interval[0]),
            "upper_bound": number(interval[1]),
        }
    }
    if stddev is not None:
        result["standard_deviation"] = number(stddev)
    result["value"] = whole_number(value) if whole else number(value)
    found: dict[str, Tree] = {}
    if bounds is not None:
        found["bounding_report"] = {"lower_bound": bounds[0], "upper_bound": bounds[1]}
    return {**found, "result": result}


def ends_of(aggregates: Aggregates, tree: exp.Expr) -> tuple[str, str] | None:
    """The ends of the interval of what is read off a quantile, which are measured with it.

    None for what has a standard error; NULL for a mode, of which none is known.
    """
    places = {int(each.name[1:]) for each in tree.find_all(exp.Column) if each.name[0] == "a"}
    known = list(aggregates.found)
    ranks = {place: known[place].rank for place in places}
    if not any(ranks.values()):
        return None
    ends = []
    for end in (-1, 1):
        copy = exp.paren(tree.copy())
        for column in list(copy.find_all(exp.Column)):
            place = int(column.name[1:]) if column.name[0] == "a" else -1
            rank = ranks.get(place)
            if rank is None or rank.kind == "mode":
                column.replace(exp.null())
                continue
            found = replace(known[place], rank=replace(rank, end=end))
            column.replace(aggregates.column(found))
        ends.append(sql_of(copy))
    return ends[0], ends[1]


def bounds_of(aggregates: Aggregates, node: exp.Expr) -> tuple[str, str] | None:
    """The bounds that the catalog or a statement gives for what an aggregate is of, as numbers.

    Those of a count are what the statement says of it.
    """
    scope, clip = aggregates.scope, aggregates.scope.clip_of(node)
    if isinstance(node, exp.Count):
        return None if clip is None else (_bound(clip[0]), _bound(clip[1]))
    parts = rank_parts(node) if has(node, "rank") or isinstance(node, exp.WithinGroup) else None
    value = node.this if parts is None else parts[1]
    if not isinstance(value, exp.Column) or scope.find_public(value) is not None:
        return None
    column = scope.find_column(value, measure=True)
    known = scope.cut_of(column) or column.number_bounds
    if known is None:
        return None
    low, high = clip or known
    return _bound(max(low, known[0])), _bound(min(high, known[1]))


def _bound(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value!r}::DOUBLE"


def number(sql: str) -> str:
    """A number in JSON; null where it is none.

    >>> number("a0")
    'CASE WHEN isfinite(CAST(a0 AS DOUBLE)) THEN CAST(a0 AS DOUBLE) + 0.0::DOUBLE END'
    """
    double = f"CAST({sql} AS DOUBLE)"
    return f"CASE WHEN isfinite({double}) THEN {double} + 0.0::DOUBLE END"


def whole_number(sql: str) -> str:
    """A number in JSON, without a point where it is whole."""
    double = f"CAST({sql} AS DOUBLE)"
    is_whole = f"{double} = round({double}) AND abs({double}) <= {2**53}"
    integer = f"to_json(CAST({double} AS BIGINT))"
    return f"CASE WHEN {is_whole} THEN {integer} ELSE to_json({number(sql)}) END"


def json_text(tree: Tree) -> str:
    """SQL of a text in JSON.

    >>> json_text({"a": ["1", {"b": "2"}]})
    "CAST(json_object('a', json_array(1, json_object('b', 2))) AS VARCHAR)"
    """
    return f"CAST({_json(tree)} AS VARCHAR)"


def _json(tree: Tree) -> str:
    if isinstance(tree, str):
        return tree
    if isinstance(tree, list):
        return f"json_array({', '.join(map(_json, tree))})"
    return f"json_object({', '.join(f'{name!r}, {_json(each)}' for name, each in tree.items())})"
