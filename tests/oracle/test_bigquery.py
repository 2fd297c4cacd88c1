"""Statements in the style of BigQuery's differential privacy clause, and what its bounds mean."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
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
x = { type = "number", bounds = [0, 10], step = 1 }
"""
ROWS = """
[table.u]
source = "u.parquet"
privacy_unit = "row"

[table.u.column]
d = { type = "integer", domain = [0, 20] }
x = { type = "number", bounds = [0, 10], step = 1 }
"""
MADE = """
SELECT i // 4 AS pid, ['A', 'B'][i % 3 % 2 + 1] AS w, (i * i + i) % 21 AS d, i % 9 AS x
FROM range(80) AS r(i)
"""
CLIPPED = "LEAST(GREATEST(d, 5), 12)"
SAME = [
    (
        "SELECT w, VAR_POP(d, contribution_bounds_per_row => (5, 12)) FROM v GROUP BY w",
        f"SELECT w, VAR_POP({CLIPPED}) FROM v GROUP BY w",
    ),
    (
        "SELECT STDDEV_SAMP(d, contribution_bounds_per_row => (-3, 12)) FROM v",
        "SELECT STDDEV_SAMP(LEAST(d, 12)) FROM v",
    ),
    (
        "SELECT QUANTILE_DISC(x, 0.7, contribution_bounds_per_row => (4, 6)) < 7 FROM v",
        "SELECT true",
    ),
    (
        "SELECT SUM(x, contribution_bounds_per_group => (-9, 99)), COUNT(x) FROM u",
        "SELECT SUM(x), COUNT(x) FROM u",
    ),
    (
        "SELECT VAR_POP(d, contribution_bounds_per_group => (5, 12)) FROM u",
        f"SELECT VAR_POP({CLIPPED}) FROM u",
    ),
    (
        "SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1, kappa = 4) w, ANON_COUNT(*), ANON_SUM(d), "
        "ANON_STDDEV_POP(d CLAMPED BETWEEN 5 AND 12) FROM v GROUP BY w",
        f"SELECT w, COUNT(*), SUM(d), STDDEV_POP({CLIPPED}) FROM v GROUP BY w",
    ),
    (
        "SELECT APPROX_QUANTILES(d, 4)[OFFSET(2)], APPROX_QUANTILES(d, 4)[ORDINAL(2)] FROM v",
        "SELECT QUANTILE_DISC(d, 0.5), QUANTILE_DISC(d, 0.25) FROM v",
    ),
    (
        "SELECT SUM(n) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) w, "
        "COUNT(*) AS n FROM v GROUP BY w) UNION ALL SELECT WITH DIFFERENTIAL_PRIVACY "
        "OPTIONS (epsilon = 1) SUM(d) FROM v",
        "SELECT COUNT(*) FROM v UNION ALL SELECT SUM(d) FROM v",
    ),
]
"""What is asked of ``v``, and of ``u``, the same rows each a unit; and what it is to DuckDB."""
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


def test_bounds_of_rows_older_words_and_inner_clauses(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CATALOG + ROWS, encoding="utf-8")
    with duckdb.connect() as database:
        for name in "vu":
            database.execute(f"CREATE TABLE {name} AS {MADE}")
            database.execute(f"COPY {name} TO '{tmp_path / name}.parquet'")
        with zero_noise(), dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
            for sql, exact in SAME:
                found = connection.execute(sql).result.rows
                expected = database.execute(f"{exact} ORDER BY 1").fetchall()
                for row, line in zip(sorted(found), expected, strict=True):
                    for one, two in zip(row, line, strict=True):
                        exactly = isinstance(two, str | bool)
                        assert one == (two if exactly else pytest.approx(float(two), rel=1e-3))
            before = connection.budget.entries
            with pytest.raises(dpsql.Error, match="OPTIONS of one statement differ"):
                connection.execute(SAME[-1][0].replace("epsilon = 1", "epsilon = 2", 1))
            assert connection.budget.entries == before


def _between(value: str, low: int, high: int) -> str:
    return (
        f"CASE WHEN {value} < {low} THEN {low} WHEN {value} > {high} THEN {high} ELSE {value} END"
    )


GROUP, ROW = "contribution_bounds_per_group", "contribution_bounds_per_row"
CLIPPED_ALIKE = [
    (f"AVG(d, {GROUP} => (9, 14))", f"avg({_between('a', 9, 14)})"),
    (
        f"SUM(d, {GROUP} => (9, 30)), SUM(d, {GROUP} => (0, 12)), SUM(d)",
        f"sum({_between('s', 9, 30)}), sum({_between('s', 0, 12)}), sum(s)",
    ),
    (f"VAR_POP(d, {ROW} => (5, 9))", f"var_pop({_between('d', 5, 9)})"),
    (f"QUANTILE_DISC(d, 0.5, {ROW} => (4, 6))", f"quantile_disc({_between('d', 4, 6)}, 0.5)"),
    (
        f"VAR_POP(d, {ROW} => (5, 9)) - (SELECT 1), VAR_POP(d, {ROW} => (0, 3)) - (SELECT 2)",
        f"var_pop({_between('d', 5, 9)}) - 1, var_pop({_between('d', 0, 3)}) - 2",
    ),
]
"""Aggregates with bounds, and the same of the rows or of what units add to groups."""
SOURCES = ["v", "seen", "(SELECT pid, w, d FROM v) AS s", "(SELECT pid, d AS d, w FROM v) AS s"]


def test_bounds_hold_over_views_and_sub_queries_and_are_told_apart(tmp_path: Path) -> None:
    view = '\n[view.seen]\nsql = "SELECT pid, w, d FROM v"\n'
    (tmp_path / "c.toml").write_text(CATALOG + view, encoding="utf-8")
    parts = "(SELECT w, SUM(d) AS s, AVG(d) AS a FROM v GROUP BY pid, w)"
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE v AS {MADE}")
        database.execute(f"COPY v TO '{tmp_path / 'v.parquet'}'")
        with zero_noise(), dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
            for asked, exact in CLIPPED_ALIKE:
                source = "v" if " d" in exact else parts
                rows = database.execute(f"SELECT w, {exact} FROM {source} GROUP BY w ORDER BY w")
                expected = [(w, *map(float, row)) for w, *row in rows.fetchall()]
                for source in SOURCES:
                    found = connection.execute(f"SELECT w, {asked} FROM {source} GROUP BY w")
                    for row, line in zip(found.fetchall(), expected, strict=True):
                        assert row[0] == line[0]
                        assert row[1:] == pytest.approx(line[1:], rel=2e-3), (asked, source)
