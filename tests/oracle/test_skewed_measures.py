"""Most values of a measure lie far below its bound: what rounding them does to moments.

Steps are shares of the bounds. Where they are wider than most values, sums are off by a part of
themselves that no standard error tells, and more rows make it no smaller.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 100000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
age = { type = "integer", domain = [0, 66] }
g = { type = "integer", domain = [0, 3] }
stay = { type = "integer", bounds = [0, 300] }
spent = { type = "number", bounds = [0, 5000] }
paid = { type = "number", bounds = [0, 50000] }
"""
MEANS = ("AVG(spent)", "SUM(spent)", "AVG(paid)", "AVG(age)", "AVG(stay)")
BESIDE = (
    *("VAR_POP(spent)", "STDDEV(paid)", "CORR(age, spent)", "CORR(spent, paid)"),
    *("COVAR_POP(spent, paid)", "REGR_SLOPE(paid, spent)", "REGR_R2(age, spent)"),
    *("CORR(age // 2, spent)", "SUM(spent * spent)", "SUM(age * spent)", "CORR(stay, paid)"),
)
"""What has squares of columns, or their product, measured together."""
APART = (BESIDE[0], BESIDE[2], BESIDE[5], BESIDE[-1])
"""Statements with other steps where they stand alone; conditions and groups change none of them."""
TAILS = ("", " WHERE age > 2 AND age < 60", " GROUP BY g ORDER BY g")


def of_both(draw: Callable[[random.Random], float]) -> Callable[[random.Random], tuple[float, ...]]:
    """Two columns that depend on each other, and have values in the same places of their bounds."""

    def both(rng: random.Random) -> tuple[float, ...]:
        first, other = draw(rng), draw(rng)
        return min(5000.0, first), min(50_000.0, 5 * (first + other))

    return both


SHAPES = {
    "lognormal": of_both(lambda rng: rng.lognormvariate(3, 1.3)),
    "heavy tail": of_both(lambda rng: 10 * rng.paretovariate(1.5)),
    "near the bound": of_both(lambda rng: 20 + 20 * rng.random()),
    "bimodal": of_both(lambda rng: 3.3 if rng.random() < 0.9 else 4000 + rng.random()),
    "uniform": of_both(lambda rng: rng.uniform(0, 5000)),
    "two values": of_both(lambda rng: rng.choice((13.57, 171.6))),
}


@pytest.fixture(scope="module", params=SHAPES)
def world(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[World]:
    rng = random.Random(3)
    rows = []
    for _ in range(2000):
        keys = rng.randrange(67), rng.randrange(4), min(300, int(rng.expovariate(0.2)))
        rows.append((*keys, *SHAPES[request.param](rng)))
    columns = "age BIGINT, g BIGINT, stay BIGINT, spent DOUBLE, paid DOUBLE"
    tables: Tables = {"t": (columns, rows)}
    with open_tables(tmp_path_factory.mktemp("skewed"), CATALOG, tables) as world, zero_noise():
        yield world


@pytest.mark.parametrize("tail", TAILS)
def test_moments_beside_each_other_are_those_of_the_database(world: World, tail: str) -> None:
    connection, database = world
    for beside in (BESIDE, *((each,) for each in APART if not tail)):
        sql = f"SELECT {', '.join((*MEANS, *beside))} FROM t{tail}"
        pairs = zip(*(each.execute(sql).fetchall() for each in (connection, database)), strict=True)
        for found, known in pairs:
            assert found[: len(MEANS)] == pytest.approx(known[: len(MEANS)], rel=1e-5), sql
            assert found[3:5] == pytest.approx(known[3:5], rel=1e-9), sql
            assert found[len(MEANS) :] == pytest.approx(known[len(MEANS) :], rel=1e-3), sql
