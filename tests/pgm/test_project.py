"""Projections against solvers, and the error predictor against planned strategies."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from dpsql.pgm.predict import POWERS, best_power, largest_error, marginal_errors
from dpsql.pgm.project import (
    project_monotone,
    project_simplex,
)
from dpsql.search.select import select
from dpsql.workload.workload import Workload

ADULT = {
    "age": 85,
    "work": 9,
    "fnlwgt": 100,
    "edu": 16,
    "marital": 7,
    "job": 15,
    "relation": 6,
    "race": 5,
    "sex": 2,
    "gain": 100,
    "loss": 100,
    "hours": 99,
    "country": 42,
    "income": 2,
}
RHO = (1.15513e-4, 2.86146e-3, 1.13174e-2)
ROWS = 48_842


def adult_cliques() -> list[tuple[str, ...]]:
    """Return the 64 seeded 3-way marginals of the published tables."""
    triples = [c for c in combinations(ADULT, 3) if math.prod(ADULT[a] for a in c) <= ROWS]
    drawn = np.random.RandomState(0).choice(len(triples), 64, replace=False)
    return [triples[i] for i in drawn]


@pytest.mark.parametrize("seed", range(8))
def test_the_simplex_projection_is_the_nearest_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, total = rng.normal(1, 3, 6), float(rng.uniform(0.5, 10))
    found = project_simplex(values, total)
    feasible = []
    for chosen in product([False, True], repeat=6):
        support = np.array(chosen)
        if support.any():
            shifted = values - (values[support].sum() - total) / support.sum()
            feasible.append(np.where(support, shifted, 0.0))
    nearest = min(
        (u for u in feasible if (u >= 0).all()), key=lambda u: float(((u - values) ** 2).sum())
    )
    assert found.sum() == pytest.approx(total, rel=1e-12)
    assert found == pytest.approx(nearest, abs=1e-12)


def test_rows_are_projected_one_by_one() -> None:
    rng = np.random.default_rng(3)
    values, totals = rng.normal(0, 5, (7, 4)), rng.uniform(0, 9, 7)
    rows = [project_simplex(v, float(t)) for v, t in zip(values, totals, strict=True)]
    assert np.array_equal(project_simplex(values, totals), np.array(rows))


def test_edges_of_the_simplex_projection() -> None:
    assert project_simplex(np.zeros(0), 1.0).shape == (0,)
    assert project_simplex(np.array([-7.0]), 3.0).tolist() == [3.0]
    assert project_simplex(np.array([5.0, -5.0]), 0.0).tolist() == [0.0, 0.0]
    assert project_simplex(np.array([1e16, 1e16 + 2]), 10.0).tolist() == [4.0, 6.0]
    inside = np.array([0.25, 0.75])
    assert project_simplex(inside).tolist() == inside.tolist()


def test_monotone_projection_pools_by_weight() -> None:
    values, variances = np.array([4.0, 1.0, 5.0]), np.array([1.0, 0.5, 1.0])
    assert project_monotone(values, variances) == pytest.approx([2.0, 2.0, 5.0])
    assert project_monotone(np.array([-3.0, -1.0])).tolist() == [0.0, 0.0]


def test_predictions_of_the_adult_workload() -> None:
    cliques = adult_cliques()
    plain = marginal_errors(ADULT, cliques)
    assert sum(plain.cells) == 458_996
    assert plain.root**2 == pytest.approx(16_199_281.7, rel=1e-8)
    assert [plain.rmse(r) / ROWS for r in RHO] == pytest.approx(
        [0.008002, 0.001608, 0.0008085], rel=1e-3
    )
    even = marginal_errors(ADULT, cliques, 0.25)
    assert even.root**2 == pytest.approx(201_424.43, rel=1e-7)
    largest = {
        g: [round(marginal_errors(ADULT, cliques, g).largest(r) / ROWS, 4) for r in RHO]
        for g in POWERS
    }
    assert largest[0.0] == [0.0786, 0.0158, 0.0079]
    assert largest[0.25] == [0.0496, 0.0100, 0.0050]
    assert largest[0.375] == [0.0444, 0.0089, 0.0045]
    assert largest[0.5] == [0.0471, 0.0095, 0.0048]
    assert best_power(ADULT, cliques) == 0.375


def test_the_predictor_agrees_with_the_planned_strategy() -> None:
    domain = {"a": 3, "b": 4, "c": 2}
    cliques = [("a", "b"), ("b", "c"), ("a",)]
    errors = marginal_errors(domain, cliques, 0.25)
    squares = zip(errors.weights, errors.cells, errors.variances, strict=True)
    assert sum(w**2 * n * v for w, n, v in squares) == pytest.approx(errors.root**2)
    products = [
        (dict.fromkeys(clique, "identity"), weight)
        for clique, weight in zip(cliques, errors.weights, strict=True)
    ]
    workload = Workload(domain, products)
    strategy = select(workload, "gaussian")
    forecast = strategy.forecast([float(scale) for scale in strategy.scales(Fraction(1, 2))])
    found = [forecast.variance(asked) for asked in workload.products]
    for variance, expected in zip(found, errors.variances, strict=True):
        assert variance == pytest.approx(np.full(len(variance), expected), rel=0.02)


def test_one_cell_in_expectation_exceeds_the_largest_error() -> None:
    cells, stddevs = (500, 20), (1.0, 7.0)
    level = largest_error(cells, stddevs)
    expected = sum(
        n * math.erfc(level / (math.sqrt(2) * s)) for n, s in zip(cells, stddevs, strict=True)
    )
    assert expected == pytest.approx(1, rel=1e-9)
