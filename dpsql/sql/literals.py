"""Public values as literals of a statement."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

PUBLIC = "public"
"""The mark of a literal that stands for a public value rather than for text of a statement."""


def as_literal(value: Any) -> exp.Expr | None:
    """A public value as a literal, None where it cannot be written as one.

    >>> as_literal(-3).sql(), as_literal("it's").sql()
    ('-3', "'it''s'")
    """
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return None
        number = exp.Literal.number(repr(abs(value)))
        return exp.Neg(this=number) if value < 0 else number
    if isinstance(value, str):
        text = exp.Literal.string(value)
        text.meta[PUBLIC] = True
        return text
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        day = exp.Literal.string(value.isoformat())
        return exp.Cast(this=day, to=exp.DataType(this=exp.DType.DATE))
    return None


def as_values(rows: Sequence[Sequence[Any]], names: Sequence[str], alias: str) -> exp.Expr | None:
    """Public rows as a VALUES list with names, None where a value cannot be written."""
    written = [[as_literal(value) for value in row] for row in rows]
    if any(value is None for row in written for value in row):
        return None
    columns = [exp.to_identifier(name, quoted=True) for name in names]
    return exp.Values(
        expressions=[exp.Tuple(expressions=row) for row in written],
        alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=columns),
    )
