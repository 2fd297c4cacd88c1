"""Noisy answers as a squared error on a table of blocks, with its gradient by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.adaptive.diagrams import Diagrams
from dpsql.adaptive.handle import Floats, Integers, Query
from dpsql.adaptive.predicates import Predicates
from dpsql.adaptive.simplices import layout, row_outer
from dpsql.algebra.blocks import Identity
from dpsql.plan.pattern import Pattern
from dpsql.plan.workload import Product

PATTERNS = 64
"""Patterns that are evaluated together."""


@dataclass(frozen=True, slots=True)
class Block:
    """One product with several rows: its columns and predicates, largest attribute last."""

    columns: tuple[slice, ...]
    factors: tuple[Floats | None, ...]
    order: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def read(cls, product: Product, domain: Mapping[str, int], dtype: Any) -> Block:
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
        """Return the shares (flat, domain order) and the outer products of all but the last."""
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

    blocks: tuple[tuple[int, tuple[Block, ...]], ...]
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
                parts = tuple(Block.read(product, domain, dtype) for product in query)
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
        """Return all answers on a table of blocks, as shares of the total."""
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
        """Return the weighted sum of squared errors (in shares) and its gradient."""
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
