"""Differential oracle for SELECTs by privacy unit, without noise, and their sensitivity."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.catalog import Catalog
from dpsql.catalog.catalog import Budget
from dpsql.catalog.unit_local import DerivedTable
from dpsql.sql.compose import compile_statement
from dpsql.sql.parse import reparse
from dpsql.sql.products import Compiler
from tests.support.clinic import TABLES, largest_change
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables, statements_of

CATALOG = """
[budget]
epsilon = 10000
delta = 1e-4

[table.visits]
source = "visits.parquet"
privacy_unit = { column = "who", max_rows = 5 }

[table.visits.column]
ward = { type = "text", domain = ["a", "b", "c"] }
age = { type = "integer", domain = [0, 9], null = true }
cost = { type = "number", bounds = [0, 100] }
"""
STATEMENTS = statements_of(Path(__file__).with_name("per_unit.sql"))
SEEDS = range(3)


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    draw = random.Random(5)
    rows = [
        (who, draw.choice("abc"), draw.choice([*range(10), None]), draw.randrange(401) / 4)
        for who in range(120)
        for _ in range(draw.randrange(6))
    ]
    draw.shuffle(rows)
    tables: Tables = {"visits": ("who BIGINT, ward VARCHAR, age BIGINT, cost DOUBLE", rows)}
    with open_tables(folder, CATALOG, tables) as world, zero_noise():
        yield world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("persons")) as world:
        yield world


def settle(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number:
        return value
    return round(float(value), 1 if abs(value) < 1000 else -1) + 0.0  # sums are on a grid


def check(world: World, sql: str) -> None:
    """All rows of DuckDB's are there; the others are groups without rows."""
    connection, database = world
    found = [tuple(map(settle, row)) for row in connection.execute(sql).fetchall()]
    expected = [tuple(map(settle, row)) for row in database.execute(sql).fetchall()]
    assert set(expected) <= set(found), (sql, found, expected)
    more = [row for row in found if row not in expected]
    assert all(set(row[-1:]) <= {0.0, None} for row in more), (sql, more)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_answers_equal_the_databases_own(world: World, sql: str) -> None:
    check(world, sql)


def draw_statement(draw: random.Random) -> str:
    """A SELECT around one by unit."""
    tests = ["ward = 'a'", "age > 3", "age IS NOT NULL", "ward IN ('a', 'c') OR age < 2"]
    tests += [f"who {draw.choice(['', 'NOT '])}IN (SELECT who FROM visits WHERE {tests[1]})"]
    kinds = ["COUNT(*)", "COUNT(age)", "COUNT(DISTINCT ward)", "MIN(age)", "MAX(age)", "SUM(age)"]
    kinds += [f"COUNT(*) FILTER (WHERE {draw.choice(tests[:4])})"]
    keys = draw.choice([["who"], ["who", "ward"], ["ward", "who"]])
    values = draw.sample(kinds, draw.choice([1, 1, 2]))
    items = [*keys, *(f"{value} AS v{i}" for i, value in enumerate(values))]
    inner = f"SELECT {', '.join(items)} FROM visits"
    inner += f" WHERE {' AND '.join(f'({t})' for t in draw.sample(tests, draw.choice([0, 1, 2])))}"
    inner = inner.removesuffix(" WHERE ")
    inner += f" GROUP BY {draw.choice(['ALL', ', '.join(keys)])}"
    inner += draw.choice(["", "", " HAVING COUNT(*) > 1", " HAVING MAX(age) > 4"])
    names = [f"v{i}" for i in range(len(values))] + keys[:: len(keys)] * (keys[0] == "ward")
    by = draw.sample(names, 1)[0]
    where = draw.choice(["", " WHERE v0 > 1", " WHERE v0 IS NOT NULL", " WHERE v0 = 2 OR v0 < 1"])
    what = draw.choice(["COUNT(*)", "COUNT(DISTINCT who)"])
    return f"SELECT {by}, {what} FROM ({inner}) AS p{where} GROUP BY {by}"


@pytest.mark.parametrize("seed", range(4))
def test_random_statements_equal_the_databases_own(world: World, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(8):
        check(world, draw_statement(draw))


def test_a_person_counts_once(world: World) -> None:
    connection, _ = world
    forecast = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {STATEMENTS[0]}"))
    assert "at most 1 row of each who counts" in forecast
    assert "1.357" in forecast  # that of a count of rows at epsilon 1


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT who, COUNT(*) FROM (SELECT * FROM visits) AS v GROUP BY who", "E_DOMAIN"),
        ("SELECT n FROM (SELECT who, COUNT(*) AS n FROM visits GROUP BY who) AS p",
         "E_NO_AGGREGATE"),
        ("SELECT COUNT(*) FROM (SELECT who, ward || 'x' AS w FROM visits GROUP BY ALL) AS p",
         "E_AGGREGATE"),
        ("SELECT COUNT(*) FROM (SELECT who, MEDIAN(age) AS m FROM visits GROUP BY who) AS p",
         "E_AGGREGATE"),
        ("SELECT COUNT(*) FROM (SELECT who, age, COUNT(*) FROM visits GROUP BY who) AS p",
         "E_GROUP_BY"),
        ("SELECT COUNT(*) FROM (SELECT who FROM visits GROUP BY who LIMIT 3) AS p", "E_AGGREGATE"),
        ("SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM visits x WHERE x.age = v.age)",
         "E_SUBQUERY"),
        ("SELECT COUNT(*) FROM visits WHERE age IN (SELECT age FROM visits)", "E_SUBQUERY"),
        ("SELECT COUNT(*) FROM visits WHERE who IN (SELECT age FROM visits)", "E_SUBQUERY"),
    ],
)  # fmt: skip
def test_what_is_not_of_one_unit_is_refused_uncharged(world: World, sql: str, code: str) -> None:
    connection, _ = world
    before = connection.budget.entries
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    assert caught.value.code == code
    assert caught.value.span is not None
    assert connection.budget.entries == before


OF_CLINIC = [
    "SELECT COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) AS p",
    "SELECT ward, COUNT(*) FROM (SELECT patient_id, ward, SUM(cost) AS c, MAX(day) AS d FROM visits"
    " WHERE day > 2 OR ward = 'a' GROUP BY ALL HAVING COUNT(*) > 1) AS p GROUP BY ward",
    "SELECT COUNT(*) FROM (SELECT DISTINCT patient_id, kind FROM lines WHERE price < 4) AS p",
    "SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM patients WHERE age > 2"
    " AND sex = 'f') AND ward = 'b'",
    "SELECT COUNT(*) FROM visits v WHERE NOT EXISTS (SELECT 1 FROM lines x WHERE"
    " x.patient_id = v.patient_id AND kind = 'x') AND patient_id IN (SELECT patient_id FROM visits"
    " GROUP BY patient_id HAVING COUNT(DISTINCT ward) > 1)",
]


@pytest.mark.parametrize("sql", OF_CLINIC)
def test_a_unit_changes_as_many_rows_as_are_told(sql: str) -> None:
    catalog = Catalog(Path("c.toml"), Budget(Fraction(1), Fraction(0)), dict(TABLES))
    compiler = Compiler(catalog)
    compile_statement(reparse(sql), compiler, lambda table: {})
    tables = [each for each in catalog.derived.values() if isinstance(each, DerivedTable)]
    assert tables
    for table in tables:
        most = table.unit.max_rows
        assert largest_change(table.relation, most, SEEDS) <= most
        assert largest_change(table.relation, 1, SEEDS) == 1
