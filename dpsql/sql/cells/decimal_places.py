"""Measures that are rounded to decimal places before they are added up.

Measures are known on a grid within their bounds. Rounding them to places that are far finer than
their bounds are wide is as good as none: it moves a sum by at most half a place for each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from dpsql.catalog.catalog import Column

FINE = 1_000
"""The least width of a measure's bounds, in last places, at which rounding is left out."""


def is_fine(node: exp.Cast | exp.Round, columns: Sequence[Column]) -> bool:
    """True if CAST or ROUND of products of columns moves numbers by little of what they may be."""
    known = [column.number_bounds for column in columns]
    bounds = [each for each in known if each is not None]
    found = decimals_of(node)
    if found is None or len(bounds) < len(columns):
        return False
    whole, places = found
    most = math.prod(max(abs(low), abs(high), 1.0) for low, high in bounds)
    both = zip(columns, bounds, strict=True)
    widths = [high - low for column, (low, high) in both if column.type != "integer"]
    is_held = whole is None or most < 10.0**whole
    return is_held and all(FINE * 10.0**-places <= width for width in widths)


def decimals_of(node: exp.Cast | exp.Round) -> tuple[int | None, int] | None:
    """The number of digits before the decimal point, at most, and after it; None if unknown.

    >>> from sqlglot import parse_one
    >>> decimals_of(parse_one("CAST(x AS DECIMAL(12, 2))")), decimals_of(parse_one("ROUND(x, 1)"))
    ((10, 2), (None, 1))
    """
    if isinstance(node, exp.Round):
        places = node.args.get("decimals")
        is_told = isinstance(places, exp.Literal) and places.name.isdigit()
        return (None, int(places.name)) if is_told and places is not None else None
    if node.to.this != exp.DType.DECIMAL:
        return None
    told = [each.name for each in node.to.expressions] or ["18", "3"]
    if len(told) > 2 or not all(each.isdigit() for each in told):
        return None
    width, places = int(told[0]), int(told[1]) if len(told) > 1 else 0
    return width - places, places
