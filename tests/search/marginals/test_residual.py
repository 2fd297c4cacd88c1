"""Residual planner: closed form, optimality, cost, joint optimisation."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity
from dpsql.search.bounds.singular_values import svd_bound
from dpsql.search.gaussian import kron_strategy
from dpsql.search.marginals.residual import (
    _JointDescent,
    initial_rows,
    optimise_rows,
)
from dpsql.search.problem import Problem
from dpsql.search.rounding import realise_residual
from dpsql.search.select import select
from dpsql.strategy.product import ProductStrategy
from dpsql.workload.workload import Product, Workload

SIZES = {"a": 3, "b": 4, "c": 2, "d": 6}
MARGINALS = Workload(
    SIZES, [dict.fromkeys(c, "identity") for k in (1, 2) for c in combinations(SIZES, k)]
)
MIXED = Workload(
    {"a": 7, "b": 5, "c": 3},
    [{"a": "prefix", "b": "prefix"}, {"b": "allrange", "c": "identity"}, ({"a": "prefix"}, 2.0)],
)

WELL_ROUNDED = 1.05
"""Part of the planned error that rounding may come to."""


def test_marginals_attain_the_singular_value_bound() -> None:
    """T^2 is the bound; integer rows n I - J attain it exactly."""
    strategy = select(MARGINALS, "gaussian")
    assert strategy.method == "residual"
    W = []
    for product in MARGINALS.products:
        block: NDArray[Any] = np.ones((1, 1))
        for name, n in SIZES.items():
            block = np.kron(block, np.eye(n) if name in product.factors else np.ones((1, n)))
        W.append(block)
    bound = np.linalg.svd(np.concatenate(W), compute_uv=False).sum() ** 2 / math.prod(
        SIZES.values()
    )
    assert svd_bound(MARGINALS) == pytest.approx(bound)
    assert strategy.unit_error(MARGINALS) == pytest.approx(bound, rel=1e-6)


def test_cell_variances_of_marginals() -> None:
    """Closed form: sum over subsets c of sigma_c^2 prod (n-1)/n prod 1/n^2."""
    strategy = select(MARGINALS, "gaussian")
    assert isinstance(strategy, ProductStrategy)
    variances = strategy.unit_variances()
    forecast = strategy.forecast(variances)
    sigma2 = {
        frozenset(block.attributes): v / math.prod(SIZES[a] ** 2 for a in block.attributes)
        for block, v in zip(strategy.blocks, variances, strict=True)
    }
    want = 0.0
    for k in range(3):
        for c in combinations(["a", "d"], k):
            rest = set("ad") - set(c)
            inside = math.prod((SIZES[a] - 1) / SIZES[a] for a in c)
            want += sigma2[frozenset(c)] * inside / math.prod(SIZES[a] ** 2 for a in rest)
    got = forecast.variance(Product({"a": Identity(3), "d": Identity(6)}))
    assert got == pytest.approx(np.full(18, want), rel=1e-9)


def test_rows_whose_total_is_lost_are_a_step_too_far() -> None:
    """Nearly alike rows have inverses of huge entries, whose sum is anything."""
    problem = Problem(MIXED, "gaussian")
    search = _JointDescent(problem, initial_rows(problem))
    rng = np.random.default_rng(5)
    values = []
    for digits in range(6, 17):
        for _ in range(40):
            x = 1.0 + 10.0**-digits * rng.standard_normal(search.start.shape)
            values.append(search.evaluate(x)[0])
    assert math.inf in values
    assert not any(value <= 0 or math.isnan(value) for value in values)


def test_joint_gradient() -> None:
    problem = Problem(MIXED, "gaussian")
    search = _JointDescent(problem, initial_rows(problem))
    rng = np.random.default_rng(0)
    x = search.start + 0.05 * rng.normal(size=len(search.start))
    _, gradient = search.evaluate(x)
    for k in rng.choice(len(x), 20, replace=False):
        step = np.zeros_like(x)
        step[k] = 1e-6
        numeric = (search.evaluate(x + step)[0] - search.evaluate(x - step)[0]) / 2e-6
        assert gradient[k] == pytest.approx(numeric, rel=1e-4, abs=1e-6 * abs(gradient).max())


def test_joint_dominates_and_is_realised() -> None:
    """Joint rows beat separate ones and one Kronecker block; rounding costs little."""
    problem = Problem(MIXED, "gaussian")
    start = initial_rows(problem)
    planned = {
        name: realise_residual(problem, rows, "joint").unit_error(MIXED)
        for name, rows in [("apart", start), ("joint", optimise_rows(problem, start))]
    }
    kron = kron_strategy(problem).unit_error(MIXED)
    assert planned["joint"] <= planned["apart"] * (1 + 1e-4)
    assert planned["joint"] < kron
    search = _JointDescent(problem, optimise_rows(problem, start))
    assert planned["joint"] == pytest.approx(search.evaluate(search.start)[0], rel=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_rounding_costs_little_where_many_columns_meet(seed: int) -> None:
    """Columns that meet few others have more bits than those that all meet in one answer."""
    rng = np.random.default_rng(seed)
    domain = {f"x{i}": int(rng.choice([2, 5, 12, 24])) for i in range(8)}
    asked = [list(domain)[:7], *(rng.permutation(list(domain))[:2].tolist() for _ in range(12))]
    products = []
    for names in asked:
        factors = {
            name: Dense(
                np.tril(np.ones((domain[name], domain[name])))[rng.integers(domain[name]) :]
            )
            for name in sorted(names)
        }
        products.append((factors, float(rng.choice([0.01, 1.0]))))
    workload = Workload(domain, products)
    problem = Problem(workload, "gaussian")
    rows = initial_rows(problem)
    descent = _JointDescent(problem, rows)
    planned = descent.evaluate(descent.start)[0]
    found = realise_residual(problem, rows, "joint").unit_error(workload)
    assert planned * (1 - 1e-3) <= found <= planned * WELL_ROUNDED


@pytest.mark.parametrize("cells", [8, 13])
def test_rows_that_degenerate_are_mixed_when_they_are_rounded(cells: int) -> None:
    """Cells that are hardly told apart are planned with rows that hardly do."""
    wide = np.ones((2, cells))
    wide[1, : cells // 2] = 1 + 1e-4
    few = Dense(np.eye(cells)[:3])
    products: list[tuple[dict[str, Any], float]] = [
        ({"a": Dense(wide), "b": "prefix"}, 1.0),
        ({"a": few}, 1.0),
        ({"b": "identity"}, 1.0),
    ]
    workload = Workload({"a": cells, "b": 11}, products)
    problem = Problem(workload, "gaussian")
    rows = optimise_rows(problem, initial_rows(problem))
    descent = _JointDescent(problem, rows)
    planned = descent.evaluate(descent.start)[0]
    assert realise_residual(problem, rows, "joint").unit_error(workload) <= 1.01 * planned


def test_rows_of_any_degeneration_are_rounded() -> None:
    """However little a search leaves of some differences, rows of full rank come out."""
    problem, rng = Problem(MIXED, "gaussian"), np.random.default_rng(7)
    start = initial_rows(problem)
    learned = [i for i, A in enumerate(start) if A is not None]
    assert learned
    for digits in (3, 6, 8, 9, 12, 15, 17, 30):
        for _ in range(8):
            rows = list(start)
            for i in learned:
                n = problem.sizes[i]
                values = np.where(rng.random(n) < 0.5, 10.0**-digits, 1.0)
                values[0] = 1.0
                turned = np.linalg.qr(rng.normal(size=(n, n)))[0] * values
                A = turned.T
                rows[i] = A / np.sqrt(np.square(A).sum(axis=0).max())
            error = realise_residual(problem, rows, "joint").unit_error(MIXED)
            assert 0 < error < math.inf


def test_hundred_attributes() -> None:
    """All marginals of up to three of many attributes need only the closure of their supports."""
    domain = {f"x{i}": 10 for i in range(20)}
    products = [dict.fromkeys(c, "identity") for k in (1, 2, 3) for c in combinations(domain, k)]
    strategy = select(Workload(domain, products), "gaussian")
    assert len(strategy.blocks) == 1 + 20 + 190 + 1140
    assert sum(block.share for block in strategy.blocks) == 1
