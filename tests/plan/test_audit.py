"""From blocks, factors and shares alone: sensitivity, error and what simulated noise does."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.plan import Workload, select
from dpsql.search.bounds.singular_values import svd_bound
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise

pytestmark = pytest.mark.slow

Matrix = NDArray[Any]

DOMAIN = {"a": 4, "b": 8, "c": 3}
WORKLOADS = {
    "ranges": Workload(
        DOMAIN,
        [
            {"a": "identity", "b": "prefix"},
            ({"b": "allrange", "c": "identity"}, 0.5),
            {"c": "identity"},
            {},
        ],
    ),
    "marginals": Workload(
        DOMAIN, [{"a": "identity", "b": "identity"}, {"b": "identity", "c": "identity"}, {}]
    ),
    "groups": Workload(
        DOMAIN,
        [
            {"a": "identity", "b": [[1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]]},
            {"b": "identity", "c": [[1, 0, 0]]},
        ],
    ),
}
BOTH = ("identity", "kron", "union", "marginals", "joint", "hdmm", "auto")
CASES = [
    (name, mechanism, noise)
    for name in WORKLOADS
    for noise in ("laplace", "gaussian")
    for mechanism in (*BOTH, *(("residual", "symmetric") if noise == "gaussian" else ()))
]
GAUSSIAN_DEVIATION = 4.224678889326836
"""Standard deviation per unit L2 sensitivity at epsilon 1 and delta 1e-6, as published."""
RUNS, LIMIT = 300, 6.0
"""Simulated releases, and standard errors from the forecast that are still chance."""


def kron(parts: list[Matrix]) -> Matrix:
    return reduce(lambda left, right: np.asarray(np.kron(left, right)), parts)


def block_rows(domain: dict[str, int], block: Any) -> Matrix:
    """Return the integer rows of a block over all cells, from its public factors alone.

    A factor is keyed by its attribute, or by several attributes, next to each other in the
    domain here, whose cells it resolves jointly.
    """
    start: dict[str, tuple[tuple[str, ...], Matrix | None]] = {}
    for key, rows in block.factors.items():
        names = key if isinstance(key, tuple) else (key,)
        start[names[0]] = (names, rows)
    parts: list[Matrix] = []
    skipped: set[str] = set()
    for name, n in domain.items():
        if name in start:
            names, rows = start[name]
            skipped.update(names)
            size = math.prod(domain[a] for a in names)
            parts.append(np.eye(size, dtype=np.int64) if rows is None else rows)
        elif name not in skipped:
            parts.append(np.ones((1, n), dtype=np.int64))
    assert skipped == set(block.attributes)
    return kron(parts)


def query_rows(workload: Workload) -> Matrix:
    products = []
    for product in workload.products:
        parts = [
            product.factors[name].dense() if name in product.factors else np.ones((1, n))
            for name, n in workload.domain.items()
        ]
        products.append(product.weight * kron(parts))
    return np.concatenate(products)


def plan(name: str, mechanism: str, noise: Noise) -> tuple[Workload, Strategy]:
    workload = WORKLOADS[name]
    return workload, select(workload, noise, mechanism, effort=0.1)


@pytest.mark.parametrize(("name", "mechanism", "noise"), CASES)
def test_anybody_can_recompute_the_error(name: str, mechanism: str, noise: Noise) -> None:
    workload, strategy = plan(name, mechanism, noise)
    blocks: tuple[Any, ...] = strategy.blocks
    assert sum(block.share for block in blocks) == 1
    information = np.zeros((math.prod(DOMAIN.values()),) * 2)
    for block, claimed in zip(blocks, strategy.sensitivities(), strict=True):
        rows = block_rows(DOMAIN, block)
        if noise == "laplace":
            largest = np.abs(rows).sum(axis=0).max()
            variance = 2 * (float(largest) / float(block.share)) ** 2
        else:
            largest = (rows.astype(object) ** 2).sum(axis=0).max()
            variance = GAUSSIAN_DEVIATION**2 * float(largest) / float(block.share)
        assert largest == claimed
        information += rows.astype(float).T @ rows / variance
    W = query_rows(workload)
    inverse = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    assert np.allclose(W @ inverse @ information, W, atol=1e-6)
    total = float(np.einsum("ij,jk,ik->", W, inverse, W))
    assert strategy.rmse(workload) == pytest.approx(math.sqrt(total / workload.rows), rel=1e-8)


def draw(noise: Noise, scale: float, size: int, rng: np.random.Generator) -> Matrix:
    """Return discrete Laplace noise of a scale, or rounded normal noise of a variance."""
    if noise == "laplace":
        p = -math.expm1(-1 / scale)
        return rng.geometric(p, size) - rng.geometric(p, size)
    return np.rint(rng.normal(0, math.sqrt(scale), size)).astype(np.int64)


@pytest.mark.parametrize(("name", "mechanism", "noise"), [c for c in CASES if c[0] == "ranges"])
def test_simulated_errors_keep_to_the_forecast(name: str, mechanism: str, noise: Noise) -> None:
    workload, strategy = plan(name, mechanism, noise)
    scales = strategy.scales(Fraction(1, 20))
    variances = strategy.noise_variances(scales)
    rng = np.random.default_rng(11)
    x = rng.poisson(40, math.prod(DOMAIN.values()))
    exact = [block_rows(DOMAIN, block) @ x for block in strategy.blocks]
    products = workload.products
    truth = np.concatenate([query_rows(Workload(DOMAIN, [p.factors])) @ x for p in products])
    squares = np.empty(RUNS)
    for k in range(RUNS):
        values = [
            rows + draw(noise, float(scale), len(rows), rng)
            for rows, scale in zip(exact, scales, strict=True)
        ]
        found = strategy.solve(values, strategy.forecast(variances))
        answers = np.concatenate([found.answer(product) for product in products])
        squares[k] = np.square(answers - truth).sum()
    forecast = sum(strategy.forecast(variances).total(product) for product in products)
    chance = float(squares.std(ddof=1)) / math.sqrt(RUNS)
    assert abs(float(squares.mean()) - forecast) < LIMIT * chance


def test_richer_families_are_never_worse() -> None:
    """Joint contains one Kronecker block; residual measurements attain the bound on marginals."""
    noises: tuple[Noise, ...] = ("laplace", "gaussian")
    for noise in noises:
        for name in WORKLOADS:
            workload, joint = plan(name, "joint", noise)
            least = joint.unit_error(workload) * (1 - 1e-3)
            assert least <= plan(name, "kron", noise)[1].unit_error(workload)
    workload, residual = plan("marginals", "residual", "gaussian")
    assert residual.unit_error(workload) == pytest.approx(svd_bound(workload), rel=1e-9)
