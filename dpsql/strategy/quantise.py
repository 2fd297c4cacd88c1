"""From real-valued strategies to integer rows, with exact norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Integers
from dpsql.strategy.noise_law import Noise, law

BASE = 128
"""Size up to which a triangular matrix is inverted as a whole."""


def is_diagonal(matrix: NDArray[Any]) -> bool:
    """Say whether a square matrix (n, n) is diagonal without a zero on the diagonal."""
    return bool(matrix.diagonal().all()) and np.count_nonzero(matrix) == len(matrix)


def triangular_order(matrix: NDArray[Any]) -> NDArray[np.intp] | None:
    """Return an order of columns that makes a square matrix upper triangular, None without one.

    No diagonal entry is zero then, so the matrix has full rank.

    Args:
        matrix: (n, n).

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
    """Return the inverse of an upper triangular matrix (n, n), by halves."""
    n = len(U)
    if n <= BASE:
        return np.asarray(np.triu(np.linalg.inv(U)))
    h = n // 2
    out = np.zeros((n, n))
    out[:h, :h], out[h:, h:] = upper_inverse(U[:h, :h]), upper_inverse(U[h:, h:])
    out[:h, h:] = -(out[:h, :h] @ (U[:h, h:] @ out[h:, h:]))
    return out


STRIP = 1 << 18
"""Numbers of the columns that are rounded together: 2 MiB."""

LEVEL_PASSES = 4
"""Single-unit corrections per column that bring its squared norm back to its target."""


def quantise(matrix: NDArray[Any], bits: int, noise: Noise) -> Integers | None:
    """Return about 2^bits A as integers, None for the identity; integer matrices stay as they are.

    Entries are rounded, then the norm of each column is brought back to what it was, because the
    largest norm is what noise is paid for. Zero rows are dropped. The rank is checked; more bits
    are taken where rounding would lower it.

    Args:
        matrix: A, (r, n); the result has at most r rows, and n columns.
        bits: binary places to begin with; up to 20 where rank would be lost.
        noise: the law that norms of columns are for.

    Raises ValueError if 20 bits do not suffice.

    >>> quantise(np.array([[0.75, 0.0], [0.25, 1.0]]), 3, "laplace").tolist()
    [[6, 0], [2, 8]]
    """
    if is_identity(matrix):
        return None
    if is_integral(matrix):
        return np.ascontiguousarray(matrix, dtype=np.int64)
    rank, level = rank_of(matrix), level_l1 if law(noise).norm == 1 else level_l2
    # As few bits as keep the rank: counts times entries are to stay within int64.
    for k in range(bits, max(bits, 20) + 1):
        rows = np.empty(matrix.shape, dtype=np.int64)
        for some in _strips(matrix.shape):
            scaled = np.ldexp(matrix[:, some], k)
            rows[:, some] = level(np.rint(scaled).astype(np.int64), scaled)
        rows = np.ascontiguousarray(rows[rows.any(axis=1)])
        if len(rows) and rank_of(rows) == rank:
            return rows
    raise ValueError("the strategy loses rank when it is rounded to integers")


def _strips(shape: tuple[int, ...]) -> Iterator[slice]:
    """Columns that are handled together: numbers that fit a cache, in memory that is used again."""
    step = max(1, STRIP // max(1, shape[0]))
    for first in range(0, shape[1], step):
        yield slice(first, first + step)


def level_l1(rows: Integers, scaled: NDArray[np.float64]) -> Integers:
    """Return the rows with each column's L1 norm set to its target, by its largest entry.

    Args:
        rows: (r, n), rounded.
        scaled: (r, n), before rounding: its norms, rounded, are the targets.

    >>> level_l1(np.array([[3], [2], [2]]), np.array([[2.6], [1.7], [1.7]])).ravel().tolist()
    [2, 2, 2]
    """
    rows = rows.copy()
    columns = np.arange(rows.shape[1])
    sizes = np.abs(rows)
    place, column = np.nonzero(sizes == sizes.max(axis=0, initial=0))
    largest = np.zeros(len(columns), dtype=np.intp)
    # NumPy keeps the last of repeated places.
    largest[column[::-1]] = place[::-1]  # of equal ones the first
    excess = sizes.sum(axis=0) - np.rint(np.abs(scaled).sum(axis=0)).astype(np.int64)
    # The largest entry bears the correction: relative to it that is least.
    entries = rows[largest, columns]
    rows[largest, columns] = np.sign(entries) * np.maximum(np.abs(entries) - excess, 0)
    return rows


def level_l2(rows: Integers, scaled: NDArray[np.float64]) -> Integers:
    """Return the rows with each column's squared L2 norm near its target, by single units.

    Zeros stay zeros, so that triangular rows stay triangular.

    Args:
        rows: (r, n), rounded.
        scaled: (r, n), before rounding: its norms are the targets.

    >>> level_l2(np.array([[3], [3]]), np.array([[2.6], [2.6]])).ravel().tolist()
    [2, 3]
    """
    rows = rows.copy()
    columns = np.arange(rows.shape[1])
    target = np.square(scaled).sum(axis=0)
    for _ in range(LEVEL_PASSES):
        excess = np.square(rows).sum(axis=0) - target
        size = np.abs(rows)
        change = np.where(excess > 0, 1 - 2 * size, 1 + 2 * size)
        change = np.where(((size == 0) & (excess > 0)) | (scaled == 0), 0, change)
        best = np.abs(excess + change).argmin(axis=0)
        better = np.abs(excess + change[best, columns]) < np.abs(excess)
        step = np.where(excess > 0, -1, 1) * better
        entries = rows[best, columns]
        rows[best, columns] = entries + np.where(entries < 0, -1, 1) * step
    return rows


def rank_of(matrix: NDArray[Any]) -> int:
    """Return the numerical rank.

    A full triangle at the top, its columns in any order, is recognised at once.

    Args:
        matrix: (r, n).

    >>> rank_of(np.array([[2, 0], [0, 1], [1, 1]])), rank_of(np.ones((3, 2)))
    (2, 1)
    """
    n = int(matrix.shape[1])
    if len(matrix) >= n and triangular_order(matrix[:n]) is not None:
        return n
    return int(np.linalg.matrix_rank(matrix))


def bits_for(factors: int) -> int:
    """Return the fraction bits per factor when up to ``factors`` of them meet in one block.

    Entries of a block are products of entries of its factors, of about 2^32 at most: counts of
    large tables times them are to stay within int64.

    >>> [bits_for(k) for k in (1, 2, 3, 4, 6)]
    [16, 10, 10, 8, 5]
    """
    return 16 if factors <= 1 else 10 if factors <= 3 else max(4, 32 // factors)


def column_norm(rows: Integers, noise: Noise) -> int:
    """Return the largest L1 (Laplace) or squared L2 (Gaussian) norm of a column, exactly.

    Args:
        rows: (r, n).

    >>> column_norm(np.array([[1, -2], [3, 0]]), "gaussian")
    10
    """
    largest = int(np.abs(rows).max(initial=0))
    # Sensitivity: a sum of squares must not wrap in int64.
    columns = np.abs(rows if largest**2 * len(rows) < 1 << 62 else rows.astype(object))
    powers = law(noise).powers(columns)
    return int(powers.sum(axis=0).max())


def is_identity(matrix: NDArray[Any]) -> bool:
    """Say whether a matrix (r, n) is the identity."""
    rows, n = matrix.shape
    return rows == n and bool((matrix.diagonal() == 1).all()) and np.count_nonzero(matrix) == n


def is_integral(matrix: NDArray[Any]) -> bool:
    """Say whether every entry is an integer.

    Any shape.
    """
    return matrix.dtype.kind in "iu" or np.array_equal(matrix, np.rint(matrix))
