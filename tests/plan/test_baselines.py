"""Comparison strategies against the published tables and brute force."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from benchmarks import published as literature
from dpsql.algebra.blocks import AllRange, IdentityTotal, Permuted, Prefix, WidthRanges
from dpsql.algebra.operator import Array, Operator
from dpsql.plan import baselines
from dpsql.plan.greedy import greedy_hierarchy
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Product, Workload

LAPLACE: Noise = "laplace"
GAUSSIAN: Noise = "gaussian"
COLUMNS = ("Identity", "H2", "Wavelet", "HB", "GreedyH")
PUBLISHED: dict[Noise, dict[tuple[str, int], tuple[float, ...]]] = {
    LAPLACE: {
        ("all-range", 64): (6.63, 11.28, 10.11, 6.63, 6.34),
        ("all-range", 256): (13.11, 16.27, 14.87, 8.9, 9.72),
        ("prefix", 64): (8.06, 9.42, 9.37, 8.06, 6.04),
        ("prefix", 256): (16.03, 13.16, 13.09, 8.97, 9.13),
        ("width32", 64): (8.0, 12.02, 11.09, 8.0, 7.32),
        ("width32", 256): (8.0, 15.5, 13.57, 7.41, 8.0),
        ("permuted", 64): (6.63, 25.02, 18.97, 6.63, 6.83),
        ("permuted", 256): (13.11, 66.25, 49.09, 18.48, 13.02),
        ("prefix", 1024): (32.02, 17.29, 17.2, 12.87, 14.32),
    },
    GAUSSIAN: {
        ("all-range", 64): (19.82, 12.74, 11.42, 19.82, 14.64),
        ("all-range", 256): (39.18, 16.2, 14.81, 18.8, 23.34),
        ("prefix", 64): (24.08, 10.64, 10.58, 24.08, 14.04),
        ("prefix", 256): (47.89, 13.11, 13.03, 18.95, 22.11),
        ("width32", 64): (23.9, 13.57, 12.52, 23.9, 17.3),
        ("width32", 256): (23.9, 15.44, 13.52, 15.65, 23.9),
        ("permuted", 64): (19.82, 28.26, 21.42, 19.82, 16.13),
        ("permuted", 256): (39.18, 65.97, 48.88, 39.04, 35.22),
    },
}
"""HDMM, Tables 4 and 5 (epsilon 1, delta 1e-6)."""


def one_dimensional(name: str, n: int) -> Operator:
    if name == "permuted":
        return Permuted(AllRange(n), np.random.RandomState(0).permutation(n))
    if name == "width32":
        return WidthRanges(n, 32)
    return AllRange(n) if name == "all-range" else Prefix(n)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
def test_published_columns(noise: Noise) -> None:
    for (name, n), values in PUBLISHED[noise].items():
        workload = one_dimensional(name, n)
        for column, value in zip(COLUMNS, values, strict=True):
            if column == "GreedyH":
                strategy = greedy_hierarchy(workload.gram())
            else:
                strategy = literature.STRATEGIES[column](n)
            error = literature.strategy_error(strategy, workload, noise)
            found = literature.published_rmse(error, workload.rows, noise)
            assert found == pytest.approx(value, abs=0.015), (name, n, column)


def test_greedy_hierarchy_has_unit_columns() -> None:
    strategy = greedy_hierarchy(Prefix(13).gram())
    np.testing.assert_allclose(strategy.column_l1(), 1)
    merged = greedy_hierarchy(np.ones((4, 4)))
    assert merged.shape == (1, 4)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16])
def test_tree_strategies_for_any_size(n: int) -> None:
    for build in literature.STRATEGIES.values():
        error = literature.strategy_error(build(n), Prefix(n), LAPLACE)
        assert error >= n * (n + 1) / 2 if build(n).l1 == 1 else error > 0


def explicit_rows(workload: Workload) -> Array:
    blocks = []
    for product in workload.products:
        rows = np.full((1, 1), product.weight)
        for name, n in workload.domain.items():
            factor = product.factors.get(name)
            rows = np.kron(rows, np.ones((1, n)) if factor is None else factor.dense())
        blocks.append(rows)
    return np.vstack(blocks)


def random_workload(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    domain = {"a": 3, "b": 4, "c": 2}
    products = []
    for _ in range(4):
        mapping: dict[str, object] = {}
        for name, n in domain.items():
            options = [None, "identity", "prefix", rng.integers(-1, 3, (2, n))]
            chosen = options[int(rng.integers(4))]
            if chosen is not None:
                mapping[name] = chosen
        products.append((mapping, float(rng.random() + 0.1)))
    return Workload(domain, [*products, products[0]])


@pytest.mark.parametrize("seed", range(8))
def test_sensitivity_is_that_of_the_worst_column(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = random_workload(seed)
    rows = explicit_rows(workload)
    l1, l2sq = np.abs(rows).sum(axis=0).max(), np.square(rows).sum(axis=0).max()
    assert baselines.workload_sensitivity(workload, LAPLACE).value == pytest.approx(l1)
    assert baselines.workload_sensitivity(workload, GAUSSIAN).value == pytest.approx(l2sq)
    assert baselines.workload_error(workload, LAPLACE) == pytest.approx(len(rows) * l1**2)
    assert baselines.workload_error(workload, GAUSSIAN) == pytest.approx(len(rows) * l2sq)
    assert baselines.identity_error(workload, GAUSSIAN) == pytest.approx(np.square(rows).sum())
    monkeypatch.setattr(baselines, "COLUMN_LIMIT", 1)
    loose = baselines.workload_sensitivity(workload, LAPLACE)
    assert not loose.exact
    assert loose.value >= l1 * (1 - 1e-12)


def test_unequal_columns_are_not_added_up() -> None:
    workload = Workload({"a": 2}, [{"a": [[2, 0]]}, {"a": [[0, 3]]}])
    assert baselines.workload_sensitivity(workload, LAPLACE).value == 3


def test_multidimensional_baselines() -> None:
    sizes = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
    domain = {f"a{i}": n for i, n in enumerate(sizes)}
    subsets = [c for k in range(4) for c in combinations(domain, k)]
    workload = Workload(domain, [dict.fromkeys(subset, "identity") for subset in subsets])
    published = {LAPLACE: (664.68, 494.06), GAUSSIAN: (91.59, 77.36)}
    for noise, values in published.items():
        cube = literature.data_cube_error(workload, noise)
        assert cube is not None
        for error, value in zip(
            (baselines.workload_error(workload, noise), cube), values, strict=True
        ):
            found = literature.published_rmse(error, workload.rows, noise)
            assert found == pytest.approx(value, abs=0.01)


def test_data_cube_error_is_that_of_least_squares() -> None:
    workload = Workload(
        {"a": 3, "b": 4}, [{"a": IdentityTotal(3), "b": "identity"}, ({"a": "identity"}, 2.0)]
    )
    W = explicit_rows(workload)
    full = explicit_rows(Workload(workload.domain, [{"a": "identity", "b": "identity"}]))
    error = np.trace(W.T @ W @ np.linalg.inv(full.T @ full))
    assert literature.data_cube_error(workload, LAPLACE) == pytest.approx(error)
    assert literature.data_cube_error(Workload({"a": 3}, [{"a": "prefix"}]), LAPLACE) is None


def test_rows_are_counted_with_duplicates() -> None:
    product = Product({"a": Prefix(3)})
    workload = Workload({"a": 3}, [product, product])
    assert baselines.workload_error(workload, GAUSSIAN) == 6 * 6
    assert literature.published_rmse(1.0, 4, LAPLACE) == pytest.approx(math.sqrt(0.5))
