"""OPT_M: the objective over subsets, and the search over weights."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.search.problem import Problem
from dpsql.search.unions.joint import Objective, Union, descend
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.opt_m import WeightSearch, search_weights
from dpsql.search.unions.relaxation import evaluate, relax
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Workload

DOMAIN = dict(zip("abcdef", [9, 16, 7, 6, 5, 2], strict=True))
PAIRS = Workload(
    DOMAIN, [dict.fromkeys(c, "identity") for k in (1, 2) for c in combinations(DOMAIN, k)]
)


def subset_matrix(sizes: tuple[int, ...], mask: int) -> Floats:
    out: NDArray[Any] = np.ones((1, 1))
    for i, n in enumerate(sizes):
        out = np.kron(out, np.eye(n) if mask >> (len(sizes) - 1 - i) & 1 else np.ones((1, n)))
    return out


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_objective_and_gradient_on_small_marginals(noise: Noise) -> None:
    sizes = (2, 3, 4)
    domain = dict(zip("abc", sizes, strict=True))
    workload = Workload(domain, [{"a": "identity", "b": "identity"}, {"c": "prefix"}, {}])
    problem = Problem(workload, noise)
    family = Family(3, None, problem.components.masks)
    R, totals = Objective(problem, family).tables((None,) * 3)
    rng = np.random.default_rng(0)
    w = rng.random(8)
    information = sum(
        (w[m] ** 2 * subset_matrix(sizes, m).T @ subset_matrix(sizes, m) for m in range(8)),
        np.zeros((24, 24)),
    )
    rows = [subset_matrix(sizes, 6), np.kron(np.ones((1, 6)), np.tri(4)), np.ones((1, 24))]
    W = np.concatenate(rows)
    cost = w.sum() ** 2 if noise == "laplace" else w @ w
    want = cost * np.trace(W @ np.linalg.inv(information) @ W.T)
    error, dw, _, _ = family.error(w, R, totals, noise)
    assert error == pytest.approx(want, rel=1e-10)
    for m in range(8):
        step = np.zeros(8)
        step[m] = 1e-6
        up = family.error(w + step, R, totals, noise)[0]
        down = family.error(w - step, R, totals, noise)[0]
        assert dw[m] == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-5 * abs(dw).max())
    search = WeightSearch(family, R, totals, noise, np.ones(8))
    errors, p, q = evaluate(w[np.newaxis], search.rows[np.newaxis], search.R, noise)
    assert errors == pytest.approx([error])
    assert 2 * (p - q)[0] == pytest.approx(w * dw / error)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_fixed_points_are_local_optima(noise: Noise) -> None:
    problem = Problem(PAIRS, noise)
    family = Family(6, None, problem.components.masks)
    objective = Objective(problem, family)
    R, totals = objective.tables((None,) * 6)
    search = WeightSearch(family, R, totals, noise, np.ones(64))
    rng = np.random.default_rng(2)
    starts = rng.random((3, 64))
    rows = np.broadcast_to(search.rows, (3, *search.rows.shape))
    errors, w, _ = relax(starts, rows, search.R, noise, cycles=40, tol=1e-13)
    for start, error, found in zip(starts, errors, w, strict=True):
        assert family.error(found, R, totals, noise)[0] == pytest.approx(error)
        assert error < family.error(start, R, totals, noise)[0]
        local = descend(objective, Union((None,) * 6, found), weights_only=True)
        assert local.error >= error * (1 - 1e-7)


def test_dense_and_sparse_families_agree() -> None:
    problem = Problem(PAIRS, "laplace")
    R, totals = Objective(problem, Family(6, [63], problem.components.masks)).tables((None,) * 6)
    rng = np.random.default_rng(1)
    w = rng.random(64)
    everything = Family(6, None, problem.components.masks)
    listed = Family(6, list(range(64)), problem.components.masks)
    one, two = (f.error(w, R, totals, "laplace") for f in (everything, listed))
    for left, right in zip(one, two, strict=True):
        assert left == pytest.approx(right)


def test_unsupported_weights_are_infinite() -> None:
    problem = Problem(PAIRS, "laplace")
    family = Family(6, None, problem.components.masks)
    R, totals = Objective(problem, family).tables((None,) * 6)
    w = np.zeros(64)
    w[0] = 1
    assert family.error(w, R, totals, "laplace")[0] == np.inf


def test_search_on_one_and_two_way_marginals() -> None:
    """Twenty-one marginals of six attributes: an even split reaches 18.8, this under 15.3."""
    problem = Problem(PAIRS, "laplace")
    family = Family(6, None, problem.components.masks)
    objective = Objective(problem, family)
    thetas: tuple[Floats | None, ...] = (None,) * 6
    found = search_weights(objective, thetas, seconds=0.3)
    assert np.sqrt(2 * found.error / PAIRS.rows) <= 15.3
    again = search_weights(objective, thetas, seconds=0.3)
    assert (again.union.w == found.union.w).all()
    local = descend(objective, Union(thetas, found.union.w + 1e-9), weights_only=True)
    assert local.error >= found.error * (1 - 1e-4)


def test_forbidden_sets_are_not_measured() -> None:
    problem = Problem(PAIRS, "laplace")
    family = Family(6, None, problem.components.masks)
    allowed = np.array([float(mask.bit_count() <= 2) for mask in family.sets])
    found = search_weights(Objective(problem, family), (None,) * 6, seconds=0.1, allowed=allowed)
    assert not found.union.w[allowed == 0].any()
    assert np.isfinite(found.error)


@pytest.mark.parametrize("seed", range(8))
def test_gaussian_weights_are_the_optimum_and_found_at_once(seed: int) -> None:
    """Convex in squared weights: no start finds less, and one descent takes a fiftieth of many."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(3, 8))
    family = Family(d, None, range(1 << d))
    R = rng.random(1 << d) * 10.0 ** rng.integers(-4, 4, 1 << d)
    search = WeightSearch(family, R, rng.random(d), "gaussian", np.ones(1 << d))
    search.run([np.ones(1 << d)], 2.0, 0, 1.0)
    found = search.state.error
    assert search.spent < 0.02
    for _ in range(5):
        w = rng.random((1, 1 << d)) ** 2 + 1e-6
        errors, _, _ = relax(w, search.rows[np.newaxis], search.R, "gaussian", cycles=200, tol=1e-9)
        assert found <= errors[0] * (1 + 1e-4)
