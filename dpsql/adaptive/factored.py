"""A model that is a product of parts over disjoint attribute sets; parts merge on demand.

One part over all attributes is the explicit histogram; one part per attribute costs next to
nothing. Multiplicative updates touch a single part, so both give the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.adaptive.handle import Candidate, Floats, Integers
from dpsql.adaptive.sample import draw_cells
from dpsql.algebra.blocks import Identity
from dpsql.algebra.kron import kron_apply
from dpsql.plan.workload import Product


@dataclass(frozen=True, slots=True)
class Part:
    """A distribution over a few attributes: weights of shape (n_1, ..., n_k) that sum to one."""

    attributes: tuple[str, ...]
    weights: Floats


@dataclass(frozen=True, slots=True)
class Factored:
    """``total`` times the product of the parts, which partition the attributes of ``domain``."""

    domain: Mapping[str, int]
    total: float
    parts: tuple[Part, ...]

    @classmethod
    def uniform(cls, domain: Mapping[str, int], total: float) -> Factored:
        """Return the uniform table, one part per attribute."""
        parts = (Part((a,), np.full(n, 1 / n)) for a, n in domain.items())
        return cls(dict(domain), total, tuple(parts))

    def merged_cells(self, attributes: Sequence[str]) -> int:
        """Return the cells of the part that holds all the attributes after a merge."""
        return math.prod(p.weights.size for p in self.parts if set(p.attributes) & set(attributes))

    def merge(self, attributes: Sequence[str]) -> Factored:
        """Return the same table with one part that holds all the attributes."""
        touched = [p for p in self.parts if set(p.attributes) & set(attributes)]
        if len(touched) < 2:
            return self
        names = tuple(a for part in touched for a in part.attributes)
        weights = touched[0].weights
        for part in touched[1:]:
            weights = np.multiply.outer(weights, part.weights)
        kept = tuple(p for p in self.parts if not set(p.attributes) & set(attributes))
        return Factored(self.domain, self.total, (*kept, Part(names, weights)))

    def answer(self, candidate: Candidate) -> Floats:
        """Return the answers of a candidate in counts, flat."""
        return np.asarray(sum(self._product(product) for product in candidate))

    def marginal(self, attributes: tuple[str, ...]) -> Floats:
        """Return the counts over the given attributes as a tensor, axes as given."""
        flat = self._product(Product({a: Identity(self.domain[a]) for a in attributes}))
        return flat.reshape([self.domain[a] for a in attributes])

    def _product(self, product: Product) -> Floats:
        names: list[str] = []
        out = np.asarray(self.total)
        for part in self.parts:
            kept = [a for a in part.attributes if a in product.factors]
            if not kept:
                continue
            drop = tuple(i for i, a in enumerate(part.attributes) if a not in product.factors)
            table = part.weights.sum(axis=drop)
            ops = [product.factors[a] for a in kept]
            table = kron_apply([None if isinstance(op, Identity) else op for op in ops], table)
            out = np.multiply.outer(out, table)
            names += kept
        order = [names.index(a) for a in product.factors]
        return np.asarray(out.transpose(order), dtype=np.float64).ravel()

    def rows(self, k: int, rng: np.random.Generator) -> dict[str, Integers]:
        """Return k synthetic rows as cell numbers per attribute, parts drawn independently."""
        columns: dict[str, Integers] = {}
        for part in self.parts:
            cells = draw_cells(part.weights.ravel(), k, rng)
            places = np.unravel_index(cells, part.weights.shape)
            columns.update(zip(part.attributes, places, strict=True))
        return {a: columns[a] for a in self.domain}

    def describe(self) -> dict[str, Any]:
        """Return the total and the parts that hold more than one attribute."""
        return {
            "model": "factored",
            "total": self.total,
            "cells": sum(p.weights.size for p in self.parts),
            "parts": [list(p.attributes) for p in self.parts if len(p.attributes) > 1],
        }

    def encode(self, keep: Callable[[NDArray[Any]], str]) -> dict[str, Any]:
        """Return plain facts that describe the model; ``keep`` stores an array by name."""
        return {
            "kind": "factored",
            "domain": list(self.domain.items()),
            "total": self.total,
            "parts": [[list(p.attributes), keep(p.weights)] for p in self.parts],
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Factored:
        """Return the model that ``encode`` described."""
        domain = {str(name): int(size) for name, size in facts["domain"]}
        parts = tuple(
            Part(tuple(names), np.asarray(arrays[key]).reshape([domain[a] for a in names]))
            for names, key in facts["parts"]
        )
        return cls(domain, float(facts["total"]), parts)
