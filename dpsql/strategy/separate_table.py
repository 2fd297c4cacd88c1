"""Least-squares tables of one block with matrices of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Floats, Operator
from dpsql.records import cached_property
from dpsql.strategy.consistency_constraints import SUMMED, WHOLE, Labels, Matrices, Part, Partitions

SAME = 1e-9
"""Relative size below which columns of queries count as equal, for cells of one class."""


def residual_basis(n: int) -> Floats:
    """Return n - 1 orthonormal rows that sum to zero, shape (n - 1, n).

    >>> residual_basis(2).round(3).tolist()
    [[0.707, -0.707]]
    """
    k = np.arange(1, n)[:, np.newaxis]
    rows = np.where(np.arange(n) < k, 1.0, 0.0)
    rows[np.arange(n - 1), np.arange(1, n)] = -np.arange(1, n)
    return np.asarray(rows / np.sqrt(k * (k + 1)))


class BlockTable:
    """Least squares of one block: per attribute K = (A'A)^-1 over classes; its parts.

    A matrix over the parts has a row for every number of the parts, one part after the other.
    """

    def __init__(
        self, b: int, matrices: Matrices, partitions: Partitions, parts: Sequence[Part]
    ) -> None:
        self.names = tuple(matrices)
        self.axes = list(partitions.own[b])
        self.labels = [partitions.labels(b, i) for i in self.axes]
        self.sizes = tuple(int(labels.max()) + 1 for labels in self.labels)
        self.places = [np.unique(labels, return_index=True)[1] for labels in self.labels]
        self.matrices = [
            None if rows is None else rows[:, places].astype(np.float64)
            for rows, places in zip(matrices.values(), self.places, strict=True)
        ]
        self.parts = [part for part in parts if partitions.knows(b, part)]
        self._found = partitions.found
        self._readers: dict[tuple[int, int], Floats] = {}

    @cached_property
    def inverses(self) -> list[Floats]:
        """Return K of every attribute, shape (classes, classes)."""
        return [
            np.eye(n) if rows is None else _inverse_gram(rows)
            for n, rows in zip(self.sizes, self.matrices, strict=True)
        ]

    def reader(self, k: int, kind: int) -> Floats:
        """Return what reads a kind off the classes of axis k, shape (numbers, classes)."""
        if (k, kind) not in self._readers:
            if kind == SUMMED:
                found = np.ones((1, self.sizes[k]))
            elif kind == WHOLE:
                found = np.eye(self.sizes[k])
            else:
                labels = self._found[self.axes[k]][kind]
                found = residual_basis(int(labels.max()) + 1)[:, labels[self.places[k]]]
            self._readers[k, kind] = found
        return self._readers[k, kind]

    def _readers_of(self, part: Part) -> list[Floats]:
        return [self.reader(k, part[i]) for k, i in enumerate(self.axes)]

    def read(self, table: Floats) -> Floats:
        """Return the parts (numbers,) of a table over the classes, with an axis per attribute."""
        found = [kron_apply(self._readers_of(part), table).ravel() for part in self.parts]
        return np.concatenate([*found, np.zeros(0)])

    def spread(self, values: Floats) -> Floats:
        """Return the table with values (numbers,) of the parts put back: ``read`` transposed."""
        out, start = np.zeros(self.sizes), 0
        for part in self.parts:
            readers = self._readers_of(part)
            shape = [len(reader) for reader in readers]
            end = start + math.prod(shape)
            out += kron_apply([r.T for r in readers], values[start:end].reshape(shape))
            start = end
        return out

    def smoothed(self, table: Floats) -> Floats:
        """Return K applied to a table over the classes, with an axis per attribute."""
        pairs = zip(self.matrices, self.inverses, strict=True)
        return kron_apply([None if rows is None else K for rows, K in pairs], table)

    def fitted(self, values: NDArray[Any]) -> Floats:
        """Return the table that fits measured values (rows,) best, from this block alone."""
        pairs = zip(self.sizes, self.matrices, strict=True)
        shape = [n if rows is None else len(rows) for n, rows in pairs]
        back = [None if rows is None else rows.T for rows in self.matrices]
        return self.smoothed(kron_apply(back, np.asarray(values, dtype=np.float64).reshape(shape)))

    @cached_property
    def _stacked(self) -> list[tuple[Floats, Labels]]:
        """Return per axis all its readers, and which of their rows each number of the parts has."""
        out = []
        for k, i in enumerate(self.axes):
            kinds = sorted({part[i] for part in self.parts})
            readers = {kind: self.reader(k, kind) for kind in kinds}
            starts = dict(zip(kinds, np.cumsum([0, *map(len, readers.values())]), strict=False))
            places = [np.zeros(0, dtype=np.intp)]
            for part in self.parts:
                sizes = [len(self.reader(m, part[axis])) for m, axis in enumerate(self.axes)]
                grid = np.arange(sizes[k]).reshape(-1, *(1,) * (len(sizes) - k - 1))
                places.append(np.broadcast_to(grid, sizes).ravel() + starts[part[i]])
            rows = np.concatenate([np.zeros((0, self.sizes[k])), *readers.values()])
            out.append((rows, np.concatenate(places)))
        return out

    @property
    def count(self) -> int:
        """Return how many numbers the parts have."""
        return sum(
            math.prod(len(self.reader(k, part[i])) for k, i in enumerate(self.axes))
            for part in self.parts
        )

    def between(self, matrices: Sequence[Floats]) -> Floats:
        """Return P (x)M P' for the parts P and a matrix (classes, classes) per attribute."""
        out = np.ones((self.count, self.count))
        for M, (rows, places) in zip(matrices, self._stacked, strict=True):
            out *= (rows @ M @ rows.T)[places][:, places]
        return out

    def crossed(self, queries: Sequence[Floats], paired: bool = False) -> Floats:
        """Return P K q for the parts P, one column per query: rows in all their combinations.

        Args:
            queries: (rows, classes) per attribute.
            paired: take row r of all of them.
        """
        out = np.ones((self.count, 1))
        for K, query, (rows, places) in zip(self.inverses, queries, self._stacked, strict=True):
            side = (rows @ K @ query.T)[places]
            out = (
                out * side
                if paired
                else (out[:, :, np.newaxis] * side[:, np.newaxis]).reshape(len(out), -1)
            )
        return out

    def knows(self, name: str, operator: Operator) -> bool:
        """Say whether the rows of a query factor are the same for all cells of a class."""
        labels = self.labels[self.names.index(name)]
        if labels.max() + 1 == len(labels):
            return True
        rows = np.asarray(operator.dense(), dtype=np.float64)
        places = self.places[self.names.index(name)]
        return bool(np.abs(rows - rows[:, places][:, labels]).max() <= SAME * np.abs(rows).max())

    def rows_of(self, factors: Mapping[str, Operator]) -> dict[str, Floats]:
        """Return the rows of a product over classes per attribute, ones where it sums."""
        return {
            name: np.asarray(factors[name].dense(), dtype=np.float64)[:, places]
            if name in factors
            else np.ones((1, n))
            for name, n, places in zip(self.names, self.sizes, self.places, strict=True)
        }

    def readers_of(self, factors: Mapping[str, Operator]) -> list[Operator | Floats]:
        """Return what contracts every axis of the table to the rows of a product."""
        out: list[Operator | Floats] = []
        for name, n, places in zip(self.names, self.sizes, self.places, strict=True):
            if name not in factors:
                out.append(np.ones((1, n)))
            elif len(places) == factors[name].n:
                out.append(factors[name])
            else:
                out.append(np.asarray(factors[name].dense(), dtype=np.float64)[:, places])
        return out

    def grams_of(self, factors: Mapping[str, Operator]) -> list[Floats]:
        """Return the Gram of every factor of a product over classes, of ones where it sums."""
        return [
            _chosen(factors[name].gram(), places) if name in factors else np.ones((n, n))
            for name, n, places in zip(self.names, self.sizes, self.places, strict=True)
        ]


def _chosen(gram: Floats, places: NDArray[np.intp]) -> Floats:
    """Return the part of a Gram matrix at some cells; all of it where they are all."""
    if np.array_equal(places, np.arange(len(gram))):
        return gram
    return np.asarray(gram[np.ix_(places, places)])


def _inverse_gram(rows: Floats) -> Floats:
    largest = float(np.abs(rows).max())
    scaled = rows / largest
    return np.asarray(np.linalg.inv(scaled.T @ scaled) / largest**2, dtype=np.float64)
