"""Columns as they are told: integers to SQL as integers, by the types that a dialect has."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeVar

import numpy as np

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


def told(
    result: N, integers: Sequence[bool], exact: Sequence[bool], types: Sequence[str | None] = ()
) -> N:
    """A result whose integers to SQL are integers, with the types that a dialect has for columns.

    Numbers of such a column are rounded to the nearest one, halves as CAST does. That adds 1/12 to
    their variances unless the plan makes them whole, or there is no error to add to.

    Args:
        integers: (columns,) that are integers to SQL.
        exact: (columns,) that the plan makes whole.
        types: (columns,) names, or () where the dialect has none of its own.
    """
    own = types if len(types) == len(result.columns) else (None,) * len(result.columns)
    kinds, errors, columns = list(result.types), list(result.stddev), list(result.vectors)
    found: list[str | None] = []
    for place, (name, kind) in enumerate(zip(own, result.types, strict=True)):
        is_list = kind == "list" and name is not None and name.endswith("[]")
        fits = is_list or name in _FITTING.get(kind, ())
        found.append(name if fits else None)
        if kind == "number" and (integers[place] or (fits and name in INTEGERS)):
            kinds[place] = "integer"
            columns[place] = columns[place].rounded(np.rint, _nearest)
            known = errors[place]
            if known is not None and not exact[place]:
                squares = np.square(known.numbers())
                errors[place] = Vector.finite(np.sqrt(squares + ROUNDING * (squares > 0)))
    return replace(
        result,
        types=tuple(kinds),
        vectors=tuple(columns),
        stddev=tuple(errors),
        typed=tuple(found) if any(found) else (),
    )


def _nearest(value: Decimal | float) -> int:
    """The nearest integer: of a decimal halves go away from zero, of a double to the even one.

    >>> [_nearest(each) for each in (Decimal("2.5"), 2.5, 2.0**70)]
    [3, 2, 1180591620717411303424]
    """
    if isinstance(value, Decimal):
        return int(value.to_integral_value(ROUND_HALF_UP))
    return round(value)
