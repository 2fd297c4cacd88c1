"""One measurement's pull on a part of a factored table: an update of its weights in place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from dpsql.adaptive.factored import Part
from dpsql.adaptive.handle import Candidate, Floats
from dpsql.adaptive.query import is_marginal, norm, rows
from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Array
from dpsql.answer.project import project_simplex
from dpsql.plan.noise_law import GAUSSIAN

Step: TypeAlias = Literal["multiplicative", "proportional"]

FLOOR = 1e-6
"""Part of the uniform table mixed into every part after a replay."""
STEEPEST = 30.0
"""Largest exponent of one update."""
TINY = 1e-290
"""Least weight during a replay."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a candidate's answer should be, in counts, and the scale of its noise."""

    candidate: Candidate
    values: Floats
    scale: float


class Pull(Protocol):
    """What a replay repeats."""

    def move(self, weights: Floats, mass: float) -> float | None:
        """Update the weights in place; return how much their sum changed, None if unmoved."""


def pull_of(part: Part, target: Target, total: float, slack: float, step: Step) -> Pull:
    """Return the cheapest update that fits a target's candidate."""
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
