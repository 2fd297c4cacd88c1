"""Inverses of structured rows: a diagonal with few more rows, and triangular matrices."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

BASE = 128
"""Size up to which a triangular matrix is inverted as a whole."""


def is_diagonal(matrix: NDArray[Any]) -> bool:
    """Say whether a square matrix is diagonal without a zero on the diagonal."""
    return bool(matrix.diagonal().all()) and np.count_nonzero(matrix) == len(matrix)


def triangular_order(matrix: NDArray[Any]) -> NDArray[np.intp] | None:
    """Return an order of columns that makes a square matrix upper triangular, None without one.

    No diagonal entry is zero then, so the matrix has full rank.

    >>> triangular_order(np.array([[5, 2], [1, 0]])), triangular_order(np.ones((2, 2)))
    (array([1, 0]), None)
    """
    n = len(matrix)
    last = n - 1 - (matrix[::-1] != 0).argmax(axis=0)
    order = np.argsort(last)
    full = (last[order] == np.arange(n)).all() and matrix[last, np.arange(n)].all()
    return order if full else None


def extended_diagonal_inverse(Q: Floats) -> tuple[Floats, Floats]:
    """Return (K, K Q') for Q = [D; B], K = (Q'Q)^-1, D diagonal (n, n), B (p, n), in O(p n^2).

    Source: the Woodbury identity, as in HDMM, section 4.3.
    """
    n = Q.shape[1]
    d, B = Q.diagonal(), Q[n:]
    C = B / d
    small = np.linalg.inv(np.eye(len(B)) + C @ C.T)
    M = (small @ C) / d
    K = -(C / d).T @ M
    K[np.diag_indices(n)] += 1 / d**2
    return K, np.concatenate([K * d, M.T], axis=1)


def upper_inverse(U: Floats) -> Floats:
    """Return the inverse of an upper triangular matrix, by halves."""
    n = len(U)
    if n <= BASE:
        return np.asarray(np.triu(np.linalg.inv(U)))
    h = n // 2
    out = np.zeros((n, n))
    out[:h, :h], out[h:, h:] = upper_inverse(U[:h, :h]), upper_inverse(U[h:, h:])
    out[:h, h:] = -(out[:h, :h] @ (U[:h, h:] @ out[h:, h:]))
    return out
