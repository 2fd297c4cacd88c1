"""Fetched numbers to cells: numpy alone decides which cell a value is in, row by row.

Guarantee: every function here is elementwise, so the code of a row is a function of that row. A
column of ``size`` cells has one code more, ``size``: the value is outside the declared domain.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Column
from dpsql.catalog.domain import (
    MONTHS,
    SECONDS,
    Bins,
    BoundedBins,
    DecimalRange,
    IntegerRange,
    Labels,
    Periods,
    Values,
    decimal_places,
)
from dpsql.privacy.vault.data_engine import Codes, Counts, Flags, Floats, Values64

OUTSIDE = np.inf
"""The value of a measure that is outside the declared view; NaN is a declared NULL."""
EPOCH = dt.date(1970, 1, 1)
DAY = 86_400 * 10**6
"""The microseconds of a day."""
SLACK = 2.0**-51
"""Most relative distance of a double from its decimal number: up to four of its last bits."""
NEAR = 1 << 12
"""Listed numbers that span less than this are looked up, which is quicker than to search them."""
NOWHERE = -(1 << 63)
"""A whole number that no domain has."""
WHOLE = 2.0**62
"""Doubles below this have an exact int64."""


def encode(column: Column, values: Values64) -> Codes:
    """Return the code of every row: the domain's cells, ``other``, NULL, and then "outside"."""
    outside = column.size
    other = outside if column.other is None else outside - 1 - column.null
    null = outside - 1 if column.null else outside
    cells = _cells(column, values)
    found = cells.astype(code_type(outside + 1))
    np.putmask(found, values.unknown | (cells.view(np.uint64) >= _count(column)), other)
    np.putmask(found, values.missing, null)
    return found


def clip(column: Column, values: Values64) -> Floats:
    """Return the value of a measure in its bounds, NaN for a declared NULL, else OUTSIDE."""
    if column.bounds is None:
        raise ValueError("a column without bounds is no measure")
    low, high = map(float, column.bounds)
    known = np.fmin(np.fmax(np.asarray(values.numbers, dtype=np.float64), low), high) + 0.0
    null = np.nan if column.null else OUTSIDE
    return np.where(values.unknown, OUTSIDE, np.where(values.missing, null, known))


def code_type(size: int) -> npt.DTypeLike:
    """Return the narrowest unsigned type for ``size`` codes.

    >>> code_type(256), code_type(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(size - 1)


def find_bins(numbers: Floats, edges: Sequence[float]) -> Counts:
    """Return the bin of numbers, closed at the last edge, or -1.

    ``numbers`` and the result are (rows,), ``edges`` one more than there are bins, increasing.

    >>> find_bins(np.array([-0.1, 0.0, 0.99, 1.0, 7.0, np.inf, np.nan]), (0.0, 1.0, 7.0)).tolist()
    [-1, 0, 0, 1, 1, -1, -1]
    """
    inside = (numbers >= edges[0]) & (numbers <= edges[-1])
    cells = np.searchsorted(np.array(edges[:-1]), numbers, side="right") - 1
    return np.where(inside, cells, -1)


def _count(column: Column) -> np.uint64:
    """Count the cells of a column's domain, without those of ``other`` and NULL."""
    return np.uint64(0 if column.domain is None else column.domain.size)


def _cells(column: Column, values: Values64) -> Counts:
    """Return the cell of every row, or a number that is none; what is missing may have any."""
    match column.domain:
        case Bins(edges):
            found = np.asarray(values.numbers, np.float64)
            if isinstance(column.domain, BoundedBins):
                found = np.fmin(np.fmax(found, float(edges[0])), float(edges[-1]))
            return find_bins(found, tuple(map(float, edges)))
        case IntegerRange(lo, _):
            return _whole(values.numbers) - lo  # beyond 64 bits they wrap, and are none
        case Periods() as periods:
            return _find_periods(_whole(values.numbers), periods)
        case DecimalRange(first, step, count) as decimals:
            places = decimal_places(decimals)
            scaled, is_exact = _scaled(values.numbers, places)
            low, width = (int(each.scaleb(places)) for each in (first, step))
            last = low + (count - 1) * width
            found = is_exact & (scaled >= low) & (scaled <= last) & ((scaled - low) % width == 0)
            return np.where(found, (scaled - low) // width, -1)
        case Values(listed) if column.type == "decimal":
            places = decimal_places(column.domain)
            scaled, is_exact = _scaled(values.numbers, places)
            places_of = tuple(int(Decimal(each).scaleb(places)) for each in listed)
            return np.where(is_exact, _find_listed(scaled, places_of), -1)
        case Labels(codes=codes) as labels if labels.is_numeric:
            return _find_listed(_whole(values.numbers), tuple(map(int, codes)))
        case Values(listed):
            numbers = _whole(values.numbers)
            if column.type == "text":
                return numbers
            return _find_listed(numbers, tuple(map(int, listed)))
        case None:
            raise ValueError("a column without a domain has no cells")


def _whole(numbers: Counts | Floats) -> Counts:
    """Return numbers as int64, NOWHERE for those that are not whole or do not fit."""
    if numbers.dtype == np.int64:
        return np.asarray(numbers, dtype=np.int64)
    is_whole = (np.abs(numbers) < WHOLE) & (numbers == np.floor(numbers))
    return np.where(is_whole, numbers, float(NOWHERE)).astype(np.int64)


def _scaled(numbers: Counts | Floats, places: int) -> tuple[Counts, Flags]:
    """Return numbers of so many decimal places as whole numbers of the last one, and which are.

    A double that is next to such a number, or the one after, stands for it: sums of decimals end
    there.

    >>> _scaled(np.array([1.25, 0.1 + 0.2, 1.255, 1e300, np.nan]), 2)[0].tolist()
    [125, 30, 0, 0, 0]
    >>> _scaled(np.array([1.25, 0.1 + 0.2, 1.255, 1e300, np.nan]), 2)[1].tolist()
    [True, True, False, False, False]
    """
    found = np.asarray(numbers, dtype=np.float64)
    with np.errstate(all="ignore"):
        scaled = np.rint(found * 10.0**places)
        near = np.abs(scaled / 10.0**places - found) <= SLACK * np.abs(found)
    is_exact = near & (np.abs(scaled) < WHOLE)
    return np.where(is_exact, scaled, 0.0).astype(np.int64), is_exact


def _find_listed(numbers: Counts, listed: Sequence[int]) -> Counts:
    """Return the place of numbers in a list, or -1.

    >>> _find_listed(np.array([0, 100, 7]), (100, 0)).tolist()
    [1, 0, -1]
    """
    if not listed:
        return np.full(len(numbers), -1)
    low, high = min(listed), max(listed)
    if high - low < NEAR:
        places = np.full(high - low + 2, -1)
        places[np.array(listed) - low] = np.arange(len(listed))
        return places[_above(numbers, low, high + 1)]
    order = np.argsort(np.array(listed, dtype=np.int64), kind="stable")
    ordered = np.array(listed, dtype=np.int64)[order]
    place = np.minimum(np.searchsorted(ordered, numbers), len(listed) - 1)
    return np.where(ordered[place] == numbers, order[place], -1)


def _find_periods(numbers: Counts, periods: Periods) -> Counts:
    """Return the period of days, or of a clock's microseconds, since 1970; none has their count."""
    first, last = map(count_ticks, (periods.start, periods.end))
    passed = _above(numbers, first, last)  # the end itself is in the period after the last one
    if periods.unit in SECONDS:
        return passed // tick_of(periods)
    ticks = ticks_of_day(periods)
    return _periods_of_days(periods)[passed if ticks == 1 else passed // ticks]


def _above(numbers: Counts, low: int, high: int) -> Counts:
    """Return how far numbers are above ``low``, and ``high - low`` where not below ``high``.

    Those below ``low`` count as beyond: 64 bits without a sign hold them as very large ones.

    >>> _above(np.array([2, 3, 4, 5, 99, -(1 << 63)]), 3, 5).tolist()
    [2, 0, 1, 2, 2, 2]
    """
    above = (numbers - low).view(np.uint64)
    return np.minimum(above, np.uint64(high - low)).view(np.int64)


@lru_cache(maxsize=8)
def _periods_of_days(periods: Periods) -> Counts:
    """Return the period of some months that every day is in, from the first on."""
    ticks = ticks_of_day(periods)
    first, last = (count_ticks(each) // ticks for each in (periods.start, periods.end))
    days = np.arange(first, last + 1).astype("datetime64[D]")
    months = days.astype("datetime64[M]").astype(np.int64)
    start = (periods.start.year - 1970) * 12 + periods.start.month - 1
    found: Counts = (months - start) // (MONTHS[periods.unit] * periods.length)
    return found


def ticks_of_day(periods: Periods) -> int:
    """Count the microseconds of a day where periods are of a clock, 1 where they are of days."""
    return DAY if isinstance(periods.start, dt.datetime) else 1


def tick_of(periods: Periods) -> int:
    """Count the days or microseconds of one period that has a length."""
    seconds = SECONDS[periods.unit] // dt.timedelta(seconds=1)
    return seconds * ticks_of_day(periods) // 86_400 * periods.length


def count_ticks(when: dt.date) -> int:
    """Count the days since 1970, or the microseconds of a clock."""
    if isinstance(when, dt.datetime):
        return (when - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    return (when - EPOCH).days
