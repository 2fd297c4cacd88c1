"""A table as a product of parts over disjoint attribute sets, and how measurements reweight it.

One part over all attributes is the explicit histogram; one part per attribute costs next to
nothing. Multiplicative updates touch a single part, so both give the same answers.

Repeating the update for old measurements is free post-processing, and fits them far better than
one pass. Answers of small noisy tables are not feasible, though, and would drive weights to zero:
an answer only pulls as far as it is more than ``slack`` noise scales away.

Source: MWEM (Hardt, Ligett, McSherry 2012), section 3.3, with the dead zone, the clamped answers
and the floor of our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Array, Floats, Integers
from dpsql.learn.candidates import attributes_of, is_marginal, norm, rows, spans
from dpsql.pgm.measurements import Candidate, Measured
from dpsql.pgm.project import project_simplex
from dpsql.records import dataclass
from dpsql.strategy.noise_law import GAUSSIAN, law
from dpsql.workload.workload import Product


def draw_cells(weights: Floats, k: int, rng: np.random.Generator) -> Integers:
    """Return k cell numbers in random order; cell j occurs floor or ceil of k * weight times.

    The fractional parts are drawn systematically: one uniform offset, equal steps.

    Args:
        weights: (cells,) of any sum to one.
        k: cells to draw.
        rng: seeded by whoever draws.

    >>> np.bincount(draw_cells(np.array([0.5, 0.5]), 4, np.random.default_rng(0))).tolist()
    [2, 2]
    """
    weights = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    steps = np.cumsum(weights / weights.sum()) * k
    steps[-1] = k
    ends = np.minimum(np.floor(steps + rng.random()), k).astype(np.int64)
    ends[-1] = k
    counts = np.diff(ends, prepend=0)
    return rng.permutation(np.repeat(np.arange(weights.size), counts)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class TablePart:
    """A distribution over a few attributes: weights of shape (n_1, ..., n_k) that sum to one."""

    attributes: tuple[str, ...]
    weights: Floats


@dataclass(frozen=True, slots=True)
class FactoredModel:
    """``total`` times the product of the parts, which partition the attributes of ``domain``."""

    domain: Mapping[str, int]
    total: float
    parts: tuple[TablePart, ...]

    @classmethod
    def uniform(cls, domain: Mapping[str, int], total: float) -> FactoredModel:
        """Return the uniform table, one part per attribute."""
        parts = (TablePart((a,), np.full(n, 1 / n)) for a, n in domain.items())
        return cls(dict(domain), total, tuple(parts))

    def merged_cells(self, attributes: Sequence[str]) -> int:
        """Return the cells of the part that holds all the attributes after a merge."""
        return math.prod(p.weights.size for p in self.parts if set(p.attributes) & set(attributes))

    def merge(self, attributes: Sequence[str]) -> FactoredModel:
        """Return the same table with one part that holds all the attributes."""
        touched = [p for p in self.parts if set(p.attributes) & set(attributes)]
        if len(touched) < 2:
            return self
        names = tuple(a for part in touched for a in part.attributes)
        weights = touched[0].weights
        for part in touched[1:]:
            weights = np.multiply.outer(weights, part.weights)
        kept = tuple(p for p in self.parts if not set(p.attributes) & set(attributes))
        return FactoredModel(self.domain, self.total, (*kept, TablePart(names, weights)))

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
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> FactoredModel:
        """Return the model that ``encode`` described.

        Args:
            facts: as ``encode`` returned them.
            arrays: what it kept, by name.
        """
        domain = {str(name): int(size) for name, size in facts["domain"]}
        parts = tuple(
            TablePart(tuple(names), np.asarray(arrays[key]).reshape([domain[a] for a in names]))
            for names, key in facts["parts"]
        )
        return cls(domain, float(facts["total"]), parts)


Step: TypeAlias = Literal["multiplicative", "proportional"]

FLOOR = 1e-6
"""Part of the uniform table mixed into every part after a replay."""
STEEPEST = 30.0
"""Largest exponent of one update."""
TINY = 1e-290
"""Least weight during a replay."""


@dataclass(frozen=True, slots=True)
class PullTarget:
    """The target of a pull: a candidate's answer, in counts, and the scale of its noise."""

    candidate: Candidate
    values: Floats
    scale: float


class Pull(Protocol):
    """The step that a replay repeats."""

    def move(self, weights: Floats, mass: float) -> float | None:
        """Update the weights in place; return how much their sum changed, None if unmoved.

        Args:
            weights: one axis for each attribute of a part; changed in place.
            mass: their sum before.
        """


def pull_of(part: TablePart, target: PullTarget, total: float, slack: float, step: Step) -> Pull:
    """Return the cheapest update that fits a target's candidate."""
    candidate = target.candidate
    if len(candidate) == 1 and rows(candidate) == 1:
        return _Box(part, target, total, slack)
    if step == "proportional" and is_marginal(candidate):
        return _Proportional(part, target, total, slack)
    return _PartTables(part, target, total, slack)


class _Box:
    """One query that is a product of rows: only the box of cells it counts is touched."""

    def __init__(self, part: TablePart, target: PullTarget, total: float, slack: float) -> None:
        factors = target.candidate[0].factors
        slices, self.vectors, largest = [], [], 1.0
        for axis, name in enumerate(part.attributes):
            if name not in factors:
                slices.append(slice(None))
                continue
            row = factors[name].dense()[0].astype(np.float64)
            used = np.flatnonzero(row)
            place = slice(int(used[0]), int(used[-1]) + 1) if used.size else slice(0, 0)
            slices.append(place)
            inside = row[place]
            if (inside != 1).any():
                shape = [1] * len(part.attributes)
                shape[axis] = -1
                self.vectors.append(inside.reshape(shape))
                largest *= float(np.abs(inside).max())
        self.slices = tuple(slices)
        self.answer = float(target.values[0])
        self.total, self.slack = total, slack * target.scale
        self.damp = 2 * total * largest**2

    def move(self, weights: Floats, mass: float) -> float | None:
        box = weights[self.slices]
        if not box.size:
            return None
        query: Floats | None = None
        for vector in self.vectors:
            query = vector if query is None else query * vector
        inside = float(box.sum())
        value = inside if query is None else float((box * query).sum())
        error = self.answer - self.total * value / mass
        if abs(error) <= self.slack:
            return None
        power = math.copysign(abs(error) - self.slack, error) / self.damp
        if query is None:
            factor = math.exp(_limited(power))
            box *= factor
            return inside * (factor - 1)
        box *= np.exp(np.clip(query * power, -STEEPEST, STEEPEST))
        return float(box.sum()) - inside


class _PartTables:
    """Several rows or products at once: one step along the sum of their errors."""

    def __init__(self, part: TablePart, target: PullTarget, total: float, slack: float) -> None:
        self.axes = part.attributes
        self.target, self.total, self.slack = target, total, slack * target.scale
        self.damp = 2 * total * max(norm(target.candidate, GAUSSIAN.name), 1e-300)
        self.products = []
        for product in target.candidate:
            names = [a for a in part.attributes if a in product.factors]
            order = [list(product.factors).index(a) for a in names]
            matrices: list[Array | None] = [
                None if is_marginal(target.candidate) else product.factors[a].dense() for a in names
            ]
            drop = tuple(i for i, a in enumerate(self.axes) if a not in product.factors)
            shape = [product.factors[a].rows for a in product.factors]
            self.products.append((matrices, order, drop, shape))

    def answers(self, weights: Floats) -> Floats:
        out = np.zeros(len(self.target.values))
        for matrices, order, drop, _ in self.products:
            table = kron_apply(matrices, weights.sum(axis=drop))
            out += table.transpose(np.argsort(order)).ravel()
        return out

    def spread(self, errors: Floats, shape: tuple[int, ...]) -> Floats:
        """Return the sum over products of the transposed rows applied to the errors."""
        out = np.zeros(shape)
        for matrices, order, drop, sizes in self.products:
            table = errors.reshape(sizes).transpose(order)
            table = kron_apply([None if m is None else m.T for m in matrices], table)
            out += np.expand_dims(table, drop)
        return out

    def move(self, weights: Floats, mass: float) -> float | None:
        errors = self.target.values - self.answers(weights) * (self.total / mass)
        errors = np.copysign(np.maximum(np.abs(errors) - self.slack, 0), errors)
        if not errors.any():
            return None
        before = float(weights.sum())
        power = self.spread(errors, weights.shape)
        weights *= np.exp(np.clip(power / self.damp, -STEEPEST, STEEPEST))
        return float(weights.sum()) - before


class _Proportional(_PartTables):
    """A whole marginal fitted exactly, up to the dead zone: iterative proportional fitting."""

    def __init__(self, part: TablePart, target: PullTarget, total: float, slack: float) -> None:
        fitted = PullTarget(target.candidate, project_simplex(target.values, total), target.scale)
        super().__init__(part, fitted, total, slack)
        self.floor = FLOOR * total / len(target.values)

    def move(self, weights: Floats, mass: float) -> float | None:
        now = np.maximum(self.answers(weights) * (self.total / mass), TINY)
        errors = self.target.values - now
        errors = np.copysign(np.maximum(np.abs(errors) - self.slack, 0), errors)
        if not errors.any():
            return None
        before = float(weights.sum())
        weights *= self.spread(np.maximum(now + errors, self.floor) / now, weights.shape)
        return float(weights.sum()) - before


def _limited(power: float) -> float:
    return min(max(power, -STEEPEST), STEEPEST)


__all__ = ["PullTarget", "Step", "replay", "target_of"]

SWEEPS = ((1 << 12, 100), (1 << 62, 20))
"""Most cells of a part, and how many sweeps over the measurements it gets at most."""
EVERY = 4
"""Every so many sweeps all measurements are looked at; between, those that moved in the last."""


def target_of(measured: Sequence[Measured], total: float) -> PullTarget:
    """Return the inverse-variance mean of measurements of one candidate, clamped to its range."""
    precision = [1 / m.stddev**2 for m in measured]
    mean = sum(p * m.values for p, m in zip(precision, measured, strict=True)) / sum(precision)
    stddev = 1 / math.sqrt(sum(precision))
    scale = law(measured[0].noise).spread_of(stddev)
    low, high = spans(measured[0].candidate)
    return PullTarget(measured[0].candidate, np.clip(mean, low * total, high * total), scale)


def replay(
    model: FactoredModel,
    targets: Sequence[PullTarget],
    *,
    slack: float = 1.0,
    sweeps: int | None = None,
    step: Step = "multiplicative",
) -> FactoredModel:
    """Return the model after repeated updates towards all targets.

    Every target's attributes must lie in one part. It stops when a sweep over all moves
    nothing.
    """
    parts = []
    for part in model.parts:
        own = [t for t in targets if set(attributes_of(t.candidate)) & set(part.attributes)]
        parts.append(_fit(part, own, model.total, slack, sweeps, step) if own else part)
    return FactoredModel(model.domain, model.total, tuple(parts))


def _fit(
    part: TablePart,
    targets: Sequence[PullTarget],
    total: float,
    slack: float,
    sweeps: int | None,
    step: Step,
) -> TablePart:
    weights = part.weights.copy()
    pulls = [pull_of(part, target, total, slack, step) for target in targets]
    mass = float(weights.sum())
    most = sweeps or next(count for cells, count in SWEEPS if weights.size <= cells)
    active = pulls
    for sweep in range(1, most + 1):
        moved = []
        for pull in active:
            change = pull.move(weights, mass)
            if change is not None:
                moved.append(pull)
                mass += change
        np.maximum(weights, TINY, out=weights)
        mass = float(weights.sum())
        weights /= mass
        mass = 1.0
        if active is pulls and not moved:
            break
        active = moved if moved and sweep % EVERY else pulls
    return TablePart(part.attributes, (1 - FLOOR) * weights + FLOOR / weights.size)
