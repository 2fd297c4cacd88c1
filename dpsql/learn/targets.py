"""Noisy answers as a squared error on a table of blocks, and patterns over several columns.

Column by column, a state says all that the rest of a pattern needs to know of the columns before:
for "at least t of k predicates" how many hold so far. On a component of relaxed rows columns are
independent, so the chance of every state follows from that of the states before: for thresholds
the convolution of counts, several predicates on one column included.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from dpsql.algebra.blocks import Dense, Identity
from dpsql.algebra.operator import Floats, Integers, Operator
from dpsql.learn.predicates import Predicates, layout, row_outer
from dpsql.pgm.measurements import Candidate, Query
from dpsql.records import dataclass
from dpsql.workload.term import MAX_PRODUCTS, Pattern, refuse_pattern
from dpsql.workload.workload import Product

Move = tuple[Integers, Integers, Integers, int]
"""From a state, by a class of the column, to a state; and how many states there are then."""


def moves(pattern: Pattern) -> list[Move]:
    """Return per column of a pattern its moves between states that can still become true."""
    nothing = np.zeros(0, dtype=np.int64)
    if not pattern.truth.any():
        return [(nothing, nothing, nothing, 0)] * pattern.truth.ndim
    out: list[Move] = []
    tables = pattern.truth.reshape(1, -1)
    for size in pattern.truth.shape:
        split = tables.reshape(len(tables) * size, -1)
        packed = np.packbits(split, axis=1)
        _, first, target = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        tables = split[first]
        alive = tables.any(axis=1)
        after = np.where(alive, np.cumsum(alive) - 1, -1)[target].reshape(-1, size)
        source, chosen = np.nonzero(after >= 0)
        out.append((source, chosen, after[source, chosen], int(alive.sum())))
        tables = tables[alive]
    return out


@dataclass(frozen=True, slots=True)
class Diagrams:
    """Several patterns, level by level: each move multiplies a state by the chance of a class.

    ``vectors`` holds per column the 0/1 rows of its classes; the row after all of them is ones,
    by which patterns of few columns wait for the others.
    """

    columns: tuple[slice, ...]
    vectors: tuple[Floats, ...]
    levels: tuple[Move, ...]
    count: int

    @classmethod
    def read(cls, patterns: Sequence[Pattern], domain: Mapping[str, int], dtype: Any) -> Diagrams:
        places, known = layout(domain), dict[tuple[str, Hashable], int]()
        rows: dict[str, list[Floats]] = {}
        walks = []
        for pattern in patterns:
            walk = []
            steps = zip(pattern.labels.items(), pattern.truth.shape, moves(pattern), strict=True)
            for (name, labels), size, (source, chosen, target, width) in steps:
                key = (name, np.asarray(labels).tobytes())
                if key not in known:
                    known[key] = sum(map(len, rows.get(name, [])))
                    rows.setdefault(name, []).append(
                        (np.asarray(labels) == np.arange(size)[:, np.newaxis]).astype(dtype)
                    )
                walk.append((name, source, known[key] + chosen, target, width))
            walks.append(walk)
        vectors = {name: np.concatenate(parts) for name, parts in rows.items()}
        starts = dict(zip(vectors, np.cumsum([0, *map(len, vectors.values())]), strict=False))
        ones = sum(map(len, vectors.values()))
        levels: list[Move] = []
        widths = [1] * len(patterns)
        for level in zip_longest(*walks):
            before = np.cumsum([0, *widths])
            parts = []
            for i, step in enumerate(level):
                if step is None:
                    waiting = np.arange(widths[i])
                    parts.append((waiting, np.full(waiting.size, ones), waiting))
                else:
                    name, source, chosen, target, widths[i] = step
                    parts.append((source, starts[name] + chosen, target))
            after = np.cumsum([0, *widths])
            joined = [
                np.concatenate([part[k] + shift[i] for i, part in enumerate(parts)])
                for k, shift in enumerate((before, np.zeros_like(before), after))
            ]
            levels.append((joined[0], joined[1], joined[2], int(after[-1])))
        # a pattern that never holds has no state left: its answer has a place all the same
        last = np.array([i for i, width in enumerate(widths) if width], dtype=np.int64)
        levels.append((np.arange(len(last)), np.full(len(last), ones), last, len(patterns)))
        columns = tuple(places[name] for name in vectors)
        return cls(columns, tuple(vectors.values()), tuple(levels), len(patterns))

    def classes(self, x: Floats) -> Floats:
        """Return the chance of every class on every component, (classes + 1, C).

        Args:
            x: (cells of all attributes in blocks, C).
        """
        pairs = zip(self.columns, self.vectors, strict=True)
        parts = [vectors @ x[:, columns].T for columns, vectors in pairs]
        return np.concatenate([*parts, np.ones((1, len(x)), dtype=x.dtype)])

    def states(self, chances: Floats) -> list[Floats]:
        """Return the chance of every state before each level, then of every pattern: (., C).

        Args:
            chances: (classes + 1, C), as of ``classes``.
        """
        out = [np.ones((self.count, chances.shape[1]), dtype=chances.dtype)]
        for source, chosen, target, width in self.levels:
            out.append(sum_by(target, out[-1][source] * chances[chosen], width))
        return out

    def shares(self, x: Floats) -> Floats:
        """Return the share of every pattern.

        Args:
            x: (cells of all attributes in blocks, C).
        """
        return np.asarray(self.states(self.classes(x))[-1].mean(axis=1, dtype=np.float64))

    def pull(self, chances: Floats, states: Sequence[Floats], error: Floats, out: Floats) -> None:
        """Add the gradient of <error, shares> to ``out``: what each class would still lead to.

        Args:
            chances: (classes + 1, C).
            states: as of ``states``.
            error: (patterns,) the slope of the loss in every share.
            out: shaped as x; added to.
        """
        count = len(out)
        ahead = np.repeat((error / count).astype(out.dtype)[:, np.newaxis], count, axis=1)
        gradient = np.zeros_like(chances)
        for before, (source, chosen, target, _) in zip(
            reversed(states[:-1]), reversed(self.levels), strict=True
        ):
            led = ahead[target]
            gradient += sum_by(chosen, before[source] * led, len(chances))
            ahead = sum_by(source, chances[chosen] * led, len(before))
        start = 0
        for columns, vectors in zip(self.columns, self.vectors, strict=True):
            out[:, columns] += gradient[start : start + len(vectors)].T @ vectors
            start += len(vectors)


def sum_by(index: Integers, rows: Floats, size: int) -> Floats:
    """Return for every number below ``size`` the sum of the rows with that index.

    ``index`` has shape (m,), ``rows`` (m, k), the result (size, k).
    """
    out = np.zeros((size, rows.shape[1]), dtype=rows.dtype)
    if index.size:
        order = np.argsort(index, kind="stable")
        present, starts = np.unique(index[order], return_index=True)
        out[present] = np.add.reduceat(rows[order], starts, axis=0)
    return out


def products_of(pattern: Pattern) -> Candidate:
    """Return a pattern as a sum of disjoint products: the ways through its diagram.

    Raises ProgrammingError E_PREDICATE above 256 products.
    """
    columns = list(pattern.labels.items())
    steps = moves(pattern)
    found: list[Product] = []
    for factors in _ways(columns, steps, 0, 0):
        found.append(Product(factors))
        if len(found) > MAX_PRODUCTS:
            refuse_pattern(pattern)
    if not found:
        name, labels = columns[0]
        found.append(Product({name: Dense(np.zeros((1, len(labels)), dtype=np.int64))}))
    return tuple(found)


def _ways(
    columns: Sequence[tuple[str, Integers]], steps: Sequence[Move], level: int, state: int
) -> Iterator[dict[str, Operator]]:
    if level == len(columns):
        yield {}
        return
    name, labels = columns[level]
    source, chosen, target, _ = steps[level]
    here = source == state
    for after in np.unique(target[here]):
        row = np.isin(labels, chosen[here & (target == after)])
        factor = {} if row.all() else {name: Dense(row.astype(np.int64)[np.newaxis])}
        for rest in _ways(columns, steps, level + 1, int(after)):
            yield {**factor, **rest}


PATTERNS = 64
"""Patterns that are evaluated together."""


@dataclass(frozen=True, slots=True)
class TargetBlock:
    """One product with several rows: its columns and predicates, largest attribute last."""

    columns: tuple[slice, ...]
    factors: tuple[Floats | None, ...]
    order: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def read(cls, product: Product, domain: Mapping[str, int], dtype: Any) -> TargetBlock:
        places = layout(domain)
        names = [a for a in domain if a in product.factors]
        ops = [product.factors[a] for a in names]
        sizes = [op.rows for op in ops]
        order = tuple(sorted(range(len(names)), key=lambda i: sizes[i]))
        dense = [None if isinstance(op, Identity) else op.dense().astype(dtype) for op in ops]
        return cls(
            tuple(places[names[i]] for i in order),
            tuple(dense[i] for i in order),
            order,
            tuple(sizes),
        )

    def tables(self, x: Floats) -> list[Floats]:
        """Return per attribute its predicates on every component, shape (C, rows)."""
        pairs = zip(self.columns, self.factors, strict=True)
        return [x[:, s] if f is None else x[:, s] @ f.T for s, f in pairs]

    def forward(self, tables: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return the shares (flat, domain order) and the outer products of all but the last.

        Args:
            tables: per column the shares of its predicates, (predicates, C).
        """
        left = row_outer(list(tables[:-1])) if len(tables) > 1 else np.ones_like(tables[0][:, :1])
        flat = (left.T @ tables[-1]) / len(left)
        sorted_sizes = [self.sizes[i] for i in self.order]
        return flat.reshape(sorted_sizes).transpose(np.argsort(self.order)).reshape(-1), left

    def pull(self, tables: Sequence[Floats], left: Floats, error: Floats, out: Floats) -> None:
        """Add the gradient of <error, shares> to ``out``, shaped like the table of blocks."""
        sorted_error = error.reshape(self.sizes).transpose(self.order)
        e = (sorted_error.reshape(-1, self.sizes[self.order[-1]]) / len(out)).astype(out.dtype)
        self._add(len(tables) - 1, left @ e, out)
        if len(tables) == 1:
            return
        inner = (tables[-1] @ e.T).reshape(len(out), *(t.shape[1] for t in tables[:-1]))
        axes = list(range(inner.ndim))
        for i in range(len(tables) - 1):
            operands: list[Any] = [inner, axes]
            for j in range(len(tables) - 1):
                if j != i:
                    operands += [tables[j], [0, j + 1]]
            self._add(i, np.einsum(*operands, [0, i + 1]), out)

    def _add(self, i: int, gradient: Floats, out: Floats) -> None:
        factor = self.factors[i]
        out[:, self.columns[i]] += gradient if factor is None else gradient @ factor


@dataclass(frozen=True, slots=True)
class Targets:
    """Queries with noisy answers, as shares of the total, and the weight of every answer."""

    blocks: tuple[tuple[int, tuple[TargetBlock, ...]], ...]
    batches: tuple[tuple[Predicates, Integers], ...]
    single: Integers
    patterns: tuple[tuple[Diagrams, Integers], ...]
    values: Floats
    weights: Floats

    @classmethod
    def read(
        cls,
        domain: Mapping[str, int],
        queries: Sequence[Query],
        values: Sequence[Floats],
        stddevs: Sequence[float],
        total: float,
        dtype: Any = np.float64,
    ) -> Targets:
        """Compile queries; weights are 1 / variance with a mean of one."""
        blocks, start = [], 0
        places: list[int] = []
        patterns: list[Pattern] = []
        singles: dict[int, list[tuple[int, Product]]] = {}
        for query in queries:
            if isinstance(query, Pattern):
                places.append(start)
                patterns.append(query)
                start += 1
                continue
            if query[0].rows == 1:
                for product in query:
                    singles.setdefault(len(product.factors), []).append((start, product))
            else:
                parts = tuple(TargetBlock.read(product, domain, dtype) for product in query)
                blocks.append((start, parts))
            start += query[0].rows
        batches = tuple(
            (Predicates.read([p for _, p in group], domain, dtype), np.array([i for i, _ in group]))
            for group in singles.values()
        )
        owners = [i for group in singles.values() for i, _ in group]
        diagrams = tuple(
            (
                Diagrams.read(patterns[i : i + PATTERNS], domain, dtype),
                np.array(places[i : i + PATTERNS]),
            )
            for i in range(0, len(patterns), PATTERNS)
        )
        flat = np.concatenate([np.asarray(v, dtype=np.float64) for v in values] or [np.zeros(0)])
        scales = np.repeat(np.asarray(stddevs, dtype=np.float64), [len(v) for v in values])
        weights = 1 / np.square(scales / max(scales.min(initial=np.inf), 1e-300))
        weights /= max(weights.mean() if weights.size else 1.0, 1e-300)
        return cls(
            tuple(blocks),
            batches,
            np.unique(owners).astype(np.int64),
            diagrams,
            flat / total,
            weights,
        )

    def shares(self, x: Floats) -> Floats:
        """Return all answers on a table of blocks, as shares of the total.

        Args:
            x: (cells of all attributes in blocks, C).
        """
        out = np.zeros(self.values.size)
        for start, parts in self.blocks:
            for part in parts:
                flat, _ = part.forward(part.tables(x))
                out[start : start + flat.size] += flat
        for batch, owners in self.batches:
            np.add.at(out, owners, batch.shares(x))
        for diagrams, places in self.patterns:
            out[places] = diagrams.shares(x)
        return out

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats]:
        """Return the weighted sum of squared errors (in shares) and its gradient.

        Args:
            x: (cells of all attributes in blocks, C), as the gradient.
        """
        gradient = np.zeros_like(x)
        loss = 0.0
        for start, parts in self.blocks:
            tables = [part.tables(x) for part in parts]
            done = [part.forward(t) for part, t in zip(parts, tables, strict=True)]
            flat = sum((d[0] for d in done[1:]), done[0][0])
            value, pulled = self._error(slice(start, start + flat.size), flat)
            loss += value
            for part, t, (_, left) in zip(parts, tables, done, strict=True):
                part.pull(t, left, pulled, gradient)
        singles = [(batch, owners, batch.factors(x)) for batch, owners in self.batches]
        if singles:
            flat = np.zeros(self.values.size)
            for batch, owners, factors in singles:
                np.add.at(flat, owners, batch.answers(factors, len(x)))
            value, pulled = self._error(self.single, flat[self.single])
            loss += value
            flat[self.single] = pulled
            for batch, owners, factors in singles:
                batch.pull(factors, flat[owners], gradient)
        for diagrams, places in self.patterns:
            chances = diagrams.classes(x)
            states = diagrams.states(chances)
            value, pulled = self._error(places, states[-1].mean(axis=1, dtype=np.float64))
            loss += value
            diagrams.pull(chances, states, pulled, gradient)
        return loss, gradient

    def _error(self, where: slice | Integers, shares: Floats) -> tuple[float, Floats]:
        error = shares - self.values[where]
        scaled = self.weights[where] * error
        return float(error @ scaled), 2 * scaled
