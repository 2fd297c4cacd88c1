"""p-Identity strategies against dense algebra, finite differences and published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.floor_figures import random_line
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
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Floats, Operator
from dpsql.search.one_attribute import opt0, p_inverse
from dpsql.search.one_attribute.p_inverse import LeanInverse
from dpsql.search.problem import FactorSet
from dpsql.search.select import select


def rmse(theta: Floats, workload: Operator) -> float:
    """Return the error of a strategy in the convention of the published tables."""
    A = opt0.matrix(theta)
    total = np.trace(workload.gram() @ np.linalg.inv(A.T @ A))
    sensitivity = np.abs(A).sum(axis=0).max()
    return math.sqrt(2 * sensitivity**2 * total / workload.rows)


def start(p: int, n: int, seed: int = 0) -> Floats:
    theta = np.random.default_rng(seed).random((p, n))
    theta[0, n // 2] = 0
    return theta


def finite_differences(theta: Floats, workload: Floats) -> Floats:
    gradient = np.zeros_like(theta)
    for cell in np.ndindex(theta.shape):
        step = np.zeros_like(theta)
        step[cell] = 1e-6
        above, _ = opt0.loss_and_grad(theta + step, workload)
        below, _ = opt0.loss_and_grad(theta - step, workload)
        gradient[cell] = (above - below) / 2e-6
    return gradient


def inverse_gram(theta: Floats) -> Floats:
    A = opt0.matrix(theta)
    return np.asarray(np.linalg.inv(A.T @ A))


@pytest.mark.parametrize(("p", "n"), [(1, 1), (1, 5), (3, 7), (9, 4)])
def test_columns_inverse_and_loss(p: int, n: int) -> None:
    theta, V = start(p, n), AllRange(n).gram()
    A = opt0.matrix(theta)
    np.testing.assert_allclose(np.abs(A).sum(axis=0), 1, rtol=1e-14)
    K = np.linalg.inv(A.T @ A)
    lean = LeanInverse.of(theta)
    np.testing.assert_allclose(lean.row_sums, K.sum(axis=1), rtol=1e-10)
    np.testing.assert_allclose(lean.row_traces(np.eye(n)), K.diagonal(), rtol=1e-10)
    assert lean.trace() == pytest.approx(np.trace(K), rel=1e-10)
    assert lean.gram_trace(V) == pytest.approx(np.trace(V @ K), rel=1e-10)
    value, gradient = opt0.loss_and_grad(theta, V)
    assert value == pytest.approx(np.trace(V @ K), rel=1e-10)
    np.testing.assert_allclose(gradient, finite_differences(theta, V), rtol=1e-5, atol=1e-5)


def test_chain_rule_of_a_nonlinear_function() -> None:
    theta = start(2, 6)
    n = theta.shape[1]
    G, H = AllRange(n).gram(), Prefix(n).gram()

    def f(at: Floats) -> float:
        K = inverse_gram(at)
        return float(np.log(np.trace(G @ K)) * np.trace(H @ K @ H @ K) + 1 / K.sum())

    K = inverse_gram(theta)
    gamma = np.trace(H @ K @ H @ K) / np.trace(G @ K) * G
    gamma = gamma + np.log(np.trace(G @ K)) * 2 * H @ K @ H - np.ones((n, n)) / K.sum() ** 2
    gradient = opt0.chain(theta, gamma)
    for cell in np.ndindex(theta.shape):
        step = np.zeros_like(theta)
        step[cell] = 1e-6
        assert gradient[cell] == pytest.approx((f(theta + step) - f(theta - step)) / 2e-6, rel=1e-4)


@pytest.mark.parametrize("structured", [False, True])
def test_tables_and_slopes_are_those_of_an_inverse_that_is_formed(
    structured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, theta = 12, start(3, 12)
    if structured:
        monkeypatch.setattr(p_inverse, "STRUCTURED_FROM", n)
    labels = np.arange(n) % 4
    rows = np.eye(n)[:5] + 2 * np.eye(n)[7]
    asked = [Identity(n), Prefix(n), Dense(rows), IdentityTotal(n), Groups(labels, 4)]
    factors = FactorSet("a", asked)
    K, lean = inverse_gram(theta), LeanInverse.of(theta)
    for formed, found in zip(factors.tables(K), factors.tables(lean), strict=True):
        np.testing.assert_allclose(found, formed, rtol=1e-9, atol=1e-12)
    rng = np.random.default_rng(0)
    gt, gr = rng.random(len(asked)), rng.random(len(asked))
    gamma, slope = factors.pull(K, gt, gr, 0.3), factors.slope(lean.row_sums, gt, gr, 0.3)
    np.testing.assert_allclose(slope.diagonal, gamma.diagonal(), rtol=1e-9)
    np.testing.assert_allclose(slope.apply(np.eye(n)), gamma, rtol=1e-9, atol=1e-9)
    found = factors.slope_times(K, gt, gr, 0.3)
    np.testing.assert_allclose(found, gamma @ K, rtol=1e-9, atol=1e-9)
    summed, formed = p_inverse.applied(factors.summed(gr, 0.7)), factors.gram(gr) + 0.7
    np.testing.assert_allclose(summed.diagonal, formed.diagonal(), rtol=1e-9)
    np.testing.assert_allclose(summed.apply(np.eye(n)), formed, rtol=1e-9, atol=1e-9)
    assert isinstance(factors.summed(gr), p_inverse.AppliedGram) == structured


@pytest.mark.parametrize("kind", [Prefix, AllRange])
def test_structured_gram_agrees_with_dense(kind: type[Prefix] | type[AllRange]) -> None:
    n = p_inverse.STRUCTURED_FROM
    op, theta = kind(n), start(4, n)
    value, gradient = opt0.loss_and_grad(theta, op)
    dense_value, dense_gradient = opt0.loss_and_grad(theta, op.gram())
    assert value == pytest.approx(dense_value, rel=1e-9)
    np.testing.assert_allclose(gradient, dense_gradient, rtol=1e-6, atol=1e-9 * value)


@pytest.mark.parametrize(
    ("workload", "p"),
    [
        (Identity(9), 1),
        (Total(9), 1),
        (IdentityTotal(40), 1),
        (Prefix(1), 1),
        (Prefix(64), 4),
        (AllRange(65), 5),
        (IdentityTotal(600), 1),
        (Prefix(600), 38),
    ],
)
def test_default_p(workload: Operator, p: int) -> None:
    assert opt0.default_p(workload) == p


@pytest.mark.parametrize(
    ("workload", "published"),
    [(AllRange(64), 5.5525), (Prefix(64), 5.3222), (WidthRanges(64, 32), 5.8820)],
)
def test_published_figures(workload: Operator, published: float) -> None:
    assert rmse(opt0.optimise(workload), workload) <= published


def test_prefix_of_61_cells() -> None:
    workload = Prefix(61)
    assert rmse(opt0.optimise(workload, restarts=6), workload) < 5.26


def test_permuted_ranges_reach_the_same_optimum() -> None:
    workload = Permuted(AllRange(64), np.random.RandomState(0).permutation(64))
    assert rmse(opt0.optimise(workload), workload) == pytest.approx(5.5524, abs=1e-3)
    theta = opt0.optimise(workload, init=start(4, 64), maxiter=3)
    assert rmse(theta, workload) < rmse(start(4, 64), workload)


def test_points_need_no_learned_rows() -> None:
    assert not opt0.optimise(Identity(16)).any()
    assert rmse(opt0.optimise(Identity(16)), Identity(16)) == pytest.approx(math.sqrt(2))


def test_same_arguments_same_result() -> None:
    first = opt0.optimise(Prefix(20), seed=3)
    np.testing.assert_array_equal(first, opt0.optimise(Prefix(20).gram(), seed=3))
    assert first.shape[1] == 20


def test_warm_start_is_the_only_start() -> None:
    workload = Prefix(32)
    theta = opt0.optimise(workload, p=2, maxiter=5)
    better = opt0.optimise(workload, init=theta)
    assert better.shape == theta.shape
    assert rmse(better, workload) <= rmse(theta, workload)


def test_never_worse_than_the_identity() -> None:
    V = Dense(np.eye(5)[:2]).gram()
    theta = opt0.optimise(V, p=2, restarts=1, maxiter=1)
    assert opt0.loss_and_grad(theta, V)[0] <= 2 + 1e-12


def test_large_structured_search_improves_on_the_identity() -> None:
    workload = AllRange(2048)
    theta = opt0.optimise(workload, p=8, restarts=1, ftol=1e-2, maxiter=10)
    assert opt0.loss_and_grad(theta, workload)[0] < workload.frobenius2() / 2


def test_large_domains_start_from_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the cells, repeated and joined, leads to what two random starts find."""
    plain = opt0.loss_and_grad(opt0.optimise(Prefix(512)), Prefix(512))[0]
    monkeypatch.setattr(opt0, "TILED_ABOVE", 256)
    theta = opt0.optimise(Prefix(510), ftol=1e-5)
    assert theta.shape == (36, 510)
    assert opt0.loss_and_grad(theta, Prefix(510))[0] < 1.02 * plain


def test_starts_far_off_are_left() -> None:
    """Before: planning 17 windows of 64 cells died of a singular matrix, met on the way."""
    workload = random_line(14)
    assert select(workload).unit_error(workload) < workload.rows * 9
    wild = np.full((4, 9), 1e12)
    theta = opt0.optimise(AllRange(9).gram(), init=wild)
    assert np.isfinite(theta).all()
    assert rmse(theta, AllRange(9)) <= rmse(np.zeros((1, 9)), AllRange(9)) * (1 + 1e-9)


def test_descents_in_single_precision_go_on_where_gradients_are_small() -> None:
    """Squares of their differences are zero there: a request failed, and was a defect."""
    aims = np.linspace(1, 2, opt0.HALVED_FROM)

    def function(x: Floats) -> tuple[float, Floats]:
        away = (x - aims) * np.arange(1, len(x) + 1) / len(x)
        return 1e-25 * float(away @ away), 2e-25 * away * np.arange(1, len(x) + 1) / len(x)

    start = np.zeros(len(aims))
    value, x = opt0.minimise(function, start, ftol=1e-12, maxiter=10)
    assert value < function(start)[0]
    assert (x >= 0).all()
