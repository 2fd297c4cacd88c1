"""Quantiles, running totals and windows of columns with more values than matrices are made for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise

LAST = 9_999
CATALOG = f"""
[budget]
epsilon = 1000
delta = 1e-6

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
x = {{ type = "integer", domain = [0, {LAST}], null = true }}
s = {{ type = "integer", domain = [0, 1] }}
"""

STATEMENTS = [
    "SELECT QUANTILE_DISC(x, .5) AS n FROM t",
    "SELECT s, QUANTILE_DISC(x, .3) AS n FROM t GROUP BY s",
    "SELECT QUANTILE_DISC(x, .5) AS n FROM t WHERE s = 1 AND x BETWEEN 100 AND 8000",
    "SELECT x // 100 AS k, SUM(COUNT(*)) OVER (ORDER BY x // 100) AS n FROM t GROUP BY x // 100",
    "SELECT x, SUM(COUNT(*)) OVER (ORDER BY x) AS n FROM t GROUP BY x",
    "SELECT x, SUM(COUNT(*)) OVER (ORDER BY x DESC) AS n FROM t GROUP BY x",
    "SELECT s, x, SUM(COUNT(*)) OVER (PARTITION BY s ORDER BY x ROWS 30 PRECEDING) AS n"
    " FROM t WHERE x BETWEEN 50 AND 9950 GROUP BY s, x",
    "SELECT x, SUM(COUNT(*)) OVER (ORDER BY x RANGE BETWEEN 9 PRECEDING AND 9 FOLLOWING) AS n"
    " FROM t GROUP BY x",
]


@pytest.fixture(params=["laplace", "gaussian"])
def private(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Connection]:
    duckdb.execute(
        f"COPY (SELECT CASE WHEN i % 13 = 0 THEN NULL ELSE (i * i * 31 % {LAST + 1})::INT END AS x,"
        f" (i % 2)::INT AS s FROM range(30000) r(i)) TO '{tmp_path / 't.parquet'}'"
    )
    (tmp_path / "c.toml").write_text(CATALOG)
    with dpsql.connect(tmp_path / "c.toml", epsilon=1, delta=1e-9) as found:
        found.execute(f"SET noise = '{request.param}'")
        yield found


@pytest.fixture
def exact(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Every cell has a row, since an empty group has one in the private answer."""
    with duckdb.connect() as database:
        database.execute(
            f"CREATE TABLE r AS SELECT * FROM '{tmp_path / 't.parquet'}';"
            f"CREATE TABLE grid AS SELECT a.x, b.s FROM (SELECT unnest(range({LAST + 1}))::INT AS x"
            " UNION ALL SELECT NULL) a CROSS JOIN (SELECT unnest(range(2))::INT AS s) b"
        )
        yield database


def test_answers_are_those_of_the_database(
    private: Connection, exact: duckdb.DuckDBPyConnection
) -> None:
    for text in STATEMENTS:
        with zero_noise():
            rows = private.execute(text).fetchall()
        if "OVER" not in text:
            known = exact.execute(text.replace("FROM t", "FROM r")).fetchall()
        else:
            counted = (
                "(SELECT g.x, g.s, COUNT(r.s) AS c FROM grid g LEFT JOIN r ON r.s = g.s"
                " AND r.x IS NOT DISTINCT FROM g.x GROUP BY g.x, g.s) t"
            )
            known = exact.execute(
                text.replace("COUNT(*)", "SUM(c)").replace("FROM t", f"FROM {counted}")
            ).fetchall()
        found = {row[:-1]: row[-1] for row in rows}
        assert found.keys() == {row[:-1] for row in known}, text
        for *key, value in known:
            assert found[tuple(key)] == pytest.approx(float(value), abs=0.01), (text, key)


def test_running_totals_have_small_errors(private: Connection) -> None:
    text = "SELECT x, SUM(COUNT(*)) OVER (ORDER BY x) AS n FROM t GROUP BY x"
    lines = [str(row[0]) for row in private.execute(f"EXPLAIN {text}").fetchall()]
    error = float(next(line for line in lines if line.startswith("error")).split()[1])
    cells = float(next(line for line in lines if "noise on each cell" in line).split()[0])
    # Noise on each cell alone has sqrt(2 x 5000).
    assert error < cells / 5
