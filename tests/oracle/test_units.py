"""COUNT(DISTINCT unit) counts each person once in every group, whatever cells the groups share."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import dpsql
from tests.support.oracle import compare
from tests.support.seam import zero_noise
from tests.support.statements import Measured, Statement
from tests.support.tables import World, open_tables

pytestmark = pytest.mark.slow

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-6

[table.visits]
source = "visits.parquet"
privacy_unit = {{ column = "pid", max_rows = {most} }}

[table.visits.column]
yr = {{ type = "integer", domain = [2018, 2023] }}
ward = {{ type = "text", domain = ["A", "B", "C"] }}
stay = {{ type = "integer", domain = [0, 7] }}

[view.late]
sql = "SELECT * FROM visits WHERE yr > 2020"
"""
BANDS = "(VALUES (2018, 2019, 'x'), (2018, 2021, 'y'), (2020, 2023, 'z')) b(lo, hi, g)"
MANY = "(VALUES (2018, 'x'), (2018, 'x'), (2019, 'x'), (2021, 'y'), (1999, 'none')) b(y, g)"
WARDS = "(VALUES ('A', 1), ('B', 1), ('B', 2), ('C', 2)) w(ward, side)"
N = "COUNT(DISTINCT pid) AS n"

STATEMENTS = [
    f"SELECT {N} FROM visits WHERE yr BETWEEN 2021 AND 2022",
    f"SELECT {N} FROM visits WHERE yr IN (2018, 2020, 2023) AND NOT ward = 'A'",
    f"SELECT ward, {N} FROM visits WHERE yr NOT IN (2018, 2020) GROUP BY ward",
    f"SELECT yr > 2020 AS late, {N}, COUNT(*) AS m FROM visits GROUP BY 1",
    f"SELECT g, {N}, COUNT(*) AS m FROM visits JOIN {BANDS} ON yr BETWEEN lo AND hi GROUP BY g",
    f"SELECT lo, ward, {N} FROM visits JOIN {BANDS} ON yr BETWEEN lo AND hi GROUP BY lo, ward",
    f"SELECT g, {N}, COUNT(*) AS m FROM visits JOIN {MANY} ON yr = y GROUP BY g",
    f"SELECT side, {N} FROM visits JOIN {WARDS} USING (ward) WHERE side = 2 OR yr = 2020"
    " GROUP BY side",
    f"SELECT g, side, {N} FROM visits JOIN {WARDS} USING (ward) JOIN {BANDS} ON yr BETWEEN lo AND"
    " hi GROUP BY g, side",
    f"SELECT {N} FROM visits WHERE yr = 2018 OR ward = 'B' OR stay > 5",
    f"SELECT ward, {N} FROM visits WHERE NOT (yr = 2018 AND stay < 3) GROUP BY ward",
    f"SELECT yr, {N} FROM visits WHERE stay + 2017 > yr GROUP BY yr",
    "SELECT ward, COUNT(DISTINCT pid) FILTER (WHERE yr < 2021) AS a, COUNT(DISTINCT CASE WHEN stay"
    " > 3 THEN pid END) AS b, COUNT(DISTINCT IF(stay > 3, pid, NULL)) AS c FROM visits GROUP BY 1",
    f"SELECT ward, yr, {N} FROM visits GROUP BY CUBE (ward, yr)",
    f"SELECT ward, yr, {N} FROM visits WHERE stay < 4 GROUP BY ROLLUP (ward, yr)",
    f"SELECT {N} FROM visits WHERE yr < 2020 UNION ALL SELECT {N} FROM visits WHERE yr < 2022",
    f"WITH v AS (SELECT * FROM visits) SELECT {N} FROM v",
    f"WITH v AS (SELECT *, stay * 2 AS twice FROM visits WHERE yr > 2019), w AS (SELECT * FROM v)"
    f" SELECT ward, {N} FROM w WHERE twice > 4 GROUP BY ward",
    f"SELECT {N} FROM (SELECT v.* FROM visits v WHERE stay > 2) q",
    "SELECT COUNT(DISTINCT q.who) AS n FROM (SELECT pid AS who, yr FROM visits) q WHERE yr = 2019",
    "SELECT COUNT(DISTINCT v.pid) AS n FROM visits AS v WHERE v.yr BETWEEN 2019 AND 2021",
    f"SELECT g, {N} FROM (SELECT * FROM visits WHERE stay > 1) v JOIN {BANDS} ON yr BETWEEN lo AND"
    " hi GROUP BY g",
    f"SELECT {N} FROM late WHERE ward <> 'A'",
    "SELECT ward, COUNT(*) / COUNT(DISTINCT pid) AS r FROM visits GROUP BY ward"
    " HAVING COUNT(DISTINCT pid) > 5 ORDER BY COUNT(DISTINCT pid) DESC, ward",
    f"SELECT a.n - b.n AS d FROM (SELECT {N} FROM visits) a, (SELECT {N} FROM visits WHERE"
    " yr < 2021) b",
    f"SELECT {N} FROM visits WHERE yr = 2018 AND yr = 2019",
    f"SELECT {N} FROM visits WHERE NOT (stay > 2 OR ward = 'A') AND stay = 5 AND ward = 'A'",
]


@pytest.fixture(scope="module", params=[1, 3])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Persons with one visit each, or with up to three."""
    folder, most = tmp_path_factory.mktemp("units"), request.param
    draw = random.Random(most)
    rows = [
        (f"p{person}", draw.randrange(2018, 2024), draw.choice("ABC"), draw.randrange(8))
        for person in range(90)
        for _ in range(draw.randint(1, most))
    ]
    draw.shuffle(rows)
    visits = ("pid VARCHAR, yr INT, ward VARCHAR, stay INT", rows)
    with open_tables(folder, CATALOG.format(most=most), {"visits": visits}) as world:
        world[1].execute("CREATE VIEW late AS SELECT * FROM visits WHERE yr > 2020")
        yield world


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("sql", STATEMENTS)
def test_units_are_counted_as_sql_counts_them(world: World, sql: str, noise: str) -> None:
    connection, database = world
    connection.set("noise", noise)
    connection.set("delta", "0" if noise == "laplace" else "1e-9")
    connection.set("fresh", "on")
    with zero_noise():
        found = connection.execute(sql).result
    keys = sum(name not in ("n", "m", "a", "b", "c", "r", "d") for name in found.columns)
    measured = (Measured(""),) * (len(found.columns) - keys)
    compare(Statement(sql, keys, measured, "ORDER BY" in sql), found, database, 300)


def test_all_ranges(world: World) -> None:
    connection, database = world
    with zero_noise():
        found = connection.execute(f"SELECT DP_RANGES(yr) AS r, {N} FROM visits GROUP BY 1").result
    assert len(found.rows) == 21
    for name, number in found.rows:
        low, high = name.strip("[]").split(", ")
        sql = f"SELECT {N} FROM visits WHERE yr BETWEEN {low} AND {high}"
        assert round(number, 6) == database.execute(sql).fetchall()[0][0]


def test_one_row_per_unit_is_counted_as_rows_with_the_rows_budget(world: World) -> None:
    connection, _ = world
    sql = "SELECT yr, COUNT(*) AS m, COUNT(DISTINCT pid) AS n FROM visits GROUP BY yr"
    rows, units = connection.explain(sql).statements[0].errors
    is_one = connection.catalog.tables["visits"].unit.max_rows == 1
    assert (rows.rmse == units.rmse) is is_one


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT COUNT(DISTINCT pid) FROM visits JOIN (VALUES (2018, 1)) b(y, pid) ON yr = y",
         "E_UNKNOWN_COLUMN"),
        ("SELECT COUNT(DISTINCT CASE WHEN yr > 2019 THEN pid ELSE 'x' END) FROM visits",
         "E_AGGREGATE"),
        ("WITH v AS (SELECT * FROM visits) SELECT pid, COUNT(*) FROM v GROUP BY pid",
         "E_DOMAIN"),
    ],
)  # fmt: skip
def test_other_columns_are_not_taken_for_the_unit(world: World, sql: str, code: str) -> None:
    with pytest.raises(dpsql.Error) as error:
        world[0].explain(sql)
    assert error.value.code == code


def test_values_of_public_rows_are_not_taken_for_units(world: World) -> None:
    """A public column of the unit's name: its values count, which are one, and not people."""
    connection, _ = world
    pairs = "(VALUES (2018, 1), (2019, 1)) b(y, pid)"
    sql = f"SELECT COUNT(DISTINCT b.pid) FROM visits JOIN {pairs} ON yr = y"
    assert connection.execute(sql, epsilon=50).fetchall() == [(1,)]


def test_equal_counts_are_measured_once(world: World) -> None:
    """Two sub-queries of the same count agree: nothing is lost to measuring it again."""
    connection, _ = world
    connection.set("fresh", "on")
    sql = f"SELECT {N} FROM visits WHERE yr > 2019"
    twice = f"SELECT a.n - b.n AS d FROM ({sql}) a, ({sql}) b"
    assert connection.execute(twice).fetchall() == [(0.0,)]
