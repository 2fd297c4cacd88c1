"""What a release on cells of several columns says of each: all of it, or nothing, never half."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest

from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 10000

[table.t]
source = "t.parquet"
privacy_unit = "row"
complete = true

[table.t.column]
a = { type = "integer", domain = [0, 11] }
b = { type = "text", domain = ["x", "y", "z", "zz"] }
"""
KEYS = ("b", "length(b)", "b = 'x'", "a // 4", "a > 5", "a")
AGGREGATES = (
    *("SUM(a)", "SUM(a // 4)", "AVG(a)", "SUM(CASE WHEN a > 3 THEN 2 ELSE 1 END)"),
    *("COUNT(*)", "COUNT(*) FILTER (WHERE a > 5)", "COUNT(*) FILTER (WHERE a > 3 OR b = 'x')"),
)
COUPLED = ("a > {} OR b = 'x'", "NOT (a < {} OR b <> 'y')", "a > {} + length(b)", "a % 3 > {} - 5")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rng = random.Random(5)
    cells = product(range(12), ("x", "y", "z", "zz"))
    rows = [cell for cell in cells for _ in range(rng.randrange(1, 9))]
    tables: Tables = {"t": ("a BIGINT, b VARCHAR", rows)}
    with open_tables(tmp_path_factory.mktemp("pairs"), CATALOG, tables) as world, zero_noise():
        yield world


@pytest.mark.parametrize("seed", range(12))
def test_answers_read_off_pairs_of_columns_are_the_databases_own(world: World, seed: int) -> None:
    connection, database = world
    rng = random.Random(seed)
    key, coupled = rng.choice(KEYS), rng.choice(COUPLED).format(rng.randrange(3, 8))
    connection.set("reuse", "never")
    connection.set("mechanism", "auto")
    connection.execute(
        f"SELECT {key} AS k, COUNT(*) FILTER (WHERE {coupled}) AS n, COUNT(*) FROM t GROUP BY k"
    )
    connection.set("reuse", "always")
    connection.set("mechanism", "identity")
    for _ in range(4):
        items = ", ".join(rng.sample(AGGREGATES, 3))
        sql = f"SELECT {rng.choice(KEYS)} AS k, {items} FROM t GROUP BY k ORDER BY k"
        found, known = (each.execute(sql).fetchall() for each in (connection, database))
        assert [tuple(map(round_off, row)) for row in found] == [
            tuple(map(round_off, row)) for row in known
        ], sql


def round_off(value: float | str) -> float | str:
    """Numbers as they are but for the last digits."""
    return value if isinstance(value, str) else round(float(value), 6)
