"""Multiplicative weights over all measurements so far, blind to differences within the noise.

Repeating the update for old measurements is free post-processing, and fits them far better than
one pass. Answers of small noisy tables are not feasible, though, and would drive weights to zero:
an answer only pulls as far as it is more than ``slack`` noise scales away.

Source: MWEM (Hardt, Ligett, McSherry 2012), section 3.3, with the dead zone, the clamped answers
and the floor of our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from dpsql.adaptive.factored import Factored, Part
from dpsql.adaptive.handle import Candidate, Floats, Measured
from dpsql.adaptive.query import attributes_of, is_marginal, norm, rows, spans
from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Array
from dpsql.answer.project import project_simplex

Step: TypeAlias = Literal["multiplicative", "proportional"]

FLOOR = 1e-6
"""Part of the uniform table mixed into every part after a replay."""
STEEPEST = 30.0
"""Largest exponent of one update."""
TINY = 1e-290
SWEEPS = ((1 << 12, 100), (1 << 16, 60), (1 << 62, 20))
"""Most cells of a part, and how many sweeps over the measurements it gets at most."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a candidate's answer should be, in counts, and the scale of its noise."""

    candidate: Candidate
    values: Floats
    scale: float


def target_of(measured: Sequence[Measured], total: float) -> Target:
    """Return the inverse-variance mean of measurements of one candidate, clamped to its range."""
    precision = [1 / m.stddev**2 for m in measured]
    mean = sum(p * m.values for p, m in zip(precision, measured, strict=True)) / sum(precision)
    stddev = 1 / math.sqrt(sum(precision))
    scale = stddev / math.sqrt(2) if measured[0].noise == "laplace" else stddev
    low, high = spans(measured[0].candidate)
    return Target(measured[0].candidate, np.clip(mean, low * total, high * total), scale)


def replay(
    model: Factored,
    targets: Sequence[Target],
    *,
    slack: float = 1.0,
    sweeps: int | None = None,
    step: Step = "multiplicative",
) -> Factored:
    """Return the model after repeated updates towards all targets.

    Every target's attributes must lie in one part. It stops when a sweep moves nothing.
    """
    parts = []
    for part in model.parts:
        own = [t for t in targets if set(attributes_of(t.candidate)) & set(part.attributes)]
        parts.append(_fit(part, own, model.total, slack, sweeps, step) if own else part)
    return Factored(model.domain, model.total, tuple(parts))


def _fit(
    part: Part,
    targets: Sequence[Target],
    total: float,
    slack: float,
    sweeps: int | None,
    step: Step,
) -> Part:
    weights = part.weights.copy()
    pulls = [_pull(part, target, total, slack, step) for target in targets]
    mass = float(weights.sum())
    most = sweeps or next(count for cells, count in SWEEPS if weights.size <= cells)
    for _ in range(most):
        moved = False
        for pull in pulls:
            change = pull.move(weights, mass)
            if change is not None:
                moved = True
                mass += change
        np.maximum(weights, TINY, out=weights)
        mass = float(weights.sum())
        weights /= mass
        mass = 1.0
        if not moved:
            break
    return Part(part.attributes, (1 - FLOOR) * weights + FLOOR / weights.size)


class _Pull(Protocol):
    def move(self, weights: Floats, mass: float) -> float | None:
        """Update the weights in place; return how much their sum changed, None if unmoved."""


def _pull(part: Part, target: Target, total: float, slack: float, step: Step) -> _Pull:
    candidate = target.candidate
    if len(candidate) == 1 and rows(candidate) == 1:
        return _Box(part, target, total, slack)
    if step == "proportional" and is_marginal(candidate):
        return _Proportional(part, target, total, slack)
    return _Tables(part, target, total, slack)


class _Box:
    """One query that is a product of rows: only the box of cells it counts is touched."""

    def __init__(self, part: Part, target: Target, total: float, slack: float) -> None:
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


class _Tables:
    """Several rows or products at once: one step along the sum of their errors."""

    def __init__(self, part: Part, target: Target, total: float, slack: float) -> None:
        self.axes = part.attributes
        self.target, self.total, self.slack = target, total, slack * target.scale
        self.damp = 2 * total * max(norm(target.candidate, "gaussian"), 1e-300)
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


class _Proportional(_Tables):
    """A whole marginal fitted exactly, up to the dead zone: iterative proportional fitting."""

    def __init__(self, part: Part, target: Target, total: float, slack: float) -> None:
        fitted = Target(target.candidate, project_simplex(target.values, total), target.scale)
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
