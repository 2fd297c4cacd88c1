"""Times of day against DuckDB without noise, as several libraries write them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from tests.support.seam import zero_noise

Rows = Sequence[dt.time | None]
CATALOG = """
[budget]
epsilon = 100000
max_epsilon_per_request = 1000

[table.t]
source = "{}"
privacy_unit = "row"

[table.t.column]
g = {{ type = "text", domain = ["a", "b"] }}
day = {{ type = "time", domain = ["00:00", "24:00"] }}
open = {{ type = "time", domain = ["08:00", "19:59"], by = "15 minutes" }}
"""
KEPT = {"day": "true", "open": "open >= '08:00' AND open < '20:00'"}
HOSTILE = [None, dt.time(), dt.time(23, 59, 59, 999999), dt.time(8), dt.time(7, 59, 59, 999999)]
STATEMENTS = [
    "SELECT time_bucket(INTERVAL 1 HOUR, day) AS d, COUNT(*) AS n FROM t"
    " WHERE day >= '06:00' AND day < TIME '09:00' GROUP BY d",
    "SELECT EXTRACT(hour FROM open) AS h, g, COUNT(*) AS n FROM t GROUP BY h, g",
    "SELECT CASE WHEN hour(day) < 12 THEN 'am' ELSE 'pm' END AS h, COUNT(*) AS n FROM t GROUP BY h",
    "SELECT COUNT(*) AS n FROM t WHERE open BETWEEN '09:00' AND '17:59:59.999999' OR g = 'b'",
    "SELECT time_bucket(INTERVAL 30 MINUTE, open) AS b, COUNT(*) AS n FROM t GROUP BY b",
    "SELECT COUNT(*) AS n FROM t WHERE CAST(day AS TIME) < '18:00' AND open >= '12:15'",
    "SELECT v.k, COUNT(*) AS n FROM t"
    " JOIN (VALUES ('x', '08:00', '11:30'), ('y', '11:30', '15:00')) AS v (k, lo, hi)"
    " ON open >= CAST(v.lo AS TIME) AND open < CAST(v.hi AS TIME) GROUP BY v.k",
    "SELECT SUM(hour(day)) AS n FROM t WHERE g = 'a'",
]
REFUSED = [
    "minute(open) > 5",
    "open > '08:07'",
    "open = '08:00'",
    "open + INTERVAL 30 MINUTE < '12:00'",
    "day + INTERVAL 7 MINUTE < '23:55'",
    "time_bucket(INTERVAL 7 MINUTE, day) > '00:08'",
    "CAST(open AS VARCHAR) < '12'",
    "second(day) = 0",
]


def rows_of(seed: int) -> list[dt.time | None]:
    draw = random.Random(seed)
    midnight = dt.datetime(1970, 1, 1)
    found = [midnight + dt.timedelta(seconds=draw.randrange(86_400)) for _ in range(300)]
    return [*HOSTILE, *(each.time() for each in found)]


def arrow(rows: Rows, stored: Any) -> pa.Table:
    kept = (
        [row and row.replace(microsecond=0) for row in rows] if stored == pa.time32("s") else rows
    )
    times = pa.array(kept, pa.time64("us")).cast(stored, safe=False)
    return pa.table({"g": ["ab"[i % 2] for i in range(len(rows))], "day": times, "open": times})


def by_duckdb(path: Path, rows: Rows) -> None:
    with duckdb.connect() as connection:
        connection.register("written", arrow(rows, pa.time64("us")))
        connection.execute(f"COPY written TO '{path}' (FORMAT parquet)")


def by_pandas(path: Path, rows: Rows) -> None:
    groups = ["ab"[i % 2] for i in range(len(rows))]
    pd.DataFrame({"g": groups, "day": rows, "open": rows}).to_parquet(path)


def by_pyarrow(path: Path, rows: Rows) -> None:
    pq.write_table(arrow(rows, pa.time64("ns")), path, row_group_size=17)


def by_csv(path: Path, rows: Rows) -> None:
    lines = [f"{'ab'[i % 2]},{row or ''},{row or ''}\n" for i, row in enumerate(map(str_of, rows))]
    path.write_text("g,day,open\n" + "".join(lines))


def str_of(row: dt.time | None) -> str:
    return "" if row is None else row.isoformat()


def by_database(path: Path, rows: Rows) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.register("written", arrow(rows, pa.time64("us")))
        connection.execute("CREATE TABLE t AS FROM written")


WRITERS: dict[Callable[[Path, Rows], None], str] = {
    by_duckdb: "t.parquet",
    by_pandas: "t.parquet",
    by_pyarrow: "t.parquet",
    by_csv: "t.csv",
    by_database: "t.duckdb",
}


def expected(naive: duckdb.DuckDBPyConnection, sql: str) -> dict[Any, Any]:
    """The answer over the rows that hold declared values in the columns that are asked for."""
    tests = [f"{name} IS NOT NULL AND {test}" for name, test in KEPT.items() if name in sql]
    naive.execute(f"CREATE OR REPLACE TABLE t AS FROM rows WHERE {' AND '.join(tests)}")
    return {tuple(map(str, row[:-1])): row[-1] for row in naive.execute(sql).fetchall()}


@pytest.mark.parametrize("writer", WRITERS, ids=lambda each: each.__name__)
def test_times_of_day_agree_with_duckdb(
    writer: Callable[[Path, Rows], None], tmp_path: Path
) -> None:
    rows, name = rows_of(1), WRITERS[writer]
    writer(tmp_path / name, rows)
    (tmp_path / "c.toml").write_text(CATALOG.format(name))
    with dpsql.connect(tmp_path / "c.toml", epsilon=100) as connection, duckdb.connect() as naive:
        naive.register("rows", arrow(rows, pa.time64("us")))
        for sql in STATEMENTS:
            with zero_noise():
                found = connection.execute(sql).fetchall()
            answers = {tuple(map(str, row[:-1])): round(row[-1]) for row in found if round(row[-1])}
            assert answers == expected(naive, sql), sql
        with zero_noise():
            (sample, *_) = connection.execute("SELECT open, COUNT(*) FROM t GROUP BY open")
        assert sample[0] == dt.time(8)


def test_finer_than_the_cells_is_refused_and_nothing_goes_past_midnight(tmp_path: Path) -> None:
    by_csv(tmp_path / "t.csv", [])
    (tmp_path / "c.toml").write_text(CATALOG.format("t.csv"))
    with dpsql.connect(tmp_path / "c.toml") as connection:
        for condition in REFUSED:
            with pytest.raises(dpsql.errors.ProgrammingError) as error:
                connection.explain(f"SELECT COUNT(*) FROM t WHERE {condition}")
            assert error.value.code == "E_BIN_EDGE", condition
