"""Products over joint attributes: many are added up at once to what they add up to one by one."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.algebra.blocks import simplify
from dpsql.algebra.operator import Operator
from dpsql.workload import merged_products
from dpsql.workload.merged_products import lift
from dpsql.workload.workload import Product

SIZES = {"a": 2, "b": 3, "c": 2, "d": 4, "e": 3}
GROUP = ("a", "b", "d")


def drawn(rng: np.random.Generator, names: str) -> dict[str, Operator]:
    rows = {name: rng.integers(-1, 2, size=(1, SIZES[name])) for name in names}
    return {name: simplify(each) for name, each in rows.items() if each.any()}


@pytest.mark.parametrize("seed", range(20))
def test_many_products_are_added_up_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    beside = [drawn(rng, "c"), drawn(rng, "ce")]
    products = []
    for _ in range(24):
        inside = drawn(rng, str(rng.choice(["a", "ab", "bd", "abd"])))
        if inside:
            factors = {**inside, **beside[int(rng.integers(2))]}
            scale = float(rng.choice([-2.0, -1.0, 0.5, 1.0]))
            products.append((scale, Product(factors, float(rng.random()) + 0.1)))
    found = lift(products, {"j": GROUP}, SIZES, {})
    monkeypatch.setattr(merged_products, "FEW", len(products))
    one_by_one = lift(products, {"j": GROUP}, SIZES, {})

    def told(terms: list[tuple[float, Product]]) -> list[tuple[object, ...]]:
        return [
            (
                scale,
                round(each.weight, 12),
                {name: factor.key for name, factor in each.factors.items()},
            )
            for scale, each in terms
        ]

    assert len(found) < len(products)
    assert told(found) == told(one_by_one)
