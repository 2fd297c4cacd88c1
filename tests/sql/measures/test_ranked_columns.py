"""Quantiles and the mode of expressions over several columns of a unit's rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from tests.suites.suite import compared
from tests.support.seam import zero_noise
from tests.support.tables import World, stored_world

CATALOG = """
[budget]
epsilon = 100000
[table.rows]
source = "rows.parquet"
privacy_unit = { column = "who", max_rows = 4 }
[table.rows.column]
a = { type = "integer", domain = [0, 12], null = true }
b = { type = "integer", domain = [-3, 9] }
w = { type = "text", domain = ["x", "y"] }
m = { type = "number", bounds = [0, 9] }
[table.alone]
source = "alone.parquet"
privacy_unit = "row"
[table.alone.column]
a = { type = "integer", domain = [0, 12], null = true }
b = { type = "integer", domain = [-3, 9] }
"""
TABLE = """
CREATE TABLE rows AS SELECT i // 4 AS who, CASE WHEN i % 9 > 0 THEN i * i % 13 END AS a,
    i * 5 % 13 - 3 AS b, ['x', 'y'][1 + i % 2] AS w, i % 10 AS m FROM range(203) r(i)
"""
VALUES = [
    "MEDIAN(a - b)",
    "QUANTILE_CONT(a + 2 * b, 0.3)",
    "QUANTILE_DISC(COALESCE(a, b), 0.75)",
    "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY a * b)",
    "QUANTILE_DISC(GREATEST(a, b), [0.25, 0.5])",
    "MEDIAN(CASE WHEN w = 'x' THEN a - b END)",
    "MEDIAN(CASE WHEN w = 'x' THEN a ELSE b END)",
    "MEDIAN(a - b) FILTER (WHERE b > 0)",
    "MEDIAN(a - b) + COUNT(*) + AVG(a)",
    "MEDIAN(ABS(a - b))",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("ranked")
    with stored_world(
        folder, f"{TABLE}; CREATE TABLE alone AS FROM rows", ("rows", "alone"), CATALOG
    ) as found:
        yield found


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "form",
    [
        "SELECT {} AS v FROM rows",
        "SELECT w, {} AS v FROM rows WHERE b <> 2 GROUP BY w",
        "SELECT b > 3 AS large, {} AS v FROM (SELECT a, b, w FROM rows) AS s GROUP BY large",
    ],
)
def test_they_are_those_of_duckdb(world: World, form: str, value: str) -> None:
    connection, database = world
    sql = form.format(value)
    with zero_noise():
        result = connection.execute(sql).result
    assert compared(result, database.execute(sql).fetchall(), 1e-9) is None


def test_rows_have_the_noise_of_their_unit(world: World) -> None:
    connection, _ = world
    plan = "\n".join(row[0] for row in connection.execute("EXPLAIN SELECT MEDIAN(a - b) FROM rows"))
    assert "at most 4 rows of each who count" in plan


@pytest.mark.parametrize(
    "sql", ["SELECT MEDIAN(a + m) FROM rows", "SELECT MEDIAN(a - b) FROM alone"]
)
def test_what_has_no_cells_is_refused_uncharged(world: World, sql: str) -> None:
    connection, _ = world
    before = connection.budget.entries
    with pytest.raises(dpsql.Error):
        connection.execute(sql)
    assert connection.budget.entries == before
