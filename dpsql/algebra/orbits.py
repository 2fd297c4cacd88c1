"""Interchangeable cells of one attribute, and the parts of queries that they separate.

Cells that a workload cannot tell apart form an orbit. The vectors over an attribute split into
those that are constant on every orbit (described by one number per orbit) and, for every orbit of
at least two cells, those that live on it and sum to zero.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpsql.algebra.operator import Array, Floats, Integers, Operator
from dpsql.records import cached_property, dataclass

TOLERANCE = 1e-12
"""Relative difference below which two entries of a Gram matrix are equal."""


@dataclass(frozen=True)
class Orbits:
    """A partition of the cells of an attribute; ``labels`` (n,) is numbered by first occurrence.

    >>> Orbits(np.array([0, 1, 1])).sizes.tolist(), Orbits(np.array([0, 1, 1])).wide.tolist()
    ([1, 2], [1])
    """

    labels: Integers

    @property
    def n(self) -> int:
        """Return the number of cells."""
        return len(self.labels)

    @cached_property
    def sizes(self) -> Integers:
        """Return the number of cells of every orbit, shape (k,)."""
        return np.bincount(self.labels).astype(np.int64)

    @cached_property
    def wide(self) -> Integers:
        """Return the orbits of at least two cells."""
        return np.flatnonzero(self.sizes > 1).astype(np.int64)

    @cached_property
    def order(self) -> Integers:
        """Return the cells sorted by orbit."""
        return np.argsort(self.labels, kind="stable").astype(np.int64)

    @cached_property
    def starts(self) -> Integers:
        """Return where each orbit starts in ``order``."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def cells(self, orbit: int) -> Integers:
        """Return the cells of one orbit, in increasing order."""
        start = self.starts[orbit]
        return self.order[start : start + self.sizes[orbit]]

    def sums(self, array: Array, axis: int) -> Array:
        """Return the sums over the cells of every orbit along one axis.

        Args:
            array: n entries along the axis; the result has one per orbit.
            axis: the axis, from 0.
        """
        return np.asarray(np.add.reduceat(array.take(self.order, axis), self.starts, axis))

    def gram_parts(self, gram: Floats) -> tuple[Floats, Floats]:
        """Return a Gram matrix on the orbit sums and on the differences within each wide orbit.

        The first, (k, k), is in the coordinates of raw orbit sums; the second is, per wide orbit,
        the trace on the vectors that sum to zero.

        Args:
            gram: (n, n), invariant under exchange of the cells of an orbit.
        """
        sums = self.sums(self.sums(gram, 0), 1)
        means = np.asarray(sums / np.multiply.outer(self.sizes, self.sizes), dtype=np.float64)
        inside = self.sums(np.diagonal(gram), 0) - np.diagonal(sums) / self.sizes
        scale = self.sums(np.abs(np.diagonal(gram)), 0)
        return means, np.where(inside > TOLERANCE * scale, inside, 0.0)[self.wide]

    def query_parts(self, operator: Operator) -> tuple[Floats, Floats]:
        """Return the rows of a query on raw orbit sums, (m, k), and their spreads, (m, wide).

        The spread is the squared norm of the part that sums to zero on a wide orbit.
        """
        return self.means(operator), self.cross(operator, operator)

    def means(self, operator: Operator) -> Floats:
        """Return the mean entry of every row on every orbit, shape (m, k)."""
        indicator = np.zeros((self.n, len(self.sizes)), dtype=np.int64)
        indicator[np.arange(self.n), self.labels] = 1
        return np.asarray(operator.matmat(indicator) / self.sizes)

    def cross(self, left: Operator, right: Operator) -> Floats:
        """Return per pair of rows the inner product of their parts within each wide orbit."""
        rows = left.rows
        if not len(self.wide):
            return np.zeros((rows, 0))
        P = np.asarray(left.dense(), dtype=np.float64)
        Q = P if right is left else np.asarray(right.dense(), dtype=np.float64)
        whole = self.sums(P * Q, 1)
        inside = whole - self.sums(P, 1) * self.sums(Q, 1) / self.sizes
        scale = self.sums(np.abs(P * Q), 1)
        return np.asarray(np.where(np.abs(inside) > TOLERANCE * scale, inside, 0.0)[:, self.wide])


def find_orbits(grams: Iterable[Floats], n: int) -> Orbits:
    """Return the orbits of n cells under the exchanges that leave every Gram matrix unchanged.

    Cells a and b are interchangeable iff G[a,a] = G[b,b] and G[a,k] = G[b,k] for all other k;
    this is an equivalence relation.

    Args:
        grams: (n, n) each.
        n: cells.

    >>> find_orbits([np.diag([2, 1, 1]), np.eye(3)], 3).labels.tolist()
    [0, 1, 1]
    """
    labels = np.zeros(n, dtype=np.int64)
    for gram in grams:
        labels = _refine(labels, gram)
        if labels.max() == n - 1:
            break
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return Orbits(rank[inverse.reshape(-1)].astype(np.int64))


def _refine(labels: Integers, gram: Floats) -> Integers:
    """Return the common refinement of a partition and the exchanges that keep one Gram matrix."""
    tolerance = TOLERANCE * np.abs(gram).max(initial=0)
    diagonal = np.diagonal(gram)
    out = np.empty_like(labels)
    fresh = 0
    for label in np.unique(labels):
        rest = np.flatnonzero(labels == label)
        while len(rest):
            a = rest[0]
            alike = np.abs(diagonal[rest] - diagonal[a]) <= tolerance
            same = rest[alike]
            distance = np.abs(gram[same] - gram[a])
            distance[:, a] = 0
            distance[np.arange(len(same)), same] = 0
            alike[alike] = distance.max(axis=1) <= tolerance
            out[rest[alike]] = fresh
            fresh += 1
            rest = rest[~alike]
    return out
