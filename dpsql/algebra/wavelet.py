"""The Haar wavelet transform as an operator."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from dpsql.algebra.operator import Array, Operator


@dataclass(frozen=True, slots=True, eq=False)
class Haar(Operator):
    """Haar wavelet rows, coarse to fine after the total; n that is no power of two is padded.

    Source: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms", section IV.
    """

    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return 1 << self.levels, self.size

    @property
    def levels(self) -> int:
        """Return L, where 2^L is the padded size."""
        return (self.size - 1).bit_length()

    @property
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
