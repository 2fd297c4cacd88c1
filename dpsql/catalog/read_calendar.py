"""Read the domains of dates, instants and times of day."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

from dpsql.catalog.domain import (
    CLOCK,
    MIDNIGHT,
    PERIODS,
    SECONDS,
    Periods,
    Spans,
    Times,
    count_periods,
    floor_period,
)
from dpsql.catalog.read_place import Place, show

MAX_CELLS = 1_000_000
"""Cells of one column, whose values are kept: 40 MB of integers, 80 MB of short texts."""
_BY = re.compile(r"(?:([1-9]\d{0,6}) )?([a-z]+?)s?")


def read_periods(place: Place, given: list[Any], by: Any) -> Periods:
    """Read calendar periods from the first to the last day.

    Args:
        place: where in the catalog a complaint points to.
        given: first and last day, as TOML dates or ISO texts; both days are in the domain.
        by: period, such as "week" or "3 months".

    Raises: CatalogError (E_POLICY).
    """
    every, unit = _read_by(place, by, PERIODS)
    days = [_read_day(place, value) for value in given]
    if len(days) != 2 or days[0] > days[1]:
        place.fail(f"domain = {show(given)}", 'domain = ["2020-01-01", "2024-12-31"]')
    _check_end(place, given, days[1])
    start = floor_period(days[0], unit)
    count = count_periods(days[0], days[1], unit, every)
    return Periods(start, unit, count) if every == 1 else Spans(start, unit, count, every)


def read_spans(place: Place, given: list[Any], by: Any, zone: str) -> Spans:
    """Read the periods of a clock; a last day without a time of day is a whole day.

    Args:
        place: where in the catalog a complaint points to.
        given: first and last instant, as TOML has them or as ISO texts.
        by: period of a clock, of which a day has a whole number ("15 minutes"), or of the calendar.
        zone: IANA name of the time zone that the clock shows.
    """
    every, unit = _read_by(place, by, (*CLOCK, *PERIODS))
    ends = [_read_instant(place, value, i) for i, value in enumerate(given)]
    if len(ends) != 2 or ends[0] > ends[1]:
        place.fail(f"domain = {show(given)}", 'domain = ["2024-01-01", "2024-12-31"]')
    _check_end(place, given, ends[1])
    if unit in CLOCK and dt.timedelta(days=1) % (every * SECONDS[unit]):
        place.fail(f"by = {show(by)}", "so many as divide a day, such as 15 minutes or 6 hours")
    count = count_periods(ends[0], ends[1], unit, every)
    if count > MAX_CELLS:
        place.fail(f"domain has {count} cells", "a coarser `by`")
    return Spans(floor_period(ends[0], unit, every), unit, count, every, zone)


def read_times(place: Place, given: list[Any], by: Any) -> Times:
    """Read the spans of a clock within a day; an end of 24:00 is the end of the day.

    Args:
        place: where in the catalog a complaint points to.
        given: first and last time of day, as TOML has them or as texts.
        by: span that divides a day and is shorter, such as "15 minutes".

    Raises: CatalogError (E_POLICY).
    """
    every, unit = _read_by(place, by, CLOCK)
    ends = [_read_time(place, value) for value in given]
    last = min(ends[-1], MIDNIGHT + dt.timedelta(days=1, microseconds=-1))
    if len(ends) != 2 or ends[0] > last:
        place.fail(f"domain = {show(given)}", 'domain = ["08:00", "18:00"]')
    if dt.timedelta(days=1) % (every * SECONDS[unit]):
        place.fail(f"by = {show(by)}", "so many as divide a day, such as 15 minutes or 6 hours")
    if every * SECONDS[unit] >= dt.timedelta(days=1):
        place.fail(f"by = {show(by)}", "less than a day, such as 12 hours")
    count = count_periods(ends[0], last, unit, every)
    return Times(floor_period(ends[0], unit, every), unit, count, every)


def _read_time(place: Place, value: Any) -> dt.datetime:
    """Read a time of day as an instant of the first day of 1970."""
    if value in ("24:00", "24:00:00"):
        return MIDNIGHT + dt.timedelta(days=1)
    try:
        found = value if isinstance(value, dt.time) else dt.time.fromisoformat(value)
    except (TypeError, ValueError):
        place.fail(f"domain: {show(value)} is not a time of day", '"08:30"')
    if found.tzinfo is not None:
        place.fail(f"domain: {show(value)} has a zone", "times of day have none")
    return dt.datetime.combine(MIDNIGHT, found)


def _check_end(place: Place, given: list[Any], last: dt.date) -> None:
    if last.year == dt.MAXYEAR:
        place.fail(f"domain = {show(given)} ends too late", "the calendar ends with 9998-12-31")


def _read_by(place: Place, given: Any, units: Sequence[str]) -> tuple[int, str]:
    """Read a unit of time, or a number of them."""
    found = _BY.fullmatch(given) if isinstance(given, str) else None
    every, unit = (int(found[1] or 1), found[2]) if found else (0, "")
    if unit not in units or not 1 <= every <= MAX_CELLS:
        place.fail(f"by = {show(given)}", f"one of {', '.join(units)}, or such as '2 {units[1]}s'")
    return every, unit


def read_zone(place: Place, given: Any) -> str:
    """Read the name of a time zone. Raises: CatalogError (E_POLICY)."""
    from zoneinfo import ZoneInfo  # 2 ms, and most catalogs name no zone

    try:
        return ZoneInfo(given).key
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        place.fail(f"zone = {show(given)}", 'a zone by name, zone = "Europe/Berlin"')


def _read_day(place: Place, value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    try:
        return dt.date.fromisoformat(value)
    except (TypeError, ValueError):
        place.fail(f"domain: {show(value)} is not a date", '"2020-01-01"')


def _read_instant(place: Place, value: Any, is_last: int) -> dt.datetime:
    """Read a date and a time of day; a day alone is its first instant, or its last one."""
    try:
        found = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(value, str) and len(value) == len("2024-01-01"):
            found = found.date()
        if not isinstance(found, dt.datetime):
            found = dt.datetime.combine(found, dt.time.max if is_last else dt.time.min)
    except (TypeError, ValueError):
        place.fail(f"domain: {show(value)} is not a date and time", '"2024-01-31T18:00"')
    if found.tzinfo is not None:
        place.fail(f"domain: {show(value)} has a zone", 'zone = "Europe/Berlin" says where it is')
    return found


def read_other_day(place: Place, domain: Periods, given: Any) -> dt.date:
    """Read the day that stands for every day that is not declared: the last of all, if true.

    Args:
        place: where in the catalog a complaint points to.
        domain: declared periods, none of which may contain the day.
        given: ``other`` of the catalog: true, or a day.
    """
    day = dt.date.max if given is True else _read_day(place, given)
    if domain.start <= day < domain.end:
        place.fail(f"other = {show(given)} is also a domain value", 'a day outside, "9999-12-31"')
    return day
