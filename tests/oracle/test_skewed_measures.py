"""Most values of a measure lie far below its bound: what rounding them to a grid does to moments.

Steps are shares of the bounds. Where they are wider than most values, sums are off by a part of
themselves that no standard error tells, and more rows make it no smaller.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 10000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
age = { type = "integer", domain = [0, 66] }
spent = { type = "number", bounds = [0, 5000] }
"""
BESIDE = (
    *("CORR(age, spent)", "COVAR_POP(spent, age)", "REGR_SLOPE(spent, age)"),
    *("REGR_R2(age, spent)", "CORR(age // 2, spent)", "STDDEV(spent), SUM(age * spent)"),
)
"""What has squares of both columns, or their product, measured together."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rng = random.Random(3)
    rows = []
    for _ in range(4000):
        rows.append((rng.randrange(67), min(rng.lognormvariate(3, 1.3), 4999)))
    tables: Tables = {"t": ("age BIGINT, spent DOUBLE", rows)}
    with open_tables(tmp_path_factory.mktemp("skewed"), CATALOG, tables) as world, zero_noise():
        yield world


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("where", ["", " WHERE age > 2 AND age < 60"])
def test_means_beside_products_are_those_of_the_database(
    world: World, beside: str, where: str
) -> None:
    connection, database = world
    sql = f"SELECT AVG(spent), SUM(spent), AVG(age), VAR_POP(age), {beside} FROM t{where}"
    (found,), (known,) = (each.execute(sql).fetchall() for each in (connection, database))
    assert found[:2] == pytest.approx(known[:2], rel=0.02)
    assert found[2:4] == pytest.approx(known[2:4], rel=1e-9)
