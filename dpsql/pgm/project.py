"""Projections of noisy answers on what counts can be: non-negative with a known sum, monotone.

All of it is post-processing, free and biased: intervals of the raw answers do not carry over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats


def project_simplex(values: NDArray[Any], total: float | NDArray[Any] = 1.0) -> Floats:
    """Return the nearest points, along the last axis, with entries >= 0 that sum to ``total``.

    ``total`` is non-negative, one number or one per row. Source: sorted threshold, Held, Wolfe
    and Crowder 1974; SparseMax, Algorithm 1, for a total of one.

    >>> project_simplex(np.array([3.0, 1.0, -1.0]), 2.0).tolist()
    [2.0, 0.0, 0.0]
    """
    values = np.asarray(values, dtype=np.float64)
    if values.shape[-1] == 0:
        return values.copy()
    sums = np.broadcast_to(np.asarray(total, dtype=np.float64), values.shape[:-1])[..., None]
    top = np.sort(values, axis=-1)[..., ::-1]
    gained = np.cumsum(top - top[..., :1], axis=-1)  # relative to the top: no cancellation
    size = np.arange(1, values.shape[-1] + 1)
    active = sums + size * (top - top[..., :1]) > gained
    last = np.maximum(active.sum(axis=-1, keepdims=True) - 1, 0)
    level = top[..., :1] + (np.take_along_axis(gained, last, axis=-1) - sums) / (last + 1)
    return np.asarray(np.maximum(values - level, 0.0))


def project_orthant(values: NDArray[Any]) -> Floats:
    """Return the nearest non-negative answers.

    Any shape; the same comes back.

    >>> project_orthant(np.array([1.5, -2.0])).tolist()
    [1.5, 0.0]
    """
    return np.asarray(np.maximum(values, 0.0), dtype=np.float64)


def project_monotone(values: NDArray[Any], variances: NDArray[Any] | None = None) -> Floats:
    """Return the nearest non-decreasing, non-negative answers of a chain of nested queries.

    Distances are weighted by 1 / variance. Valid for sums of non-negative values over growing
    sets of rows only. Source: isotonic regression, Barlow et al. 1972.

    >>> project_monotone(np.array([-1.0, 4.0, 2.0])).tolist()
    [0.0, 3.0, 3.0]
    """
    from scipy.optimize import isotonic_regression  # scipy: up to .3 s

    weights = None if variances is None else 1 / np.asarray(variances, dtype=np.float64)
    fitted = isotonic_regression(np.asarray(values, dtype=np.float64), weights=weights).x
    return np.asarray(np.maximum(fitted, 0.0), dtype=np.float64)
