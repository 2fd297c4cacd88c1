"""Queries that are alike: kinds of pairs, blocks and descents say what dense matrices say."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense
from dpsql.algebra.operator import Floats
from dpsql.search.one_attribute.distinct_queries import LowRank, read_few
from dpsql.search.one_attribute.low_rank import few_candidates, few_near, read_many
from dpsql.search.one_attribute.low_rank_descent import Bounds, descend
from dpsql.search.problem import Problem
from dpsql.search.symmetry.symmetric_descent import _AlikeLoss, descend_alike, in_sizes
from dpsql.search.symmetry.symmetric_queries import MOST_KINDS, SymmetricQueries, find_alike
from dpsql.search.work_limit import metered
from dpsql.strategy.base import Strategy
from dpsql.workload.workload import Product, Workload

SHAPE = (3, 5, 4)


def groups(*columns: int, kept: Sequence[int] = (), shape: Sequence[int] = SHAPE) -> Floats:
    """The groups of some columns, of cells whose last column has one of the values kept."""
    cells = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    keys, inverse = np.unique(cells[:, columns], axis=0, return_inverse=True)
    rows = (inverse.reshape(-1) == np.arange(len(keys))[:, np.newaxis]).astype(np.float64)
    return np.asarray(rows * np.isin(cells[:, -1], kept)) if kept else rows


def problem_of(statements: Sequence[Floats], weights: Sequence[float] = ()) -> Problem:
    n = statements[0].shape[1]
    pairs = zip(statements, weights or [1.0] * len(statements), strict=True)
    products = [({"x": rows.astype(np.int64)}, weight) for rows, weight in pairs]
    return Problem(Workload({"x": n}, products), "laplace")


REQUESTS = {
    "groups": [groups(0), groups(1), groups(0, 1, kept=(0,))],
    "dependent": [groups(0, 1), groups(1), groups()],
    "values": [groups(0), 3 * groups(1, kept=(0, 2)) + groups(1, kept=(1,))],
    "none": [np.eye(6), np.triu(np.ones((6, 6)))],
}


@pytest.fixture(params=list(REQUESTS))
def few(request: pytest.FixtureRequest) -> LowRank:
    found = read_few(problem_of(REQUESTS[request.param]))
    assert found is not None
    return found


def alike_of(few: LowRank) -> SymmetricQueries:
    found = find_alike(few.queries, few.weights2)
    assert found is not None
    return found


def numbers_of(alike: SymmetricQueries, seed: int = 0) -> Floats:
    """Numbers at random for every kind, those of a query with itself the largest."""
    rng = np.random.default_rng(seed)
    out = 0.2 * alike.spread * rng.standard_normal(alike.size)
    out[alike.diagonal] += rng.uniform(1, 2, len(alike.diagonal))
    return np.asarray(out)


def variances_of(few: LowRank, combined: Floats) -> Floats:
    """The variance of every query, by dense matrices, where every row has noise of variance one."""
    found = few.queries @ np.linalg.pinv(combined @ few.queries)
    return np.asarray(np.square(found).sum(axis=1))


def test_kinds_are_closed_under_products_and_transposes(few: LowRank) -> None:
    alike = alike_of(few)
    rng = np.random.default_rng(1)
    one, other = rng.integers(1, 1000, (2, alike.size))
    product = one[alike.kinds] @ other[alike.kinds]
    for matrix in (product, alike.kinds.T, few.queries @ few.queries.T):
        for kind in range(alike.size):
            assert len(np.unique(matrix[alike.kinds == kind])) == 1
    assert len(np.unique(few.weights2[alike.sorts])) <= len(alike.diagonal)


def test_blocks_and_forms_are_those_of_the_matrix(few: LowRank) -> None:
    alike = alike_of(few)
    few = in_sizes(few, alike)
    numbers = numbers_of(alike)
    combined = numbers[alike.kinds]
    loss = _AlikeLoss(few, alike, None)
    variances, _ = loss._variances(numbers)
    assert variances[alike.sorts] == pytest.approx(variances_of(few, combined))
    assert loss.norm(numbers) == pytest.approx(np.abs(combined @ few.queries).sum(axis=0).max())
    assert alike.rank == np.linalg.matrix_rank(few.queries) == len(few.basis)
    assert sum(p.copies * p.kinds.shape[0] for p in alike.parts) <= len(few.queries)


@pytest.mark.parametrize("is_bounded", [False, True])
def test_derivatives_are_those_of_differences(few: LowRank, is_bounded: bool) -> None:
    alike = alike_of(few)
    few = in_sizes(few, alike)
    numbers = numbers_of(alike)
    bounds = None
    if is_bounded:
        shares = np.random.default_rng(2).random((2, len(few.queries)))
        limits = shares @ variances_of(few, numbers[alike.kinds])
        norm = np.abs(numbers[alike.kinds] @ few.queries).sum(axis=0).max()
        bounds = Bounds(shares, limits * norm**2 * [0.8, 1.2])
    loss = _AlikeLoss(few, alike, bounds)
    loss.sharpen(1e-2, 8, numbers / loss.norm(numbers))
    _, slope = loss(numbers)
    for place in range(0, alike.size, 3):
        step = np.zeros(alike.size)
        step[place] = 1e-6
        difference = (loss(numbers + step)[0] - loss(numbers - step)[0]) / 2e-6
        assert slope[place] == pytest.approx(difference, rel=1e-4, abs=1e-6)


def error_of(few: LowRank, matrix: Floats) -> float:
    """The weighted error of combinations of the basis."""
    rows = matrix @ few.basis
    found = few.queries @ np.linalg.pinv(rows)
    return float(np.abs(rows).sum(axis=0).max() ** 2 * few.weights2 @ np.square(found).sum(axis=1))


def means_of(strategy: Strategy, products: Sequence[Product]) -> Floats:
    """The mean variance of the rows of each product, at a unit budget."""
    forecast = strategy.forecast(strategy.unit_variances())
    return np.array([forecast.variance(product).mean() for product in products])


def test_the_descent_is_no_worse_than_that_over_all_combinations(few: LowRank) -> None:
    scales = np.cbrt(few.weights2 / np.abs(few.queries).max(axis=1))
    every = error_of(few, descend(few, few.coefficients * scales[:, np.newaxis]))
    found = descend_alike(few, alike_of(few))
    assert found.error == pytest.approx(error_of(few, found.matrix))
    assert found.worst == 0
    assert every * 1.005 >= found.error
    assert found.error < error_of(few, few.coefficients)


def test_kinds_are_few_where_values_are_alike_and_too_many_where_none_are() -> None:
    rows = [groups(0, 1, shape=(20, 10, 2), kept=(0,)), groups(0, shape=(20, 10, 2))]
    few = read_few(problem_of(rows))
    assert few is not None
    assert alike_of(few).size == 3 + 2 + 2 + 2  # the same, in one row, or in another
    rng = np.random.default_rng(3)
    other = (rng.random((40, 60)) < 0.5).astype(np.float64)
    assert find_alike(other, np.ones(40)) is None
    assert MOST_KINDS < 40**2


def test_numbers_that_would_be_rounded_are_not_told_apart() -> None:
    assert find_alike(np.diag([2.0**40, 1.0]), np.ones(2)) is None


def test_weights_tell_queries_apart() -> None:
    one = find_alike(np.eye(6), np.ones(6))
    two = find_alike(np.eye(6), np.array([1.0, 1, 1, 2, 2, 2 + 1e-13]))
    assert one is not None
    assert two is not None
    assert (one.size, two.size) == (2, 6)


def test_more_than_few_queries_are_combined_and_answered() -> None:
    shape = (30, 12, 2)
    statements = [groups(0, 1, kept=(0,), shape=shape), groups(0, shape=shape), groups(shape=shape)]
    problem = problem_of(statements)
    assert read_few(problem) is None
    few = read_many(problem)
    assert few is not None
    assert few.alike is not None
    assert few.alike.rank == np.linalg.matrix_rank(few.queries)
    (found,) = [each for each, _ in few_candidates(problem, few, 1.0)]
    each_alone = 3**2 * sum(map(len, statements))
    assert found.unit_error(problem.workload) < 0.5 * each_alone


def test_more_than_few_that_depend_on_each_other_keep_their_rank() -> None:
    shape = (25, 12)
    statements = [groups(0, 1, shape=shape), groups(0, shape=shape), groups(1, shape=shape)]
    problem = problem_of(statements, (1.0, 3.0, 3.0))
    few = read_many(problem)
    assert few is not None
    assert few.alike is not None
    assert few.alike.rank == 300 < len(few.queries)
    (found,) = [each for each, _ in few_candidates(problem, few, 1.0)]
    assert math.isfinite(found.unit_error(problem.workload))


def test_limits_are_kept_by_more_than_few() -> None:
    shape = (30, 12, 2)
    statements = [groups(0, 1, kept=(0,), shape=shape), groups(0, shape=shape), groups(shape=shape)]
    problem = problem_of(statements)
    few = read_many(problem)
    assert few is not None
    (best,) = [each for each, _ in few_candidates(problem, few, 1.0)]
    products = [product for product, _ in problem.workload.asked]
    means = means_of(best, products)
    limits = np.where(means == means.max(), 0.8 * means, 2 * means)
    answers = [(1.0, Dense(rows.astype(np.int64))) for rows in statements]
    order = [int(np.argmin([abs(p.rows - len(rows)) for p in products])) for rows in statements]
    found = few_near(problem, best, answers, limits[order])
    assert found is not None
    assert (means_of(found, products) <= limits * 1.001).all()


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_large_values_take_no_longer_than_counts(seed: int) -> None:
    """The same problem in other units: sums of money beside counts took ten times the steps."""
    rng = np.random.default_rng([seed, 4424])
    rows = np.unique(rng.integers(0, 2, (4, 5)), axis=0)
    rows = rows[rows.any(axis=1)]
    weights = rng.choice([1.0, 2.0], len(rows))
    found = []
    for units in (np.ones(len(rows)), rng.choice([1.0, 1000.0, 20000.0], len(rows))):
        asked = [
            ({"a": Dense(row[np.newaxis] * unit)}, weight / unit)
            for row, weight, unit in zip(rows, weights, units, strict=True)
        ]
        few = read_few(Problem(Workload({"a": 5}, asked), "laplace"))
        assert few is not None
        with metered(math.inf) as meter:
            combined = descend_alike(few, alike_of(few))
        found.append((combined.error, meter.done))
    (counts, work), (sums, more) = found
    assert sums == pytest.approx(counts, rel=0.02)
    assert more <= 4 * work
