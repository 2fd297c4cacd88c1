"""The quasi-Newton descent against known minima."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.algebra.operator import Floats
from dpsql.search.one_attribute.opt0 import minimise


@pytest.mark.parametrize("signed", [False, True])
def test_quadratics_reach_their_minimum(signed: bool) -> None:
    rng = np.random.default_rng(0)
    B = rng.normal(size=(40, 20))
    H, target = B.T @ B / 40, rng.normal(size=20)

    def quadratic(x: Floats) -> tuple[float, Floats]:
        return float((x - target) @ H @ (x - target)) / 2, H @ (x - target)

    value, x = minimise(quadratic, np.ones(20), ftol=1e-14, maxiter=500, signed=signed)
    gradient = quadratic(x)[1]
    assert value == quadratic(x)[0]
    if signed:
        assert x == pytest.approx(target, abs=1e-5)
    else:
        assert (x >= 0).all()
        assert (np.abs(gradient[x > 0]) < 1e-5).all()
        assert (gradient[x == 0] > -1e-5).all()


def test_infinite_values_are_stepped_back_from() -> None:
    def barrier(x: Floats) -> tuple[float, Floats]:
        if not 0 < x[0] < 4:
            return np.inf, np.zeros(1)
        return -float(np.log(4 - x[0])) - 2 * float(np.log(x[0])), 1 / (4 - x) - 2 / x

    _, x = minimise(barrier, np.array([0.1]), ftol=1e-13, maxiter=100)
    assert x == pytest.approx([8 / 3], rel=1e-5)


def test_a_start_at_the_minimum_stays() -> None:
    value, x = minimise(lambda x: (float(x @ x), 2 * x), np.zeros(3), ftol=1e-9, maxiter=10)
    assert value == 0
    assert not x.any()
