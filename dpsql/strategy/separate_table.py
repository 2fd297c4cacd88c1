"""What blocks with matrices of their own know of the same rows, and where they have to agree.

A block is an estimate of a table by itself, over the classes of cells that its matrices tell apart.
A part of a table has a kind per attribute: summed over (``SUMMED``), or what sums to zero over the
classes of one of the partitions that blocks have of that attribute. Blocks whose classes are as
fine know that part, and it has to be the same in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Floats, Integers, Operator

MOST_AGREED = 640
"""Most numbers that blocks agree on: least squares takes their square in memory, cube in time.

With 1,024, errors of random unions were less by .3 % at most, for twice the planning time.
"""

SUMMED = -1
"""The kind of an attribute that is summed over; others name a partition."""

SAME = 1e-9
"""Relative size below which columns of queries count as equal, for cells of one class."""

Labels = NDArray[np.intp]
Part = tuple[int, ...]
Matrices = Mapping[str, Integers | None]


def classes_of(rows: Integers) -> Labels:
    """Return which class every cell is in: cells with equal columns, in order of appearance.

    >>> classes_of(np.array([[2, 0, 2], [1, 1, 1]])).tolist()
    [0, 1, 0]
    """
    _, first, inverse = np.unique(rows, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return np.asarray(order[inverse.reshape(-1)])


def is_finer(fine: Labels, coarse: Labels) -> bool:
    """Say whether cells of a class are in one class of the other partition too.

    >>> is_finer(np.array([0, 1, 2]), np.array([0, 1, 1]))
    True
    """
    pairs = fine * (coarse.max() + 1) + coarse
    return len(np.unique(pairs)) == int(fine.max()) + 1


class Partitions:
    """All partitions that blocks have of every attribute, and which are finer than which."""

    def __init__(self, domain: Mapping[str, int], blocks: Sequence[Matrices]) -> None:
        self.names = list(domain)
        self.found: list[list[Labels]] = [[] for _ in domain]
        self.own: list[dict[int, int]] = []
        for matrices in blocks:
            own: dict[int, int] = {}
            for i, (name, n) in enumerate(domain.items()):
                if name in matrices:
                    rows = matrices[name]
                    own[i] = self._place(i, np.arange(n) if rows is None else classes_of(rows))
            self.own.append(own)
        self._finer = [
            [[is_finer(fine, coarse) for coarse in each] for fine in each] for each in self.found
        ]

    def _place(self, i: int, labels: Labels) -> int:
        for k, known in enumerate(self.found[i]):
            if np.array_equal(known, labels):
                return k
        self.found[i].append(labels)
        return len(self.found[i]) - 1

    def labels(self, b: int, i: int) -> Labels:
        """Return the classes of a block on an attribute."""
        return self.found[i][self.own[b][i]]

    def size(self, part: Part) -> int:
        """Return how many numbers a part has."""
        return math.prod(
            int(self.found[i][kind].max()) for i, kind in enumerate(part) if kind != SUMMED
        )

    def knows(self, b: int, part: Part) -> bool:
        """Say whether a block tells enough cells apart to know a part."""
        own = self.own[b]
        return all(
            kind == SUMMED or (i in own and self._finer[i][own[i]][kind])
            for i, kind in enumerate(part)
        )

    def covers(self, fine: Part, coarse: Part) -> bool:
        """Say whether one part determines another, of the same attributes."""
        return all(
            (f == SUMMED) == (c == SUMMED) and (f == SUMMED or self._finer[i][f][c])
            for i, (f, c) in enumerate(zip(fine, coarse, strict=True))
        )

    def shared(self) -> dict[Part, list[int]]:
        """Return the parts that several blocks know, with these; small ones, as many as fit."""
        found: dict[Part, list[int]] = {}
        for a, b in combinations(range(len(self.own)), 2):
            for part in self._common(a, b):
                if part not in found:
                    found[part] = [k for k in range(len(self.own)) if self.knows(k, part)]
        kept = [part for part in found if not self._is_implied(part, found)]
        out: dict[Part, list[int]] = {}
        room = MOST_AGREED
        for part in sorted(kept, key=lambda part: (self.size(part), part)):
            room -= (len(found[part]) - 1) * self.size(part)
            if room < 0:
                break
            out[part] = found[part]
        return out

    def _common(self, a: int, b: int) -> Iterator[Part]:
        """Yield the finest parts that two blocks both know, over every set of attributes."""
        choices: list[list[int]] = []
        for i in range(len(self.names)):
            kinds = [SUMMED]
            if i in self.own[a] and i in self.own[b]:
                one, other = self.own[a][i], self.own[b][i]
                coarser = other if self._finer[i][one][other] else one
                if self._finer[i][one][other] or self._finer[i][other][one]:
                    kinds += [coarser] * bool(self.found[i][coarser].max())
            choices.append(kinds)
        yield from product(*choices)

    def _is_implied(self, part: Part, found: Mapping[Part, list[int]]) -> bool:
        return any(
            other != part and found[other] == found[part] and self.covers(other, part)
            for other in found
        )


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
    """What least squares needs of a block: per attribute K = (A'A)^-1 over classes; its parts.

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
            else:
                labels = self._found[self.axes[k]][kind]
                found = residual_basis(int(labels.max()) + 1)[:, labels[self.places[k]]]
            self._readers[k, kind] = found
        return self._readers[k, kind]

    def _readers_of(self, part: Part) -> list[Floats]:
        return [self.reader(k, part[i]) for k, i in enumerate(self.axes)]

    def read(self, table: Floats) -> Floats:
        """Return the parts of a table over the classes."""
        found = [kron_apply(self._readers_of(part), table).ravel() for part in self.parts]
        return np.concatenate([*found, np.zeros(0)])

    def spread(self, values: Floats) -> Floats:
        """Return the table with values of the parts put back to the classes: ``read``'."""
        out, start = np.zeros(self.sizes), 0
        for part in self.parts:
            readers = self._readers_of(part)
            shape = [len(reader) for reader in readers]
            end = start + math.prod(shape)
            out += kron_apply([r.T for r in readers], values[start:end].reshape(shape))
            start = end
        return out

    def smoothed(self, table: Floats) -> Floats:
        """Return K applied to a table."""
        pairs = zip(self.matrices, self.inverses, strict=True)
        return kron_apply([None if rows is None else K for rows, K in pairs], table)

    def fitted(self, values: NDArray[Any]) -> Floats:
        """Return the table that fits measured values best, from this block alone."""
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

        ``queries`` has rows over classes per attribute; ``paired`` takes row r of all of them.
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
            np.asarray(factors[name].gram())[np.ix_(places, places)]
            if name in factors
            else np.ones((n, n))
            for name, n, places in zip(self.names, self.sizes, self.places, strict=True)
        ]


def _inverse_gram(rows: Floats) -> Floats:
    largest = float(np.abs(rows).max())
    scaled = rows / largest
    return np.asarray(np.linalg.inv(scaled.T @ scaled) / largest**2, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Where the numbers of a block's parts enter the conditions of agreement.

    Condition ``at[k]`` has number ``of[k]`` with the sign ``sign[k]``.
    """

    at: Labels
    of: Labels
    sign: Floats

    def put(self, values: Floats, count: int) -> Floats:
        """Return the sums (count, ...) that rows of values come to in the conditions."""
        out = np.zeros((count, *values.shape[1:]))
        sign = self.sign.reshape(-1, *(1,) * (values.ndim - 1))
        out[self.at] = sign * values[self.of]
        return out

    def take(self, values: Floats, count: int) -> Floats:
        """Return what numbers, one per condition, come to in those of the parts: ``put``'."""
        found = np.bincount(self.of, self.sign * values[self.at], minlength=count)
        return np.asarray(found, dtype=np.float64)


def conditions(
    partitions: Partitions, tables: Sequence[BlockTable], shared: Mapping[Part, list[int]]
) -> list[Conditions]:
    """Return per block its side of: the first block with a part, less every other, is nothing."""
    pairs: list[list[tuple[int, int, int, float]]] = [[] for _ in tables]
    starts = [0] * len(tables)
    count = 0
    for part, where in shared.items():
        size = partitions.size(part)
        for k, place in enumerate(where):
            for other in range(1, len(where)) if k == 0 else [k]:
                begin = count + (other - 1) * size
                pairs[place].append((begin, starts[place], size, 1.0 if k == 0 else -1.0))
            starts[place] += size
        count += (len(where) - 1) * size
    return [_joined(each) for each in pairs]


def _joined(pairs: Sequence[tuple[int, int, int, float]]) -> Conditions:
    at = [np.arange(at, at + size) for at, _, size, _ in pairs]
    of = [np.arange(of, of + size) for _, of, size, _ in pairs]
    sign = [np.full(size, sign) for _, _, size, sign in pairs]
    none = np.zeros(0, dtype=np.intp)
    return Conditions(
        np.concatenate([none, *at]), np.concatenate([none, *of]), np.concatenate([[], *sign])
    )
