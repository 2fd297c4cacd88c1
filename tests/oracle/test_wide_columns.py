"""A column of many values: right answers in time and memory that grow with the values alone."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise

pytestmark = pytest.mark.slow

ROWS = 3000
BYTES = 1000
"""Most memory for one value of a column: for its keys, numbers, errors and rows of results."""
CATALOG = """
[budget]
epsilon = 1000000
delta = 1e-4

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = {{ type = "integer", domain = [0, {last}] }}
s = {{ type = "integer", domain = [0, 2] }}
w = {{ type = "text", domain = [{texts}] }}
b = {{ type = "number", domain = [0, {bins}], bins = {bins} }}
"""
WIDE = 9000
STATEMENTS = [
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
    "SELECT w, COUNT(*) AS n FROM t GROUP BY w",
    "SELECT b, COUNT(*) AS n FROM t GROUP BY b",
    "SELECT a // 2 AS k, COUNT(*) AS n FROM t GROUP BY a // 2",
    "SELECT a % 1000 AS k, COUNT(*) AS n FROM t GROUP BY a % 1000",
    "SELECT a, s, COUNT(*) AS n FROM t GROUP BY a, s",
    "SELECT a, COUNT(*) AS n FROM t GROUP BY ROLLUP (a)",
    "SELECT a, COUNT(*) AS n FROM t WHERE a % 7 = 3 GROUP BY a",
    "SELECT a // 2 AS k, SUM(a) AS m, COUNT(*) FILTER (WHERE s = 0) AS n FROM t GROUP BY a // 2",
    "SELECT s, SUM(a) AS m FROM t GROUP BY s",
    "SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) AS n FROM t GROUP BY a",
    "SELECT a, SUM(COUNT(*)) OVER (ORDER BY a DESC) AS n FROM t GROUP BY a",
    "SELECT a, COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM t GROUP BY a",
    "SELECT s, MEDIAN(a) AS m FROM t GROUP BY s",
    "SELECT MODE(a) AS m FROM t WHERE a < 3000",
]


@contextmanager
def opened(place: Path, n: int, bins: int | None = None) -> Iterator[Connection]:
    bins = n if bins is None else bins
    duckdb.execute(
        f"COPY (SELECT (i * 37 % {n})::INT AS a, i % 3 AS s, 'x' || (i % {bins}) AS w,"
        f" (i * 7 % {bins})::DOUBLE AS b FROM range({ROWS}) r(i)) TO '{place / 't.parquet'}'"
        " (FORMAT parquet)"
    )
    texts = ", ".join(f'"x{i}"' for i in range(bins))
    (place / "c.toml").write_text(CATALOG.format(last=n - 1, texts=texts, bins=bins))
    with dpsql.connect(place / "c.toml") as connection:
        connection.set("epsilon", "1")
        connection.set("fresh", "on")
        yield connection


@pytest.fixture(scope="module", params=["laplace", "gaussian"])
def wide(tmp_path_factory: pytest.TempPathFactory, request: Any) -> Iterator[Connection]:
    with opened(tmp_path_factory.mktemp("wide"), WIDE) as connection:
        connection.set("noise", request.param)
        connection.set("delta", "0" if request.param == "laplace" else "1e-9")
        yield connection


ASKED = [
    *(("laplace", sql) for sql in STATEMENTS),
    *(("gaussian", sql) for sql in STATEMENTS[1::2]),
]


@pytest.mark.parametrize(("wide", "sql"), ASKED, indirect=["wide"], scope="module")
def test_answers_are_those_of_the_database(wide: Connection, sql: str) -> None:
    path = wide.catalog.tables["t"].source
    wide.explain(sql)
    with zero_noise():
        rows = wide.execute(sql).fetchall()
    keys = 2 if "a, s" in sql else 0 if sql.startswith("SELECT MODE") else 1
    exact = duckdb.execute(sql.replace("FROM t", f"FROM '{path}'")).fetchall()
    known = {row[:keys]: row[keys:] for row in exact}
    assert known.keys() <= {row[:keys] for row in rows}
    if "OVER" in sql or "MODE" in sql:
        rows = [row for row in rows if row[:keys] in known]
    zero = (0,) * len(exact[0][keys:])
    for row in rows:
        found = [0 if v is None else v for v in row[keys:]]
        expected = [0 if v is None else float(v) for v in known.get(row[:keys], zero)]
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-3), row


def spent(connection: Connection, sql: str) -> tuple[float, int]:
    """Return the seconds of the quicker of two runs, and the most bytes that one takes."""
    best = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        connection.execute(sql)
        best = min(best, time.perf_counter() - start)
    tracemalloc.start()
    try:
        connection.execute(sql)
        return best, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_groups_take_time_and_memory_in_proportion_to_their_number(tmp_path: Path) -> None:
    found = []
    for n in (10_000, 100_000):
        (tmp_path / str(n)).mkdir()
        with opened(tmp_path / str(n), n, bins=10) as connection:
            found.append(spent(connection, STATEMENTS[0]))
            assert found[-1][1] < BYTES * n + (1 << 25), n
    (few_seconds, few_bytes), (many_seconds, many_bytes) = found
    assert many_bytes < 20 * few_bytes
    assert many_seconds < 40 * few_seconds, "quadratic would be 100 times"


def test_a_mechanism_that_writes_rows_out_is_refused_before_the_charge(wide: Connection) -> None:
    wide.set("mechanism", "rap")
    try:
        for ask in (wide.explain, wide.execute):
            with pytest.raises(dpsql.Error, match="too many to learn"):
                ask(STATEMENTS[0])
    finally:
        wide.set("mechanism", "auto")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b",
        "SELECT a, s, w, COUNT(*) AS n FROM t GROUP BY CUBE (a, s, w)",
        "SELECT DP_RANGES(a) AS r, COUNT(*) AS n FROM t GROUP BY DP_RANGES(a)",
        "SELECT a % 500 AS k, MEDIAN(a) AS m FROM t GROUP BY a % 500",
        "SELECT a, c, COUNT(*) AS n FROM (SELECT a, b AS c FROM t) u GROUP BY a, c",
    ],
)
def test_results_beyond_a_million_rows_are_refused_by_size(wide: Connection, sql: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(dpsql.Error, match="E_TOO_LARGE"):
            wide.explain(sql)
        assert tracemalloc.get_traced_memory()[1] < 1 << 28
    finally:
        tracemalloc.stop()
