"""Mixtures of product distributions, and how they are fitted to noisy answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Floats, Integers
from dpsql.learn.predicates import layout, row_outer
from dpsql.learn.targets import Diagrams, Targets
from dpsql.pgm.linear import clique_of, whole_marginal
from dpsql.pgm.measurements import Candidate, Measured
from dpsql.pgm.sample import category_rows
from dpsql.records import dataclass, field
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product


@dataclass(slots=True)
class Adam:
    """The running moments of one descent; updates happen in place.

    Source: Kingma and Ba 2015, algorithm 1.
    """

    rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    count: int = 0
    first: Floats = field(default_factory=lambda: np.zeros(0))
    second: Floats = field(default_factory=lambda: np.zeros(0))

    def step(self, x: Floats, gradient: Floats, scale: float = 1.0) -> None:
        """Move ``x`` against the gradient; ``scale`` multiplies the rate of this step."""
        if not self.count:
            self.first, self.second = np.zeros_like(x), np.zeros_like(x)
        self.count += 1
        b1, b2 = self.betas
        self.first *= b1
        self.first += (1 - b1) * gradient
        self.second *= b2
        self.second += (1 - b2) * np.square(gradient)
        root = np.sqrt(self.second / (1 - b2**self.count)) + self.epsilon
        x -= (self.rate * scale / (1 - b1**self.count)) * self.first / root


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
        """Return the model that ``encode`` described.

        Args:
            facts: as ``encode`` returned them.
            arrays: what it kept, by name.
        """
        domain = {name: int(size) for name, size in facts["domain"]}
        return cls(domain, facts["total"], arrays[facts["table"]], facts["kind"], facts["loss"])


def _middle(sizes: list[int]) -> int:
    """Return where to cut the axes so that the larger side is smallest."""
    cuts = range(1, len(sizes))
    return min(cuts, key=lambda i: max(np.prod(sizes[:i]), np.prod(sizes[i:])))


Gradient = Callable[[Targets, Floats], tuple[float, Floats]]
"""The weighted squared error of a table of blocks, and its slope."""
COMPONENTS = 200
"""Products in a mixture: its memory is this times the sum of the sizes of all attributes."""
STEPS = 100
"""Steps of one fit; it starts warm, from the mixture of the round before."""
RATE = 0.1
"""Step of Adam on logits, which are of order one."""
SPREAD = 0.5
"""Standard deviation of the first logits: components must differ to become different."""
SMALLEST = 1e-12
"""Probabilities are at least this before their logarithm is taken."""


def softmax_blocks(theta: Floats, domain: Mapping[str, int]) -> Floats:
    """Return the softmax of every block of columns, shape (C, sum of sizes)."""
    out = np.empty_like(theta)
    for columns in layout(domain).values():
        part = theta[:, columns]
        part = np.exp(part - part.max(axis=1, keepdims=True))
        out[:, columns] = part / part.sum(axis=1, keepdims=True)
    return out


def softmax_pull(p: Floats, gradient: Floats, domain: Mapping[str, int]) -> Floats:
    """Return the gradient with respect to theta, given the one with respect to the softmax.

    ``p`` and ``gradient`` have shape (records, sum of the sizes of ``domain``); p adds up to one
    over the columns of each attribute.
    """
    scaled = p * gradient
    for columns in layout(domain).values():
        scaled[:, columns] -= p[:, columns] * scaled[:, columns].sum(axis=1, keepdims=True)
    return scaled


def fit_mixture(
    domain: Mapping[str, int],
    measurements: Sequence[Measured],
    total: float,
    *,
    warm: ProductMixture | None = None,
    components: int = COMPONENTS,
    steps: int = STEPS,
    rate: float = RATE,
    rng: np.random.Generator,
    gradient: Gradient = Targets.value_and_gradient,
    progress: Callable[[int, float], None] | None = None,
) -> ProductMixture:
    """Return a mixture of products near the measurements, weighted by 1 / variance.

    Adam with cosine decay on softmax blocks, from ``warm`` or from small random blocks. The best
    iterate is returned. Source: GEM (Liu, Vietri, Wu 2021) with a fixed set of components.
    """
    targets = Targets.read(
        domain,
        [m.query for m in measurements],
        [m.values for m in measurements],
        [m.stddev for m in measurements],
        total,
        np.float32,
    )
    width = sum(domain.values())
    theta: Any
    if warm is None:
        theta = SPREAD * rng.standard_normal((components, width), dtype=np.float32)
    else:
        theta = np.log(np.maximum(warm.table, SMALLEST)).astype(np.float32)
    adam = Adam(rate)
    best, least = softmax_blocks(theta, domain), math.inf
    for step in range(steps + 1):
        p = softmax_blocks(theta, domain)
        loss, slope = gradient(targets, p)
        if loss < least:
            best, least = p, loss
        if progress is not None:
            progress(step, loss)
        if step < steps:
            scale = 0.5 * (1 + math.cos(math.pi * step / steps))
            adam.step(theta, softmax_pull(p, slope, domain), scale)
    return ProductMixture(
        dict(domain), float(total), _normal(best, domain), "mixture", float(least)
    )


def _normal(table: Floats, domain: Mapping[str, int]) -> Floats:
    out = table.astype(np.float64)
    for columns in layout(domain).values():
        out[:, columns] /= out[:, columns].sum(axis=1, keepdims=True)
    return out
