"""The Gaussian strategy problem: three solvers, certificates and singular workloads."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsql.algebra.blocks import (
    AllRange,
    Dense,
    Identity,
    IdentityTotal,
    Permuted,
    Prefix,
    Total,
    WidthRanges,
)
from dpsql.algebra.operator import Floats, Operator
from dpsql.search.one_attribute import dual
from dpsql.search.unions import coa
from dpsql.search.work_limit import metered
from tests.support import triangle

PER_UNIT = 4.224678889326836
"""Noise per unit L2 sensitivity in the published tables (epsilon 1, delta 1e-6)."""


def total_error(rows: Floats, V: Floats) -> float:
    """Return the unit-noise total squared error of a strategy, scaled to unit sensitivity."""
    S = rows.T @ rows
    K = np.linalg.pinv(S, rcond=1e-12, hermitian=True)
    np.testing.assert_allclose(V @ K @ S, V, atol=1e-5 * np.abs(V).max())
    return float(np.trace(V @ K) * S.diagonal().max())


def small_workloads() -> list[Operator]:
    rng = np.random.default_rng(0)
    return [
        Prefix(24),
        AllRange(24),
        IdentityTotal(7),
        Dense(rng.integers(0, 2, (20, 12))),
        Permuted(AllRange(10), rng.permutation(10)),
        Prefix(1),
        Prefix(2),
    ]


def singular_workloads() -> list[Operator]:
    rng = np.random.default_rng(1)
    return [
        Total(5),
        WidthRanges(24, 12),
        Dense(rng.normal(size=(4, 9))),
        Dense(np.array([[1, 1, 0, 0], [0, 0, 0, 1]])),
    ]


@pytest.mark.parametrize("workload", small_workloads(), ids=repr)
def test_optimum_is_certified(workload: Operator) -> None:
    found = dual.optimise(workload)
    assert found.lower <= found.upper <= found.lower * (1 + 1e-6)
    np.testing.assert_allclose(np.square(found.matrix).sum(axis=0), 1, rtol=1e-12)
    assert total_error(found.matrix, workload.gram()) == pytest.approx(found.upper, rel=1e-9)


@pytest.mark.parametrize("workload", [Prefix(24), AllRange(16), IdentityTotal(6)], ids=repr)
def test_three_solvers_agree(workload: Operator) -> None:
    V = workload.gram()
    ours = dual.optimise(V, tol=1e-8).upper
    for solver in (coa, triangle):
        other = solver.optimise(V)
        assert other.lower <= other.upper
        assert other.upper == pytest.approx(ours, rel=1e-6)
        assert other.lower == pytest.approx(ours, rel=1e-6)
        assert total_error(other.matrix, V) == pytest.approx(other.upper, rel=1e-9)


@pytest.mark.parametrize("workload", singular_workloads(), ids=repr)
def test_singular_workloads_are_supported(workload: Operator) -> None:
    found = dual.optimise(workload)
    assert found.lower <= found.upper <= found.lower * 1.001
    assert np.square(found.matrix).sum(axis=0).max() <= 1 + 1e-12
    assert total_error(found.matrix, workload.gram()) == pytest.approx(found.upper, rel=1e-6)


def test_coa_approaches_singular_workloads() -> None:
    V = WidthRanges(12, 6).gram()
    ours = dual.optimise(V)
    other = coa.optimise(V)
    assert ours.lower <= other.upper * (1 + 1e-9)
    assert other.upper <= 1.01 * ours.lower


def test_lower_triangle_tolerates_singular_workloads() -> None:
    V = WidthRanges(12, 6).gram()
    other = triangle.optimise(V)
    assert other.lower <= dual.optimise(V).upper <= other.upper * (1 + 1e-9)


@pytest.mark.parametrize(
    ("workload", "published"),
    [
        (AllRange(64), 9.7262),
        (Prefix(64), 8.8713),
        (WidthRanges(64, 32), 8.6965),
        (AllRange(256), 12.2577),
        (Prefix(256), 10.6649),
    ],
    ids=repr,
)
def test_published_figures(workload: Operator, published: float) -> None:
    found = dual.optimise(workload)
    assert PER_UNIT * math.sqrt(found.upper / workload.rows) <= published


def test_simple_optima() -> None:
    assert dual.optimise(Identity(5)).upper == pytest.approx(5)
    assert dual.optimise(Total(5)).upper == pytest.approx(1)
    n = 7
    expected = (math.sqrt(n + 1) + n - 1) ** 2 / n
    assert dual.optimise(IdentityTotal(n)).upper == pytest.approx(expected)
    nothing = dual.optimise(np.zeros((3, 3)))
    assert nothing.lower == nothing.upper == 0
    assert nothing.matrix.shape == (1, 3)


@pytest.mark.parametrize("kind", [Prefix, AllRange])
def test_tridiagonal_path_agrees_with_dense(kind: type[Prefix] | type[AllRange]) -> None:
    n = dual.TRIDIAGONAL_FROM
    fast = dual.optimise(kind(n), tol=1e-3)
    dense = dual.optimise(kind(n).gram(), tol=1e-3)
    assert fast.upper == pytest.approx(dense.upper, rel=1e-8)
    assert fast.lower == pytest.approx(dense.lower, rel=1e-8)


def test_permuted_ranges_are_solved_unpermuted() -> None:
    workload = Permuted(AllRange(32), np.random.RandomState(0).permutation(32))
    found = dual.optimise(workload)
    assert found.upper == dual.optimise(AllRange(32)).upper
    assert total_error(found.matrix, workload.gram()) == pytest.approx(found.upper, rel=1e-9)


def test_weighted_bounds_never_exceed_the_optimum() -> None:
    rng = np.random.default_rng(2)
    for workload in (*small_workloads(), *singular_workloads()):
        V, upper = workload.gram(), dual.optimise(workload).upper
        for _ in range(20):
            D = rng.random(len(V)) ** 3 + 1e-6
            assert dual.weighted_bound(V, D) <= upper * (1 + 1e-9)


def test_stopping_early_still_brackets_the_optimum() -> None:
    exact = dual.optimise(Prefix(24)).upper
    early = dual.optimise(Prefix(24), maxiter=2)
    assert early.lower <= exact <= early.upper
    assert early.upper > early.lower * (1 + 1e-4)


@pytest.mark.parametrize("workload", [Prefix(640), AllRange(640)])
def test_many_cells_are_near_the_optimum_in_few_steps(
    workload: Prefix | AllRange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: prefixes over 4096 cells had one step, and a sixth more error than they need."""
    monkeypatch.setattr(dual, "LARGE_ABOVE", 600)
    with metered(1.3 * workload.n**3):
        found = dual.optimise(workload)
    assert found.upper <= found.lower * 1.002
    X = found.matrix.T @ found.matrix
    assert X.diagonal().max() <= 1 + 1e-9
