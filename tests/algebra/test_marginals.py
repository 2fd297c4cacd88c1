"""The marginals algebra on 2 x 3 x 4 against dense matrices (HDMM, Theorems 7 to 13)."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pytest

from benchmarks.published import marginal_error
from dpsql.algebra import marginals
from dpsql.algebra.operator import Array, Floats

SIZES = (2, 3, 4)
SETS = list(product((0, 1), repeat=3))
N = 24


def kron(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.kron(left, right))


def marginal_rows(inside: tuple[int, ...]) -> Floats:
    rows = [np.eye(n) if on else np.ones((1, n)) for on, n in zip(inside, SIZES, strict=True)]
    return np.asarray(reduce(kron, rows))


def gram(u: Array) -> Floats:
    total = np.zeros((N, N))
    for inside in SETS:
        rows = marginal_rows(inside)
        total += u[inside] * rows.T @ rows
    return total


def projector(inside: tuple[int, ...]) -> Floats:
    parts = [
        np.eye(n) - np.ones((n, n)) / n if on else np.ones((n, n)) / n
        for on, n in zip(inside, SIZES, strict=True)
    ]
    return np.asarray(reduce(kron, parts))


@pytest.fixture
def u() -> Floats:
    return np.random.default_rng(0).random((2, 2, 2))


@pytest.fixture
def v() -> Floats:
    return np.random.default_rng(1).normal(size=(2, 2, 2))


def test_subset_sums(u: Floats, v: Floats) -> None:
    above, below = marginals.sup(u), marginals.sub(u)
    for c in SETS:
        assert above[c] == pytest.approx(
            sum(u[m] for m in SETS if all(x <= y for x, y in zip(c, m, strict=True)))
        )
        assert below[c] == pytest.approx(
            sum(u[m] for m in SETS if all(x >= y for x, y in zip(c, m, strict=True)))
        )
    assert np.vdot(above, v) == pytest.approx(np.vdot(u, marginals.sub(v)))


def test_eigenvalues_and_projectors(u: Floats) -> None:
    values, sizes = marginals.eigenvalues(u, SIZES), marginals.dimensions(SIZES)
    total = np.zeros((N, N))
    for c in SETS:
        assert np.trace(projector(c)) == pytest.approx(sizes[c])
        total += values[c] * projector(c)
    np.testing.assert_allclose(total, gram(u), atol=1e-12)


def test_unsupported_workloads_have_infinite_error() -> None:
    u = np.zeros((2, 2, 2))
    u[1, 0, 0] = 1
    traces = marginals.eigenvalues(np.ones((2, 2, 2)), SIZES)
    assert marginal_error(u, traces, SIZES) == float("inf")
    traces[:, 1, :] = traces[:, :, 1] = 0
    assert np.isfinite(marginal_error(u, traces, SIZES))


def closed_form(weights2: Floats) -> tuple[Floats, float, Floats]:
    """Return theta^2 of Theorem 13, the bound of Theorem 12 and the traces of the workload."""
    values, sizes = marginals.eigenvalues(weights2, SIZES), marginals.dimensions(SIZES)
    theta2 = marginals.coefficients(np.sqrt(values), SIZES)
    return theta2, float((sizes * np.sqrt(values)).sum() ** 2) / N, sizes * values


def test_closed_form_attains_the_bound_when_it_is_a_strategy() -> None:
    theta2, bound, traces = closed_form(np.ones((2, 2, 2)))
    assert (theta2 >= 0).all()
    assert theta2.sum() * marginal_error(theta2, traces, SIZES) == pytest.approx(bound)
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram(np.ones((2, 2, 2)))), 0))
    assert singular.sum() ** 2 / N == pytest.approx(bound)


def test_closed_form_may_have_negative_entries() -> None:
    weights2 = np.zeros((2, 2, 2))
    weights2[1, 1, 0] = weights2[0, 1, 1] = 1
    weights2[1, 0, 1] = 1
    theta2, bound, traces = closed_form(weights2)
    assert theta2.min() < 0
    clipped = np.maximum(theta2, 0)
    assert clipped.sum() * marginal_error(clipped, traces, SIZES) > bound
