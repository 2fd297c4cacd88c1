"""Whole numbers: integer arithmetic over noisy counts, rounding, and releases that are integers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.plan import Workload, select
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy
from dpsql.ui.formats import Style, encode
from dpsql.ui.grid import Grid
from tests.oracle.test_shapes import opened
from tests.support.effort import effort
from tests.support.grammar import verdict
from tests.support.seam import zero_noise
from tests.support.tables import World

STATEMENTS = effort(40)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("integers")) as (connection, database):
        connection.execute("SET mechanism = identity")
        yield connection, database


class Writer:
    """Draws integer arithmetic over counts and sums; divisors are never zero."""

    def __init__(self, rng: random.Random, atoms: tuple[str, ...]) -> None:
        self.rng = rng
        self.atoms = atoms

    def number(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.35:
            return self.rng.choice(self.atoms)
        left = self.number(depth + 1)
        form = self.rng.choice(
            [
                *("({x} + {k})", "({x} - {y})", "({k} * {x})", "-({x})", "({x} // {k})"),
                *("({x} % {k})", "({x} // {k})", "({x} % {k})", "abs({x})", "(abs({x}) & {k})"),
                *("(abs({x}) << 2)", "greatest({x}, {k})", "coalesce({x}, 0)", "nullif({x}, {k})"),
                *("CASE WHEN {x} > {k} THEN {x} ELSE {k} END", "CAST({x} AS INTEGER)"),
            ]
        )
        right = self.number(depth + 1)
        return str(form.format(x=left, y=right, k=self.rng.choice([2, 3, 5, 7])))

    def item(self) -> str:
        inner = self.number()
        shown = ("{}", "{}", "{} || ' people'", "CAST({} AS VARCHAR)", "concat('n', {})")
        return self.rng.choice(shown).format(inner)


def statement(rng: random.Random) -> str:
    """A statement of integer arithmetic, over measured sums or over a sub-query."""
    way = rng.randrange(4)
    if way == 0:
        writer = Writer(rng, ("COUNT(*)", "SUM(a)", "COUNT(*) FILTER (WHERE c)", "4"))
        return f"SELECT {writer.item()} AS x, {writer.item()} AS y FROM t"
    if way == 1:
        writer = Writer(rng, ("COUNT(*)", "SUM(a)", "a", "SUM(COUNT(*)) OVER (ORDER BY a)"))
        return f"SELECT a, {writer.item()} AS x FROM t GROUP BY a ORDER BY {writer.number()}, a"
    inner = "(SELECT a, COUNT(*) AS n, SUM(a) AS s FROM t GROUP BY a) AS q"
    if way == 2:
        writer = Writer(rng, ("SUM(n)", "MAX(s)", "COUNT(*)", "3"))
        return f"SELECT {writer.item()} AS x FROM {inner}"
    writer = Writer(rng, ("n", "s", "a", "(SELECT COUNT(*) FROM t)", "SUM(n) OVER (ORDER BY a)"))
    return f"SELECT a, {writer.item()} AS x FROM {inner} ORDER BY a"


@pytest.mark.slow
def test_integer_arithmetic_is_duckdbs_without_noise(world: World) -> None:
    connection, database = world
    rng = random.Random(16)
    asked, refused = 0, []
    with zero_noise():
        while asked < STATEMENTS:
            sql = statement(rng)
            try:
                expected = database.execute(sql).fetchall()
            except duckdb.Error:
                continue
            found = verdict(connection, sql)
            if isinstance(found, dpsql.Error):
                refused.append(f"{found.code} {sql}")
                continue
            result = connection.execute(sql).result
            asked += 1
            for one, two in itertools.zip_longest(result.rows, expected):
                assert one == two, f"{sql}\nfound    {result.rows[:6]}\nexpected {expected[:6]}"
    assert len(refused) < STATEMENTS // 10, refused


def test_noisy_counts_are_rounded_before_integer_arithmetic(world: World) -> None:
    connection = world[0]
    for mechanism, cube in itertools.product(("identity", "auto"), ("", "CUBE ")):
        connection.execute(f"SET mechanism = {mechanism}")
        items = "COUNT(*) AS n, COUNT(*) // 7 AS q, COUNT(*) % 7 AS r, COUNT(*) || '' AS t"
        result = connection.execute(f"SELECT a, c, {items} FROM t GROUP BY {cube}(a, c)").result
        for row in result.rows:
            n = row[2]
            nearest = math.floor(abs(n) + 0.5) * (1 if n >= 0 else -1)
            assert row[3] == int(nearest / 7)
            assert row[4] == math.fmod(nearest, 7)
            assert row[5] == str(nearest)
        assert result.types[3:] == ("integer", "integer", "text")
        assert [set(errors or ()) for errors in result.stddev[3:]] == [{None}] * 3
        assert any("is not worked out" in note for note in result.notes)
    connection.execute("SET mechanism = identity")


def test_a_plain_count_is_an_integer_everywhere(world: World) -> None:
    connection = world[0]
    with connection.execute("SELECT a, b, c, COUNT(*) AS n FROM t GROUP BY a, b, c") as cursor:
        result = cursor.result
    assert all(type(row[3]) is int for row in result.rows)
    above = connection.execute("SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) FROM t GROUP BY a")
    assert all(type(row[1]) is int for row in above)
    lines = encode(Grid.of(result), "csv", Style()).decode().splitlines()[1:]
    assert not any("." in line.rpartition(",")[2] for line in lines)
    assert result.types[3] == "integer"


WORKLOADS = {
    "table": Workload({"a": 3, "b": 4}, [{"a": "identity", "b": "identity"}]),
    "prefix": Workload({"a": 5}, [{"a": "prefix"}]),
    "sums": Workload({"a": 4, "b": 2}, [{"a": "prefix"}, {"b": "identity"}, {}]),
    "halves": Workload({"a": 3}, [{"a": np.array([[0.5, 0.5, 0.0], [1.0, 1.0, 1.0]])}]),
}


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("mechanism", ["identity", "auto", "joint"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_whole_answers_are_those_with_whole_weights(
    name: str, mechanism: str, noise: Noise
) -> None:
    """Against the map from measured numbers to answers, column by column."""
    workload = WORKLOADS[name]
    strategy = select(workload, noise, mechanism, 0.25)
    if not isinstance(strategy, ProductStrategy):
        return
    sizes = [block.rows for block in strategy.blocks]
    variances = [1.0] * len(sizes)
    for product in workload.products:
        columns = []
        for which in range(sum(sizes)):
            flat = np.eye(sum(sizes), dtype=np.int64)[which]
            values = np.split(flat, np.cumsum(sizes)[:-1])
            columns.append(strategy.solve(values, strategy.forecast(variances)).answer(product))
        weights = np.array(columns)
        whole = bool((np.abs(weights - np.rint(weights)) < 1e-9).all())
        said = strategy.forecast(variances, integers=True).is_whole(product)
        assert whole or not said
        if len(strategy.blocks) == 1 and not strategy.blocks[0].residual:
            assert said == whole
        assert not strategy.forecast(variances).is_whole(product)


@pytest.mark.parametrize("places", [0, 1, -1])
def test_rounding_is_part_of_the_standard_error(world: World, places: int) -> None:
    """Against the mean squared error over truths that lie anywhere between two steps."""
    connection = world[0]
    sql = f"SELECT COUNT(*) / 7 AS x, ROUND(COUNT(*) / 7, {places}) AS y FROM t"
    result = connection.execute(sql).result
    plain, rounded = (errors[0] for errors in result.stddev if errors is not None)
    assert plain is not None
    assert rounded is not None
    rng = np.random.default_rng(5)
    step = 10.0**-places
    truth = rng.uniform(0, 50 * step, 400_000)
    noise = rng.laplace(0, plain / math.sqrt(2), truth.size)
    error = np.rint((truth + noise) / step) * step - truth
    assert rounded == pytest.approx(math.sqrt((error**2).mean()), rel=0.02)
    assert rounded > plain


def test_rounding_errors_follow_arithmetic(world: World) -> None:
    connection = world[0]
    items = "COUNT(*) / 7 AS x, 3 * ROUND(COUNT(*) / 7, 1) AS y"
    items += ", CAST(COUNT(*) / 7 AS DECIMAL(9, 2)) AS z"
    result = connection.execute(f"SELECT {items}, CAST(COUNT(*) / 7 AS INTEGER) AS w FROM t").result
    x, y, z, w = (errors[0] for errors in result.stddev if errors is not None)
    assert x is not None
    assert y == pytest.approx(3 * math.sqrt(x**2 + 0.01 / 12))
    assert z == pytest.approx(math.sqrt(x**2 + 1e-4 / 12))
    assert w == pytest.approx(math.sqrt(x**2 + 1 / 12))
