"""Sums of very small and very large numbers are as exact as those of ordinary ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.seam import zero_noise
from tests.support.tables import open_tables

CATALOG = """
[budget]
epsilon = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 7] }
c = { type = "boolean", domain = [false, true] }
m = { type = "number", bounds = [0, 16] }
"""
STATEMENTS = [
    "SELECT SUM(CASE WHEN a = 3 THEN 1e-11 ELSE 0 END) FROM t",
    "SELECT SUM(a * 1e-12), COUNT(*) FROM t",
    "SELECT SUM(a * a * 1e-9 + a) FROM t",
    "SELECT SUM(a * 1e15) FROM t",
    "SELECT c, SUM(CASE WHEN a = 3 OR c THEN 1e-11 * a ELSE 2e-11 END) FROM t GROUP BY c",
    "SELECT SUM(m * 1e-11) FROM t",
    "SELECT SUM(m * 1e-11 + 1e-12) FROM t",
    "SELECT AVG(m * 1e-9) FROM t",
    "SELECT VAR_POP(a * 1e-6) FROM t",
]


TABLE = "SELECT i % 8 AS a, i % 3 = 0 AS c, i / 4.0 AS m FROM range(40) r(i)"
"""Forty rows, with values that the grid of a measure holds exactly."""


@pytest.mark.parametrize("sql", STATEMENTS)
def test_the_scale_of_numbers_does_not_matter(tmp_path: Path, sql: str) -> None:
    with zero_noise(), open_tables(tmp_path, CATALOG, {"t": TABLE}) as (connection, database):
        expected = sorted(database.execute(sql).fetchall())
        found = sorted(connection.execute(sql).fetchall())
    assert [v for row in found for v in row] == pytest.approx(
        [v for row in expected for v in row], rel=1e-9, abs=0
    )
