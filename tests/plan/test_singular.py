"""Workloads of low rank: functions of one column that meet in one request, alone or joint.

Every mechanism that plans such a workload answers all of it, its forecast is dense algebra's, and
what is measured without noise gives the exact answers.
"""

from __future__ import annotations

import contextlib
import math
from functools import reduce
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.levels import Structured
from dpsql.errors import ProgrammingError
from dpsql.plan import Workload, select
from dpsql.settings.table import FAMILIES, PUBLISHED
from dpsql.strategy.base import Block, Strategy
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.symmetric import SymmetricStrategy
from tests.support.effort import effort

ROUNDS = effort(5)
SIZES = [[24], [12], [30], [6, 4], [12, 3], [8, 6], [6, 4, 2], [3, 4, 5]]
Rows = NDArray[Any]


def indicator(labels: Rows) -> Rows:
    """The rows that sum over every class of cells."""
    return np.asarray(labels == np.unique(labels)[:, np.newaxis], dtype=np.int64)


def factor(random: np.random.Generator, n: int, even: bool) -> Rows | str:
    """A function of a column: its remainder, its quotient, bands, any classes, one condition.

    ``even`` ones have classes of one size, so that all cells are alike and none needs more noise.
    """
    k = int(random.integers(2, n)) if n > 2 else 2
    cells = np.arange(n)
    if even:
        k = int(random.choice([j for j in range(1, n + 1) if n % j == 0]))
        return indicator(cells % k if random.random() < 0.5 else cells // k)
    match int(random.integers(7)):
        case 0 | 1:
            return indicator(cells % k)
        case 2 | 3:
            return indicator(cells // k)
        case 4:
            return indicator(random.integers(0, k, n))
        case 5:
            return (cells < k).astype(np.int64)[np.newaxis]
        case _:
            return "identity" if random.random() < 0.3 else indicator(np.minimum(cells, k - 1))


def singular(seed: int) -> Workload:
    """Return a random workload; on most of its attributes the queries have less than full rank."""
    random = np.random.default_rng(seed)
    sizes = SIZES[seed // 2 % len(SIZES)]
    domain = {chr(ord("a") + i): n for i, n in enumerate(sizes)}
    products, even = [], seed % 2 == 0
    for _ in range(int(random.integers(1, 5))):
        used = [name for name in domain if random.random() < 0.7] or [next(iter(domain))]
        weight = float(random.choice([1.0, 1.0, 0.25, 3.0]))
        products.append(({name: factor(random, domain[name], even) for name in used}, weight))
    return Workload(domain, products)


def dense(workload: Workload, factors: dict[str, Rows]) -> Rows:
    parts = [factors.get(name, np.ones((1, n))) for name, n in workload.domain.items()]
    return reduce(np.kron, parts).astype(np.float64)


def measured(workload: Workload, strategy: Strategy, block: Block) -> Rows:
    """The rows of a block over all cells of the domain."""
    if isinstance(strategy, SymmetricStrategy):
        shape = [n if a in block.attributes else 1 for a, n in workload.domain.items()]
        tensor = (
            strategy.block.integer_rows.matrix().astype(float).reshape(strategy.block.rows, *shape)
        )
        full = np.broadcast_to(tensor, (strategy.block.rows, *workload.domain.values()))
        return full.reshape(strategy.block.rows, -1)
    names = {name: rows for name, rows in block.factors.items() if isinstance(name, str)}
    return dense(workload, {n: written(r, workload.domain[n]) for n, r in names.items()})


def written(rows: Rows | Structured | None, n: int) -> Rows:
    """The rows of one attribute as an array; None is the identity."""
    if rows is None:
        return np.eye(n)
    return np.asarray(rows.dense()) if isinstance(rows, Structured) else rows


def check(workload: Workload, strategy: Strategy) -> None:
    noise = strategy.unit_variances()
    forecast = strategy.forecast(noise)
    rows = [measured(workload, strategy, block) for block in strategy.blocks]
    cells = np.random.default_rng(1).integers(0, 1000, math.prod(workload.domain.values()))
    values = [np.rint(r @ cells).astype(np.int64) for r in rows]
    found = strategy.solve(values, strategy.forecast(noise))
    stacked = np.concatenate([r / np.sqrt(v) for r, v in zip(rows, noise, strict=True)])
    for product in workload.products:
        asked = dense(workload, {n: op.dense() for n, op in product.factors.items()})
        weights, *_ = np.linalg.lstsq(stacked.T, asked.T, rcond=1e-12)
        assert np.abs(stacked.T @ weights - asked.T).max() < 1e-6, "the rows do not span a query"
        variance = np.square(weights).sum(axis=0)
        assert forecast.supports(product)
        assert forecast.variance(product) == pytest.approx(variance, rel=1e-4)
        assert found.answer(product) == pytest.approx(asked @ cells, abs=1e-3)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_workload_of_low_rank_is_answered(seed: int, noise: Noise) -> None:
    workload = singular(seed)
    check(workload, select(workload, noise, effort=0.5))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("seed", range(ROUNDS // 4))
@pytest.mark.parametrize("mechanism", [*FAMILIES[1:], *PUBLISHED])
def test_by_every_mechanism(seed: int, noise: Noise, mechanism: str) -> None:
    workload = singular(1000 + seed)
    with contextlib.suppress(ProgrammingError):  # E_TOO_LARGE or E_SETTING: it does not fit
        check(workload, select(workload, noise, mechanism, effort=0.25))
