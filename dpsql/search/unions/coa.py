"""COA: Newton's method with conjugate gradients for the Gaussian strategy problem."""

from __future__ import annotations

import numpy as np

from dpsql.algebra.operator import Array, Floats
from dpsql.interrupts import check
from dpsql.search.one_attribute.dual import ConvexResult, certify
from dpsql.search.work_limit import may_go_on, spend

RIDGES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
"""Relative ridges through which a singular workload is approached."""
CG_STEPS = 5
STEP = 4 * CG_STEPS
"""Work of a Newton step, in cubes of the number of cells."""
ARMIJO = 0.25


def optimise(gram: Floats, *, maxiter: int = 300) -> ConvexResult:
    """Return the strategy minimising tr(X^-1 V), diag(X) = 1, and its certificate.

    A singular V is approached through V + theta (tr V / n) I with theta falling to 1e-6.

    Args:
        gram: V, (n, n).
        maxiter: Newton steps for each ridge.

    Source: Yuan, Yang, Zhang, Hao, "Convex Optimization for Linear Query Processing under
    Approximate Differential Privacy" (COA), algorithm 1, with H(P) in its conjugate gradients.
    """
    n = len(gram)
    X = np.eye(n)
    spectrum = np.linalg.eigvalsh(gram)
    # Newton's steps need an inverse: only a singular V is approached from regular ones.
    ridges = (0.0,) if spectrum[0] > 1e-12 * spectrum[-1] else RIDGES
    for ridge in ridges:
        X = _newton(gram + ridge * np.trace(gram) / n * np.eye(n), X, maxiter)
    return certify(gram, X)


def _newton(V: Floats, X: Floats, maxiter: int) -> Floats:
    value = float(np.trace(np.linalg.solve(X, V)))
    for _ in range(maxiter):
        check()
        if not may_go_on():
            break
        spend(STEP * float(len(V)) ** 3)
        Z = _symmetric(np.linalg.inv(X))
        G = _symmetric(-Z @ V @ Z)
        slope = _off_diagonal(G)
        if np.linalg.norm(slope) <= 1e-9 * np.trace(V):
            break
        found = _line_search(V, X, _direction(G, Z, slope), slope, value)
        if found is None:
            break
        X, improved = found
        # No more than rounding was gained.
        if value - improved < 1e-13 * value:
            break
        value = improved
    return X


def _direction(G: Floats, Z: Floats, slope: Floats) -> Floats:
    """Return D with H(D) = -slope approximately, H(D) = -(G D Z + Z D G) the Hessian."""
    D = np.zeros_like(slope)
    R = -slope
    P = R
    norm = float(np.vdot(R, R))
    for _ in range(CG_STEPS):
        half = G @ P @ Z
        B = _off_diagonal(-(half + half.T))
        step = norm / float(np.vdot(P, B))
        D = D + step * P
        R = R - step * B
        last, norm = norm, float(np.vdot(R, R))
        # Squares: the residual has ten digits less than the slope, more than a Newton step can use.
        if norm <= 1e-20 * float(np.vdot(slope, slope)):
            break
        P = R + (norm / last) * P
    return D


def _line_search(
    V: Floats, X: Floats, D: Floats, slope: Floats, value: float
) -> tuple[Floats, float] | None:
    fall = float(np.vdot(slope, D))
    step = 1.0
    while step > 1e-12:
        trial = X + step * D
        if _positive_definite(trial):
            improved = float(np.trace(np.linalg.solve(trial, V)))
            if improved <= value + ARMIJO * step * fall:
                return trial, improved
        # As in the paper's line search; X must stay positive definite.
        step /= 10
    return None


def _positive_definite(X: Floats) -> bool:
    try:
        np.linalg.cholesky(X)
    except np.linalg.LinAlgError:
        return False
    return True


def _symmetric(matrix: Array) -> Floats:
    """Return the symmetric part: an antisymmetric rounding error would grow unnoticed."""
    return np.asarray((matrix + matrix.T) / 2)


def _off_diagonal(matrix: Floats) -> Floats:
    return matrix - np.diag(np.diag(matrix))
