"""What values a column may take: domains with finitely many cells, in declared order.

A domain is public and declared, never derived from data. Every cell has one representative value,
the one that stands for it in results and in the table on which predicates are evaluated.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from fractions import Fraction

Value = str | int | float | bool | dt.date | None

PERIODS = ("day", "week", "month", "quarter", "year")


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
    """An explicit list of values (text, boolean or integer codes), one cell each."""

    values: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def representatives(self) -> tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]:
        return self.values


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
    def representatives(self) -> tuple[dt.date, ...]:
        return tuple(add_periods(self.start, self.unit, k) for k in range(self.count))

    @property
    def end(self) -> dt.date:
        """The first day after the last period."""
        return add_periods(self.start, self.unit, self.count)


Domain = IntegerRange | Values | Bins | Periods


def floor_period(day: dt.date, unit: str) -> dt.date:
    """Return the first day of the period of ``unit`` that contains ``day``.

    >>> floor_period(dt.date(2024, 5, 17), "quarter")
    datetime.date(2024, 4, 1)
    """
    match unit:
        case "day":
            return day
        case "week":
            return day - dt.timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case _:
            return day.replace(month=1, day=1)


def add_periods(start: dt.date, unit: str, k: int) -> dt.date:
    """Return ``start``, the first day of a period, moved on by ``k`` periods."""
    if unit in ("day", "week"):
        return start + dt.timedelta(days=k * (7 if unit == "week" else 1))
    months = k * {"month": 1, "quarter": 3, "year": 12}[unit] + start.month - 1
    return dt.date(start.year + months // 12, months % 12 + 1, 1)


def count_periods(first: dt.date, last: dt.date, unit: str) -> int:
    """Count the periods that the days ``first..last`` touch."""
    lo, hi = floor_period(first, unit), floor_period(last, unit)
    if unit in ("day", "week"):
        return (hi - lo).days // (7 if unit == "week" else 1) + 1
    months = (hi.year - lo.year) * 12 + hi.month - lo.month
    return months // {"month": 1, "quarter": 3, "year": 12}[unit] + 1
