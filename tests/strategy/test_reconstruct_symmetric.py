"""Reconstruction of symmetric strategies against dense least squares."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.errors import ProgrammingError
from dpsql.workload.workload import Workload
from tests.support.symmetric import UNIONS, dense_rows, measured_rows, strategy_of


@pytest.mark.parametrize("name", UNIONS)
def test_answers_are_those_of_dense_least_squares(name: str) -> None:
    workload = UNIONS[name]
    strategy = strategy_of(name)
    A = measured_rows(workload, strategy).astype(np.int64)
    rng = np.random.default_rng(5)
    x = rng.poisson(20, A.shape[1])
    noisy = A @ x + rng.integers(-(1 << 14), 1 << 14, len(A))
    estimate = strategy.solve([noisy], strategy.forecast([2.0]))
    solution = np.linalg.pinv(A.astype(float), rcond=1e-12) @ noisy
    answers = estimate.answers(workload.products)
    for product, answer in zip(workload.products, answers, strict=True):
        exact = dense_rows(workload, product) @ solution
        assert np.allclose(answer, exact, rtol=1e-9, atol=1e-8)
        assert np.allclose(estimate.answer(product), answer, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("name", UNIONS)
def test_without_noise_the_answers_are_exact(name: str) -> None:
    workload = UNIONS[name]
    strategy = strategy_of(name)
    x = np.random.default_rng(6).poisson(1000, list(workload.domain.values()))
    spare = [a not in strategy.block.attributes for a in workload.domain]
    counts = x.sum(axis=tuple(np.flatnonzero(spare)))
    for values in (
        strategy.block.integer_rows.apply(counts),
        strategy.block.integer_rows.apply(counts).astype(object),
    ):
        estimate = strategy.solve([values], strategy.forecast([1.0]))
        for product in workload.products:
            exact = dense_rows(workload, product) @ x.reshape(-1)
            assert np.allclose(estimate.answer(product), exact, rtol=1e-9, atol=1e-7)


def test_simulated_errors_follow_the_forecast() -> None:
    workload = UNIONS["mixed"]
    strategy = strategy_of("mixed")
    sigma = float(strategy.sensitivity(strategy.block)) ** 0.5
    rng = np.random.default_rng(7)
    x = np.zeros([orbits.n for orbits in strategy.block.integer_rows.orbits], dtype=np.int64)
    exact = strategy.block.integer_rows.apply(x)
    runs = 600
    squares = [np.zeros(p.rows) for p in workload.products]
    for _ in range(runs):
        noisy = exact + np.rint(rng.normal(0, sigma, len(exact))).astype(np.int64)
        estimate = strategy.solve([noisy], strategy.forecast([sigma**2]))
        for total, answer in zip(squares, estimate.answers(workload.products), strict=True):
            total += answer**2
    variances = strategy.forecast((sigma**2,)).variances(workload.products)
    found = sum(float(total.sum()) for total in squares) / runs
    assert found == pytest.approx(sum(float(v.sum()) for v in variances), rel=0.08)


def test_what_is_not_measured_is_refused() -> None:
    workload = UNIONS["mixed"]
    strategy = strategy_of("mixed")
    values = np.zeros(strategy.block.rows, dtype=np.int64)
    estimate = strategy.solve([values], strategy.forecast([1.0]))
    other = Workload(
        workload.domain, [{"a": "identity", "c": "identity"}, {"a": [[1, 0]], "c": np.eye(1, 6)}]
    )
    for product in other.products:
        with pytest.raises(ProgrammingError) as refusal:
            estimate.answers([product])
        assert refusal.value.code == "E_NOT_MEASURED"
    with pytest.raises(ValueError):
        strategy.solve([np.append(values, 0)], strategy.forecast([1.0]))
