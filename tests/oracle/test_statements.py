"""Differential oracle: with noise set to zero, answers equal DuckDB's own on the declared view."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 7] }
b = { type = "text", domain = ["x", "y", "", "it's"], other = "rest", null = true }
c = { type = "boolean", domain = [false, true], null = true }
d = { type = "date", domain = ["2023-11-15", "2024-03-02"], by = "month", null = true }
n = { type = "number", bins = [-1.5, 0, 2, 10] }
"""

VIEW = """
CREATE OR REPLACE VIEW t AS
SELECT CAST(a AS BIGINT) AS a,
       CASE WHEN b IS NULL OR b IN ('x', 'y', '', 'it''s') THEN b ELSE 'rest' END AS b,
       c,
       CAST(date_trunc('month', d) AS DATE) AS d,
       CASE WHEN n < 0 THEN -1.5 WHEN n < 2 THEN 0.0 ELSE 2.0 END AS n
FROM raw
"""
INSIDE = {
    "a": "a BETWEEN 0 AND 7",
    "d": "(d IS NULL OR d BETWEEN DATE '2023-11-01' AND DATE '2024-03-31')",
    "n": "n BETWEEN -1.5 AND 10 AND NOT isnan(n)",
}

STATEMENTS = [
    "SELECT COUNT(*) AS n0 FROM t",
    "SELECT a, COUNT(*) FROM t GROUP BY a",
    "SELECT b, COUNT(*) AS k FROM t GROUP BY b",
    "SELECT c, d, COUNT(*) AS k FROM t GROUP BY c, d",
    "SELECT d, b, COUNT(*) AS k FROM t WHERE a > 2 GROUP BY 2, 1",
    "SELECT a // 3 AS g, COUNT(*) AS k, COUNT(c) AS kc FROM t GROUP BY g",
    "SELECT a % 2 AS odd, a > 3 AS big, b, COUNT(*) FROM t GROUP BY odd, big, b",
    "SELECT COUNT(*) FROM t WHERE a BETWEEN 2 AND 5 AND b <> 'x'",
    "SELECT COUNT(*) FROM t WHERE b = 'rest' OR b IS NULL",
    "SELECT COUNT(*) FROM t WHERE NOT (b = 'x')",
    "SELECT COUNT(*) FROM t WHERE b NOT IN ('x', 'it''s')",
    "SELECT COUNT(*) FROM t WHERE b LIKE '%t%' OR length(b) = 0",
    "SELECT COUNT(*) FROM t WHERE c",
    "SELECT COUNT(*) FROM t WHERE c IS NOT TRUE",
    "SELECT COUNT(*) FROM t WHERE c IS DISTINCT FROM FALSE AND a IN (1, 3, 5, 99)",
    "SELECT COUNT(*) FROM t WHERE d >= DATE '2024-01-01'",
    "SELECT COUNT(*) FROM t WHERE d < '2024-02-01' AND n < 2",
    "SELECT year(d) AS y, COUNT(*) FROM t GROUP BY y",
    "SELECT date_trunc('quarter', d) AS q, COUNT(*) FROM t WHERE n >= 0 GROUP BY q",
    "SELECT n, COUNT(*) FROM t GROUP BY n",
    "SELECT CASE WHEN a < 2 THEN 'lo' WHEN a < 6 THEN 'mid' END AS g, COUNT(*) FROM t GROUP BY 1",
    "SELECT COUNT(*) FILTER (WHERE a < 3) AS lo, COUNT(*) FILTER (WHERE b = 'x') AS x FROM t",
    "SELECT b, SUM(CASE WHEN c THEN 1 ELSE 0 END) AS yes, COUNT(*) AS k FROM t GROUP BY b",
    "SELECT a, COUNT(*) AS k FROM t GROUP BY a HAVING COUNT(*) > 3 ORDER BY k DESC, a LIMIT 4",
    "SELECT b, COUNT(*) * 2 + 1 AS z FROM t GROUP BY b ORDER BY z DESC, b LIMIT 2 OFFSET 1",
    "SELECT c, 100.0 * COUNT(*) FILTER (WHERE a > 3) / COUNT(*) AS share FROM t GROUP BY c",
    "SELECT COUNT(*) FROM t WHERE 1 / (a - 3) > 0",
    "SELECT COUNT(*) FROM t WHERE coalesce(b, 'none') = 'none'",
    "SELECT COUNT(*) FROM t WHERE a > 100",
    "SELECT a, COUNT(*) FROM t WHERE a > 5 GROUP BY ALL",
    "SELECT upper(b) AS u, COUNT(*) FROM t WHERE a <> 4 GROUP BY u",
    "SELECT COUNT(*) AS k FROM t WHERE b = NULL",
    "SELECT T.A, COUNT(*) FROM T WHERE t.B = 'y' GROUP BY t.a",
]


def hostile_rows(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Rows with out-of-domain values, NULLs, NaN, infinities, empty strings and duplicates."""
    numbers = [-1.5, -0.5, 0.0, 1.0, 2.0, 9.99, 10.0, 10.1, math.nan, math.inf, -math.inf, None]
    days = [dt.date(2023, 10, 31), dt.date(2023, 11, 2), dt.date(2024, 1, 31), None]
    days += [dt.date(2024, 3, 31), dt.date(2024, 2, 29), dt.date(2024, 4, 1)]
    rows = []
    for _ in range(count):
        a = rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 3, 3, -5, 8, 2**40, None])
        b = rng.choice(["x", "y", "", "it's", "X", "rest", "zz", "x ", None])
        rows.append((a, b, rng.choice([True, False, None]), rng.choice(days), rng.choice(numbers)))
    return rows


def write_table(folder: Path, rows: list[tuple[Any, ...]]) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("CREATE TABLE raw (a BIGINT, b VARCHAR, c BOOLEAN, d DATE, n DOUBLE)")
    if rows:
        database.executemany("INSERT INTO raw VALUES (?, ?, ?, ?, ?)", rows)
    database.execute(f"COPY raw TO '{folder / 't.parquet'}'")
    return database


def declare_view(database: duckdb.DuckDBPyConnection, columns: Iterable[str]) -> None:
    """Let ``t`` hold the rows that are inside for each of these columns."""
    database.execute(f"{VIEW} WHERE {' AND '.join(INSIDE[name] for name in columns) or 'TRUE'}")


@pytest.mark.parametrize(("seed", "count"), [(1, 0), (2, 1), (3, 40), (4, 400)])
def test_answers_equal_the_databases_own(tmp_path: Path, seed: int, count: int) -> None:
    database = write_table(tmp_path, hostile_rows(random.Random(seed), count))
    (tmp_path / "t.toml").write_text(CATALOG)
    with zero_noise(), dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection:
        for sql in STATEMENTS:
            result = connection.execute(sql).result
            declare_view(database, mentioned(sql))
            compare(sql, result, database)


def test_a_joint_workload_gives_the_same_answers(tmp_path: Path) -> None:
    database = write_table(tmp_path, hostile_rows(random.Random(5), 200))
    (tmp_path / "t.toml").write_text(CATALOG)
    with zero_noise(), dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection:
        cursor = connection.executescript(";\n".join(STATEMENTS))
        declare_view(database, INSIDE)
        for sql in STATEMENTS:
            compare(sql, cursor.result, database)
            cursor.nextset()


def mentioned(sql: str) -> list[str]:
    """The columns whose names stand in a statement, whatever dpsql makes of it."""
    text = re.sub(r"'[^']*'", "", sql).lower()
    return [name for name in INSIDE if re.search(rf"\b{name}\b", text)]


def compare(
    sql: str, result: dpsql.dbapi.connection.Result, database: duckdb.DuckDBPyConnection
) -> None:
    """Equal as rows where the statement filters; else up to keys that DuckDB has no rows of."""
    expected = database.execute(sql).fetchall()
    noisy = [index for index, errors in enumerate(result.stddev) if errors is not None]
    found = [tuple(settle(row[i], i in noisy) for i in range(len(row))) for row in result.rows]
    expected = [tuple(settle(row[i], i in noisy) for i in range(len(row))) for row in expected]
    if "HAVING" in sql or "LIMIT" in sql:
        if "HAVING" in sql:
            assert found == expected, sql
        return
    keys = [i for i in range(len(result.columns)) if i not in noisy]
    by_key = {tuple(row[i] for i in keys): row for row in found}
    assert len(by_key) == len(found), sql
    for row in expected:
        assert by_key.pop(tuple(row[i] for i in keys)) == row, sql
    for row in by_key.values():
        assert all(row[i] in (0.0, None) for i in noisy), sql


def settle(value: Any, noisy: bool) -> Any:
    if value is None or not noisy:
        return value.date() if isinstance(value, dt.datetime) else value
    return round(float(value), 6) + 0.0
