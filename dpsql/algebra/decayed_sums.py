"""Running totals that fade: older cells count for less, in steps; the rows are never formed."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Any

import numpy as np

from dpsql.algebra.levels import LARGEST, Structured
from dpsql.algebra.operator import Array
from dpsql.records import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class Fading(Structured):
    """Row i sums the cells up to i, each times ``heights[p]``, p the step that its distance is in.

    Step p is of the distances from ``starts[p]`` to those of the next step. The first column is
    the longest, so that its norm is the largest.

    Raises ValueError for starts that do not grow from 0 within the size, or heights outside
    [1, 2^20].

    >>> Fading(3, (0, 1), (4, 2)).dense().tolist()
    [[4, 0, 0], [2, 4, 0], [2, 2, 4]]
    """

    size: int
    starts: tuple[int, ...]
    heights: tuple[int, ...]

    def __post_init__(self) -> None:
        if type(self.starts) is not tuple or type(self.heights) is not tuple:
            raise ValueError("starts and heights are tuples")
        if any(type(number) is not int for number in (self.size, *self.starts, *self.heights)):
            raise ValueError("fading sums are of whole numbers")
        if len(self.starts) != len(self.heights) or not self.starts or self.starts[0] != 0:
            raise ValueError("every step has its start and its height, and the first starts at 0")
        if any(a >= b for a, b in pairwise((*self.starts, self.size))):
            raise ValueError("every step has one distance at least")
        if not 1 <= min(self.heights) <= max(self.heights) <= LARGEST:
            raise ValueError(f"heights are from 1 to {LARGEST}")

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @cached_property
    def key(self) -> Hashable:
        return ("fading", self.size, self.starts, self.heights)

    @property
    def facts(self) -> list[Any]:
        return ["fading", self.size, list(self.starts), list(self.heights)]

    @property
    def largest(self) -> int:
        return max(self.heights)

    @property
    def reach(self) -> int:
        return self.norm(1)

    @property
    def coefficients(self) -> Array:
        """Return what a cell counts for by its distance, shape (size,): the first column."""
        return np.repeat(np.array(self.heights), np.diff([*self.starts, self.size]))

    def norm(self, power: int) -> int:
        """Return the sum of the powers of the entries of the first column, the largest."""
        steps = zip(self.heights, pairwise((*self.starts, self.size)), strict=True)
        return sum(int(height**power) * (end - start) for height, (start, end) in steps)

    def matmat(self, X: Array) -> Array:
        return np.asarray(self.apply_slabs(X[np.newaxis])[0])

    def rmatmat(self, Y: Array) -> Array:
        return self.matmat(Y[::-1])[::-1]

    def apply_slabs(self, slabs: Array) -> Array:
        sums = slabs.cumsum(axis=1)
        out = sums * self.heights[0]
        for start, (last, height) in zip(self.starts[1:], pairwise(self.heights), strict=True):
            out[:, start:] += sums[:, : self.size - start] * (height - last)
        return np.asarray(out)

    def column_l1(self) -> Array:
        return self.coefficients.cumsum()[::-1]

    def column_l2sq(self) -> Array:
        return np.square(self.coefficients).cumsum()[::-1]
