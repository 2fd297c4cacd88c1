"""One-attribute building blocks: points, totals, running totals and explicit rows."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import (
    Array,
    Columns,
    Floats,
    Operator,
    Permuted,
    Weighted,
    exact,
    freeze,
)
from dpsql.algebra.ranges import AllRange, Hierarchy, Ranges, WidthRanges
from dpsql.algebra.weak_cache import WeakCache
from dpsql.records import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class Haar(Operator):
    """Haar wavelet rows, coarse to fine after the total; n that is no power of two is padded.

    Source: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms", section IV.
    """

    size: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        return 1 << self.levels, self.size

    @property
    def levels(self) -> int:
        """Return L, where 2^L is the padded size."""
        return (self.size - 1).bit_length()

    @cached_property
    def key(self) -> Hashable:
        return ("haar", self.size)

    def matmat(self, X: Array) -> Array:
        rest = np.zeros((self.rows, X.shape[1]), dtype=X.dtype)
        rest[: self.size] = X
        parts = []
        while len(rest) > 1:
            parts.append(rest[0::2] - rest[1::2])
            rest = rest[0::2] + rest[1::2]
        return np.concatenate([rest, *reversed(parts)])

    def rmatmat(self, Y: Array) -> Array:
        sums = Y[:1]
        for level in range(self.levels):
            differences = Y[1 << level : 2 << level]
            sums = _interleave(sums + differences, sums - differences)
        return sums[: self.size]

    def inverse(self, Y: Array) -> Array:
        """Return the cells whose transform is Y, of shape (rows, k)."""
        sums = np.asarray(Y[:1], dtype=np.float64)
        for level in range(self.levels):
            differences = Y[1 << level : 2 << level]
            sums = _interleave(sums + differences, sums - differences) / 2
        return sums[: self.size]

    def column_l1(self) -> Array:
        return np.full(self.size, 1 + self.levels, dtype=np.int64)

    def column_l2sq(self) -> Array:
        return self.column_l1()


def _interleave(even: Array, odd: Array) -> Array:
    return np.stack([even, odd], axis=1).reshape(-1, even.shape[1])


__all__ = [
    "AllRange",
    "Columns",
    "Dense",
    "Haar",
    "Hierarchy",
    "Identity",
    "IdentityTotal",
    "Permuted",
    "Prefix",
    "Ranges",
    "Total",
    "Weighted",
    "WidthRanges",
    "simplify",
]

SLAB_MIN = 16, 256
"""With fewer contiguous, or fewer cells per step, one cumulative sum beats a loop of adds."""


@dataclass(frozen=True, eq=False)
class Identity(Operator):
    """Every cell on its own: n rows."""

    size: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @cached_property
    def key(self) -> Hashable:
        return ("identity", self.size)

    def matmat(self, X: Array) -> Array:
        return X

    def rmatmat(self, Y: Array) -> Array:
        return Y

    def apply_slabs(self, slabs: Array) -> Array:
        return slabs

    def column_l1(self) -> Array:
        return np.ones(self.size, dtype=np.int64)

    def column_l2sq(self) -> Array:
        return self.column_l1()


@dataclass(frozen=True, eq=False)
class Total(Operator):
    """The sum of all cells: one row of ones."""

    size: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        return 1, self.size

    @cached_property
    def key(self) -> Hashable:
        return ("total", self.size)

    def matmat(self, X: Array) -> Array:
        return np.asarray(X.sum(axis=0, keepdims=True))

    def rmatmat(self, Y: Array) -> Array:
        return np.broadcast_to(Y, (self.size, Y.shape[1]))

    def dense(self) -> Array:
        return np.ones((1, self.size), dtype=np.int64)

    def apply_slabs(self, slabs: Array) -> Array:
        return np.asarray(slabs.sum(axis=1, keepdims=True))

    def column_l1(self) -> Array:
        return np.ones(self.size, dtype=np.int64)

    def column_l2sq(self) -> Array:
        return self.column_l1()


@dataclass(frozen=True, eq=False)
class IdentityTotal(Operator):
    """Every cell and then their sum: n + 1 rows."""

    size: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.size + 1, self.size

    @cached_property
    def key(self) -> Hashable:
        return ("identity+total", self.size)

    def matmat(self, X: Array) -> Array:
        return np.concatenate([X, X.sum(axis=0, keepdims=True)])

    def rmatmat(self, Y: Array) -> Array:
        return np.asarray(Y[:-1] + Y[-1:])

    def apply_slabs(self, slabs: Array) -> Array:
        return np.concatenate([slabs, slabs.sum(axis=1, keepdims=True)], axis=1)

    def column_l1(self) -> Array:
        return np.full(self.size, 2, dtype=np.int64)

    def column_l2sq(self) -> Array:
        return self.column_l1()


@dataclass(frozen=True, eq=False)
class Prefix(Operator):
    """Running totals: row i sums the cells 0..i; lower triangular ones."""

    size: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @cached_property
    def key(self) -> Hashable:
        return ("prefix", self.size)

    def matmat(self, X: Array) -> Array:
        return X.cumsum(axis=0)

    def rmatmat(self, Y: Array) -> Array:
        return np.asarray(Y[::-1].cumsum(axis=0)[::-1])

    def apply_slabs(self, slabs: Array) -> Array:
        left, _, right = slabs.shape
        if right < SLAB_MIN[0] or left * right < SLAB_MIN[1]:
            return slabs.cumsum(axis=1)
        out = slabs.copy()
        for j in range(1, self.size):
            out[:, j] += out[:, j - 1]
        return out

    def gram(self) -> Floats:
        later = np.maximum.outer(np.arange(self.size), np.arange(self.size))
        return (self.size - later).astype(np.float64)

    def column_l1(self) -> Array:
        return np.arange(self.size, 0, -1)

    def column_l2sq(self) -> Array:
        return self.column_l1()


REMEMBERED = 1 << 24
"""Numbers of the Gram matrices of explicit rows that are remembered, 128 MiB."""

_grams: WeakCache[Floats] = WeakCache(REMEMBERED)


@dataclass(frozen=True, eq=False)
class Dense(Operator):
    """Explicit rows, stored as int64 when all entries are integers.

    Raises ValueError for an empty or non-finite matrix.
    """

    matrix: Array

    def __post_init__(self) -> None:
        matrix = freeze(exact(self.matrix))
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise ValueError(f"rows must form a non-empty matrix, not shape {matrix.shape}")
        object.__setattr__(self, "matrix", matrix)

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @cached_property
    def key(self) -> Hashable:
        digest = hashlib.sha256(self.matrix.tobytes()).digest()
        return ("dense", self.matrix.shape, self.matrix.dtype.kind, digest)

    @cached_property
    def simpler(self) -> Operator | None:
        """Return the Total, Identity or Prefix that the rows are, None where they are none."""
        count, n = self.shape
        known: tuple[Operator, ...] = (Total(n),) if count == 1 else ()
        known += (Identity(n), Prefix(n)) if count == n else ()
        known += (IdentityTotal(n),) if count == n + 1 else ()
        are_same = (each for each in known if np.array_equal(self.matrix, each.dense()))
        return next(are_same, None) if self.integer else None

    @property
    def integer(self) -> bool:
        return self.matrix.dtype.kind == "i"

    def matmat(self, X: Array) -> Array:
        return np.asarray(self.matrix @ X)

    def rmatmat(self, Y: Array) -> Array:
        return np.asarray(self.matrix.T @ Y)

    def apply_slabs(self, slabs: Array) -> Array:
        return multiply_slabs(self.matrix, slabs)

    def gram(self) -> Floats:
        return _grams.of(self, self.n**2, self._multiplied)

    def _multiplied(self) -> Floats:
        matrix = self.matrix.astype(np.float64)
        gram: Floats = matrix.T @ matrix
        gram.setflags(write=False)
        return gram

    def dense(self) -> Array:
        return self.matrix.copy()

    def take_columns(self, index: NDArray[np.integer[Any]]) -> Operator:
        return simplify(self.matrix[:, index])


def simplify(rows: Any) -> Operator:
    """Return explicit rows as Total, Identity or Prefix when they are that, else as Dense.

    >>> simplify([[1, 0], [1, 1]])
    Prefix(size=2)
    """
    block = Dense(rows)
    return block.simpler or block


MANY = 1 << 16
"""Numbers from which it pays to look whether a matrix begins with a diagonal."""


def has_one_cell_each(matrix: Array) -> bool:
    """Say whether every row of a square matrix, shape (n, n), is over the cell at its place."""
    return bool(np.count_nonzero(matrix) == np.count_nonzero(matrix.diagonal()))


def multiply_slabs(matrix: Array, slabs: Array) -> Array:
    """Contract the middle axis of (left, n, right) with an explicit matrix, without transposes.

    Args:
        matrix: (rows, n).
        slabs: (left, n, right); the result is (left, rows, right).
    """
    left, n, right = slabs.shape
    if right == 1:
        return (slabs.reshape(left, n) @ matrix.T).reshape(left, len(matrix), 1)
    if 1 < n <= len(matrix) and slabs.size > MANY and has_one_cell_each(matrix[:n]):
        # Rows of a single cell each need no sums: of rows beside the identity only a few are left.
        dtype = np.result_type(matrix, slabs)
        out: Array = np.empty((left, len(matrix), right), dtype=dtype)
        np.multiply(matrix.diagonal()[:n, np.newaxis], slabs, out=out[:, :n])
        np.matmul(matrix[n:], slabs, out=out[:, n:])
        return out
    return np.asarray(np.matmul(matrix, slabs))
