"""OPT_+: automatic strategies are as good as one for every group of products."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import unions
from dpsql.errors import ProgrammingError
from dpsql.search.select import choose, select
from dpsql.search.unions.opt_plus import groupings, separate_strategy
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Workload
from tests.support.effort import IS_LARGE

NOISES: tuple[Noise, ...] = ("laplace", "gaussian")

FOUND: tuple[tuple[int, Noise, float], ...] = (
    (203, "gaussian", 1.158),
    (204, "laplace", 1.162),
    (205, "gaussian", 1.034),
    (210, "gaussian", 2.937),
    (217, "gaussian", 1.014),
)
"""Seeds at which groups with matrices of their own were better, and by how much."""

EVERY = IS_LARGE
"""``make fuzz`` asks for all, of which one takes 10 seconds."""


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "noise", "before"), FOUND if EVERY else FOUND[::2])
def test_no_worse_than_groups_apart(seed: int, noise: Noise, before: float) -> None:
    found = unions.measure(unions.make_workload(seed), noise, seed)
    assert found.ratio <= unions.EQUAL < before


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", range(4 if EVERY else 2))
def test_small_unions_are_no_worse_than_groups_apart(seed: int, noise: Noise) -> None:
    rng = np.random.default_rng(seed)
    sizes = {"x0": 6, "x1": 8}
    products = [
        {name: unions.factor(rng, n) for name, n in sizes.items() if rng.random() < 0.8}
        for _ in range(4)
    ]
    assert unions.measure(Workload(sizes, products), noise, seed).ratio <= unions.EQUAL


@pytest.mark.parametrize("noise", NOISES)
def test_conflicting_factors_get_matrices_of_their_own(noise: Noise) -> None:
    rng = np.random.default_rng(3)
    n = 16
    rows = [np.tril(np.ones((n, n)))[:, rng.permutation(n)] for _ in range(3)]
    sizes = {"a": n, "b": n, "c": n}
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]
    products = [{one: rows[k], other: "identity"} for k, (one, other) in enumerate(pairs)]
    workload = Workload(sizes, products)
    strategy = select(workload, noise, "separate")
    assert [block.attributes for block in strategy.blocks] == pairs
    alone = unions.measure(workload, noise, 0)
    error = strategy.unit_error(workload) ** 0.5
    assert error < min(alone.by_product, alone.by_support)
    assert alone.ours <= error * 1.01


def test_groups_are_by_support_and_by_product_and_each_once() -> None:
    products = [{"a": "prefix"}, {"a": "identity"}, {"b": "prefix"}]
    found = list(groupings(Workload({"a": 3, "b": 4}, products)))
    assert [[len(group.products) for group in each] for each in found] == [[2, 1], [1, 1, 1]]
    assert list(groupings(Workload({"a": 3}, [{"a": "prefix"}]))) == []
    single = Workload({"a": 3, "b": 4}, products[1:])
    assert len(list(groupings(single))) == 1


def test_what_has_no_groups_is_refused_by_name() -> None:
    workload = Workload({"a": 4, "b": 3}, [{"a": "prefix", "b": "prefix"}])
    assert separate_strategy(workload, "laplace") is None
    with pytest.raises(ProgrammingError, match="'separate' does not fit"):
        choose(workload, "laplace", "separate")
