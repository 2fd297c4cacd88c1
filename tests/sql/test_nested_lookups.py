"""Sub-queries by the unit on several levels of one statement, under names that dpsql also makes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.suites.suite import compared
from tests.support.seam import zero_noise
from tests.support.tables import World, stored_world

CATALOG = """
[budget]
epsilon = 100000
[unit.person]
[table.people]
source = "people.parquet"
privacy_unit = { column = "id", max_rows = 1 }
[table.people.column]
g = { type = "text", domain = ["a", "b"] }
[table.stays]
source = "stays.parquet"
privacy_unit = { column = "id", max_rows = 3 }
references = { people = "id" }
[table.stays.column]
ward = { type = "integer", domain = [0, 2] }
"""
TABLES = """
CREATE TABLE people AS SELECT i AS id, CASE WHEN i % 3 > 0 THEN 'a' ELSE 'b' END AS g
    FROM range(60) r(i);
CREATE TABLE stays AS SELECT i % 37 AS id, i * i % 7 % 3 AS ward FROM range(100) r(i);
"""
NAMES = ("v", "k0", "k1", "c0", "a0", "n0", "q", "r", "m", "s", "i", "x0", "p0", "n", "w", "t")
"""What columns and tables are called in statements that are made from others."""

ROUNDS = 40


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("nested")
    with stored_world(folder, TABLES, ("people", "stays"), CATALOG) as found, zero_noise():
        yield found


def statement(rng: random.Random) -> str:
    """One to three counts of stays, each in a SELECT of its own, or beside another in WHERE."""
    names = rng.sample(NAMES, len(NAMES))
    inner, known = "people", ["g"]
    for _ in range(rng.randint(1, 2)):
        alias, around, column = names.pop(), names.pop(), names.pop()
        count = counted(rng, alias, around)
        inner = f"(SELECT id, {', '.join(known)}, {count} AS {column} FROM {inner} AS {around})"
        known.append(column)
    alias, around = names.pop(), names.pop()
    tests = [f"{counted(rng, alias, around)} {rng.choice(('>', '=', '<'))} {rng.randint(0, 2)}"]
    tests += [f"{known[-1]} > 0"] * rng.randint(0, 1)
    by = ", ".join(rng.sample(known, rng.randint(1, 2)))
    where = f"WHERE {' AND '.join(tests)} " * rng.randint(0, 1)
    return f"SELECT {by}, COUNT(*) FROM {inner} AS {around} {where}GROUP BY {by}"


def counted(rng: random.Random, alias: str, around: str) -> str:
    ward = f" AND {alias}.ward = {rng.randint(0, 2)}" * rng.randint(0, 1)
    return f"(SELECT COUNT(*) FROM stays AS {alias} WHERE {alias}.id = {around}.id{ward})"


@pytest.mark.parametrize("seed", range(4))
def test_they_are_what_duckdb_answers(world: World, seed: int) -> None:
    connection, database = world
    rng = random.Random(seed)
    for sql in (statement(rng) for _ in range(ROUNDS // 4)):
        result = connection.execute(sql).result
        found = compared(result, database.execute(sql).fetchall(), 1e-4)
        assert found is None, f"{found}\n{sql}"
