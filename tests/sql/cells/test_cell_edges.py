"""One value stands for a cell only where all values of the cell agree: brute force over cells.

Random conditions and keys over bins, calendar periods and days are either refused or the same on
every value drawn from a cell, first and last instants of days included.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from unittest import mock

import duckdb
import pytest
from sqlglot import exp, parse_one

import dpsql
from dpsql.catalog.domain import Bins, Periods
from dpsql.dbapi.connection import Connection
from dpsql.sql.cells import evaluate
from dpsql.sql.cells.cell_constants import cut_off_sides
from tests.support.effort import effort
from tests.support.grammar import verdict
from tests.support.tables import Tables, World, open_tables

pytestmark = pytest.mark.slow

STATEMENTS = effort(25)

CATALOG = """
[budget]
epsilon = 1

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
n = { type = "number", domain = [-2, 10], bins = [-2, 0, 0.5, 3, 10], null = true }
k = { type = "integer", domain = [0, 9], bins = [0, 2, 5, 9] }
score = { type = "integer", bins = [0, 20, 40, 60, 80, 100, 120], null = true }
price = { type = "number", bounds = [-10, 40], step = 10 }
day = { type = "date", domain = ["2023-12-28", "2024-01-05"], by = "day", null = true }
week = { type = "date", domain = ["2023-12-18", "2024-01-20"], by = "week" }
month = { type = "date", domain = ["2023-11-15", "2024-03-02"], by = "month" }
quarter = { type = "date", domain = ["2023-11-15", "2024-08-02"], by = "quarter", null = true }
year = { type = "date", domain = ["2022-11-15", "2024-08-02"], by = "year" }
eight = { type = "date", domain = ["2023-12-18", "2024-02-02"], by = "8 days" }
hour = { type = "timestamp", domain = ["2023-12-31T20:00", "2024-01-01T05:30"], by = "hour" }
part = { type = "timestamp", domain = ["2023-12-31T23:00", "2024-01-01T01:00"], by = "15 minutes" }
shift = { type = "timestamp", domain = ["2023-12-30", "2024-01-02"], by = "8 hours", null = true }
whole = { type = "timestamp", domain = ["2023-12-30", "2024-01-05"], by = "day" }
moon = { type = "timestamp", domain = ["2023-11-30", "2024-03-05"], by = "month" }

[table.cuts]
source = "cuts.parquet"
public = true

[table.cuts.column]
lo = { type = "number" }
since = { type = "date" }
label = { type = "text" }
"""
CUTS = [
    (0.0, dt.date(2024, 1, 1), "a"),
    (3.0, dt.date(2023, 10, 1), "b"),
    (None, dt.date(2024, 1, 3), "c"),
    (1.25, None, "d"),
]
DAYS = ["2023-12-28", "2024-01-01", "2024-01-03", "2024-02-01", "2024-07-01", "2023-01-01"]
TIMES = ["", " 00:00:00", " 12:00:00", " 23:59:59.999999", "T00:00:01"]
CLOCKS = [" 08:00:00", " 16:00:00", " 23:15:00", " 00:30:00", " 23:00:00", " 01:00:00"]
FORMATS = ["%Y", "%Y-%m", "%B", "%a", "%H", "%H:%M", "%Y-%m-%d", "%j", "%p", "%S", "%c", "%d"]
HOURS = ["00:00", "06:00", "12:00", "12:30", "23:59:59.999999"]
UNITS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "dow", "epoch"]
FIELDS = [*UNITS, "isodow", "doy", "isoyear", "decade", "microsecond"]


@dataclass
class Writer:
    """Draws expressions over one column, which is written ``#``."""

    rng: random.Random
    dated: bool
    daily: bool
    timed: bool = False
    public: bool = False
    depth: int = field(default=0)

    def pick(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def condition(self) -> str:
        """A condition."""
        if self.rng.random() < 0.25 and self.depth < 3:
            self.depth += 1
            joined = f" {self.pick('AND', 'OR')} ".join((self.condition(), self.condition()))
            return self.pick(f"({joined})", f"NOT ({joined})")
        return self.dates() if self.dated else self.numbers()

    def number(self) -> str:
        listed = [-2, -1, 0, 0.5, 1, 2, 3, 4, 5, 9, 10, 11]
        return (
            "cuts.lo" if self.public and self.rng.random() < 0.4 else str(self.rng.choice(listed))
        )

    def numbers(self) -> str:
        p, o = self.number(), self.pick("<", "<=", ">", ">=", "=", "<>")
        return self.pick(
            *(f"# {o} {p}", f"(#) {o} {p}", f"{p} {o} #", f"# < {p}", f"# >= {p}"),
            *(f"# BETWEEN {p} AND {self.number()}", "# IS NULL", "(#) IS NOT NULL"),
            *(f"# * # {o} {p}", f"abs(#) {o} {p}", f"# % 2 {o} {p}", f"-# {o} {p}"),
            *(f"floor(#) {o} {p}", f"(# < {p}) = (# >= 0)", f"coalesce(#, 0) {o} {p}"),
            *(
                f"# // 2 {o} {p}",
                f"round(#, 1) {o} {p}",
                f"least(#, {p}) {o} {p}",
                f"# + 1 {o} {p}",
            ),
            *(f"floor(# / 3) {o} {p}", f"sqrt(abs(#)) {o} {p}", f"# * # {o} {p}", f"5 - # {o} {p}"),
            *(f"try_cast(# AS TINYINT) {o} {p}", f"round(2.5, CAST(# AS INTEGER)) {o} {p}"),
            *(f"CASE WHEN # < 0.5 THEN 1 ELSE 2 END {o} {p}", f"# IN ({p}, 3)"),
        )

    def instant(self) -> str:
        if self.public and self.rng.random() < 0.5:
            return "cuts.since"
        text = self.rng.choice(DAYS) + self.pick(*TIMES)
        if self.timed:
            return f"TIMESTAMP '{self.rng.choice(DAYS)}{self.pick(*TIMES, *CLOCKS)}'"
        return self.pick("DATE", "TIMESTAMP") + f" '{text[:10] if self.daily else text}'"

    def dates(self) -> str:
        p, o = self.instant(), self.pick("<", ">=")
        unit, step = (
            self.pick(*UNITS),
            self.pick("1 DAY", "12 HOUR", "2 MONTH", "1 WEEK", "90 MINUTE"),
        )
        forms = [
            *(f"# {o} {p}", f"{p} > #", f"(#) {o} {p}", "# IS NULL", "(#) IS NOT NULL"),
            *(f"# + INTERVAL {step} {o} {p}", f"date_trunc('{unit}', #) {o} {p}"),
            *(f"EXTRACT({self.pick(*FIELDS)} FROM #) {o} {self.pick('0', '1', '6', '12')}",),
            *(f"{self.pick('year', 'quarter', 'month', 'week')}(#) % 2 = 1",),
            *(f"dayofweek(#) {o} {self.pick('0', '1', '3')}", f"day(#) {o} 2"),
            *(f"CAST(# AS TIMESTAMP) {o} {p}", f"(# {o} {p}) IS NOT TRUE"),
            f"CASE WHEN # {o} {p} THEN 1 ELSE 2 END = 1",
        ]
        forms += [*self.shown(unit, o), *self.moved(unit, step, o)]
        if not self.daily:  # a date that is stored with a time of day is that day
            forms += [f"# IN ({p}, {self.instant()})", f"# BETWEEN {p} AND {self.instant()}"]
            forms += [f"# = {p}", f"CAST(# AS DATE) {o} {p}", f"greatest(#, {p}) {o} {p}"]
        if self.daily:
            stamp = self.rng.choice(DAYS) + self.pick(*TIMES)
            forms += [f"# {o} TIMESTAMP '{stamp}'", f"'{stamp}' <= #"]
        elif not self.timed:
            forms += [f"# {self.pick('<=', '>', '=')} DATE '{self.rng.choice(DAYS)}'"]
        return self.rng.choice(forms)

    def shown(self, unit: str, o: str) -> list[str]:
        """Conditions on parts of a calendar and a clock."""
        text, number = self.pick("1", "2024", "B", "12"), self.pick("0", "1", "8", "24")
        return [
            *(f"strftime(#, '{self.pick(*FORMATS)}') {o} '{text}'", f"hour(#) {o} {number}"),
            *(f"dayname(#) {o} 'M'", f"monthname(date_trunc('{unit}', #)) {o} 'F'"),
            f"EXTRACT({self.pick(*FIELDS)} FROM date_trunc('{unit}', #)) {o} 1",
            *(f"CAST(CAST(# AS TIMESTAMP) AS TIME) {o} TIME '{each}'" for each in HOURS),
            *(f"CAST(# AS TIME) BETWEEN TIME '{each}' AND TIME '20:00'" for each in HOURS[:2]),
            f"EXTRACT(epoch FROM #) {o} {self.pick('1706745600', '1704067200', '1706788800')}",
            f"floor(epoch(#) / {self.pick('3600', '86400', '7200')}) % 2 {o} 1",
        ]

    def moved(self, unit: str, step: str, o: str) -> list[str]:
        """Conditions on an instant that is moved, and on differences."""
        p, number = self.instant(), self.pick("0", "1", "-1", "24")
        return [
            *(f"date_diff('{self.pick(*UNITS[:7])}', {p}, #) {o} {number}", f"last_day(#) {o} {p}"),
            *(f"time_bucket(INTERVAL {step}, #) {o} {p}", f"date_add(#, INTERVAL {step}) {o} {p}"),
            f"EXTRACT({self.pick(*FIELDS)} FROM # + INTERVAL {step}) {o} {number}",
        ]

    def key(self) -> str:
        """A grouping key."""
        if not self.dated:
            forms = [
                "# < 3",
                "# * 2",
                "# // 3",
                "ceil(# / 10)",
                "greatest(#, 3)",
                "sign(#)",
                "floor(#)",
                "abs(#)",
                "# >= 0.5",
                "CAST(# AS INTEGER)",
            ]
            return self.rng.choice(forms)
        unit, part = self.pick(*UNITS[:8]), self.pick(*FIELDS)
        shown = f"strftime(#, '{self.pick(*FORMATS)}')"
        more = "last_day(#)", "CAST(# AS DATE)", "time_bucket(INTERVAL 1 HOUR, #)", shown
        return self.pick(f"date_trunc('{unit}', #)", f"EXTRACT({part} FROM #)", "month(#)", *more)


def stepped_key(rng: random.Random, width: int) -> str:
    """A key that is the same on all of a bin of a width, but perhaps at the edge that closes it."""
    inner = rng.choice(["#", "(#)", f"(# - {width})", f"(# + {2 * width})", "(# * 1)", "(0.0 + #)"])
    outer = rng.choice(
        [
            *("floor({x} / {w})", "{x} // {w}", "trunc({x} / {w})", "ceil(({x} + 1) / {w})"),
            *("CAST(floor({x} / {w}) AS INTEGER)", "floor({x} / {w}) * {w}", "-floor({x} / {w})"),
            *(
                "least(floor({x} / {w}), 3)",
                "greatest(floor({x} / {w}), 1)",
                "round({x} // {w}, 1)",
            ),
        ]
    )
    return outer.format(x=inner, w=rng.choice([width, 2 * width]))


def samples(column: dpsql.catalog.Column, rng: random.Random) -> list[list[object]]:
    """Values of every cell, its ends among them; the first one is its representative."""
    domain = column.domain
    cells: list[list[object]] = []
    if isinstance(domain, Bins):
        for low, high in zip(domain.edges, domain.edges[1:], strict=False):
            last = high == domain.edges[-1]
            if column.type == "integer":
                top = int(high) if last else int(high) - 1
                cells.append(list(range(int(low), top + 1)))
                continue
            inner = [float(low + (high - low) * Fraction(rng.random())) for _ in range(6)]
            near = float(low) + 1e-9, float(high) - (0 if last else 1e-9)
            cells.append([float(low), *near, *inner])
    else:
        assert isinstance(domain, Periods)
        if column.type == "timestamp":
            return [instants(domain.begin(k), domain.begin(k + 1), rng) for k in range(domain.size)]
        for k in range(domain.count):
            first = domain.begin(k)
            last_day = domain.begin(k + 1) - dt.timedelta(days=1)
            days = [first + dt.timedelta(days=i) for i in range((last_day - first).days + 1)]
            if domain.unit == "day" and domain.length == 1:
                start = dt.datetime.combine(first, dt.time())
                hours = [dt.timedelta(hours=h, minutes=h) for h in (6, 12, 18)]
                end = start + dt.timedelta(days=1, microseconds=-1)
                cells.append([start, end, *(start + hour for hour in hours)])
            else:
                cells.append([days[0], days[-1], *rng.sample(days, min(12, len(days)))])
    return cells


def instants(first: dt.date, after: dt.date, rng: random.Random) -> list[object]:
    """Instants of one cell: its ends, whole minutes, hours and days, and any."""
    assert isinstance(first, dt.datetime)
    assert isinstance(after, dt.datetime)
    length = after - first
    found = [first, after - dt.timedelta(microseconds=1)]
    for unit in (dt.timedelta(minutes=1), dt.timedelta(hours=1), dt.timedelta(days=1)):
        count = length // unit
        found += [first + unit * rng.randrange(count) for _ in range(6 if count > 1 else 0)]
    found += [first + length * rng.random() for _ in range(6)]
    return list(found)


ROW = (
    "SELECT 1.0 AS n, 1 AS k, 1 AS score, 1.0 AS price,"
    " DATE '2024-01-01' AS day, DATE '2024-01-01' AS week,"
    " DATE '2024-01-01' AS month, DATE '2024-01-01' AS quarter, DATE '2024-01-01' AS year,"
    " DATE '2024-01-01' AS eight, TIMESTAMP '2024-01-01' AS hour, TIMESTAMP '2024-01-01' AS part,"
    " TIMESTAMP '2024-01-01' AS shift, TIMESTAMP '2024-01-01' AS whole,"
    " TIMESTAMP '2024-01-01' AS moon"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    tables: Tables = {"t": ROW, "cuts": ("lo DOUBLE, since DATE, label VARCHAR", CUTS)}
    with open_tables(tmp_path_factory.mktemp("edges"), CATALOG, tables) as world:
        yield world


def accepted(connection: Connection, sql: str) -> bool:
    """Whether a statement compiles."""
    found = verdict(connection, sql)
    if isinstance(found, dpsql.Error):
        assert found.code in {"E_BIN_EDGE", "E_DOMAIN_EVAL", "E_FUNCTION"}, f"{sql}\n{found}"
    return not isinstance(found, dpsql.Error)


def forget(connection: Connection) -> None:
    """Let go of all that was compiled."""
    connection.engine._forget(connection.known)


def fill(database: duckdb.DuckDBPyConnection, kind: str, cells: Sequence[Sequence[object]]) -> None:
    """Make the values of cells a table."""
    places = [i for i, cell in enumerate(cells) for _ in cell]
    values = [value for cell in cells for value in cell]
    database.execute(
        f"CREATE OR REPLACE TABLE v AS SELECT unnest(?::INT[]) AS cell, unnest(?::{kind}[]) AS x",
        [places, values],
    )


def splits(database: duckdb.DuckDBPyConnection, expression: str) -> bool:
    """Whether an expression differs within a cell, whatever the public row."""
    value = f"coalesce(CAST(({expression.replace('#', 'x')}) AS VARCHAR), 'none')"
    found = database.execute(
        f"SELECT max(n) FROM (SELECT count(DISTINCT {value}) AS n FROM v, cuts"
        " GROUP BY cell, cuts.rowid)"
    ).fetchone()
    assert found is not None
    return bool(found[0] > 1)


def check_all(
    connection: Connection, database: duckdb.DuckDBPyConnection, seed: int, count: int
) -> Iterator[tuple[str, bool]]:
    """The statements that are accepted, and whether they cut a cell."""
    rng = random.Random(seed)
    table = connection.catalog.tables["t"]
    for name, column in table.columns.items():
        timed, daily = column.type == "timestamp", name == "day"
        dated = timed or column.type == "date"
        plain = "BIGINT" if column.type == "integer" else "DOUBLE"
        kind = "TIMESTAMP" if daily or timed else "DATE" if dated else plain
        fill(database, kind, samples(column, rng))
        for number in range(count):
            public = number % 3 == 0
            writer = Writer(rng, dated, daily, timed, public)
            grouped = number % 4 == 1
            text = writer.key() if grouped else writer.condition()
            own = text.replace("#", name)
            if grouped:
                sql = f"SELECT {own} AS g, COUNT(*) AS c FROM t GROUP BY g"
            elif public and rng.random() < 0.5:
                sql = f"SELECT COUNT(*) AS c FROM t JOIN cuts ON ({own}) OR cuts.label IS NULL"
            elif public:
                on = f"cuts.label <> 'x' OR {name} IS NULL"
                sql = f"SELECT COUNT(*) AS c FROM t JOIN cuts ON {on} WHERE {own}"
            else:
                sql = f"SELECT COUNT(*) AS c FROM t WHERE {own}"
            if accepted(connection, sql):
                yield sql, splits(database, text)


WAYS = (
    "SELECT {} AS g, COUNT(*) AS c FROM t GROUP BY g",
    "SELECT COUNT(DISTINCT {}) AS c FROM t",
    "SELECT {name}, {} AS g, COUNT(*) AS c FROM t GROUP BY {name}",
    "SELECT g, COUNT(*) AS c FROM (SELECT {} AS g FROM t) x GROUP BY g",
    "SELECT COUNT(*) AS c FROM t WHERE {} = 2",
    "SELECT SUM({}) AS c FROM t",
)
"""Where an expression over a binned column may stand."""


def closed_edges(world: World, seed: int, count: int) -> Iterator[tuple[str, bool]]:
    """Keys of bins that are accepted, and whether they move the edge that closes the last one.

    What is told to move it in the caller's own words is accepted, and cuts nothing.
    """
    connection, database = world
    rng = random.Random(seed)
    for _ in range(count):
        name, width = rng.choice([("score", 20), ("price", 10)])
        column = connection.catalog.tables["t"].columns[name]
        fill(database, "BIGINT" if name == "score" else "DOUBLE", samples(column, rng))
        text, way = stepped_key(rng, width), rng.choice(WAYS)
        found = verdict(connection, way.format(text.replace("#", name), name=name))
        if isinstance(found, dpsql.Error):
            assert found.code in ("E_BIN_EDGE", "E_AGGREGATE", "E_EXPR_IN_AGG"), found
            hint = found.hint or ""
            if " counts " in hint:
                capped = hint.split(" counts ")[0]
                yield f"hint {hint}", splits(database, f"0 + {capped.replace(name, '#')}")
                assert accepted(connection, way.format(capped, name=name)), hint
        else:
            asked = f"{text} = 2" if "WHERE" in way else f"0 + {text}"  # -0.0 is 0.0
            yield way.format(text, name=name), splits(database, asked)


def test_the_edge_that_closes_the_last_bin_is_never_moved(world: World) -> None:
    found = list(closed_edges(world, seed=20, count=STATEMENTS * 3))
    wrong = [sql for sql, cuts in found if cuts]
    assert not wrong, "\n".join(wrong)
    assert sum(sql.startswith("hint ") for sql, _ in found) > STATEMENTS / 2


def test_a_moved_edge_is_found(world: World) -> None:
    whole = evaluate.ends

    def opened(column: dpsql.catalog.Column) -> tuple[list[object], list[object]]:
        lows, highs = whole(column)
        if isinstance(column.domain, Bins):
            highs[column.domain.size - 1] = lows[column.domain.size - 1]
        return list(lows), list(highs)

    forget(world[0])
    with mock.patch.object(evaluate, "ends", opened):
        found = any(cuts for _, cuts in closed_edges(world, seed=20, count=STATEMENTS))
    forget(world[0])
    assert found


def test_what_is_accepted_is_the_same_on_all_of_a_cell(world: World) -> None:
    found = list(check_all(*world, seed=7, count=STATEMENTS))
    wrong = [sql for sql, cuts in found if cuts]
    assert not wrong, "\n".join(wrong)
    assert len(found) > STATEMENTS, len(found)


@pytest.mark.parametrize(
    "missing",
    [
        "cells.cell_edges._check_days",
        "cells.cell_constants.CellConstantCheck.check",
        "cells.cell_constants.CellConstantCheck.cut",
        "cells.cell_constants.CellConstantCheck.part",
        "cells.cell_constants.CellConstantCheck.equal",
    ],
)
def test_a_missing_check_is_found(world: World, missing: str) -> None:
    with mock.patch(f"dpsql.sql.{missing}", return_value=None):
        forget(world[0])
        found = any(cuts for _, cuts in check_all(*world, seed=8, count=STATEMENTS))
    forget(world[0])
    assert found


@pytest.mark.parametrize(
    ("condition", "fine"),
    [
        ("day < TIMESTAMP '2024-01-01 12:00:00'", False),
        ("day < '2024-01-01 12:00:00'", False),
        ("EXTRACT(hour FROM day) = 0", False),
        ("date_trunc('hour', day) < DATE '2024-01-01'", False),
        ("day + INTERVAL 12 HOUR < DATE '2024-01-02'", False),
        ("day + INTERVAL 1 DAY / 2 < DATE '2024-01-02'", False),
        ("right(CAST(CAST(day AS TIMESTAMP) AS VARCHAR), 8) = '12:00:00'", False),
        ("CAST(day AS TIMESTAMP) LIKE '%12:00%'", False),
        ("EXTRACT(hour FROM CAST(day AS TIMESTAMP)) = 1", False),
        ("year(CAST(day AS TIMESTAMP)) = 2024", True),
        ("CAST(day AS TIMESTAMP) >= TIMESTAMP '2024-01-01 00:00:00'", True),
        ("day = DATE '2024-01-01'", True),
        ("day <= '2024-01-01'", True),
        ("day < TIMESTAMP '2024-01-01 00:00:00'", True),
        ("day + INTERVAL 1 MONTH < DATE '2024-02-02'", True),
        ("dayofweek(day) = 1", True),
        ("month < TIMESTAMP '2024-01-01 00:00:00'", True),
        ("dayofweek(week) = 1", False),
        ("k < 2 OR k >= 5", True),
        ("k <= 1", True),
    ],
)
def test_times_of_day_are_refused_and_days_are_not(
    world: World, condition: str, fine: bool
) -> None:
    assert accepted(world[0], f"SELECT COUNT(*) FROM t WHERE {condition}") is fine


@pytest.mark.parametrize(
    ("condition", "fine"), [("day = cuts.since", True), ("eight <= cuts.since", False)]
)
def test_public_days_cut_through_longer_periods_and_through_no_day(
    world: World, condition: str, fine: bool
) -> None:
    assert accepted(world[0], f"SELECT COUNT(*) FROM t JOIN cuts ON {condition}") is fine


PARTS_OF_DATES = (
    *("millennium", "century", "decade", "year", "y", "isoyear", "quarter", "month", "yearweek"),
    *("week", "weeks", "w", "day", "d", "dow", "isodow", "doy", "hour", "minute", "second"),
)


@pytest.mark.parametrize("unit", PARTS_OF_DATES)
def test_sides_cut_off_at_a_unit_differ_by_as_much(unit: str) -> None:
    """Weeks are sevens of days: cut off at Mondays, two pairs of five were one week off."""
    written = parse_one(f"date_diff('{unit}', a, b)", read="duckdb")
    cut = written.copy()
    assert isinstance(cut, exp.DateDiff)
    cut_off_sides(cut)
    times = "SELECT TIMESTAMP '1995-12-30' + to_minutes((hash(i, {}) % 9000000)::BIGINT)"
    pairs = f"SELECT ({times.format(1)}) AS a, ({times.format(2)}) AS b FROM range(2000) t(i)"
    same = f"{written.sql('duckdb')} = {cut.sql('duckdb')}"
    with closing(duckdb.connect()) as database:
        found = database.execute(f"SELECT count(*) FROM ({pairs}) WHERE {same}").fetchone()
    assert found == (2000,)
