"""Single queries, products of one predicate per attribute, evaluated in batches."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.pgm.measurements import Query
from dpsql.records import dataclass
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product


def layout(domain: Mapping[str, int]) -> dict[str, slice]:
    """Return the columns of every attribute in a table of all blocks side by side.

    >>> layout({"a": 2, "b": 3})
    {'a': slice(0, 2, None), 'b': slice(2, 5, None)}
    """
    places, start = {}, 0
    for name, size in domain.items():
        places[name] = slice(start, start + size)
        start += size
    return places


def row_outer(tables: list[Floats]) -> Floats:
    """Return the row-wise outer products of tables of shape (C, n_i), flat: (C, prod n_i).

    >>> row_outer([np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]])]).tolist()
    [[3.0, 5.0, 6.0, 10.0]]
    """
    out = tables[0]
    for table in tables[1:]:
        out = (out[:, :, np.newaxis] * table[:, np.newaxis, :]).reshape(len(out), -1)
    return out


@dataclass(frozen=True, slots=True)
class Predicates:
    """Products with one row each and equally many attributes, as gathers of distinct predicates.

    ``vectors`` holds per attribute its distinct predicate vectors, shape (p, n); ``slots`` holds
    per position the predicate of every product, and ``sorts`` what sorts them by it:
    the order, the predicates that occur, and where each starts.
    """

    columns: tuple[slice, ...]
    vectors: tuple[Floats, ...]
    slots: Integers
    sorts: tuple[tuple[Integers, Integers, Integers], ...]

    @classmethod
    def read(cls, products: Sequence[Product], domain: Mapping[str, int], dtype: Any) -> Predicates:
        places = layout(domain)
        known: dict[str, dict[Hashable, int]] = {}
        rows: dict[str, list[Floats]] = {}
        used = []
        for product in products:
            line = []
            for name in (a for a in domain if a in product.factors):
                factor = product.factors[name]
                seen = known.setdefault(name, {})
                if factor.key not in seen:
                    seen[factor.key] = len(seen)
                    rows.setdefault(name, []).append(factor.dense()[0].astype(dtype))
                line.append((name, seen[factor.key]))
            used.append(line)
        starts, start = {}, 0
        for name, vectors in rows.items():
            starts[name] = start
            start += len(vectors)
        lines = np.array([[starts[a] + i for a, i in line] for line in used], dtype=np.int64)
        slots = lines.reshape(len(products), -1).T
        return cls(
            tuple(places[name] for name in rows),
            tuple(np.stack(vectors) for vectors in rows.values()),
            slots,
            tuple(_sorted(slot) for slot in slots),
        )

    def factors(self, x: Floats) -> list[Floats]:
        """Return per position the predicate of every product on every component, (q, C).

        Args:
            x: (cells of all attributes in blocks, C), a distribution per component.
        """
        pairs = zip(self.columns, self.vectors, strict=True)
        parts = [vectors @ x[:, columns].T for columns, vectors in pairs]
        values = np.concatenate(parts) if parts else np.ones((0, len(x)), dtype=x.dtype)
        return [values[slot] for slot in self.slots]

    def shares(self, x: Floats, chunk: int = 4096) -> Floats:
        """Return the share of every product, a chunk at a time.

        Args:
            x: (cells of all attributes in blocks, C).
            chunk: products at a time.
        """
        pairs = zip(self.columns, self.vectors, strict=True)
        parts = [vectors @ x[:, columns].T for columns, vectors in pairs]
        out = np.ones(self.slots.shape[1])
        if not parts:
            return out
        values = np.concatenate(parts)
        for start in range(0, out.size, chunk):
            product = values[self.slots[0, start : start + chunk]]
            for slot in self.slots[1:]:
                product *= values[slot[start : start + chunk]]
            out[start : start + chunk] = product.sum(axis=1) / len(x)
        return out

    def answers(self, factors: Sequence[Floats], count: int) -> Floats:
        """Return the share of every product.

        Args:
            factors: per position (q, C).
            count: components, C.
        """
        if not factors:
            return np.ones(self.slots.shape[1])
        product = factors[0]
        for factor in factors[1:]:
            product = product * factor
        return np.asarray(product.sum(axis=1) / count)

    def pull(self, factors: Sequence[Floats], error: Floats, out: Floats) -> None:
        """Add the gradient of <error, answers> to ``out``; never divides, so zeros are fine.

        Args:
            factors: per position (q, C).
            error: (q,) the slope of the loss in every answer.
            out: shaped as x; added to.
        """
        if not factors:
            return
        gradient = np.zeros((sum(len(v) for v in self.vectors), len(out)), dtype=out.dtype)
        scaled = (error / len(out)).astype(out.dtype)[:, np.newaxis]
        for (order, present, starts), others in zip(
            self.sorts, leave_one_out(factors), strict=True
        ):
            gradient[present] += np.add.reduceat((others * scaled)[order], starts, axis=0)
        start = 0
        for columns, vectors in zip(self.columns, self.vectors, strict=True):
            out[:, columns] += gradient[start : start + len(vectors)].T @ vectors
            start += len(vectors)


def _sorted(slot: Integers) -> tuple[Integers, Integers, Integers]:
    order = np.argsort(slot, kind="stable")
    present, starts = np.unique(slot[order], return_index=True)
    return order, present, starts


def leave_one_out(factors: Sequence[Floats]) -> list[Floats]:
    """Return for every factor the product of the others, by prefixes and suffixes.

    Args:
        factors: arrays of one shape, as the results.

    >>> [float(p[0]) for p in leave_one_out([np.array([2.0]), np.array([0.0]), np.array([5.0])])]
    [0.0, 10.0, 0.0]
    """
    before = [np.ones_like(factors[0])]
    for factor in factors[:-1]:
        before.append(before[-1] * factor)
    out, after = list(before), np.ones_like(factors[0])
    for i in reversed(range(len(factors))):
        out[i] = before[i] * after
        after = after * factors[i]
    return out


@dataclass(frozen=True, slots=True)
class CellClasses:
    """The class of every cell of every attribute; answers depend on the mass of classes only.

    >>> row = Dense(np.array([[0, 1, 1, 0]]))
    >>> classes = CellClasses.read({"a": 4, "b": 3}, [(Product({"a": row}),)])
    >>> {name: labels.tolist() for name, labels in classes.labels.items()}
    {'a': [0, 1, 1, 0], 'b': [0, 0, 0]}
    """

    labels: Mapping[str, Integers]
    """Numbered in the order of their first cells."""

    @classmethod
    def read(cls, domain: Mapping[str, int], queries: Sequence[Query]) -> CellClasses:
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

        Args:
            masses: one axis of classes per attribute.
            like: a table of cells, an axis per attribute.
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
