"""Attributes of one cell: as dense algebra has it, and none doubles the components."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.algebra.operator import Integers, Operator
from dpsql.search.problem import Problem
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.product_block import ProductBlock
from dpsql.workload.workload import Product, Workload

SIZES = (1, 1, 1, 2, 3)
ROWS = {
    1: [None, [[1]], [[3]], [[-2]], [[1], [2]]],
    2: [None, [[1, 1], [0, 2]], [[2, 1], [1, 3], [0, 1]]],
    3: [None, [[1, 0, 0], [1, 1, 1], [0, 2, 1]]],
}
FACTORS: dict[int, list[Operator]] = {
    1: [Identity(1), *(Dense(np.array(rows)) for rows in ([[2]], [[1], [3]], [[0]], [[0], [1]]))],
    2: [Identity(2), Prefix(2), Dense(np.array([[1, 0]]))],
    3: [Identity(3), Prefix(3), Dense(np.array([[1, 0, 2], [0, 1, 1]]))],
}
SEEDS = range(60)


def drawn(rng: np.random.Generator, noise: Noise) -> ProductStrategy:
    """A random strategy over attributes in random order, with residual rows of some blocks."""
    order = rng.permutation(len(SIZES)).tolist()
    domain = {f"x{i}": SIZES[i] for i in order}
    has_residual = rng.random() < 0.4
    full: dict[str, Integers | None] = {}
    residual: dict[str, Integers | None] = {}
    for name, n in domain.items():
        choices = ROWS[n][: 1 if has_residual and n > 1 else None]
        chosen = choices[int(rng.integers(len(choices)))]
        full[name] = None if chosen is None else np.array(chosen)
        if has_residual and n > 1:
            residual[name] = None
    count = int(rng.integers(1, 6))
    blocks = []
    for _ in range(count):
        names = tuple(name for name in domain if rng.random() < 0.7)
        own = frozenset(name for name in names if name in residual and rng.random() < 0.5)
        blocks.append(ProductBlock(names, own, Fraction(1, count)))
    return ProductStrategy(domain, full, residual, tuple(blocks), noise, "test")


def product(rng: np.random.Generator, domain: dict[str, int], rows: int = 0) -> Product:
    """A random product; of so many ``rows`` in every factor, any number where it is 0."""
    factors = {}
    for name, n in domain.items():
        choices = [each for each in FACTORS[n] if rows in (0, each.rows)]
        if rng.random() < 0.7 and choices:
            factors[name] = choices[int(rng.integers(len(choices)))]
    return Product(factors)


def kron(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return reduce(lambda left, right: np.asarray(np.kron(left, right)), parts, np.ones((1, 1)))


def dense_block(strategy: ProductStrategy, block: ProductBlock) -> NDArray[np.float64]:
    parts = []
    for name, n in strategy.domain.items():
        rows = block.factors[name] if name in block.attributes else np.ones((1, n))
        parts.append(np.eye(n) if rows is None else rows.astype(np.float64))
    return kron(parts)


def dense_product(strategy: ProductStrategy, asked: Product) -> NDArray[np.float64]:
    pairs = strategy.domain.items()
    found = [asked.factors[a].dense() if a in asked.factors else np.ones((1, n)) for a, n in pairs]
    return kron([each.astype(np.float64) for each in found])


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("seed", SEEDS)
def test_is_dense_least_squares(seed: int, noise: Noise) -> None:
    rng = np.random.default_rng([seed, 5])
    strategy = drawn(rng, noise)
    rows = [dense_block(strategy, block) for block in strategy.blocks]
    variances = [float(rng.uniform(0.5, 20)) * np.abs(R).max() ** 2 for R in rows]
    values = [np.rint(100 * rng.normal(size=len(R))).astype(np.int64) for R in rows]
    forecast = strategy.forecast(variances)
    estimate = strategy.solve(values, forecast)
    information = sum(R.T @ R / v for R, v in zip(rows, variances, strict=True))
    score = sum(R.T @ y / v for R, y, v in zip(rows, values, variances, strict=True))
    inverse = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    spanned = inverse @ information
    sizes = dict(strategy.domain)
    products = [product(rng, sizes) for _ in range(12)]
    products += [product(rng, sizes, rows=1) for _ in range(12)]
    supported = []
    for asked in products:
        W = dense_product(strategy, asked)
        is_spanned = bool(np.abs(W @ spanned - W).max() < 1e-8)
        assert forecast.supports(asked) == is_spanned
        if not is_spanned:
            continue
        supported.append(asked)
        cov = W @ inverse @ W.T
        spread = pytest.approx(cov.diagonal(), rel=1e-8, abs=1e-9)
        assert estimate.answer(asked) == pytest.approx(W @ inverse @ score, rel=1e-8, abs=1e-6)
        assert forecast.variance(asked) == spread
        assert forecast.total(asked) == pytest.approx(np.trace(cov), rel=1e-8, abs=1e-9)
        assert forecast.covariance(asked, asked) == spread
    assert forecast.totals(supported) == pytest.approx([forecast.total(p) for p in supported])
    together = zip(
        supported, estimate.answers(supported), forecast.variances(supported), strict=True
    )
    for asked, answers, variances_of in together:
        assert answers == pytest.approx(estimate.answer(asked), abs=1e-7)
        assert variances_of == pytest.approx(forecast.variance(asked), rel=1e-9)
    single = [asked for asked in supported if asked.rows == 1]
    for left, right in pairwise(single):
        one, two = (dense_product(strategy, each) for each in (left, right))
        want = (one @ inverse @ two.T)[0]
        assert forecast.paired(left, right) == pytest.approx(want, rel=1e-8, abs=1e-9)
        assert forecast.covariance(left, right) == pytest.approx(want, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("count", [5, 60])
def test_no_component_is_over_one_cell(count: int) -> None:
    """So many conditions joined by AND, beside a grouping, have the components of the grouping."""
    conditions = {f"c{i}": 1 for i in range(count)}
    domain = {**dict(list(conditions.items())[:2]), "a": 3, **conditions}
    names = tuple(domain)
    blocks = (
        ProductBlock(names, frozenset(), Fraction(1, 2)),
        ProductBlock(tuple(conditions), frozenset(), Fraction(1, 2)),
    )
    full = dict.fromkeys(names)
    strategy = ProductStrategy(domain, full, {}, blocks, "laplace", "test")
    forecast = strategy.forecast([2.0, 3.0])
    asked = Product({name: Identity(n) for name, n in domain.items()})
    estimate = strategy.solve([np.array([4, 5, 6]), np.array([18])], forecast)
    assert forecast.precision == {0: 1 / 6 + 1 / 3, forecast.bit["a"]: 1 / 2}
    assert list(estimate.tables) == [forecast.bit["a"]]
    assert forecast.inverse_precisions(names)[0].shape == (2,)
    assert [block.estimated for block in strategy.blocks] == [3, 1]
    gained = (18 - 15) * (1 / 3) / (1 / 6 + 1 / 3)
    assert estimate.answer(asked) == pytest.approx(np.array([4, 5, 6]) + gained / 3)
    assert estimate.answers([asked])[0] == pytest.approx(estimate.answer(asked))


def test_problems_of_many_conditions_form_no_components() -> None:
    """Pinned attributes are planned one by one: what is over them together is never written out."""
    domain = {f"c{i}": 1 for i in range(60)}
    asked = dict.fromkeys(domain, "identity")
    problem = Problem(Workload(domain, [asked], pinned=domain), "gaussian")
    assert problem.components.supports == [problem.full]
    assert problem.cells(problem.full) == 1
    assert not {"masks", "groups"} & vars(problem.components).keys()
