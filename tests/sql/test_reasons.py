"""Refusals say the true reason, and what they say would work does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from dpsql.sql.decided import LIMITED
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 1000
[unit.person]
[table.v]
source = "v.parquet"
privacy_unit = { column = "pid", max_rows = 2 }
[table.v.column]
c = { type = "integer", domain = [0, 3] }
m = { type = "number", bounds = [0, 120] }
binned = { type = "number", bounds = [0, 120], bins = 100 }
b = { type = "boolean" }
told = { type = "boolean", domain = [false, true] }
"if" = { type = "integer", domain = [0, 2] }
[table.city]
source = "city.parquet"
public = true
[table.city.column]
c = { type = "integer" }
population = { type = "integer" }
"""
DATA: Tables = {
    "v": "SELECT i // 2 AS pid, i % 4 AS c, i % 121 * 1.0 AS m, m AS binned, i % 2 = 0 AS b,"
    ' b AS told, i % 3 AS "if" FROM range(400) r(i)',
    "city": "SELECT i AS c, i * 1000 AS population FROM range(4) r(i)",
}
GROUPS = "(SELECT c, COUNT(*) AS n FROM v GROUP BY c) x"
CASES = [
    ("SELECT MEDIAN(m) FROM v", "m)", "has bounds and no bins", "bins = 100",
     "SELECT MEDIAN(binned) FROM v"),
    ("SELECT c, QUANTILE_CONT(m, 0.9) FROM v GROUP BY c", "m,", "no bins", "bins = 100",
     "SELECT c, QUANTILE_CONT(binned, 0.9) FROM v GROUP BY c"),
    ("SELECT b, COUNT(*) FROM v GROUP BY b", "b", "no declared domain", "domain = [false, true]",
     "SELECT told, COUNT(*) FROM v GROUP BY told"),
    ("SELECT COUNT(*) FROM v WHERE if > 1", "1", "cannot be parsed", 'written "if"',
     'SELECT COUNT(*) FROM v WHERE "if" > 1'),
    (f"SELECT c FROM {GROUPS} WHERE n >= ALL (SELECT COUNT(*) FROM v GROUP BY c)", "COUNT",
     "ALL", "(SELECT MAX(x) FROM ...)",
     f"SELECT c FROM {GROUPS} WHERE n >= (SELECT MAX(n) FROM {GROUPS})"),
    ("SELECT MAX(population) FROM v JOIN city USING (c)", "population", "MAX()",
     "public rows that private ones meet: one row decides it",
     "SELECT QUANTILE_DISC(population, 0.95) FROM v JOIN city USING (c)"),
    ("SELECT SUM(CAST(m AS INTEGER), contribution_bounds_per_group => (0, 9)) FROM v",
     "contribution", "of an expression", "x a column",
     "SELECT c, SUM(m, contribution_bounds_per_group => (0, 9)) FROM v GROUP BY c"),
]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_tables(tmp_path_factory.mktemp("reasons"), CATALOG, DATA) as world:
        yield world


@pytest.mark.parametrize(("sql", "place", "reason", "hint", "works"), CASES)
def test_the_reason_is_true_and_the_remedy_works(
    world: World, sql: str, place: str, reason: str, hint: str, works: str
) -> None:
    connection, _ = world
    before = connection.budget
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    error = caught.value
    assert error.span is not None
    assert error.span.text[error.span.start :].startswith(place)
    assert reason in str(error)
    assert hint in (error.hint or "")
    assert connection.budget == before
    connection.explain(works)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT c, COUNT(*) AS n FROM v GROUP BY c ORDER BY n LIMIT 2", True),
        ("SELECT c, COUNT(*) AS n FROM v GROUP BY c ORDER BY n LIMIT 2 OFFSET 1", True),
        ("SELECT c, COUNT(*) AS n FROM v GROUP BY c ORDER BY n LIMIT 4", False),
        ("SELECT c, COUNT(*) AS n FROM v GROUP BY c HAVING COUNT(*) > 9 LIMIT 2", False),
        ("SELECT c, COUNT(*) AS n FROM v GROUP BY c", False),
    ],
)
def test_places_of_limit_that_empty_groups_take_are_noted(
    world: World, sql: str, said: bool
) -> None:
    assert (LIMITED in world[0].execute(sql).result.notes) is said
