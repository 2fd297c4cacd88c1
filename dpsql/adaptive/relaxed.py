"""A mixture of product distributions: one probability vector per component and attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.adaptive.diagrams import Diagrams
from dpsql.adaptive.handle import Candidate, Floats, Integers
from dpsql.adaptive.simplices import layout, row_outer
from dpsql.algebra.blocks import Identity
from dpsql.answer.linear import clique_of, whole_marginal
from dpsql.answer.synthetic import category_rows
from dpsql.plan.pattern import Pattern
from dpsql.plan.workload import Product


@dataclass(frozen=True, slots=True, eq=False)
class ProductMixture:
    """total times the mean over components of a product distribution.

    ``table`` has shape (C, sum of sizes): every block of columns is a probability vector.
    """

    domain: Mapping[str, int]
    total: float
    table: Floats
    kind: str = "mixture"
    loss: float = float("nan")

    def answer(self, candidate: Candidate) -> Floats:
        """Return the answers of a candidate in counts, flat."""
        clique_of(candidate, self.domain)
        places = layout(self.domain)
        parts = [self._share(product, places) for product in candidate]
        return np.asarray(self.total * sum(parts[1:], parts[0]), dtype=np.float64)

    def _share(self, product: Product, places: Mapping[str, slice]) -> Floats:
        tables = []
        for name in self.domain:
            factor = product.factors.get(name)
            if isinstance(factor, Identity):
                tables.append(self.table[:, places[name]])
            elif factor is not None:
                tables.append(np.asarray(factor.matmat(self.table[:, places[name]].T)).T)
        if not tables:
            return np.ones(1)
        count = len(self.table)
        if len(tables) == 1:
            return np.asarray(tables[0].mean(axis=0))
        half = _middle([t.shape[1] for t in tables])
        left, right = row_outer(tables[:half]), row_outer(tables[half:])
        return np.asarray(left.T @ right / count).reshape(-1)

    def answer_within(self, product: Product, pattern: Pattern) -> Floats:
        """Return the answers of a product, counting only the rows of a pattern, flat.

        Rows over the pattern's own attributes are taken one by one, all others together.
        """
        places, diagram = layout(self.domain), Diagrams.read([pattern], self.domain, np.float64)
        names = [a for a in self.domain if a in product.factors]
        inside = [a for a in names if a in pattern.labels]
        outside = [a for a in names if a not in pattern.labels]
        dense = {a: np.asarray(product.factors[a].dense(), dtype=np.float64) for a in names}
        tables = [self.table[:, places[a]] @ dense[a].T for a in outside]
        rest = row_outer([np.ones((len(self.table), 1)), *tables])
        shape = [len(dense[a]) for a in inside]
        out = np.empty((*shape, rest.shape[1]))
        for index in np.ndindex(*shape):
            x = self.table.copy() if inside else self.table
            for a, row in zip(inside, index, strict=True):
                x[:, places[a]] *= dense[a][row]
            held = diagram.states(diagram.classes(x))[-1][0]
            out[index] = held @ rest / len(x)
        tensor = out.reshape([*shape, *(len(dense[a]) for a in outside)])
        order = [(inside + outside).index(a) for a in names]
        return np.asarray(self.total * tensor.transpose(order).reshape(-1))

    def marginal(self, attributes: tuple[str, ...]) -> Floats:
        """Return the counts over the given attributes as a tensor, axes as given."""
        ordered = tuple(a for a in self.domain if a in attributes)
        flat = self.answer(whole_marginal(self.domain, attributes))
        tensor = flat.reshape([self.domain[a] for a in ordered])
        return tensor.transpose([ordered.index(a) for a in attributes])

    def rows(self, k: int, rng: np.random.Generator) -> dict[str, Integers]:
        """Return k synthetic rows as cell numbers per attribute, by randomised rounding."""
        places = layout(self.domain)
        return category_rows({a: self.table[:, places[a]] for a in self.domain}, k, rng)

    def describe(self) -> dict[str, Any]:
        """Return plain facts about the model for display."""
        return {
            "model": self.kind,
            "total": self.total,
            "components": len(self.table),
            "parameters": int(self.table.size),
            "loss": self.loss,
        }

    def encode(self, keep: Callable[[NDArray[Any]], str]) -> dict[str, Any]:
        """Return plain facts that describe the model; ``keep`` stores an array by name."""
        return {
            "kind": self.kind,
            "domain": list(self.domain.items()),
            "total": self.total,
            "table": keep(self.table),
            "loss": self.loss,
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ProductMixture:
        """Return the model that ``encode`` described."""
        domain = {name: int(size) for name, size in facts["domain"]}
        return cls(domain, facts["total"], arrays[facts["table"]], facts["kind"], facts["loss"])


def _middle(sizes: list[int]) -> int:
    """Return where to cut the axes so that the larger side is smallest."""
    cuts = range(1, len(sizes))
    return min(cuts, key=lambda i: max(np.prod(sizes[:i]), np.prod(sizes[i:])))
