"""Statements in the style of BigQuery's differential privacy clause, and what its bounds mean."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.sql.lexemes import split_statements
from dpsql.sql.parse import parse
from tests.support.seam import zero_noise
from tests.support.tables import statements_of

STATEMENTS = statements_of(Path(__file__).with_name("bigquery.sql"))
CATALOG = """
[budget]
epsilon = 100000

[table.v]
source = "v.parquet"
privacy_unit = { column = "pid", max_rows = 4 }

[table.v.column]
w = { type = "text", domain = ["A", "B"] }
d = { type = "integer", domain = [0, 20] }
"""
MADE = """
SELECT i // 4 AS pid, ['A', 'B'][i % 3 % 2 + 1] AS w, (i * i + i) % 21 AS d FROM range(80) AS r(i)
"""
WITHIN = "SELECT pid, w, {} AS x FROM v GROUP BY pid, w"
BOUNDED = [
    ("AVG(d, contribution_bounds_per_group => (5, 12))", "least(greatest(avg(d), 5), 12)", "avg"),
    ("SUM(d, contribution_bounds_per_group => (3, 20))", "least(greatest(sum(d), 3), 20)", "sum"),
    ("COUNT(*, contribution_bounds_per_group => (0, 1))", "least(count(*), 1)", "sum"),
]


def test_statements_of_the_documentation_compile(demo: Path) -> None:
    with dpsql.connect(demo / "hospital.toml", epsilon=1) as connection:
        for sql in STATEMENTS:
            connection.engine.compile([parse(split_statements(sql)[0])])


@pytest.mark.parametrize(("asked", "within", "outer"), BOUNDED)
def test_bounds_are_of_what_a_unit_adds_to_a_group(
    tmp_path: Path, asked: str, within: str, outer: str
) -> None:
    (tmp_path / "c.toml").write_text(CATALOG, encoding="utf-8")
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE v AS {MADE}")
        database.execute(f"COPY v TO '{tmp_path / 'v.parquet'}'")
        exact = f"SELECT w, {outer}(x) FROM ({WITHIN.format(within)}) GROUP BY w ORDER BY w"
        expected = database.execute(exact).fetchall()
    with zero_noise(), dpsql.connect(tmp_path / "c.toml", epsilon=100) as connection:
        found = connection.execute(f"SELECT w, {asked} FROM v GROUP BY w").result.rows
    assert [row[0] for row in found] == [row[0] for row in expected]
    for (_, one), (_, two) in zip(found, expected, strict=True):
        assert one == pytest.approx(float(two), rel=1e-3)
