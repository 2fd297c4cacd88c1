"""Differential oracle for CTEs, views, sub-queries, joins and set operations, without noise.

Every group of the data has rows, so that answers equal DuckDB's own row by row.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import IS_LARGE, effort
from tests.support.seam import zero_noise
from tests.support.tables import BANDS, Tables, World, open_tables, statements_of

pytestmark = pytest.mark.slow

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 5] }
b = { type = "text", domain = ["x", "y"], null = true }
c = { type = "boolean", domain = [false, true] }
m = { type = "integer", bounds = [0, 8] }

[table.bands]
source = "bands.parquet"
public = true

[table.bands.column]
lo = { type = "integer" }
hi = { type = "integer" }
name = { type = "text" }

[view.old]
sql = "SELECT a // 2 AS pair, b, c AS flag, m FROM t WHERE a > 1"

[view.flags]
sql = "SELECT flag, COUNT(*) AS n FROM old GROUP BY flag"
"""
NOISES = ("laplace", "gaussian", "auto")
KEYS = effort(6)
"""Random keys over several columns."""
STATEMENTS = statements_of(Path(__file__).with_name("shapes.sql"))


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    """A connection to small tables and views, and the database with the same."""
    rng = random.Random(11)
    cells = list(itertools.product(range(6), ("x", "y", None), (False, True)))
    rows = [(*cell, rng.randrange(9)) for cell in cells for _ in range(rng.randrange(1, 9))]
    tables: Tables = {"t": ("a BIGINT, b VARCHAR, c BOOLEAN, m BIGINT", rows), "bands": BANDS}
    with open_tables(folder, CATALOG, tables) as (connection, database):
        for name, view in connection.catalog.views.items():
            database.execute(f"CREATE VIEW {name} AS {view.sql}")
        yield connection, database


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("shapes")) as world, zero_noise():
        world[0].set("epsilon", "100")  # small groups are above what noise alone makes likely
        yield world


@pytest.mark.parametrize("sql", STATEMENTS)
def test_shapes_equal_the_databases_own(world: World, sql: str) -> None:
    connection, database = world
    noise = NOISES[STATEMENTS.index(sql) % len(NOISES)]
    result = connection.execute(sql, noise=noise, delta=1e-9).result
    found = [tuple(map(settle, row)) for row in result.rows]
    expected = [tuple(map(settle, row)) for row in database.execute(sql).fetchall()]
    if "ORDER BY" not in sql.rpartition(")")[2]:
        found, expected = sorted(found, key=repr), sorted(expected, key=repr)
    assert found == expected


@pytest.mark.parametrize("name", ["STDDEV", "VAR_POP", "SKEWNESS", "KURTOSIS", "kurtosis_pop"])
def test_moments_of_huge_numbers_are_null_and_no_error(world: World, name: str) -> None:
    sql = f"SELECT {name}(n * {{}}) AS x FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q"
    (huge,), (large,) = (world[0].execute(sql.format(each)).result.rows for each in (1e300, 1e50))
    assert huge == (None,)
    assert large != (None,)


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "auto"])
def test_a_joint_workload_gives_the_same_answers(tmp_path: Path, noise: str) -> None:
    chosen = STATEMENTS[:: 6 if IS_LARGE else 15]
    with opened(tmp_path) as (connection, database), zero_noise():
        connection.set("epsilon", "100")
        connection.set("delta", "1e-9")
        connection.execute(f"SET noise = {noise}")
        cursor = connection.executescript(";\n".join(chosen))
        for sql in chosen:
            found = sorted((tuple(map(settle, row)) for row in cursor.result.rows), key=repr)
            rows = database.execute(sql).fetchall()
            assert found == sorted((tuple(map(settle, row)) for row in rows), key=repr), sql
            cursor.nextset()
        assert connection.budget.entries == 1


def coupled_key(rng: random.Random) -> str:
    """A random expression over two or three of the columns a, b and c."""
    some = ("a", "a + 1", "a % 3", "-a", "a // 2")
    numbers = [*some, "CASE WHEN c THEN 1 ELSE 0 END", "length(b)", str(rng.randrange(5))]
    one, other = (rng.choice(numbers) for _ in "12")
    tests = [
        f"{one} < {other}",
        f"{one} = {other}",
        "b = 'x'",
        "c",
        "b IS NULL",
        f"a IN (1, {one})",
    ]
    test, more = (rng.choice(tests) for _ in "12")
    texts = ["b", "a::VARCHAR", "'z'", "coalesce(b, 'none')", "CASE WHEN c THEN 'yes' END"]
    text, rest, last = (rng.choice(texts) for _ in "123")
    joined = rng.choice([f"{text} || '-' || a", f"concat({text}, '/', b, c)"])
    return rng.choice(
        [
            f"{rng.choice(some)} {rng.choice('+-*')} {other} + CASE WHEN c THEN 2 ELSE 0 END",
            joined,
            f"CASE WHEN {test} AND a > 2 THEN {text} WHEN {more} THEN {rest} ELSE {last} END",
            f"CASE WHEN {test} THEN {text} WHEN {more} OR c THEN {rest} END",
            f"({test} AND a > 1) OR ({more} AND b <> 'y')",
            f"greatest({rng.choice(some)}, {other}, CASE WHEN c THEN 3 END)",
            "coalesce(b, CASE WHEN a > 2 THEN 'big' END)",
        ]
    )


@pytest.mark.parametrize("seed", range(KEYS))
def test_keys_over_several_columns_are_the_databases_own(world: World, seed: int) -> None:
    connection, database = world
    rng = random.Random(seed)
    keys = [coupled_key(rng) for _ in range(rng.choice((1, 1, 2)))]
    items = [f"{key} AS k{number}" for number, key in enumerate(keys)]
    items += [item for item in ("b", "c", "a % 2 AS odd") if rng.random() < 0.2]
    places = ", ".join(str(place + 1) for place in range(len(items)))
    aggregates = ["COUNT(*) AS n", "SUM(m)", "AVG(m)", "COUNT(*) FILTER (WHERE c)", "n * 2", "k0"]
    items += aggregates[: rng.randrange(1, 7)]
    source = rng.choice(["t", "(SELECT * FROM t) AS s", "t JOIN bands ON a BETWEEN lo AND hi"])
    group = places if "k0" in items else rng.choice(["ALL", places])
    sql = f"SELECT {', '.join(items)} FROM {source} GROUP BY {group} HAVING COUNT(*) > 0"
    result = connection.execute(sql, noise="laplace").result
    found = sorted((tuple(map(settle, row)) for row in result.rows), key=repr)
    rows = database.execute(sql).fetchall()
    assert found == sorted((tuple(map(settle, row)) for row in rows), key=repr), sql


def settle(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | dt.date):
        return value
    if isinstance(value, list):
        return [settle(each) for each in value]
    return round(float(value), 4) + 0.0
