"""Refusals say the true reason, and what they say would work does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from dpsql.logical.functions import names
from dpsql.sql.cells.constant_conditions import LIMITED
from dpsql.sql.groups.absent_groups import NOTE
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
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
bare = { type = "integer" }
told = { type = "boolean" }
[table.city]
source = "city.parquet"
public = true
[table.city.column]
c = { type = "integer" }
population = { type = "integer" }
"""
DATA: Tables = {
    "v": "SELECT i // 2 AS pid, i % 4 AS c, i % 121 * 1.0 AS m, m AS binned, i % 2 = 0 AS b,"
    " b AS told, i AS bare FROM range(400) r(i)",
    "city": "SELECT i AS c, i * 1000 AS population FROM range(4) r(i)",
}
GROUPS = "(SELECT c, COUNT(*) AS n FROM v GROUP BY c) x"
CASES = [
    ("SELECT MEDIAN(m) FROM v", "m)", "has bounds and no bins", "bins = 100",
     "SELECT MEDIAN(binned) FROM v"),
    ("SELECT c, QUANTILE_CONT(m, 0.9) FROM v GROUP BY c", "m,", "no bins", "bins = 100",
     "SELECT c, QUANTILE_CONT(binned, 0.9) FROM v GROUP BY c"),
    ("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY m) FROM v", "m)",
     "PERCENTILE_CONT counts the rows of every bin", "bins = 100",
     "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY binned) FROM v"),
    ("SELECT MEDIAN(m * 2) FROM v", "m *", "no bins", "of the column alone",
     "SELECT MEDIAN(binned) FROM v"),
    ("SELECT SUM(CASE WHEN bare IS NOT NULL THEN 1 ELSE 0 END) FROM v", "bare IS",
     "no declared domain: nothing can be asked of it", "a domain (or bins)",
     "SELECT SUM(CASE WHEN c IS NOT NULL THEN 1 ELSE 0 END) FROM v"),
    ("SELECT BOOL_OR(bare > 1) FROM v", "BOOL_OR", "BOOL_OR()", "COUNT_IF(bare > 1) needs a domain",
     "SELECT COUNT_IF(c > 1) FROM v"),
    ("SELECT BOOL_OR(b) FROM v", "BOOL_OR", "BOOL_OR()", "COUNT_IF(b) works",
     "SELECT COUNT_IF(b) FROM v"),
    ("SELECT COUNT(*) FROM v WHERE c >= ALL (SELECT c FROM city)", "c FROM city",
     "a sub-query", "(SELECT MAX(x) FROM ...)",
     "SELECT COUNT(*) FROM v WHERE c >= (SELECT MAX(c) FROM city)"),
    ("SELECT COUNT(*) FROM v WHERE c > ANY (SELECT c FROM city)", "c FROM city",
     "a sub-query", "(SELECT MIN(x) FROM ...)",
     "SELECT COUNT(*) FROM v WHERE c > (SELECT MIN(c) FROM city)"),
    ("SELECT COUNT(*) FROM v WHERE c = ANY (SELECT c FROM city)", "c FROM city",
     "a sub-query", "IN (SELECT ...) works",
     "SELECT COUNT(*) FROM v WHERE c IN (SELECT c FROM city)"),
    ("SELECT COUNT(*) FROM v WHERE c <> ALL (SELECT c FROM city)", "c FROM city",
     "a sub-query", "NOT IN (SELECT ...) works",
     "SELECT COUNT(*) FROM v WHERE c NOT IN (SELECT c FROM city WHERE population > 9)"),
    ("SELECT COUNT(*) FROM v WHERE c < ALL (VALUES (2), (3))", "ALL", "all()",
     "(SELECT MIN(x) FROM ...)",
     "SELECT COUNT(*) FROM v WHERE c < (SELECT MIN(x) FROM (VALUES (2), (3)) AS p(x))"),
    ("SELECT SUM(m, contribution_bounds_per_row => (0, 9)) FROM v", "contribution",
     "SUM takes no contribution_bounds_per_row", "contribution_bounds_per_group => (0, 100)",
     "SELECT c, SUM(m, contribution_bounds_per_group => (0, 9)) FROM v GROUP BY c"),
    (f"SELECT c FROM {GROUPS} WHERE n >= ALL (SELECT COUNT(*) FROM v GROUP BY c)", "COUNT",
     "ALL", "(SELECT MAX(x) FROM ...)",
     f"SELECT c FROM {GROUPS} WHERE n >= (SELECT MAX(n) FROM {GROUPS})"),
    ("SELECT MAX(population) FROM v JOIN city USING (c)", "population", "MAX()",
     "public rows that private ones meet: one row decides it; MAX(x) FROM (SELECT DISTINCT",
     "SELECT MAX(x) FROM (SELECT DISTINCT population AS x FROM v JOIN city USING (c))"),
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
    "sql",
    [
        "SELECT b, COUNT(*) FROM v GROUP BY b",
        "SELECT SUM(CASE WHEN b THEN 1 ELSE 0 END) FROM v",
        "SELECT AVG(b::INTEGER) FROM v",
        "SELECT COUNT(*) FROM v WHERE NOT b",
    ],
)
def test_a_boolean_needs_no_domain(world: World, sql: str) -> None:
    connection, _ = world
    assert len(connection.execute(sql).fetchall()) == (2 if "GROUP" in sql else 1)


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


GROUPED = "SELECT told, c, COUNT(*) AS n FROM v GROUP BY told, c{}"
PLACES = {
    "limit": "SELECT c, n FROM {} ORDER BY n LIMIT 2",
    "limit in a sub-query": "SELECT SUM(n) AS s FROM (SELECT c, n FROM {} ORDER BY n LIMIT 2) AS y",
    "fetch": "SELECT c, n FROM {} ORDER BY n FETCH FIRST 2 ROWS ONLY",
    "offset": "SELECT c, n FROM {} ORDER BY n OFFSET 2",
    "union": "SELECT c, n FROM {} UNION ALL SELECT 9, COUNT(*) FROM v ORDER BY 2 LIMIT 2",
    "qualify": "SELECT c, n FROM {} QUALIFY ROW_NUMBER() OVER (ORDER BY n) <= 2",
    "row_number": "SELECT c, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS r FROM {}) AS y"
    " WHERE r <= 2",
    "rank": "SELECT c, n FROM (SELECT *, RANK() OVER (ORDER BY n) AS r FROM {}) AS y WHERE r <= 2",
    "ntile": "SELECT c, n, NTILE(2) OVER (ORDER BY n) AS half FROM {}",
    "value": "SELECT (SELECT n FROM {} ORDER BY n LIMIT 1) AS least, COUNT(*) FROM v",
}
SOURCES = {
    "sub-query": ("", "({}) AS x"),
    "name": ("WITH x AS ({}) ", "x"),
    "two names": ("WITH w AS ({}), x AS (SELECT * FROM w ORDER BY c) ", "x"),
    "columns": ("", "(SELECT told, n, c FROM ({}) AS w) AS x"),
}


@pytest.mark.parametrize("way", PLACES)
@pytest.mark.parametrize("source", SOURCES)
def test_places_that_empty_groups_take_are_noted_in_all_spellings(
    world: World, way: str, source: str
) -> None:
    before, name = SOURCES[source]
    for left_out in ("", " HAVING COUNT(*) > 10"):
        groups = GROUPED.format(left_out)
        sql = before.format(groups) + PLACES[way].format(name.format(groups))
        notes = world[0].execute(sql).result.notes
        assert (LIMITED in notes or NOTE in notes) is not bool(left_out), sql


@pytest.mark.parametrize(
    "sql",
    [
        GROUPED.format(" QUALIFY ROW_NUMBER() OVER (PARTITION BY told ORDER BY COUNT(*)) = 1"),
        GROUPED.format("").replace("told,", "DISTINCT ON (told) told,", 1) + " ORDER BY told, n",
    ],
)
def test_first_rows_that_empty_groups_may_be_are_noted(world: World, sql: str) -> None:
    notes = world[0].execute(sql).result.notes
    assert LIMITED in notes or NOTE in notes


OUTER = [name for name in names("groups") if name != "grouping"]
INNER = ("COUNT(*)", "SUM(m) FILTER (WHERE b)", "1 + AVG(m)", "ABS(MAX(c))", "MEDIAN(binned)")


@pytest.mark.parametrize("outer", OUTER)
def test_an_aggregate_within_an_aggregate_is_refused_as_such(outer: str) -> None:
    for inner in INNER:
        told = []
        for form in (f"({inner})", f"({inner}, 0.5)", f"({inner}, c)"):
            (fragment,) = split_statements(f"SELECT {outer}{form} FROM v GROUP BY c")
            try:
                told.append(str(parse(fragment).tree))
            except dpsql.Error as error:
                told.append(str(error))
        assert any("stands within" in each for each in told), told


@pytest.mark.parametrize("outer", ["SUM(n)", "AVG(n)", "MAX(n)", "COUNT(n)", "MEDIAN(n)"])
def test_a_sub_query_works_for_an_aggregate_of_aggregates(world: World, outer: str) -> None:
    world[0].explain(f"SELECT {outer} AS s FROM (SELECT c, COUNT(*) AS n FROM v GROUP BY c) AS x")
    world[0].explain(f"SELECT c, {outer.replace('n', 'COUNT(*)')} OVER () AS s FROM v GROUP BY c")


@pytest.mark.parametrize("called", ["MAX(c, 2)", "MAX(c) FILTER (WHERE b)", "SUM(MAX(c))"])
def test_an_extreme_of_a_key_is_the_key_where_it_stands_alone(world: World, called: str) -> None:
    world[0].explain("SELECT c, MAX(c), MIN(c) + 1, COUNT(*) FROM v GROUP BY c")
    with pytest.raises(dpsql.Error):
        world[0].explain(f"SELECT c, {called} AS x, COUNT(*) FROM v GROUP BY c")
