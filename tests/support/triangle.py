"""The Gaussian strategy problem by L-BFGS on the strict lower triangle of X.

Used to check the dual fixed point of ``convex`` by another route.
"""

from __future__ import annotations

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.search.one_attribute.dual import ConvexResult, certify


def optimise(gram: Floats, *, maxiter: int = 5000) -> ConvexResult:
    """Return the strategy minimising tr(X^-1 V), diag(X) = 1, and its certificate.

    Source: HDMM, section 4.2 (OPT_0 under Gaussian noise).
    """
    from scipy.optimize import minimize

    n = len(gram)
    lower = np.tril_indices(n, -1)
    start = _start(gram)
    unusable = n * float(np.trace(gram))
    best = unusable, start

    def unpack(flat: Floats) -> Floats:
        X = np.eye(n)
        X[lower] = flat
        X.T[lower] = flat
        return X

    def loss(flat: Floats) -> tuple[float, Floats]:
        nonlocal best
        X = unpack(flat)
        try:
            np.linalg.cholesky(X)
        except np.linalg.LinAlgError:
            return unusable, np.zeros_like(flat)
        ZV = np.linalg.solve(X, gram)
        gradient = -2 * np.linalg.solve(X, ZV.T)
        value = float(np.trace(ZV))
        if value < best[0]:
            best = value, X
        return value, gradient[lower]

    minimize(
        loss,
        start[lower],
        jac=True,
        method="L-BFGS-B",
        options={
            "maxcor": 20,
            "ftol": 1e-13,
            "gtol": 1e-9,
            "maxiter": maxiter,
            "maxfun": 4 * maxiter,
        },
    )
    return certify(gram, best[1])


def _start(gram: Floats) -> Floats:
    """Return the square root of V with unit diagonal, positive definite also for singular V."""
    values, vectors = np.linalg.eigh(gram)
    roots = np.sqrt(np.maximum(values, 1e-10 * values[-1]))
    X = (vectors * roots) @ vectors.T
    scale = np.sqrt(np.diag(X))
    return np.asarray(X / scale / scale[:, None])
