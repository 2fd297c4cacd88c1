"""Timestamps on clocks against DuckDB without noise, as several libraries write them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4
max_epsilon_per_request = 1000

[table.t]
source = "{}"
privacy_unit = "row"

[table.t.column]
g = {{ type = "text", domain = ["a", "b"] }}
seen = {{ type = "timestamp", domain = ["2024-03-30", "2024-04-01"], by = "hour", zone = "{}" }}
quarter = {{ type = "timestamp", by = "15 minutes", zone = "{}", domain = [
  "2024-03-30T12:00", "2024-03-31T11:59"] }}
day = {{ type = "timestamp", domain = ["2024-03-01", "2024-04-30"], by = "day", zone = "{}" }}
fortnight = {{ type = "timestamp", domain = ["2024-01-01", "2024-05-31"], by = "2 weeks" }}
"""
COLUMNS = ("seen", "quarter", "day", "fortnight")
FIRST = dt.datetime(2024, 3, 29, 22)
HOSTILE = [None, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]
HOSTILE += [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(2024, 3, 31, 1, 59, 59, 999999)]
HOSTILE += [dt.datetime(2024, 3, 31, 1), dt.datetime(2024, 3, 31), dt.datetime(2024, 4, 1)]
ZONES = ["", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]

STATEMENTS = [
    "SELECT hour(seen) AS h, COUNT(*) AS n FROM t GROUP BY h",
    "SELECT EXTRACT(hour FROM seen) AS h, g, COUNT(*) AS n FROM t GROUP BY h, g",
    "SELECT dayofweek(seen) AS w, COUNT(*) AS n FROM t WHERE hour(seen) > 6 GROUP BY w",
    "SELECT date_trunc('day', seen) AS d, COUNT(*) AS n FROM t GROUP BY d",
    "SELECT CAST(seen AS DATE) AS d, COUNT(*) AS n FROM t GROUP BY d",
    "SELECT COUNT(*) AS n FROM t WHERE seen >= TIMESTAMP '2024-03-31 02:00:00'",
    "SELECT COUNT(*) AS n FROM t WHERE seen < DATE '2024-03-31'",
    "SELECT COUNT(*) AS n FROM t WHERE seen BETWEEN '2024-03-30' AND '2024-03-30 23:59:59.999999'",
    "SELECT COUNT(*) AS n FROM t WHERE seen - INTERVAL 6 HOUR < DATE '2024-03-31'",
    "SELECT strftime(seen, '%H') AS h, COUNT(*) AS n FROM t GROUP BY h",
    "SELECT strftime(seen, '%Y-%m-%d %p') AS h, COUNT(*) AS n FROM t GROUP BY h",
    "SELECT date_diff('day', DATE '2024-03-29', seen) AS k, COUNT(*) AS n FROM t GROUP BY k",
    "SELECT time_bucket(INTERVAL 6 HOUR, seen) AS k, COUNT(*) AS n FROM t GROUP BY k",
    "SELECT dayname(quarter) AS w, COUNT(*) AS n FROM t GROUP BY w",
    "SELECT time_bucket(INTERVAL 15 MINUTE, quarter) AS k, COUNT(*) AS n FROM t GROUP BY k",
    "SELECT EXTRACT(minute FROM date_trunc('hour', quarter)) AS m, COUNT(*) AS n FROM t GROUP BY m",
    "SELECT COUNT(*) AS n FROM t WHERE quarter >= '2024-03-31 01:45:00' AND g = 'a'",
    "SELECT last_day(day) AS d, COUNT(*) AS n FROM t GROUP BY d",
    "SELECT month(day) AS m, COUNT(*) AS n FROM t WHERE day >= '2024-03-30' GROUP BY m",
    "SELECT COUNT(*) AS n FROM t WHERE fortnight >= DATE '2024-03-25'",
    "SELECT COUNT(*) AS n FROM t WHERE CAST(seen AS DATE) = DATE '2024-03-31' OR g = 'b'",
    "SELECT SUM(hour(seen)) AS n FROM t WHERE g = 'a'",
]
REFUSED = [
    ("SELECT minute(seen) AS m, COUNT(*) FROM t GROUP BY m", "minute(seen)"),
    ("SELECT COUNT(*) FROM t WHERE seen <= DATE '2024-03-31'", "DATE '2024-03-31'"),
    ("SELECT COUNT(*) FROM t WHERE day <= DATE '2024-03-31'", "DATE '2024-03-31'"),
    ("SELECT COUNT(*) FROM t WHERE day = DATE '2024-03-31'", "DATE '2024-03-31'"),
    ("SELECT COUNT(*) FROM t WHERE seen < '2024-03-31 10:30:00'", "'2024-03-31 10:30:00'"),
    ("SELECT hour(day) AS h, COUNT(*) FROM t GROUP BY h", "hour(day)"),
    ("SELECT strftime(seen, '%M') AS h, COUNT(*) FROM t GROUP BY h", "strftime(seen, '%M')"),
    ("SELECT week(fortnight) AS h, COUNT(*) FROM t GROUP BY h", "week(fortnight)"),
]


def rows_of(seed: int) -> list[dt.datetime | None]:
    draw = random.Random(seed)
    near = [FIRST + dt.timedelta(seconds=draw.randrange(4 * 86_400)) for _ in range(250)]
    far = [FIRST + dt.timedelta(hours=draw.randrange(-3000, 3000)) for _ in range(80)]
    return [*HOSTILE, *near, *far]


def arrow(rows: Sequence[dt.datetime | None], zone: str, unit: str = "us") -> pa.Table:
    times = pa.array(rows, pa.timestamp(unit, zone or None))
    groups = pa.array(["ab"[i % 2] for i in range(len(rows))])
    return pa.table({"g": groups, **dict.fromkeys(COLUMNS, times)})


def by_duckdb(path: Path, rows: Sequence[dt.datetime | None], zone: str) -> None:
    table = arrow(rows, zone)
    with duckdb.connect() as connection:
        connection.register("written", table)
        connection.execute(f"COPY written TO '{path}' (FORMAT parquet)")


def by_pyarrow(path: Path, rows: Sequence[dt.datetime | None], zone: str) -> None:
    pq.write_table(arrow(rows, zone), path, row_group_size=17)


def by_polars(path: Path, rows: Sequence[dt.datetime | None], zone: str) -> None:
    frame = pl.from_arrow(arrow(rows, zone))
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path)


def by_pandas(path: Path, rows: Sequence[dt.datetime | None], zone: str) -> None:
    kept = [row for row in rows if row is None or 1700 < row.year < 2200]
    times = pd.to_datetime(pd.Series(kept, dtype="datetime64[ns]"))
    times = times.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else times
    groups = ["ab"[i % 2] for i in range(len(kept))]
    pd.DataFrame({"g": groups, **dict.fromkeys(COLUMNS, times)}).to_parquet(path)


def by_csv(path: Path, rows: Sequence[dt.datetime | None], zone: str) -> None:
    texts = ["" if row is None else row.isoformat(" ") for row in rows]
    lines = [f"{'ab'[i % 2]},{text},{text},{text},{text}" for i, text in enumerate(texts)]
    path.write_text("\n".join(["g," + ",".join(COLUMNS), *lines]) + "\n")


def clock(row: dt.datetime, zone: str) -> dt.datetime:
    """What an instant in UTC is on the clock of a zone; a time without a zone stays."""
    try:
        return row.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    except OverflowError:
        return row


ENDS = {
    "seen": ("2024-03-30", "2024-04-02"),
    "quarter": ("2024-03-30 12:00", "2024-03-31 12:00"),
    "day": ("2024-03-01", "2024-05-01"),
    "fortnight": ("2024-01-01", "2024-06-03"),
}


def register(
    naive: duckdb.DuckDBPyConnection, rows: Sequence[dt.datetime | None], zone: str
) -> None:
    """Let ``all_rows`` be all rows, with times as the clock of a zone shows them."""
    shown = [row if row is None or not zone else clock(row, zone) for row in rows]
    times = pa.array(shown, pa.timestamp("us"))
    utc = pa.array(rows, pa.timestamp("us"))
    groups = pa.array(["ab"[i % 2] for i in range(len(rows))])
    table = dict.fromkeys(COLUMNS, times) | {"fortnight": utc, "g": groups}
    naive.register("all_rows", pa.table(table))


def expected(naive: duckdb.DuckDBPyConnection, sql: str) -> dict[Any, Any]:
    """The answer over the rows that hold declared values in the columns that are asked for."""
    tests = [
        f"{name} >= '{low}' AND {name} < '{high}'"
        for name, (low, high) in ENDS.items()
        if name in sql
    ]
    kept = f"FROM all_rows WHERE {' AND '.join(tests) or 'true'}"
    naive.execute(f"CREATE OR REPLACE TABLE t AS {kept}")
    found = naive.execute(sql).fetchall()
    return {tuple(map(str, row[:-1])): row[-1] for row in found}


def answer(connection: Any, sql: str) -> dict[Any, Any]:
    with zero_noise():
        rows = connection.execute(sql).fetchall()
    return {tuple(map(str, row[:-1])): row[-1] for row in rows if round(row[-1])}


Writer: TypeAlias = "Callable[[Path, Sequence[dt.datetime | None], str], None]"
WRITERS: list[Writer] = [by_duckdb, by_pyarrow, by_polars, by_pandas, by_csv]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("zone", ZONES)
def test_clocks_agree_with_duckdb(writer: Writer, zone: str, tmp_path: Path) -> None:
    """Each statement is asked of every third file: a column is read alike for all of them."""
    if writer is by_csv and zone:
        return
    path = tmp_path / ("t.csv" if writer is by_csv else "t.parquet")
    rows = rows_of(len(zone))
    writer(path, rows, zone)
    if writer is by_pandas:
        rows = [row for row in rows if row is None or 1700 < row.year < 2200]
    (tmp_path / "c.toml").write_text(CATALOG.format(path.name, *([zone or "Europe/Berlin"] * 3)))
    with dpsql.connect(tmp_path / "c.toml") as connection, duckdb.connect() as naive:
        register(naive, rows, zone)
        connection.set("epsilon", "100")
        connection.set("fresh", "on")
        for sql in STATEMENTS[(ZONES.index(zone) + WRITERS.index(writer)) % 3 :: 3]:
            found, true = answer(connection, sql), expected(naive, sql)
            assert {k: round(v) for k, v in found.items()} == true, sql


@pytest.mark.parametrize(("sql", "caret"), REFUSED)
def test_finer_than_the_cells_is_refused(sql: str, caret: str, tmp_path: Path) -> None:
    by_pyarrow(tmp_path / "t.parquet", rows_of(1), "")
    (tmp_path / "c.toml").write_text(CATALOG.format("t.parquet", "UTC", "UTC", "UTC"))
    with dpsql.connect(tmp_path / "c.toml") as connection:
        with pytest.raises(dpsql.errors.ProgrammingError) as error:
            connection.explain(sql)
        assert error.value.code == "E_BIN_EDGE"
        assert error.value.span is not None
        marked = error.value.span.text[error.value.span.start : error.value.span.end]
        assert marked.strip("'\"() ") in caret
