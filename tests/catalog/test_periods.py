"""Periods that are listed together begin and end where each of them does."""

from __future__ import annotations

import datetime as dt

import pytest

from dpsql.catalog.domain import Periods, Spans, Times, ends_of_periods

DAY, INSTANT = dt.date(2023, 12, 1), dt.datetime(2023, 12, 1, 6)


@pytest.mark.parametrize(
    "periods",
    [
        *(Periods(dt.date(2023, 10, 2), unit, 40) for unit in ("day", "week")),
        *(Periods(dt.date(2023, 10, 1), unit, 40) for unit in ("month", "quarter")),
        Periods(dt.date(2023, 1, 1), "year", 1),
        Spans(DAY, "day", 30, 8),
        *(Spans(INSTANT, unit, 100, every) for unit in ("second", "hour") for every in (1, 15)),
        Spans(dt.datetime(2023, 12, 1), "month", 5),
        Times(dt.datetime(1970, 1, 1, 8), "minute", 32, 30),
    ],
    ids=str,
)
def test_begins_and_ends_are_those_of_each(periods: Periods) -> None:
    count = periods.count
    begins = [periods.begin(k) for k in range(count + 1)]
    assert list(periods.begins(count)) == begins[:-1]
    assert len(periods.representatives) == len(ends_of_periods(periods)) == count
    step = dt.timedelta(microseconds=1) if isinstance(begins[0], dt.datetime) else dt.timedelta(1)
    ends = [begin - step for begin in begins[1:]]
    if isinstance(periods, Times):
        assert periods.representatives == tuple(dt.datetime.time(each) for each in begins[:-1])  # type: ignore[arg-type]
        assert ends_of_periods(periods) == [dt.datetime.time(each) for each in ends]  # type: ignore[arg-type]
    else:
        assert periods.representatives == tuple(begins[:-1])
        assert ends_of_periods(periods) == ends


def test_the_last_day_of_all_is_no_matter() -> None:
    assert Periods(dt.date(9999, 12, 30), "day", 2).representatives[-1] == dt.date.max
