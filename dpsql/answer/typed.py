"""Types that a dialect of its own gives the columns of a result, and what that makes of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeVar

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.answer.numbers import Numbers
from dpsql.records import replace
from dpsql.vectors import Vector

N = TypeVar("N", bound=Numbers)
INTEGERS = frozenset({"int2", "int4", "int8"})
_NUMBERS = INTEGERS | {"numeric", "float4", "float8"}
_TEXTS = frozenset({"text", "varchar", "unknown"})
_FITTING = {
    "integer": _NUMBERS,
    "number": _NUMBERS,
    "text": _TEXTS | {"interval"},
    "boolean": frozenset({"bool"}),
    "date": frozenset({"date", "timestamp", "timestamptz"}),
    "timestamp": frozenset({"timestamp", "timestamptz"}),
    "time": frozenset({"time"}),
}
"""The types that values of each type of a result may have elsewhere."""
ROUNDING = 1 / 12
"""Variance that rounding to integers adds: that of a number within half a step."""


def typed(result: N, types: Sequence[str | None]) -> N:
    """A result whose columns have these types, where they fit; () leaves it as it is.

    Numbers of a column of integers are rounded to the nearest one, halves away from zero, which
    adds 1/12 to their variances unless the plan makes them whole.
    """
    if len(types) != len(result.columns):
        return result
    kinds, errors = list(result.types), list(result.stddev)
    columns = list(result.vectors)
    found: list[str | None] = []
    for place, (name, kind) in enumerate(zip(types, result.types, strict=True)):
        is_list = kind == "list" and name is not None and name.endswith("[]")
        fits = is_list or name in _FITTING.get(kind, ())
        found.append(name if fits else None)
        if fits and name in INTEGERS and kind == "number":
            kinds[place] = "integer"
            columns[place] = columns[place].rounded(_away, _whole)
            own, whole = errors[place], bool(result.whole) and result.whole[place]
            if own is not None and not whole:
                errors[place] = Vector.finite(np.sqrt(np.square(own.numbers()) + ROUNDING))
    return replace(
        result,
        types=tuple(kinds),
        vectors=tuple(columns),
        stddev=tuple(errors),
        typed=tuple(found),
    )


def _away(values: Floats) -> Floats:
    return np.asarray(np.copysign(np.floor(np.abs(values) + 0.5), values))


def _whole(value: object) -> int | None:
    """The nearest integer, halves away from zero.

    >>> [_whole(each) for each in (2.5, -2.5, 2.4, None)]
    [3, -3, 2, None]
    """
    if isinstance(value, Decimal):
        return int(value.to_integral_value(ROUND_HALF_UP))
    if isinstance(value, float):
        return int(math.copysign(math.floor(abs(value) + 0.5), value))
    return value if isinstance(value, int) else None
