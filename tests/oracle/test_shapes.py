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

from tests.support.seam import zero_noise
from tests.support.tables import BANDS, Tables, World, open_tables, statements_of

pytestmark = pytest.mark.slow

CATALOG = """
[budget]
epsilon = 1000
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


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "auto"])
def test_a_joint_workload_gives_the_same_answers(tmp_path: Path, noise: str) -> None:
    chosen = STATEMENTS[::6]
    with opened(tmp_path) as (connection, database), zero_noise():
        connection.set("delta", "1e-9")
        connection.execute(f"SET noise = {noise}")
        cursor = connection.executescript(";\n".join(chosen))
        for sql in chosen:
            found = sorted((tuple(map(settle, row)) for row in cursor.result.rows), key=repr)
            rows = database.execute(sql).fetchall()
            assert found == sorted((tuple(map(settle, row)) for row in rows), key=repr), sql
            cursor.nextset()
        assert connection.budget.entries == 1


def settle(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | dt.date):
        return value
    return round(float(value), 4) + 0.0
