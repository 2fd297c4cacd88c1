"""Integers to SQL are integers wherever they are told, whatever the plan, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.answer.result import Result
from dpsql.answer.sql_types import ROUNDING, told
from dpsql.dbapi.connection import Connection

KEYS = ("sex", "site", "age", "sex, site", "CUBE (sex, site)", "ROLLUP (site, sex)")
COUNTS = (
    *("COUNT(*)", "COUNT(*) FILTER (WHERE age < 4)", "COUNT_IF(site = 'east')", "SUM(age)"),
    *("COUNT(DISTINCT site)", "COUNT(age)", "SUM(CASE WHEN age > 2 THEN 1 ELSE 0 END)"),
)
ITEMS = (
    *("{a}", "{a} + {b}", "2 * {a} - {b}", "{a} * 0.5", "{a} / {b}", "ABS({a})", "ROUND({a})"),
    *("GREATEST({a}, {b}, 0)", "CASE WHEN {a} > 9 THEN {a} ELSE 0 END", "{a} // 7", "{a} % 7"),
    *("AVG(age)", "STDDEV(age)", "MEDIAN(age)", "QUANTILE_DISC(age, 0.5)", "MODE(age)"),
    *("RANK() OVER (ORDER BY {a})", "MAX({a}) OVER ()", "{a} - LAG({a}) OVER (ORDER BY {b})"),
    *("COALESCE(NULLIF({a}, 0), {b})", "{a} || ''", "CAST({a} AS DOUBLE)", "AVG({a}) OVER ()"),
    *("ROUND({a}, 1)", "TRUNC({a})", "FLOOR({a})", "-{a}", "{a} > {b}", "CAST({a} AS BIGINT)"),
)
CATALOG = """
[budget]
epsilon = 1e6
delta = 1e-6
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
site = { type = "text", domain = ["north", "east", "south"] }
age = { type = "integer", domain = [0, 7] }
"""
TAILS = ("", " ORDER BY 2 DESC", " HAVING COUNT(*) > 9", " LIMIT 3")
OUTER = (
    "SELECT * FROM ({})",
    "SELECT SUM(c0), MAX(c0), AVG(c0), COUNT(*) FROM ({})",
    "SELECT c0 + 1, c0 / 2 FROM ({})",
    "SELECT DISTINCT c0 FROM ({})",
    "WITH q AS ({}) SELECT q.c0 AS c0, (SELECT COUNT(*) FROM people) AS n FROM q",
    "SELECT c0 FROM ({0}) UNION ALL SELECT c0 FROM ({0})",
    "SELECT c0 FROM ({0}) UNION SELECT c0 FROM ({0})",
)
FAMILIES = {"BOOLEAN": "boolean", "VARCHAR": "text", "DOUBLE": "number", "DECIMAL": "number"}
FRAMES = {"integer": "int64", "number": "float64", "boolean": "bool"}
SETTINGS = (
    *({"noise": "laplace", "epsilon": "0.1"}, {"noise": "laplace", "epsilon": "90"}),
    *({"noise": "gaussian", "epsilon": "0.1"}, {"noise": "gaussian", "epsilon": "90"}),
)


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Connection]:
    """A small table: a plan takes milliseconds."""
    lines = [f"{'fm'[i % 2]},{('north', 'east', 'south')[i % 3]},{i % 8}" for i in range(240)]
    (tmp_path / "people.csv").write_text("\n".join(["sex,site,age", *lines, ""]))
    (tmp_path / "people.toml").write_text(CATALOG)
    with dpsql.connect(tmp_path / "people.toml", epsilon=1) as connection:
        connection.execute("SET delta = 1e-9")
        yield connection


def statement(draw: random.Random) -> str:
    """An ordinary SELECT with columns that are whole, or are not, or can be."""
    keys, tail = draw.choice(KEYS), draw.choice(TAILS)
    counts = [draw.choice(COUNTS) for _ in range(2)]
    chosen = draw.sample(ITEMS, draw.randrange(1, 4))
    items = [each.format(a=counts[0], b=counts[1]) for each in chosen]
    listed = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
    inner = f"SELECT {listed} FROM people GROUP BY {keys}{tail if len(items) > 1 else ''}"
    return inner if draw.random() < 0.6 else draw.choice(OUTER).format(inner)


def of_duckdb(database: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """The families of the types that DuckDB has for the columns of a statement."""
    found = [str(each[1]).split("(")[0] for each in database.execute(f"DESCRIBE {sql}").fetchall()]
    return [FAMILIES.get(each, "integer") for each in found]


def check(result: Result, kinds: list[str], sql: str) -> None:
    """Values, and the columns of a data frame, are of the types that are told."""
    assert list(result.types) == kinds, sql
    frame = result.df()
    for j, kind in enumerate(kinds):
        known = [row[j] for row in result.rows if row[j] is not None]
        own = {"integer": int, "number": float, "text": str, "boolean": bool}[kind]
        assert all(type(value) is own for value in known), sql
        if known and kind in FRAMES:
            assert str(frame.dtypes.iloc[j]).lower().replace("boolean", "bool") == FRAMES[kind], sql


def test_types_are_those_of_duckdb_at_every_epsilon_and_noise(people: Connection) -> None:
    draw, database, asked = random.Random(17), duckdb.connect(), 0
    database.execute("CREATE TABLE people (sex VARCHAR, site VARCHAR, age BIGINT)")
    people.execute("SET reuse = never")
    for turn in range(60):
        sql = statement(draw)
        for name, value in SETTINGS[turn % len(SETTINGS)].items():
            people.execute(f"SET {name} = {value}")
        people.execute(f"SET mechanism = '{('identity', 'auto')[turn % 10 == 0]}'")
        try:
            told_before = [each.type for each in people.describe(sql)]
            cursor = people.execute(sql)
        except dpsql.NotSupportedError:
            continue
        kinds = of_duckdb(database, sql)
        assert told_before == kinds, sql
        assert [each[1] for each in cursor.description or ()] == kinds, sql
        check(cursor.result, kinds, sql)
        asked += 1
    assert asked > 40


def test_a_column_is_the_estimate_rounded_once(people: Connection) -> None:
    people.execute("SET epsilon = 0.5")
    items = ("COUNT(*)", "SUM(age)", "2 * COUNT(*) - 1", "COUNT(*) FILTER (WHERE age < 4)")
    listed = ", ".join(f"{each}, ({each})::DOUBLE" for each in items)
    sql = f"SELECT site, {listed}, AVG(age) FROM people GROUP BY sex, site"
    (found, estimates) = (people.execute(sql).result for _ in range(2))
    assert found.rows == estimates.rows
    fractions = 0
    for j in range(1, 2 * len(items), 2):
        told_of, known = found.vectors[j], found.vectors[j + 1].numbers()
        assert [*told_of] == [round(each) for each in known]
        fractions += int((known % 1 != 0).sum())
        one, two = found.stddev[j], found.stddev[j + 1]
        assert one is not None
        assert two is not None
        np.testing.assert_allclose(one.numbers() ** 2, two.numbers() ** 2 + ROUNDING)
    assert fractions > 0


def test_what_a_plan_makes_whole_has_no_error_of_rounding(people: Connection) -> None:
    result = people.execute(
        "SELECT sex, COUNT(*), COUNT(*)::DOUBLE FROM people GROUP BY sex"
    ).result
    assert result.types == ("text", "integer", "number")
    assert result.stddev[1] == result.stddev[2]


def test_forecasts_are_the_errors_that_are_told(people: Connection) -> None:
    for sql in (
        "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
        "SELECT sex, COUNT(*) AS n, SUM(age) AS s FROM people GROUP BY sex",
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS n FROM people GROUP BY age",
    ):
        (forecast,) = people.explain(sql).statements
        result = people.execute(sql).result
        for column in forecast.errors:
            errors = result.stddev[result.columns.index(column.name)]
            assert errors is not None
            assert column.largest == pytest.approx(errors.numbers().max())


def test_targets_are_met_by_estimates(people: Connection) -> None:
    sql = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_stddev = 0.2) {} FROM people GROUP BY sex"
    result = people.execute(sql.format("COUNT(*) AS n, COUNT(*) + 1 AS m")).result
    assert result.types == ("integer", "integer")
    result = people.execute(sql.format("COUNT(*)::DOUBLE AS n, AVG(age) AS m")).result
    assert all(errors is not None and errors.numbers().max() <= 0.2 for errors in result.stddev)


@pytest.mark.parametrize("value", [2.0**70, -(2.0**63)])
def test_numbers_beyond_64_bits_are_integers_too(value: float) -> None:
    result = Result.of_rows(("n",), ("number",), [(value,)], ([1.0],), "")
    found = told(result, (True,), (True,))
    assert (found.types, found.rows) == (("integer",), ((int(value),),))


def test_halves_are_rounded_as_casts_do() -> None:
    values = [0.5, 1.5, -2.5, Decimal("2.5"), Decimal("-2.5"), None]
    result = Result.of_rows(("n",), ("number",), [(each,) for each in values], (None,), "")
    found = told(result, (True,), (False,))
    assert [row[0] for row in found.rows] == [0, 2, -2, 3, -3, None]


def test_an_earlier_release_gives_the_same_integers(people: Connection, tmp_path: Path) -> None:
    sql = "SELECT site, COUNT(*) AS n, AVG(age) AS m FROM people GROUP BY site"
    first = people.execute(sql).result
    with dpsql.connect(tmp_path / "people.toml", epsilon=1) as other:
        other.execute("SET delta = 1e-9")
        again = other.execute(sql).result
    assert again.cost is not None
    assert again.cost.free
    assert (again.rows, again.types, again.stddev) == (first.rows, first.types, first.stddev)
    assert type(again.rows[0][1]) is int


def test_rows_that_are_told_alike_are_one(people: Connection) -> None:
    people.execute("SET epsilon = 20")
    inner = "SELECT sex, site, COUNT(*) AS n, AVG(age) AS m FROM people GROUP BY sex, site"
    for sql in (
        f"SELECT DISTINCT n FROM ({inner})",
        f"SELECT n, COUNT(*) AS k FROM ({inner}) GROUP BY n",
        f"SELECT n FROM ({inner}) UNION SELECT n FROM ({inner})",
        f"SELECT n FROM ({inner}) INTERSECT SELECT n FROM ({inner})",
    ):
        found = [row[0] for row in people.execute(sql).fetchall()]
        assert len(found) == len(set(found)) < 6, sql


def test_sums_that_may_not_fit_in_64_bits_are_doubles(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("small,large\n1,9000000000000000\n")
    (tmp_path / "t.toml").write_text(
        '[budget]\nepsilon = 10\n[table.t]\nsource = "t.csv"\nprivacy_unit = "row"\n'
        "[table.t.column]\n"
        'small = { type = "integer", bounds = [0, 1000000] }\n'
        'large = { type = "integer", bounds = [0, 9000000000000000] }\n'
    )
    with dpsql.connect(tmp_path / "t.toml", epsilon=0.001) as connection:
        found = connection.describe("SELECT SUM(small), SUM(large), COUNT(large) FROM t")
        assert [each.type for each in found] == ["integer", "number", "integer"]
        values = connection.execute("SELECT SUM(large) FROM t").fetchone()
        assert values is not None
        assert isinstance(values[0], float)
