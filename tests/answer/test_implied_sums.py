"""Sums, squares and counts of one measure are one thing: what holds them answers each, free.

A release of any of them has nodes of the measure. Everything that is a combination of what these
nodes hold is read off it, exactly, whichever statement it was measured for.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsql.answer import implied
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import World, open_tables

CATALOG = """
[budget]
epsilon = 100000

[table.t]
source = "t.parquet"
privacy_unit = "row"
complete = true

[table.t.column]
g = { type = "integer", domain = [0, 2] }
years = { type = "integer", domain = [0, 60] }
score = { type = "number", domain = [0, 90], bins = 9 }
x = { type = "number", bounds = [10, 40] }
y = { type = "number", bounds = [-5, 5], null = true }
"""
MOMENTS = {
    "SUM({0})": 1,
    "AVG({0})": 1,
    "SUM({0} - 20) + 2 * COUNT({0})": 1,
    "VAR_SAMP({0})": 2,
    "STDDEV_POP({0})": 2,
    "SUM({0} * {0})": 2,
}
"""Answers by the degree of what they are made of."""
WHOLE = ("AVG({0})", "VAR_SAMP({0})", "STDDEV_POP({0})")
"""Those that hold all moments of their degree and of lower ones."""
SEEDS = range(effort(3))


@pytest.fixture(scope="module")
def rows() -> list[tuple[object, ...]]:
    draw = random.Random(7)
    return [
        (
            draw.randrange(3),
            draw.randint(0, 60),
            draw.uniform(0, 90),
            draw.uniform(10, 40),
            draw.choice([None, draw.uniform(-5, 5)]),
        )
        for _ in range(400)
    ]


@pytest.fixture
def world(tmp_path: Path, rows: list[tuple[object, ...]]) -> Iterator[World]:
    columns = "g BIGINT, years BIGINT, score DOUBLE, x DOUBLE, y DOUBLE"
    with open_tables(tmp_path, CATALOG, {"t": (columns, rows)}) as found, zero_noise():
        found[0].set("reuse", "always")
        yield found


def pairs_of(column: str) -> list[tuple[str, str]]:
    """Statements of which the first holds all that the second asks."""
    found = []
    for one, (two, degree) in itertools.product(WHOLE, MOMENTS.items()):
        if MOMENTS[one] >= degree and one != two:
            found.append((one.format(column), two.format(column)))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_measure_holds_is_read_off(world: World, seed: int) -> None:
    connection, database = world
    draw = random.Random(seed)
    for column in ("x", "years", "score", "y"):
        first, then = draw.choice(pairs_of(column))
        inner, outer = draw.choice([("g", "g"), ("g", ""), ("", "")])
        held = f"SELECT {inner or 1} AS k, {first} AS a FROM t GROUP BY k"
        asked = f"SELECT {outer or 1} AS k, {then} AS a FROM t GROUP BY k"
        if not inner:
            held, asked = f"SELECT {first} AS a FROM t", f"SELECT {then} AS a FROM t"
        elif not outer:
            asked = f"SELECT {then} AS a FROM t"
        connection.set("reuse", "never")
        connection.execute(held)
        connection.set("reuse", "always")
        assert connection.explain(asked).free, (held, asked)
        told = sorted(connection.execute(asked).fetchall())
        for one, two in zip(told, sorted(database.execute(asked).fetchall()), strict=True):
            assert one == pytest.approx(two, rel=1e-4), (held, asked)


def test_what_is_not_held_is_not_read_off(world: World) -> None:
    connection, _ = world
    connection.execute("SELECT AVG(x) AS a FROM t")
    for other in (
        "SELECT VAR_POP(x) AS a FROM t",
        "SELECT g, AVG(x) AS a FROM t GROUP BY g",
        "SELECT SUM(y) AS a FROM t",
        "SELECT SUM(x * y) AS a FROM t",
        "SELECT SUM(x) AS a FROM t WHERE score < 30",
    ):
        assert not connection.explain(other).free, other


def test_nodes_that_are_not_looked_at_are_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, _ = world
    connection.execute("SELECT VAR_POP(x) AS v FROM t")
    assert connection.explain("SELECT AVG(x) AS a FROM t").free
    monkeypatch.setattr(implied, "spans", lambda *asked: False)
    assert not connection.explain("SELECT AVG(x) AS a FROM t").free
