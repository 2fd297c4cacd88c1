"""Least-squares constants of an attribute that is measured by a hierarchy of intervals.

Everything is worked out in passes over the levels, in time and memory in proportion to the cells.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.levels import Levels
from dpsql.algebra.operator import Floats
from dpsql.records import dataclass
from dpsql.strategy.axis import Indices
from dpsql.strategy.structured_axis import StructuredAxis


@dataclass(frozen=True, slots=True)
class Level:
    """The runs of one level as nodes of a tree, from what is measured in them and below them.

    ``first`` is the first child of every node, ``parent`` the node above it; ``below`` the
    variance of its sum from what is below it, ``kappa`` with its own row, ``keep`` their ratio;
    ``alpha`` is how much of a squared covariance with the sum its own row takes off. ``sums`` are
    those of kappa over the nodes before each. All but ``below`` have an entry past the last node.
    """

    edges: Indices
    weight: float
    first: Indices
    parent: Indices
    below: Floats
    kappa: Floats
    keep: Floats
    alpha: Floats
    sums: Floats


class TreeAxis(StructuredAxis):
    """The least-squares constants of one attribute, as those of ``Axis``, from its levels.

    With T the covariance of cells from what is measured below a node, its own row of weight w
    takes w^2 T11'T / (1 + w^2 1'T1) off: the inverse Gram is what is left of the variances of the
    cells. Of an interval only the nodes at its two ends are neither whole nor empty.

    Source: Hay, Rastogi, Miklau, Suciu 2010, section 4.1, for any weights of levels.
    """

    def __init__(self, rows: Levels) -> None:
        self.levels, self.counts = _climb(rows), rows.counts
        spread = self.levels[-1].kappa[:-1].copy()
        for level in self.levels[:-1]:
            spread *= np.repeat(level.keep[:-1], np.diff(level.edges))
        super().__init__(rows, spread / spread.sum(), float(self.levels[0].kappa[0]))

    def _intervals(self, lo: Indices, hi: Indices) -> tuple[Floats, Floats, Floats]:
        """Return per interval its covariance with the total, its variance, and its scale.

        Going up, an interval is two ends, each a part of a node from its left edge, until both are
        in one node.
        """
        if (hi - lo == 1).all():
            return self._single(lo)
        a, b = lo, hi
        zeros = np.zeros(len(lo))
        va, ca, vb, cb, v, c = (zeros.copy() for _ in range(6))
        apart = lo < hi
        for lower, level in [*pairwise(reversed(self.levels)), (self.levels[0], None)]:
            sums = lower.sums
            pa, pb = (lower.parent[a], lower.parent[b]) if level is not None else (a * 0, b * 0)
            meet = apart & (pa == pb)
            whole = lower.kappa[a]
            between = sums[b] - sums[np.minimum(a + 1, b)]
            v = np.where(meet, whole - 2 * ca + va + between + vb, v)
            c = np.where(meet, whole - ca + between + cb, c)
            apart &= ~meet
            if level is None:
                break
            left, right = sums[a] - sums[level.first[pa]], sums[b] - sums[level.first[pb]]
            va, ca, vb, cb = va + left, ca + left, vb + right, cb + right
            va, ca = va - level.alpha[pa] * ca**2, ca * level.keep[pa]
            vb, cb = vb - level.alpha[pb] * cb**2, cb * level.keep[pb]
            v, c = v - level.alpha[pa] * c**2, c * level.keep[pa]
            a, b = pa, pb
        cells = self.levels[-1].sums
        return c, v, cells[hi] - cells[lo]

    def _single(self, node: Indices) -> tuple[Floats, Floats, Floats]:
        """Return the same of single cells."""
        scale = self.levels[-1].kappa[node]
        v, c = scale.copy(), scale.copy()
        for lower, level in pairwise(reversed(self.levels)):
            node = lower.parent[node]
            v -= level.alpha[node] * c**2
            c *= level.keep[node]
        return c, v, scale

    def _explicit(self, Q: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the same of explicit rows."""
        cells = self.levels[-1].kappa[:-1]
        scale = np.asarray(np.square(Q) @ cells)
        variances, sums = scale.copy(), Q * cells
        for level in reversed(self.levels[:-1]):
            sums = np.add.reduceat(sums, level.first[:-1], axis=1)
            variances -= np.square(sums) @ level.alpha[:-1]
            sums = sums * level.keep[:-1]
        return sums[:, 0], variances, scale

    def _grouped(
        self, labels: Indices, entries: Floats, count: int
    ) -> tuple[Floats, Floats, Floats]:
        """Return the same of sums over disjoint classes of cells, each times its entry."""
        inside = np.flatnonzero(labels >= 0)
        rows, node = labels[inside], inside
        cells = self.levels[-1].kappa[inside]
        scale = np.bincount(rows, entries[inside] ** 2 * cells, count).astype(np.float64)
        variances, sums = scale.copy(), entries[inside] * cells
        for lower, level in pairwise(reversed(self.levels)):
            node, rows, sums = _merged(lower.parent[node], rows, sums, count)
            variances -= np.bincount(rows, level.alpha[node] * sums**2, count)
            sums = sums * level.keep[node]
        return np.bincount(rows, sums, count).astype(np.float64), variances, scale

    def _of_all_ranges(self) -> float:
        """Return the sum of the variances of all ranges, from their Gram."""
        cells = self.levels[-1].kappa[:-1]
        rank = np.arange(1, self.size + 1, dtype=np.float64)
        rest = self.size + 1 - rank
        variance, vector = float((cells * rank) @ rest), cells
        for level in reversed(self.levels[:-1]):
            starts = level.edges[:-1]
            lengths = np.diff(level.edges)
            sums = np.concatenate([[0.0], (rank * vector).cumsum()])
            before = sums[:-1] - np.repeat(sums[starts], lengths)
            squares = np.add.reduceat(rest * vector * (2 * before + rank * vector), starts)
            variance -= float(level.alpha[:-1] @ squares)
            vector = vector * np.repeat(level.keep[:-1], lengths)
        return variance

    def solve(self, tensor: Floats, position: int) -> Floats:
        """Return the least squares of noisy rows along one axis: their sum, then the rest.

        Args:
            tensor: noisy numbers, those of this attribute's rows on one axis.
            position: of that axis.
        """
        before, after = tensor.shape[:position], tensor.shape[position + 1 :]
        slabs = tensor.reshape(int(np.prod(before)), tensor.shape[position], -1)
        numbers, start = [], 0
        for count in self.counts:
            numbers.append(slabs[:, start : start + count])
            start += count
        if len(numbers) < len(self.levels):
            numbers.insert(0, np.zeros((len(slabs), 1, slabs.shape[2])))
        cells = self._split(self._two_passes(numbers))
        return cells.reshape(*before, self.size + 1, *after)

    def _two_passes(self, numbers: list[Floats]) -> Floats:
        """Return the cells: up, the sum of every node from below; down, from all else."""
        bottom = self.levels[-1]
        own = [numbers[-1] / bottom.weight]
        rest: list[Floats] = []
        for level, number in zip(reversed(self.levels[:-1]), reversed(numbers[:-1]), strict=True):
            sums = np.add.reduceat(own[-1], level.first[:-1], axis=1)
            rest.append(sums)
            trust = (1 - level.keep[:-1])[:, np.newaxis]
            measured = number / level.weight if level.weight else number
            own.append(sums + trust * (measured - sums))
        found = own.pop()
        for lower, level in zip(self.levels[1:], self.levels[:-1], strict=True):
            part = lower.kappa[:-1] / level.below[lower.parent[:-1]]
            wrong = (found - rest.pop())[:, lower.parent[:-1]]
            found = own.pop() + part[:, np.newaxis] * wrong
        return found


def _climb(rows: Levels) -> list[Level]:
    """Return the levels from the root, which is of weight zero if it is not measured, to cells."""
    levels = range(len(rows.counts))
    edges = [rows.edges(i) for i in levels]
    weights = [float(weight) for weight in rows.weights]
    if rows.counts[0] > 1:
        edges.insert(0, np.array([0, rows.size]))
        weights.insert(0, 0.0)
    if rows.counts[-1] != rows.size:
        raise ValueError("the last level of a hierarchy is the cells")
    firsts = [np.searchsorted(lower, upper) for upper, lower in pairwise(edges)]
    nested = zip(firsts, pairwise(edges), strict=True)
    if any((lower[first] != upper).any() for first, (upper, lower) in nested):
        raise ValueError("every level of a hierarchy cuts the runs of the one before")
    found: list[Level] = []
    for i in reversed(range(len(edges))):
        count, square = len(edges[i]) - 1, weights[i] ** 2
        below = (
            np.add.reduceat(found[-1].kappa[:-1], firsts[i][:-1])
            if found
            else np.full(count, np.inf)
        )
        keep = 1 / (1 + square * below)
        kappa = below * keep if found else np.full(count, 1 / square)
        parent = (
            np.repeat(np.arange(len(firsts[i - 1])), np.append(np.diff(firsts[i - 1]), 1))
            if i
            else np.zeros(count + 1, dtype=np.int64)
        )
        first = firsts[i] if found else np.zeros(count + 1, dtype=np.int64)
        found.append(
            Level(
                edges[i],
                weights[i],
                first,
                parent,
                below,
                np.append(kappa, 0.0),
                np.append(keep, 1.0),
                np.append(square * keep, 0.0),
                np.concatenate([[0.0], np.append(kappa, 0.0).cumsum()]),
            )
        )
    return found[::-1]


def _merged(
    node: Indices, rows: NDArray[np.int64], sums: Floats, count: int
) -> tuple[Indices, Indices, Floats]:
    """Return the distinct pairs of a node and a row with the sums of theirs."""
    pairs, inverse = np.unique(node * count + rows, return_inverse=True)
    return pairs // count, pairs % count, np.bincount(inverse, sums).astype(np.float64)
