"""AT TIME ZONE over cells of another zone's clock, compared with Python's own zones."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterator
from zoneinfo import ZoneInfo

import pytest

import dpsql
from dpsql.catalog.domain import Spans
from dpsql.sql.dialects.time_zones import find_runs
from tests.support.seam import zero_noise
from tests.support.tables import World, open_tables

SPRING = 'type = "timestamp", domain = ["2024-03-25T00:00", "2024-04-03T23:59"]'
AUTUMN = 'type = "timestamp", domain = ["2024-10-26", "2024-10-28"]'
CATALOG = f"""
[budget]
epsilon = 100000
[table.e]
source = "e.parquet"
privacy_unit = "row"
[table.e.column]
utc = {{ {SPRING}, by = "hour", zone = "UTC" }}
fine = {{ {SPRING}, by = "15 minutes", zone = "UTC" }}
day = {{ {SPRING}, by = "day", zone = "UTC" }}
berlin = {{ {SPRING}, by = "hour", zone = "Europe/Berlin" }}
plain = {{ {SPRING}, by = "hour" }}
autumn = {{ {AUTUMN}, by = "hour", zone = "Europe/Berlin" }}
"""
FIRST = dt.datetime(2024, 3, 25, 3, tzinfo=dt.UTC)
INSTANTS = [FIRST + dt.timedelta(minutes=random.Random(i).randrange(9 * 1440)) for i in range(400)]
WHOLE = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC", "Pacific/Auckland", "Asia/Gaza")
PARTS = ("Asia/Kolkata", "Asia/Kathmandu", "Australia/Adelaide", *WHOLE)

ASKED: dict[str, Callable[[dt.datetime], object]] = {
    "EXTRACT(hour FROM {})": lambda t: t.hour,
    "date_trunc('day', {})": lambda t: t.replace(hour=0, minute=0),
    "CAST({} AS DATE)": lambda t: t.date(),
    "dayofweek({})": lambda t: t.isoweekday() % 7,
    "strftime({}, '%d %H')": lambda t: t.strftime("%d %H"),
    "{} >= TIMESTAMP '2024-03-31 05:00:00'": lambda t: t >= dt.datetime(2024, 3, 31, 5),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rows = [(t, t, t, t, t.replace(tzinfo=None), None) for t in INSTANTS]
    stored = "utc TIMESTAMPTZ, fine TIMESTAMPTZ, day TIMESTAMPTZ, berlin TIMESTAMPTZ, "
    tables = {"e": (stored + "plain TIMESTAMP, autumn TIMESTAMPTZ", rows)}
    with open_tables(tmp_path_factory.mktemp("zones"), CATALOG, tables) as found, zero_noise():
        yield found


def clock(instant: dt.datetime, zone: str) -> dt.datetime:
    return instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def test_cells_are_told_on_the_clock_of_another_zone(world: World) -> None:
    draw = random.Random(5)
    for asked, shown in ASKED.items():
        column = draw.choice(["utc", "fine", "berlin"])
        zone = draw.choice(PARTS if column == "fine" else WHOLE)
        spelled = draw.choice(["{c} AT TIME ZONE '{z}'", "timezone('{z}', {c})"])
        key = asked.format(f"({spelled.format(c=column, z=zone)})")
        found = world[0].execute(f"SELECT {key} AS k, COUNT(*) AS n FROM e GROUP BY k").fetchall()
        counts = Counter(shown(clock(t, zone)) for t in INSTANTS)
        assert {k: n for k, n in found if n} == counts, (key, zone)


@pytest.mark.parametrize(
    ("value", "code", "caret"),
    [
        ("EXTRACT(hour FROM utc AT TIME ZONE 'Asia/Kolkata')", "E_BIN_EDGE", "utc"),
        ("date_trunc('day', day AT TIME ZONE 'Asia/Tokyo')", "E_BIN_EDGE", "date_trunc"),
        ("hour(plain AT TIME ZONE 'Asia/Tokyo')", "E_FUNCTION", "plain AT TIME ZONE"),
        ("hour(autumn AT TIME ZONE 'Asia/Tokyo')", "E_FUNCTION", "autumn AT TIME ZONE"),
        ("hour(utc AT TIME ZONE 'No/Where')", "E_FUNCTION", "utc AT TIME ZONE"),
        ("hour(utc AT TIME ZONE '../etc/passwd')", "E_FUNCTION", "utc AT TIME ZONE"),
        ("hour(utc AT TIME ZONE lower('UTC'))", "E_FUNCTION", "utc AT TIME ZONE"),
        ("hour((utc AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')", "E_FUNCTION", ""),
    ],
)
def test_what_cells_do_not_tell_is_refused(world: World, value: str, code: str, caret: str) -> None:
    connection, _ = world
    sql, before = f"SELECT {value} AS k, COUNT(*) AS n FROM e GROUP BY k", connection.budget
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    assert (caught.value.code, connection.budget) == (code, before), caught.value
    assert caught.value.hint
    assert caught.value.span is not None
    assert sql[caught.value.span.start :].startswith(caret)


def test_clocks_that_change_together_show_the_same(world: World) -> None:
    counts = world[0].execute(
        "SELECT hour(autumn AT TIME ZONE 'Europe/Paris') AS k, COUNT(*) AS n FROM e GROUP BY k"
    )
    assert len(counts.fetchall()) == 24


def test_runs_move_every_instant_as_the_zones_do() -> None:
    draw, refused = random.Random(9), 0
    for _ in range(12):
        own, other = draw.choice(PARTS), draw.choice(PARTS)
        start = dt.datetime(draw.randrange(1995, 2030), draw.choice([3, 4, 9, 10]), 1)
        domain = Spans(start, "hour", 24 * draw.randrange(20, 60), 1, own)
        runs = find_runs(domain, ZoneInfo(other))
        shown: dict[dt.datetime, set[dt.timedelta]] = {}
        assert isinstance(domain.end, dt.datetime)
        for k in range(-96, 24 * 64):
            instant = start.replace(tzinfo=dt.UTC) + k * dt.timedelta(hours=1)
            here, there = clock(instant, own), clock(instant, other)
            if domain.start <= here < domain.end:
                shown.setdefault(here, set()).add(there - here)
        if runs is None:
            refused += 1
            assert max(map(len, shown.values())) == 2, (own, other, start)
            continue
        for here, ahead in shown.items():
            assert ahead == {[by for begin, by in runs if begin <= here][-1]}, (own, other, here)
    assert 0 < refused < 12
