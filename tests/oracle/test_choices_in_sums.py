"""Sums of arithmetic over CASE, IF, COALESCE, LEAST, GREATEST and ABS of several columns."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from tests.suites.suite import compared
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import World

ROUNDS = effort(20)
CATALOG = """
[budget]
epsilon = 100000
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
a = { type = "integer", domain = [0, 5], null = true }
b = { type = "integer", domain = [-3, 4], null = true }
c = { type = "integer", domain = [0, 2] }
w = { type = "text", domain = ["x", "y", "z"], null = true }
m = { type = "number", bounds = [0, 10], bins = [0, 2, 5, 10], null = true }
q = { type = "number", bounds = [0, 10], null = true }
"""
TABLE = """
CREATE TABLE t AS SELECT CASE WHEN i % 7 > 0 THEN i % 6 END AS a,
    CASE WHEN i % 5 > 0 THEN i * 3 % 8 - 3 END AS b, i % 3 AS c,
    CASE WHEN i % 4 > 0 THEN ['x', 'y', 'z'][1 + i * i % 3] END AS w,
    CASE WHEN i % 11 > 0 THEN i % 10 END::DOUBLE AS m,
    CASE WHEN i % 3 > 0 THEN i % 8 END::DOUBLE AS q
FROM range(300) r(i)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("choices")
    with duckdb.connect() as database:
        database.execute(TABLE)
        database.execute(f"COPY t TO '{folder / 't.parquet'}' (FORMAT parquet)")
        (folder / "c.toml").write_text(CATALOG)
        with dpsql.connect(folder / "c.toml", epsilon=1) as connection:
            connection.set("mechanism", "identity")
            yield connection, database


def condition(draw: random.Random) -> str:
    return draw.choice(
        ["w = 'x'", "a > 2", "b < 0", "c = 1", "a IS NULL", "w IN ('x', 'y')", "a < b", "m < 5"]
    )


def value(draw: random.Random, depth: int) -> str:
    """A number over columns a, b, c, q, NULL, and choices between such."""
    if depth == 0:
        return draw.choice(["a", "b", "c", "1", "2.5", "q", "NULL", "NULLIF(1, 1)"])
    one, other = value(draw, depth - 1), value(draw, 0)
    return draw.choice(
        [
            f"({one} + {other})",
            f"({one} - {other})",
            f"(2 * {one})",
            f"(-{one})",
            f"CASE WHEN {condition(draw)} THEN {one} ELSE {other} END",
            f"CASE WHEN {condition(draw)} THEN {other} WHEN {condition(draw)} THEN {one} END",
            f"CASE w WHEN 'x' THEN {one} WHEN 'y' THEN {other} END",
            f"IF({condition(draw)}, {one}, NULL)",
            f"IF({condition(draw)}, {one}, {other})",
            f"COALESCE({one}, {other})",
            f"LEAST({one}, {other})",
            f"GREATEST({one}, {other})",
            f"ABS({one} - {other})",
        ]
    )


def test_sums_are_those_of_duckdb(world: World) -> None:
    connection, database = world
    draw, answered = random.Random(7), 0
    for _ in range(ROUNDS):
        kind = draw.choice(["SUM", "AVG", "COUNT", "SUM", "VAR_POP"])
        inner = value(draw, draw.choice([1, 2, 2]))
        by = draw.choice(["", " GROUP BY w", " GROUP BY c"])
        sql = f"SELECT {by.rpartition(' ')[2] + ', ' if by else ''}{kind}({inner}) AS s FROM t{by}"
        try:
            with zero_noise():
                result = connection.execute(sql).result
        except dpsql.Error:
            continue
        answered += 1
        found = compared(result, database.execute(sql).fetchall(), 1e-4)
        assert found is None, f"{sql}\n{found}"
    assert answered >= ROUNDS * 0.8, answered


MEASURED = [
    "SUM(LEAST(m, 5) * 2)",
    "SUM(2 * LEAST(m, 5) + c)",
    "SUM(c * GREATEST(m, 2))",
    "AVG(LEAST(m, 5) - 1)",
    "SUM(GREATEST(m, 2) - LEAST(m, 5))",
    "SUM(IF(w = 'x', m, 0))",
    "SUM(m * CASE WHEN c = 1 THEN 2 ELSE 1 END)",
    "SUM(CASE WHEN c = 1 THEN m END / 2)",
    "SUM(LEAST(m, 5)) / COUNT(*)",
    "2 * SUM(LEAST(m, 5))",
    "AVG(COALESCE(m, c))",
    "MEDIAN(IF(c = 1, a, NULL))",
    "QUANTILE_DISC(CASE WHEN w = 'x' THEN b END, 0.25)",
]


@pytest.mark.parametrize("what", MEASURED)
def test_measures_are_chosen_and_clipped_within_arithmetic(world: World, what: str) -> None:
    connection, database = world
    sql = f"SELECT c, {what} AS s FROM t GROUP BY c"
    with zero_noise():
        result = connection.execute(sql).result
    assert compared(result, database.execute(sql).fetchall(), 2e-3) is None


@pytest.mark.parametrize("of", ["w", "a", "c + 1", "CASE WHEN a > 2 THEN 'many' ELSE 'few' END"])
def test_entropy_is_that_of_duckdb(world: World, of: str) -> None:
    connection, database = world
    sql = f"SELECT c, ENTROPY({of}) AS bits, ENTROPY({of}) FILTER (WHERE b > 0) FROM t GROUP BY c"
    with zero_noise():
        result = connection.execute(sql).result
    rows = sorted(tuple(row) for row in result.rows)
    expected = sorted(database.execute(sql).fetchall())
    assert [row[1:] for row in rows] == [pytest.approx(row[1:], abs=1e-9) for row in expected]


def test_entropy_of_what_lists_no_values_is_refused(world: World) -> None:
    connection, _ = world
    before = connection.budget.entries
    for what in ("ENTROPY(m)", "ENTROPY(DISTINCT a)", "HISTOGRAM(a)"):
        with pytest.raises(dpsql.Error, match=r"E_AGGREGATE|E_FUNCTION|E_EXPR_IN_AGG"):
            connection.execute(f"SELECT {what} FROM t")
    assert connection.budget.entries == before
