"""Columns of two SELECTs that stand at one place of a union: one column that holds what either has.

A constant stands beside any column that may hold it: ``0`` or ``CAST(0 AS DECIMAL(7, 2))`` beside a
measure is one, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from sqlglot import exp

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import IntegerRange, Periods, Values, count_periods
from dpsql.errors import Span
from dpsql.records import replace
from dpsql.relation.unit_local import MapRows
from dpsql.sql.cells.cell_columns import column_of_values, mapped, measured, plain
from dpsql.sql.cells.evaluate import Evaluator, Operand
from dpsql.sql.query import Expression

Constant: TypeAlias = "str | int | float | bool | Decimal | dt.date | None"


def constant_of(node: exp.Expr, evaluator: Evaluator, span: Span) -> Constant:
    """The value of an expression without columns; whole decimals are integers.

    Raises: ProgrammingError (E_DOMAIN_EVAL).
    """
    asked = Expression(None, node.sql("duckdb", comments=False), span)
    (found,) = evaluator.values(Operand("", None), asked)[1]
    value: Constant = plain(found)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value


def beside(known: Column, value: Constant) -> Column | None:
    """The column of one value in all rows that stands beside ``known``; None for no such column."""
    if value is None:
        return replace(known, null=True)
    number = None
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        number = Fraction(value)
    if known.domain is None and known.bounds is not None:
        if number is None or (known.type == "integer" and number.denominator > 1):
            return None
        wider = _wider(known, (number, number))
        return None if wider is None else replace(wider, null=False)
    if known.type == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if number is not None and known.bounds is None and known.other is None and value in known.cells:
        return replace(known, null=False)
    return alone(known.name, [value])


def alone(name: str, values: Sequence[Column | Constant]) -> Column | None:
    """The column that the first constant which is not NULL makes; None where that has no cells."""
    value = next((each for each in values if each is not None), None)
    for type_, kind in ((bool, "BOOLEAN"), (int, "BIGINT"), (str, "VARCHAR"), (dt.date, "DATE")):
        if isinstance(value, type_):
            return column_of_values(name, kind, [value])
    return None


def made(column: Column, of: tuple[str, ...], values: Sequence[Any]) -> MapRows:
    """A column whose values follow from the cells of others; with cells or with bounds alone."""
    return (measured if column.domain is None else mapped)(column, of, values)


def joint_column(one: Column, other: Column) -> Column | None:
    """A column that holds what either does, None where there is none.

    Columns without cells are as they are: their bounds have nothing to find. Whole numbers with
    cells become such a measure beside one.
    """
    if one.domain == other.domain and one.other == other.other and one.type == other.type:
        if one.domain is not None:
            return one if one.bounds == other.bounds else None
        return _wider(one, other.bounds)
    if one.other is not None or other.other is not None:
        return None
    for cells, measure in ((one, other), (other, one)):
        if measure.domain is None and measure.bounds is not None:
            return _measure(measure, cells)
    if one.bounds is not None or other.bounds is not None or one.type != other.type:
        return None
    match one.domain, other.domain:
        case IntegerRange(low, high), IntegerRange(least, most) if (
            low <= most + 1 and least <= high + 1
        ):
            return replace(one, domain=IntegerRange(min(low, least), max(high, most)))
        case Values() | IntegerRange(), Values() | IntegerRange():
            kind = {"text": "VARCHAR", "boolean": "BOOLEAN", "integer": "BIGINT"}.get(one.type, "")
            listed = [*one.domain.representatives, *other.domain.representatives]
            return column_of_values(one.name, kind, listed)
        case Periods(), Periods() if {type(one.domain), type(other.domain)} == {Periods}:
            return _joint_periods(one, other.domain)
    return None


def _measure(measure: Column, cells: Column) -> Column | None:
    """A measure beside whole numbers that have cells."""
    is_whole = cells.type == "integer" and isinstance(cells.domain, IntegerRange | Values)
    if not is_whole or cells.bounds is not None or measure.bounds is None:
        return None
    listed = [int(value) for value in cells.cells if isinstance(value, int)]
    return _wider(measure, (Fraction(min(listed)), Fraction(max(listed))))


def _wider(measure: Column, bounds: tuple[Fraction, Fraction] | None) -> Column | None:
    """A measure whose bounds hold others, too."""
    if measure.bounds is None or bounds is None:
        return None
    low, high = measure.bounds
    return replace(measure, bounds=(min(low, bounds[0]), max(high, bounds[1])))


def _joint_periods(one: Column, other: Periods) -> Column | None:
    own = one.domain
    assert isinstance(own, Periods)
    if own.unit != other.unit:
        return None
    start, last = min(own.start, other.start), max(own.end, other.end)
    count = count_periods(start, last, own.unit) - 1
    return replace(one, domain=Periods(start, own.unit, count))
