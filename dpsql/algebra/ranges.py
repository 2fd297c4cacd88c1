"""Interval sums: all ranges, chosen ranges, trees of ranges; their rows are never formed."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Array, Floats, Operator, freeze
from dpsql.records import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class AllRange(Operator):
    """Every interval [lo, hi] of cells, lo-major: n(n+1)/2 rows, which are never formed."""

    size: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.size * (self.size + 1) // 2, self.size

    @cached_property
    def key(self) -> Hashable:
        return ("allrange", self.size)

    def matmat(self, X: Array) -> Array:
        sums = _edges(X)
        return np.concatenate([sums[lo + 1 :] - sums[lo] for lo in range(self.size)])

    def rmatmat(self, Y: Array) -> Array:
        steps = np.zeros((self.size + 1, Y.shape[1]), dtype=Y.dtype)
        start = 0
        for lo in range(self.size):
            part = Y[start : start + self.size - lo]
            steps[lo] += part.sum(axis=0)
            steps[lo + 1 :] -= part
            start += self.size - lo
        return steps[:-1].cumsum(axis=0)

    def gram(self) -> Floats:
        i = np.arange(self.size, dtype=np.float64)
        return np.asarray((np.minimum.outer(i, i) + 1) * (self.size - np.maximum.outer(i, i)))

    def gram_apply(self, X: Array) -> Array:
        rank = np.arange(1, self.size + 1).reshape(-1, 1)
        rest = self.size + 1 - rank
        below = (rank * X).cumsum(axis=0)
        above = (rest * X)[::-1].cumsum(axis=0)[::-1]
        return np.asarray(rest * below + rank * above - rank * rest * X)

    def column_l1(self) -> Array:
        rank = np.arange(1, self.size + 1)
        return rank * (self.size + 1 - rank)

    def column_l2sq(self) -> Array:
        return self.column_l1()


@dataclass(frozen=True, eq=False)
class Ranges(Operator):
    """Sums over the half-open intervals [lo, hi) of cells, in the order given."""

    size: int
    lo: NDArray[np.int64]
    hi: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("lo", "hi"):
            object.__setattr__(self, name, freeze(np.asarray(getattr(self, name), dtype=np.int64)))
        if self.lo.shape != self.hi.shape or self.lo.ndim != 1:
            raise ValueError(f"{self.lo.shape} starts and {self.hi.shape} ends")
        if ((self.lo < 0) | (self.lo > self.hi) | (self.hi > self.size)).any():
            raise ValueError(f"intervals must lie within [0, {self.size}]")

    @cached_property
    def shape(self) -> tuple[int, int]:
        return len(self.lo), self.size

    @cached_property
    def key(self) -> Hashable:
        return ("ranges", self.size, self.lo.tobytes(), self.hi.tobytes())

    def matmat(self, X: Array) -> Array:
        sums = _edges(X)
        return np.asarray(sums[self.hi] - sums[self.lo])

    def apply_slabs(self, slabs: Array) -> Array:
        sums = _edges(slabs, axis=1)
        return np.asarray(sums[:, self.hi] - sums[:, self.lo])

    def rmatmat(self, Y: Array) -> Array:
        steps = np.zeros((self.size + 1, Y.shape[1]), dtype=Y.dtype)
        np.add.at(steps, self.lo, Y)
        np.subtract.at(steps, self.hi, Y)
        return steps[:-1].cumsum(axis=0)

    def gram(self) -> Floats:
        steps = np.zeros((self.size + 1, self.size + 1))
        for left, right, sign in (
            (self.lo, self.lo, 1),
            (self.lo, self.hi, -1),
            (self.hi, self.lo, -1),
            (self.hi, self.hi, 1),
        ):
            np.add.at(steps, (left, right), sign)
        return steps[:-1, :-1].cumsum(axis=0).cumsum(axis=1)

    def column_l1(self) -> Array:
        return self.rmatmat(np.ones((self.rows, 1), dtype=np.int64))[:, 0]

    def column_l2sq(self) -> Array:
        return self.column_l1()

    def some(self, rows: slice) -> Ranges:
        """Return some of the intervals."""
        return Ranges(self.size, self.lo[rows], self.hi[rows])

    def take_columns(self, index: NDArray[np.integer[Any]]) -> Operator:
        if len(index) and (np.diff(index) > 0).all():
            return Ranges(
                len(index), np.searchsorted(index, self.lo), np.searchsorted(index, self.hi)
            )
        return super().take_columns(index)


def WidthRanges(n: int, width: int) -> Ranges:  # noqa: N802
    """Return every interval of exactly ``width`` cells: n - width + 1 rows.

    >>> WidthRanges(4, 3).dense().tolist()
    [[1, 1, 1, 0], [0, 1, 1, 1]]
    """
    if not 1 <= width <= n:
        raise ValueError(f"width {width} does not fit a domain of {n} cells")
    lo = np.arange(n - width + 1)
    return Ranges(n, lo, lo + width)


def Hierarchy(n: int, branching: int = 2, root: bool = True) -> Ranges:  # noqa: N802
    """Return a tree of intervals, level by level from the root (if kept) down to the cells.

    A node whose length L is not divisible by b is cut at ceil(k L / b).

    Args:
        n: cells.
        branching: most children of a node, two at least.
        root: keep the sum of all cells.

    Raises: ValueError for a smaller ``branching``.

    >>> Hierarchy(3).dense().tolist()
    [[1, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]
    """
    if branching < 2:
        raise ValueError(f"branching must be at least 2, not {branching}")
    nodes: list[tuple[int, int]] = []
    level = [(0, n)]
    while level:
        nodes += level
        level = [child for node in level for child in split_interval(*node, branching)]
    if not root and len(nodes) > 1:
        nodes = nodes[1:]
    lo, hi = np.array(nodes, dtype=np.int64).T
    return Ranges(n, lo, hi)


def split_interval(lo: int, hi: int, branching: int) -> list[tuple[int, int]]:
    """Return the children of the node [lo, hi), none for a single cell.

    Args:
        lo, hi: the first cell of the node, and the one after its last.
        branching: most children.

    >>> split_interval(0, 5, 2)
    [(0, 3), (3, 5)]
    """
    length = hi - lo
    if length == 1:
        return []
    cuts = [lo - (-k * length // branching) for k in range(branching + 1)]
    return [(a, b) for a, b in pairwise(cuts) if a < b]


def _edges(cells: Array, axis: int = 0) -> Array:
    shape = list(cells.shape)
    shape[axis] = 1
    return np.concatenate([np.zeros(shape, cells.dtype), cells.cumsum(axis=axis)], axis=axis)
