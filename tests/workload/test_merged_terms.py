"""Terms of one answer that are added up: the same queries, and no more noise than one needs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.algebra.blocks import Dense, Identity, Total
from dpsql.algebra.operator import Floats
from dpsql.workload.merged_terms import gathered
from dpsql.workload.workload import Product

DOMAIN = {"a": 3, "b": 4, "c": 2}


def dense(found: Sequence[tuple[Product, float]]) -> Floats:
    """The queries over all cells, by Kronecker products."""
    total = np.zeros((1, 1))
    for product, scale in found:
        rows = [product.factors.get(name, Total(n)).dense() for name, n in DOMAIN.items()]
        total = total + scale * reduce(np.kron, rows)
    return total


@pytest.mark.parametrize("seed", range(40))
def test_what_is_asked_is_the_same_sum(seed: int) -> None:
    draw = random.Random(seed)
    keys = {"c": Identity(2)} if draw.random() < 0.5 else {}
    found = []
    for _ in range(draw.randint(2, 6)):
        chosen = draw.sample(("a", "b"), draw.randint(0, 2))
        rows = {name: [draw.choice((0, 1, 1, 7)) for _ in range(DOMAIN[name])] for name in chosen}
        factors = {name: Dense(np.array([row])) for name, row in rows.items()}
        found.append((Product({**keys, **factors}, 1.0), draw.choice((1.0, -1.0, 2.5))))
    fewer = gathered(found, {}, DOMAIN, 1.0)
    np.testing.assert_allclose(dense(fewer), dense(found))
    assert len(fewer) <= len(found)
    if all({*product.factors} - {*keys} <= {"a"} for product, _ in found):
        assert len(fewer) == 1


CATALOG = """
[budget]
epsilon = 10
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
x = { type = "number", bounds = [0, 1000], bins = 10, null = true }
k = { type = "integer", domain = [0, 20] }
g = { type = "text", domain = ["p", "q"] }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("gathered")
    (found / "c.toml").write_text(CATALOG)
    with duckdb.connect() as scribe:
        rows = "SELECT i % 977 AS x, i % 21 AS k, ['p', 'q'][1 + i % 2] AS g FROM range(500) r(i)"
        scribe.execute(f"COPY ({rows}) TO '{found}/t.parquet'")
    return found


@pytest.mark.parametrize(
    ("summed", "largest"),
    [
        ("LEAST(x, 400)", 400),
        ("GREATEST(x, 300)", 1000),
        ("CASE WHEN x > 200 THEN 200 ELSE x END", 200),
        ("LEAST(GREATEST(x, 100), 300)", 300),
        ("LEAST(k, 5)", 5),
        ("CASE WHEN k > 9 THEN 3 ELSE k END", 9),
    ],
)
@pytest.mark.parametrize("keys", ["", "g, "])
def test_a_clipped_sum_has_the_noise_of_its_largest_value(
    summed: str, largest: float, keys: str, folder: Path
) -> None:
    """Before: 1.41 times that of bins, since what is below and above had noise of its own."""
    with dpsql.connect(folder / "c.toml", epsilon=1) as connection:
        by = " GROUP BY g" if keys else ""
        forecast = connection.explain(f"SELECT {keys}SUM({summed}) FROM t{by}")
    assert forecast.rmse == pytest.approx(largest * 2**0.5, rel=0.01)
