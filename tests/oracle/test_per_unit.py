"""Differential oracle for SELECTs by privacy unit, without noise, and their sensitivity."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.catalog import Catalog
from dpsql.catalog.catalog import Budget
from dpsql.relation.unit_local import DerivedTable
from dpsql.sql.compose import compile_statement
from dpsql.sql.products import Compiler
from dpsql.sql.text.parse import reparse
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
day = { type = "date", domain = ["2024-01-01", "2024-02-29"], null = true }
"""
HERE = Path(__file__)
FILES = ("per_unit.sql", "unit_windows.sql")
STATEMENTS = [sql for name in FILES for sql in statements_of(HERE.with_name(name))]
SEEDS = range(3)


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    draw = random.Random(5)
    days = [None, *(dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in range(60))]
    rows = [
        (who, draw.choice("abc"), draw.choice([*range(10), None]), draw.randrange(401) / 4, day)
        for who in range(120)
        for day in draw.sample(days, draw.randrange(6))  # no two visits on one day
    ]
    draw.shuffle(rows)
    columns = "who BIGINT, ward VARCHAR, age BIGINT, cost DOUBLE, day DATE"
    tables: Tables = {"visits": (columns, rows)}
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


def draw_partners(draw: random.Random) -> str:
    """A SELECT in which having rows elsewhere is part of an expression on each row."""

    def test(depth: int) -> str:
        if depth and draw.random() < 0.7:
            word = draw.choice(["AND", "OR"])
            return f"{draw.choice(['', 'NOT '])}({test(depth - 1)} {word} {test(depth - 1)})"
        own = draw.choice(["ward = 'a'", "age > 5", "day > DATE '2024-02-01'", "age IS NULL"])
        kind = draw.choice(["IN", "NOT IN", "EXISTS", "NOT EXISTS", "own"])
        if kind == "own":
            return draw.choice(["v.age < 4", "v.ward <> 'b'", "v.age IS NOT NULL"])
        if kind.endswith("IN"):
            return f"v.who {kind} (SELECT who FROM visits WHERE {own})"
        later = draw.choice(["", " AND x.age > v.age"])
        return f"{kind} (SELECT 1 FROM visits x WHERE x.who = v.who AND x.{own}{later})"

    one = test(2)
    form = draw.choice(
        [
            "SELECT ward, COUNT(*) FROM visits v WHERE {0} GROUP BY ward",
            "SELECT CASE WHEN {0} THEN 'yes' ELSE 'no' END AS k, COUNT(*) FROM visits v GROUP BY k",
            "SELECT ward, COUNT(*) FILTER (WHERE {0}) FROM visits v GROUP BY 1",
            "SELECT SUM(CASE WHEN {0} THEN age ELSE 0 END) FROM visits v WHERE age > 1",
            "SELECT n, COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM visits v WHERE {0} "
            "GROUP BY who) AS p GROUP BY n",
        ]
    )
    return form.format(one)


@pytest.mark.parametrize("seed", range(4))
def test_random_partners_within_expressions_equal_the_databases_own(
    world: World, seed: int
) -> None:
    draw = random.Random(seed)
    for _ in range(6):
        check(world, draw_partners(draw))


def draw_window(draw: random.Random) -> str:
    """A SELECT around one with windows over the rows of each unit."""
    part = draw.choice(["who", "who", "who", "ward, who"])
    way = draw.choice(["", " DESC", " NULLS FIRST", " DESC NULLS FIRST"])
    over = f"OVER (PARTITION BY {part} ORDER BY day{way})"
    ties = f"OVER (PARTITION BY {part} ORDER BY age{way})"
    kinds = [f"{f}() {over}" for f in ("ROW_NUMBER", "RANK", "DENSE_RANK")]
    kinds += [f"{f}({c}) {over}" for f in ("LAG", "LEAD", "FIRST_VALUE") for c in ("ward", "age")]
    kinds += [f"{f} {o}" for f in ("COUNT(*)", "COUNT(age)", "SUM(age)") for o in (over, ties)]
    kinds += [f"{f}(age) OVER (PARTITION BY {part})" for f in ("MIN", "MAX", "SUM", "COUNT")]
    kinds += [f"{c} - LAG({c}) {over}" for c in ("age", "day")]
    kinds += [f"{f}(age, {draw.randrange(2, 5)}) {over}" for f in ("LAG", "LEAD")]
    kinds += [draw_framed(draw, part, way) for _ in range(12)]
    items = [f"{kind} AS w{i}" for i, kind in enumerate(draw.sample(kinds, 2))]
    where = draw.choice(["", " WHERE age > 2", " WHERE ward <> 'b' AND age IS NOT NULL"])
    late = draw.choice(["", "", f" QUALIFY ROW_NUMBER() {over} <= {draw.randrange(1, 4)}"])
    listed = ", ".join(items)
    named = ""
    if draw.random() < 0.3:
        listed, late = (each.replace(over, "OVER w") for each in (listed, late))
        named = f" WINDOW w AS ({over.removeprefix('OVER (')}"
    inner = f"SELECT who, ward, {listed} FROM visits{where}{named}{late}"
    by = draw.choice(["w0", "w1", "w0, ward", "w1, ward"])
    test = draw.choice(["", " WHERE w0 IS NOT NULL", " WHERE w0 IS NULL OR ward = 'a'"])
    what = draw.choice(["COUNT(*)", "COUNT(DISTINCT who)"])
    return f"SELECT {by}, {what} FROM ({inner}) AS v{test} GROUP BY {by}"


def draw_framed(draw: random.Random, part: str, way: str) -> str:
    """A window over some rows around each row."""
    ends = ["UNBOUNDED PRECEDING", "3 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING"]
    ends += ["4 FOLLOWING", "UNBOUNDED FOLLOWING"]
    place = draw.randrange(6)
    first, last = ends[place], draw.choice(ends[max(place, 1) :])
    kind = draw.choice(["ROWS", "ROWS", "RANGE"])
    order = draw.choice(["age", "day"]) if kind == "RANGE" else "day"
    if order == "day" and kind == "RANGE":
        first, last = (
            re.sub(r"(\d)", lambda n: f"INTERVAL {5 * int(n[0])} DAY", end) for end in (first, last)
        )
    functions = ["COUNT(*)", "COUNT(age)", "SUM(age)", "MIN(age)", "MAX(day)"]
    if kind == "ROWS":
        functions += ["FIRST_VALUE(ward)", "LAST_VALUE(age)"]
    over = f"PARTITION BY {part} ORDER BY {order}{way} {kind} BETWEEN {first} AND {last}"
    return f"{draw.choice(functions)} OVER ({over})"


@pytest.mark.parametrize("seed", range(4))
def test_random_windows_equal_the_databases_own(world: World, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(8):
        check(world, draw_window(draw))


def test_first_rows_have_the_noise_of_one(world: World) -> None:
    connection, _ = world
    numbered = "SELECT *, ROW_NUMBER() OVER (PARTITION BY who ORDER BY day) AS k FROM visits"
    for inner, test, rows in (
        (numbered, "k = 1", "1 row"),
        (numbered, "k <= 2 AND age > 1", "2 rows"),
        (numbered, "k = 2 AND k < 3", "1 row"),
        (numbered.replace("BY who", "BY who, ward"), "k = 1", "4 rows"),
        (numbered, "k = 1 OR age = 1", "5 rows"),
        (numbered.replace("ROW_NUMBER", "RANK"), "k = 1", "5 rows"),
    ):
        sql = f"EXPLAIN SELECT ward, COUNT(*) FROM ({inner}) AS v WHERE {test} GROUP BY ward"
        forecast = "\n".join(row[0] for row in connection.execute(sql))
        assert f"at most {rows} of each who count" in forecast, (test, forecast)


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
        ("SELECT COUNT(*) FROM (SELECT who, ward || cost AS w FROM visits GROUP BY ALL) AS p",
         "E_AGGREGATE"),
        ("SELECT COUNT(*) FROM (SELECT who, MEDIAN(age) AS m FROM visits GROUP BY who) AS p",
         "E_AGGREGATE"),
        ("SELECT COUNT(*) FROM (SELECT who, age, COUNT(*) FROM visits GROUP BY who) AS p",
         "E_GROUP_BY"),
        ("SELECT COUNT(*) FROM (SELECT who FROM visits GROUP BY who LIMIT 3) AS p", "E_AGGREGATE"),
        ("SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM visits x WHERE x.age = v.age)",
         "E_SUBQUERY"),
        ("SELECT COUNT(*) FROM visits WHERE age IN (SELECT age FROM visits)", "E_SUBQUERY"),
        ("SELECT COUNT(*) FROM visits v WHERE age > 3 OR EXISTS (SELECT 1 FROM visits x WHERE"
         " x.age = v.age)", "E_SUBQUERY"),
        ("SELECT COUNT(*) FROM visits WHERE who IN (SELECT age FROM visits)", "E_SUBQUERY"),
        *[
            (f"SELECT COUNT(*) FROM (SELECT {window} AS w FROM visits) AS v", "E_WINDOW")
            for window in (
                "ROW_NUMBER() OVER ()",
                "ROW_NUMBER() OVER (PARTITION BY ward ORDER BY who)",
                "ROW_NUMBER() OVER (PARTITION BY who ORDER BY ward)",
                "ROW_NUMBER() OVER (PARTITION BY who ORDER BY cost % 7)",
                "ROW_NUMBER() OVER (PARTITION BY who ORDER BY sqrt(cost))",
                "ROW_NUMBER() OVER (PARTITION BY who, cost)",
                "ROW_NUMBER() OVER nowhere",
                "LAG(age, 20) OVER (PARTITION BY who ORDER BY day)",
                "LAG(age, 1, 0) OVER (PARTITION BY who ORDER BY day)",
                "LAG(cost % 2) OVER (PARTITION BY who ORDER BY day)",
                "SUM(ward) OVER (PARTITION BY who)",
                "MIN(ward) OVER (PARTITION BY who ORDER BY day)",
                "NTILE(3) OVER (PARTITION BY who)",
                "COUNT(*) OVER (PARTITION BY who ORDER BY day GROUPS 1 PRECEDING)",
                "COUNT(*) OVER (PARTITION BY who ORDER BY day, age RANGE 1 PRECEDING)",
                "SUM(age) OVER (PARTITION BY who ORDER BY day ROWS 1.5 PRECEDING)",
                "COUNT(*) OVER (PARTITION BY who ORDER BY day RANGE INTERVAL 1 MONTH PRECEDING)",
                "COUNT(*) OVER (PARTITION BY who ORDER BY day"
                " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE TIES)",
                "COUNT(*) FILTER (WHERE age > 1) OVER (PARTITION BY who)",
            )
        ],
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


def test_rows_are_not_compared_within_cells(tmp_path: Path) -> None:
    months = CATALOG.replace('"2024-02-29"],', '"2024-02-29"], by = "month",')
    tables: Tables = {"visits": ("who BIGINT, ward VARCHAR, age BIGINT, cost DOUBLE, day DATE", [])}
    later = "SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM visits x WHERE x.who = v.who"
    with open_tables(tmp_path, months, tables) as (connection, _):
        with pytest.raises(dpsql.Error) as caught:
            connection.explain(f"{later} AND x.age > v.age AND x.day > v.day)")
        assert (caught.value.code, "cells hold many" in str(caught.value)) == ("E_BIN_EDGE", True)
        span = caught.value.span
        assert span is not None
        assert span.text[span.start : span.end] == "x.day > v.day"
        connection.explain(f"{later} AND date_trunc('year', x.day) = date_trunc('year', v.day))")


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
    "SELECT COUNT(*) FROM (SELECT ward, ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY day)"
    " AS k FROM visits WHERE ward <> 'c') AS v WHERE k = 1",
    "SELECT COUNT(*) FROM (SELECT kind, ROW_NUMBER() OVER (PARTITION BY patient_id, kind"
    " ORDER BY price DESC) AS k FROM lines) AS v WHERE k <= 2",
    "SELECT gap, COUNT(*) FROM (SELECT day - LAG(day) OVER (PARTITION BY patient_id ORDER BY day)"
    " AS gap, COUNT(*) OVER (PARTITION BY patient_id) AS n FROM visits QUALIFY n > 1) AS v"
    " GROUP BY gap",
    "SELECT COUNT(*) FROM (SELECT ward AS k, day AS x FROM visits UNION ALL SELECT kind, NULL"
    " FROM lines WHERE price >= 2 UNION ALL SELECT 'p', age FROM patients) AS u",
    "SELECT COUNT(*) FROM (SELECT patient_id, ward FROM visits UNION SELECT patient_id, kind FROM"
    " lines) AS u",
    "SELECT COUNT(*) FROM (SELECT patient_id FROM patients EXCEPT SELECT patient_id FROM visits"
    " WHERE ward = 'a') AS u",
    "SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM lines INTERSECT SELECT"
    " patient_id FROM visits WHERE day > 3)",
    "SELECT COUNT(*) FROM visits v WHERE ward = 'b' OR patient_id NOT IN (SELECT patient_id FROM"
    " lines WHERE kind = 'x') OR EXISTS (SELECT 1 FROM lines l WHERE l.visit_id = v.visit_id)",
    "SELECT CASE WHEN EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND day > 3)"
    " THEN 'late' END AS k, COUNT(*) FROM patients p GROUP BY k",
    "SELECT k, COUNT(*) FROM (SELECT v.patient_id, w.k, COUNT(*) AS n FROM visits v JOIN (VALUES"
    " ('a', 1), ('b', 2)) AS w(ward, k) ON w.ward = v.ward GROUP BY ALL) AS p GROUP BY k",
    "SELECT k, COUNT(*) FROM (SELECT kind, ward AS k FROM lines LEFT JOIN (VALUES ('x', 'a')) AS"
    " w(kind_of, ward) ON kind_of = kind UNION ALL SELECT ward, 'c' FROM visits) AS u GROUP BY k",
    "SELECT COUNT(*) FROM (SELECT patient_id, day // 3 AS d, SUM(DISTINCT day) AS s FROM visits"
    " GROUP BY ALL) AS p",
    "SELECT k, COUNT(*) FROM (SELECT patient_id, k, ROW_NUMBER() OVER (PARTITION BY patient_id"
    " ORDER BY day, k) AS r FROM visits CROSS JOIN (VALUES (1), (2), (4)) AS u(k)) AS p GROUP BY k",
    "SELECT n, COUNT(*) FROM (SELECT patient_id, f, COUNT(*) AS n FROM lines LEFT JOIN (VALUES"
    " ('x', 1), ('x', 2), ('y', 2)) AS w(kind_of, f) ON kind_of = kind GROUP BY ALL) AS p"
    " GROUP BY n",
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
