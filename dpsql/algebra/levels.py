"""A hierarchy of intervals: level by level the cells are cut finer; its rows are never formed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Array, Operator
from dpsql.records import cached_property, dataclass

LARGEST = 1 << 20
"""Largest weight of a row."""


class Structured(Operator):
    """Rows of whole numbers that are told by few of them, to be measured without being formed."""

    size: int

    @property
    @abstractmethod
    def facts(self) -> list[Any]:
        """Return the word for the kind, and the numbers that it is made from."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """Return the largest entry."""

    @property
    @abstractmethod
    def reach(self) -> int:
        """Return the largest sum of the entries of a row, or more."""

    @abstractmethod
    def norm(self, power: int) -> int:
        """Return the largest sum of powers of the entries of a column, exactly."""


@dataclass(frozen=True, eq=False)
class Levels(Structured):
    """Rows of a hierarchy: level l cuts the cells into ``counts[l]`` runs of nearly equal length.

    Run k of a level is the cells from k size // count to (k + 1) size // count; its row is their
    sum times ``weights[l]``, a whole number. Every cell is in exactly one row of each level, so
    that all columns have the same norms.

    Raises ValueError for counts outside [1, size], or weights outside [1, 2^20].

    >>> Levels(3, (1, 3), (2, 5)).dense().tolist()
    [[2, 2, 2], [5, 0, 0], [0, 5, 0], [0, 0, 5]]
    """

    size: int
    counts: tuple[int, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = (self.size, *self.counts, *self.weights)
        if type(self.counts) is not tuple or type(self.weights) is not tuple:
            raise ValueError("counts and weights are tuples")
        if not self.counts or any(type(number) is not int for number in numbers):
            raise ValueError("a hierarchy is of whole numbers, with one level at least")
        if len(self.counts) != len(self.weights) or not min(self.counts) >= 1:
            raise ValueError("every level has its count and its weight")
        if max(self.counts) > self.size or not 1 <= min(self.weights) <= max(self.weights):
            raise ValueError("runs have at least one cell, and rows a positive weight")
        if max(self.weights) > LARGEST:
            raise ValueError(f"weights are at most {LARGEST}")

    @cached_property
    def shape(self) -> tuple[int, int]:
        return sum(self.counts), self.size

    @cached_property
    def key(self) -> Hashable:
        return ("levels", self.size, self.counts, self.weights)

    @property
    def facts(self) -> list[Any]:
        return ["levels", self.size, list(self.counts), list(self.weights)]

    @property
    def largest(self) -> int:
        return max(self.weights)

    @property
    def reach(self) -> int:
        return self.largest * self.size

    def edges(self, level: int) -> NDArray[np.int64]:
        """Return where the runs of a level begin, and the end of the last, shape (count + 1,)."""
        return edges_of(self.size, self.counts[level])

    def norm(self, power: int) -> int:
        """Return the sum of the powers of the entries of a column, the same for all of them."""
        return sum(int(weight**power) for weight in self.weights)

    def matmat(self, X: Array) -> Array:
        return np.asarray(self.apply_slabs(X[np.newaxis])[0])

    def rmatmat(self, Y: Array) -> Array:
        out: Array | None = None
        start = 0
        for level, (count, weight) in enumerate(zip(self.counts, self.weights, strict=True)):
            lengths = np.diff(self.edges(level))
            part = np.repeat(Y[start : start + count] * weight, lengths, axis=0)
            out = part if out is None else out + part
            start += count
        assert out is not None
        return out

    def apply_slabs(self, slabs: Array) -> Array:
        parts = []
        for level, weight in enumerate(self.weights):
            sums = np.add.reduceat(slabs, self.edges(level)[:-1], axis=1)
            parts.append(sums * weight)
        return np.concatenate(parts, axis=1)

    def column_l1(self) -> Array:
        return np.full(self.size, self.norm(1), dtype=np.int64)

    def column_l2sq(self) -> Array:
        return np.full(self.size, self.norm(2), dtype=np.int64)


def edges_of(size: int, count: int) -> NDArray[np.int64]:
    """Return where so many runs of cells begin, and the end of the last, shape (count + 1,)."""
    return np.arange(count + 1, dtype=np.int64) * size // count
