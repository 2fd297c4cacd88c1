"""Sums over disjoint classes of cells, in memory that grows with the cells alone."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity, Total, simplify
from dpsql.algebra.operator import Array, Floats, Operator, exact, freeze
from dpsql.records import cached_property, dataclass, field

EXPLICIT = 1 << 22
"""Entries up to which rows are written out: small matrices are planned as what they are."""


@dataclass(frozen=True, eq=False)
class Groups(Operator):
    """Row r sums the cells with label r, each times its weight; a cell labelled -1 is in no row.

    Raises ValueError for labels outside [-1, count).
    """

    labels: NDArray[np.int64]
    count: int
    weights: Array | None = None
    _order: NDArray[np.intp] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        labels = freeze(np.asarray(self.labels, dtype=np.int64))
        if labels.ndim != 1 or not labels.size or labels.min() < -1 or labels.max() >= self.count:
            raise ValueError(f"labels must be a list of numbers in [-1, {self.count})")
        weights = None if self.weights is None else freeze(exact(self.weights))
        if weights is not None and weights.shape != labels.shape:
            raise ValueError(f"{weights.shape} weights for {labels.shape} cells")
        order = np.argsort(labels, kind="stable")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "_order", order[np.searchsorted(labels[order], 0) :])

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.count, len(self.labels)

    @cached_property
    def key(self) -> Hashable:
        key = ("groups", self.count, _digest(self.labels))
        if self.weights is None:
            return key
        return (*key, self.weights.dtype.kind, _digest(self.weights))

    @property
    def integer(self) -> bool:
        return self.weights is None or self.weights.dtype.kind == "i"

    @property
    def alone(self) -> bool:
        """Say whether every cell is a row of its own, so that the Gram is the identity's."""
        held = self.labels[self._order]
        plain = self.weights is None or bool((np.abs(self.weights) == 1).all())
        return plain and len(held) == self.n and bool((np.diff(held) > 0).all())

    def entries(self) -> Array:
        """Return the only entry of every column that may differ from zero, shape (n,)."""
        inside = (self.labels >= 0).astype(np.int64)
        return inside if self.weights is None else inside * self.weights

    def matmat(self, X: Array) -> Array:
        held = self.labels[self._order]
        kind = np.result_type(X, np.int64 if self.weights is None else self.weights)
        out = np.zeros((self.count, X.shape[1]), dtype=kind)
        if held.size:
            starts = np.flatnonzero(np.diff(held, prepend=-1))
            values = X[self._order]
            if self.weights is not None:
                values = values * self.weights[self._order, np.newaxis]
            out[held[starts]] = np.add.reduceat(values, starts, axis=0)
        return out

    def rmatmat(self, Y: Array) -> Array:
        return np.asarray(Y[np.maximum(self.labels, 0)] * self.entries()[:, np.newaxis])

    def gram(self) -> Floats:
        entries = self.entries().astype(np.float64)
        alike = self.labels[:, np.newaxis] == self.labels
        return np.where(alike, entries[:, np.newaxis] * entries, 0.0)

    def column_l1(self) -> Array:
        return np.abs(self.entries())

    def column_l2sq(self) -> Array:
        return np.square(self.entries())

    def dense(self) -> Array:
        entries = self.entries()
        out = np.zeros(self.shape, dtype=entries.dtype)
        cells = np.flatnonzero(self.labels >= 0)
        out[self.labels[cells], cells] = entries[cells]
        return out

    def take_columns(self, index: NDArray[np.integer[Any]]) -> Operator:
        if len(index) == self.n and np.array_equal(index, np.arange(self.n)):
            return self
        weights = None if self.weights is None else self.weights[index]
        return grouped(self.labels[index], self.count, weights)


def grouped(labels: Array, count: int, weights: Array | None = None) -> Operator:
    """Return the sums over classes of cells as Identity or Total if they are, else as rows.

    Args:
        labels: (n,) the class of each cell, -1 for none.
        count: rows of the operator, which has n columns.
        weights: (n,) what a cell counts; one where None.

    >>> grouped(np.array([0, 1, 2]), 3), grouped(np.array([0, 0, 0]), 1)
    (Identity(size=3), Total(size=3))
    """
    n = len(labels)
    if weights is not None and not (weights != 1)[labels >= 0].any():
        weights = None
    if weights is None and count == n and np.array_equal(labels, np.arange(n)):
        return Identity(n)
    if weights is None and count == 1 and not labels.any():
        return Total(n)
    found = Groups(labels, count, weights)
    return simplify(found.dense()) if count * n <= EXPLICIT else found


def _digest(array: Array) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest()
