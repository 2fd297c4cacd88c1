"""Cells of one attribute that no query tells apart, taken as one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.adaptive.handle import Floats, Integers, Query
from dpsql.algebra.blocks import Dense, Identity
from dpsql.algebra.operator import Operator
from dpsql.plan.pattern import Pattern
from dpsql.plan.workload import Product


@dataclass(frozen=True, slots=True)
class Classes:
    """The class of every cell of every attribute; answers depend on the mass of classes only.

    >>> row = Dense(np.array([[0, 1, 1, 0]]))
    >>> classes = Classes.read({"a": 4, "b": 3}, [(Product({"a": row}),)])
    >>> {name: labels.tolist() for name, labels in classes.labels.items()}
    {'a': [0, 1, 1, 0], 'b': [0, 0, 0]}
    """

    labels: Mapping[str, Integers]
    """Numbered in the order of their first cells."""

    @classmethod
    def read(cls, domain: Mapping[str, int], queries: Sequence[Query]) -> Classes:
        """Return the coarsest classes that no query divides."""
        rows: dict[str, dict[Hashable, NDArray[Any]]] = {name: {} for name in domain}
        whole: set[str] = set()
        for query in queries:
            if isinstance(query, Pattern):
                for name, each in query.labels.items():
                    row = np.asarray(each)[np.newaxis]
                    rows[name].setdefault(row.tobytes(), row)
                continue
            for product in query:
                for name, factor in product.factors.items():
                    if isinstance(factor, Identity):
                        whole.add(name)
                    elif factor.key not in rows[name]:
                        rows[name][factor.key] = np.asarray(factor.dense())
        labels: dict[str, Integers] = {}
        for name, size in domain.items():
            if name in whole:
                labels[name] = np.arange(size)
            elif rows[name]:
                labels[name] = _alike(np.concatenate(list(rows[name].values())))
            else:
                labels[name] = np.zeros(size, dtype=np.int64)
        return cls(labels)

    @property
    def domain(self) -> dict[str, int]:
        """Return attribute to number of classes."""
        return {name: int(labels.max()) + 1 for name, labels in self.labels.items()}

    @property
    def sizes(self) -> Floats:
        """Return the cells of every class, side by side."""
        return np.bincount(self._columns()).astype(np.float64)

    def merged(self, queries: Sequence[Query]) -> list[Query]:
        """Return the queries over classes."""
        first = {a: np.unique(labels, return_index=True)[1] for a, labels in self.labels.items()}
        known: dict[tuple[str, Hashable], Operator] = {}

        def factor(name: str, op: Operator) -> Operator:
            if len(first[name]) == len(self.labels[name]):
                return op
            place = (name, op.key)  # columns of equally many cells have classes of their own
            if place not in known:
                known[place] = Dense(op.dense()[:, first[name]])
            return known[place]

        found: list[Query] = []
        for query in queries:
            if isinstance(query, Pattern):
                labels = {a: np.asarray(each)[first[a]] for a, each in query.labels.items()}
                found.append(Pattern(labels, query.truth))
            else:
                found.append(
                    tuple(
                        Product({a: factor(a, op) for a, op in product.factors.items()})
                        for product in query
                    )
                )
        return found

    def masses(self, table: Floats) -> Floats:
        """Return the mass of every class in a table of blocks, shape (C, classes)."""
        columns = self._columns()
        out = np.zeros((columns.max() + 1, len(table)), dtype=table.dtype)
        np.add.at(out, columns, table.T)
        return out.T.copy()

    def spread(self, masses: Floats, like: Floats) -> Floats:
        """Return the table with these masses, divided within classes as ``like`` divides its own.

        A class that ``like`` gives nothing is divided evenly.
        """
        columns = self._columns()
        held = self.masses(like)[:, columns]
        even = 1 / self.sizes[columns]
        parts = np.where(held > 0, like / np.where(held > 0, held, 1), even)
        return np.asarray(masses[:, columns] * parts)

    def _columns(self) -> Integers:
        """Return the place of the class of every column of a table of blocks."""
        starts = np.cumsum([0, *self.domain.values()])
        return np.concatenate(
            [labels + start for labels, start in zip(self.labels.values(), starts, strict=False)]
        )


def _alike(rows: NDArray[Any]) -> Integers:
    """Return the class of every column, by equality, numbered as they first appear."""
    _, first, found = np.unique(rows, axis=1, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[found.reshape(-1)]
