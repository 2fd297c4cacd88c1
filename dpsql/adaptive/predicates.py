"""Single queries, products of one predicate per attribute, evaluated in batches."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.adaptive.handle import Floats, Integers
from dpsql.adaptive.simplices import layout
from dpsql.plan.workload import Product


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
        """Return per position the predicate of every product on every component, (q, C)."""
        pairs = zip(self.columns, self.vectors, strict=True)
        parts = [vectors @ x[:, columns].T for columns, vectors in pairs]
        values = np.concatenate(parts) if parts else np.ones((0, len(x)), dtype=x.dtype)
        return [values[slot] for slot in self.slots]

    def shares(self, x: Floats, chunk: int = 4096) -> Floats:
        """Return the share of every product, a chunk at a time."""
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
        """Return the share of every product."""
        if not factors:
            return np.ones(self.slots.shape[1])
        product = factors[0]
        for factor in factors[1:]:
            product = product * factor
        return np.asarray(product.sum(axis=1) / count)

    def pull(self, factors: Sequence[Floats], error: Floats, out: Floats) -> None:
        """Add the gradient of <error, answers> to ``out``; never divides, so zeros are fine."""
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
