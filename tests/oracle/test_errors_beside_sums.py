"""Counts beside sums: whatever is measured together, errors are those of plain noise at most.

A row adds one to a count and tens of thousands to the nodes of a sum. Where blocks of both are paid
for together, each has noise of its own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from tests.support.effort import IS_LARGE
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-9

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
age = { type = "integer", domain = [0, 6] }
g = { type = "integer", domain = [0, 3] }
spent = { type = "number", bounds = [0, 1] }
paid = { type = "number", bounds = [0, 1] }
"""
ASKED = (
    *("COUNT(*) FILTER (WHERE age < 2 AND g = 1)", "SUM(spent) FILTER (WHERE g = 2)"),
    *("COUNT(*) FILTER (WHERE age < 3)", "SUM(paid) FILTER (WHERE age = 1)"),
    *("SUM(spent * paid)", "SUM(age * spent)", "COUNT(*) FILTER (WHERE g = 1)"),
)
TRIPLES = [[ASKED[(at + step) % 7] for step in (0, 1, 3)] for at in range(7)]
"""Every two of the seven stand beside each other in one of the lines of Fano's plane."""
EPSILON = 0.1


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rng = random.Random(3)
    rows = [(rng.randrange(7), rng.randrange(4), rng.random(), rng.random()) for _ in range(50)]
    tables: Tables = {"t": ("age BIGINT, g BIGINT, spent DOUBLE, paid DOUBLE", rows)}
    with open_tables(tmp_path_factory.mktemp("beside"), CATALOG, tables) as world:
        yield world


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("asked", [*itertools.combinations(ASKED, 3)] if IS_LARGE else TRIPLES)
def test_no_answer_is_worse_than_with_plain_noise(
    world: World, noise: str, asked: Sequence[str]
) -> None:
    connection, _ = world
    connection.execute(f"SET noise = {noise}")
    connection.execute(f"SET epsilon = {EPSILON}")
    connection.execute("SET delta = 1e-9" if noise == "gaussian" else "SET delta = 0")
    told = ", ".join(f"DP_STDDEV({each})" for each in asked)
    found = connection.execute(f"SELECT {', '.join(asked)}, {told} FROM t").fetchone()
    assert found is not None
    plain = len(asked) / EPSILON * (2**0.5 if noise == "laplace" else 10)
    for each, error in zip(asked, found[3:], strict=True):
        assert error < 1.5 * plain * (6 if "age * spent" in each else 1)
