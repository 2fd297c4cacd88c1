"""Domains, the values that a column may take: finitely many cells, in declared order.

A domain is public and declared, never derived from data. Every cell has one representative value,
the one that stands for it in results and in the table on which predicates are evaluated.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, repeat
from operator import add

from dpsql.records import dataclass, field

Value = str | int | float | bool | Decimal | dt.date | dt.time | None

MIDNIGHT = dt.datetime(1970, 1, 1)
PERIODS = ("day", "week", "month", "quarter", "year")
CLOCK = ("second", "minute", "hour")
SECONDS = {
    "second": dt.timedelta(seconds=1),
    "minute": dt.timedelta(minutes=1),
    "hour": dt.timedelta(hours=1),
    "day": dt.timedelta(days=1),
    "week": dt.timedelta(days=7),
}
"""The units of one length; the others are a number of months."""
MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """The integers ``lo..hi``, one cell each.

    >>> IntegerRange(17, 90).size
    74
    """

    lo: int
    hi: int

    @property
    def size(self) -> int:
        return self.hi - self.lo + 1

    @property
    def representatives(self) -> tuple[int, ...]:
        return tuple(range(self.lo, self.hi + 1))


@dataclass(frozen=True, slots=True)
class Values:
    """An explicit list of values (text, boolean, decimals or integer codes), one cell each."""

    values: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...] | tuple[Decimal, ...]

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def representatives(self) -> tuple[Value, ...]:
        return self.values


@dataclass(frozen=True, slots=True)
class Labels(Values):
    """Texts that stand for stored codes: for each the code, all whole numbers or all texts.

    Codes are read and labels are meant: to statements it is a list of texts like any other.
    """

    codes: tuple[int, ...] | tuple[str, ...] = ()

    @property
    def is_numeric(self) -> bool:
        """True if codes are whole numbers."""
        return isinstance(self.codes[0], int)


@dataclass(frozen=True, slots=True)
class DecimalRange:
    """Decimal numbers from ``lo`` on, ``step`` apart, one cell each.

    >>> DecimalRange(Decimal("0.25"), Decimal("0.25"), 2).representatives
    (Decimal('0.25'), Decimal('0.50'))
    """

    lo: Decimal
    step: Decimal
    count: int

    @property
    def size(self) -> int:
        return self.count

    @property
    def representatives(self) -> tuple[Decimal, ...]:
        return tuple(self.lo + k * self.step for k in range(self.count))


def decimal_places(domain: DecimalRange | Values) -> int:
    """Return how many decimal places the values of a domain have at most."""
    if isinstance(domain, DecimalRange):
        listed: tuple[Value, ...] = (domain.lo, domain.step)
    else:
        listed = domain.values
    found = [Decimal(str(v)).as_tuple().exponent for v in listed]
    return max(0, *(-e for e in found if isinstance(e, int)))


@dataclass(frozen=True, slots=True)
class Bins:
    """Half-open intervals ``[e_j, e_{j+1})`` of numbers, the last one closed.

    The representative of a bin is its lower edge.
    """

    edges: tuple[Fraction, ...]

    @property
    def size(self) -> int:
        return len(self.edges) - 1

    @property
    def representatives(self) -> tuple[int, ...] | tuple[float, ...]:
        lower = self.edges[:-1]
        if all(edge.denominator == 1 for edge in lower):
            return tuple(int(edge) for edge in lower)
        return tuple(float(edge) for edge in lower)


@dataclass(frozen=True, slots=True)
class BoundedBins(Bins):
    """Bins of a number that has bounds: what lies beyond an end counts as that end.

    Its sums are those of the clipped values, as for a measure; its bins are its cells.
    """


@dataclass(frozen=True, slots=True)
class Periods:
    """Consecutive calendar periods from ``start``, which is the first day of a period.

    The representative of a period is its first day; weeks start on Monday.

    >>> Periods(dt.date(2024, 1, 1), "quarter", 2).representatives
    (datetime.date(2024, 1, 1), datetime.date(2024, 4, 1))
    """

    start: dt.date
    unit: str
    count: int

    @property
    def size(self) -> int:
        return self.count

    @property
    def length(self) -> int:
        """The number of units in one period."""
        return 1

    @property
    def representatives(self) -> tuple[dt.date | dt.time, ...]:
        return tuple(self.begins(self.count))

    def begins(self, count: int) -> Iterable[dt.date]:
        """Return the starts of the first periods, of which there may be a million."""
        if self.unit not in SECONDS:
            return [self.begin(k) for k in range(count)]
        step = self.length * SECONDS[self.unit]
        return accumulate(repeat(step, count - 1), add, initial=self.start)

    @property
    def end(self) -> dt.date:
        """The start of the period after the last one."""
        return self.begin(self.count)

    def begin(self, k: int) -> dt.date:
        """Return the start of period k."""
        return add_periods(self.start, self.unit, k * self.length)


@dataclass(frozen=True, slots=True)
class Spans(Periods):
    """Consecutive periods of ``every`` units each, of days or, from an instant, of a clock.

    ``zone`` is where the clock hangs that shows stored instants; stored times without a zone are
    taken as they are. ``has_zone`` says that it is declared, UTC included.

    >>> Spans(dt.datetime(2024, 1, 1), "minute", 2, 15).representatives[1].isoformat()
    '2024-01-01T00:15:00'
    """

    every: int = 1
    zone: str = "UTC"
    has_zone: bool = field(default=False, repr=False, compare=False)

    @property
    def length(self) -> int:
        """The number of units in one period."""
        return self.every


@dataclass(frozen=True, slots=True)
class Times(Spans):
    """Consecutive spans of a clock within one day, which is the first of 1970.

    The representative of a span is the time of day at which it begins.

    >>> Times(dt.datetime(1970, 1, 1, 8), "minute", 2, 30).representatives
    (datetime.time(8, 0), datetime.time(8, 30))
    """

    @property
    def representatives(self) -> tuple[dt.time, ...]:
        return tuple(dt.datetime.time(each) for each in self.begins(self.count))  # type: ignore[arg-type]

    def begin(self, k: int) -> dt.datetime:
        """When span k begins; the one after the last may begin with the day that follows."""
        assert isinstance(self.start, dt.datetime)
        return self.start + k * self.every * SECONDS[self.unit]


Domain = IntegerRange | DecimalRange | Values | Bins | Periods


def floor_period(when: dt.date, unit: str, every: int = 1) -> dt.date:
    """Return the begin of the period of ``unit`` that contains a day or an instant.

    Of several hours, minutes or seconds, counted from midnight.

    Args:
        when: a day, or an instant without a zone.
        unit: second, minute, hour, day, week, month, quarter or year.
        every: units in a period of a clock; longer units are not grouped.

    >>> floor_period(dt.date(2024, 5, 17), "quarter")
    datetime.date(2024, 4, 1)
    >>> floor_period(dt.datetime(2024, 5, 17, 12, 50), "minute", 15).isoformat()
    '2024-05-17T12:45:00'
    """
    if unit in CLOCK and isinstance(when, dt.datetime):
        midnight = when.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight + (when - midnight) // (every * SECONDS[unit]) * (every * SECONDS[unit])
    if isinstance(when, dt.datetime):
        return dt.datetime.combine(floor_period(when.date(), unit), dt.time())
    match unit:
        case "day":
            return when
        case "week":
            return when - dt.timedelta(days=when.weekday())
        case "month" | "quarter":
            months = MONTHS[unit]
            return when.replace(month=(when.month - 1) // months * months + 1, day=1)
        case _:
            return when.replace(month=1, day=1)


def add_periods(start: dt.date, unit: str, k: int) -> dt.date:
    """Return ``start``, the begin of a period, moved on by ``k`` periods.

    Args:
        start: must be the begin of a period, as a month of 28 days has no 31st to move to.
        unit: name of the period, from second to year.
        k: periods to move on by; below zero it moves back.
    """
    if unit in SECONDS:
        return start + k * SECONDS[unit]
    months = k * MONTHS[unit] + start.month - 1
    return start.replace(year=start.year + months // 12, month=months % 12 + 1)


def count_periods(first: dt.date, last: dt.date, unit: str, every: int = 1) -> int:
    """Count the periods that the days or instants ``first..last`` touch.

    Args:
        first, last: both are included; ``first`` is not after ``last``.
        unit: name of the period, from second to year.
        every: units that one period has.
    """
    lo = floor_period(first, unit, every)
    if unit in SECONDS:
        return (last - lo) // (every * SECONDS[unit]) + 1
    hi = floor_period(last, unit)
    months = (hi.year - lo.year) * 12 + hi.month - lo.month
    return months // (every * MONTHS[unit]) + 1


def end_of_bin(bins: Bins, k: int, *, whole: bool) -> int | float:
    """Return the largest number in bin k; the last bin holds its upper edge.

    Args:
        bins: their edges increase, in units of the column.
        k: number of the bin, from 0.
        whole: True for a column of integers, whose bins end one below the next edge.
    """
    high, is_last = bins.edges[k + 1], k + 2 == len(bins.edges)
    if whole:
        return int(high) - (not is_last)
    return float(high) if is_last else math.nextafter(float(high), -math.inf)


def ends_of_periods(periods: Periods) -> list[dt.date | dt.time]:
    """Return the last day of every period, or the last microsecond of a clock."""
    _, *ends = periods.begins(periods.count + 1)
    is_clock = isinstance(periods.start, dt.datetime)
    unit = dt.timedelta(microseconds=1) if is_clock else dt.timedelta(days=1)
    last = [end - unit for end in ends]
    return [dt.datetime.time(each) for each in last] if isinstance(periods, Times) else [*last]  # type: ignore[arg-type]
