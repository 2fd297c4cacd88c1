"""Descent over combinations of few queries: to the least error for columns of one L1 norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass, replace
from dpsql.search.one_attribute.distinct_queries import LowRank
from dpsql.search.one_attribute.opt0 import minimise
from dpsql.search.work_limit import EIGEN, may_go_on

STAGES = ((1e-2, 8), (1e-3, 32), (1e-4, 128), (1e-5, 512))
"""Rounding of the corners of |x|, and the power that stands for the maximum: ever sharper."""

WORK = 4e10
"""Products of numbers that one descent may take, for effort 1."""

FEWEST_STEPS, MOST_STEPS = 10, 150
"""Steps of one descent for each rounding of the corners."""

STARTS, FIRST, FINISHED = 4, 2, 2
"""Starts for effort 1, the stages that each of them has, and how many of them have all.

With two, one of 24 workloads of eight conjunctive counts had 4.9 % more error, another .5 %.
"""

CHANGES = (0.03, 0.1, 0.3)
"""By how much a start is changed, as a part of its largest number: in turns."""

SEED = 21
"""Seed of changes of starts: equal requests have equal plans."""

LULL = 3e-5
"""Least gain of ten steps in the log of an error, as a part, for which a descent goes on."""

STRICT = 100.0
"""Penalty on the log of an error, for the square of the part a variance is beyond its limit."""

CORNER = 150
"""Cost of rounding the corners of one number, in products of numbers."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of mean variances, (answers,), and the share of every query in these."""

    shares: Floats
    limits: Floats


def descent_cost(few: LowRank, rows: int) -> float:
    """Return the products of numbers that one step takes for so many combinations of the basis."""
    rank, n = few.basis.shape
    products = np.count_nonzero(few.basis) if few.is_sparse else few.basis.size
    return float(4 * rows * products + CORNER * rows * n + EIGEN * rank**3)


def descend_near(few: LowRank, bases: Sequence[Floats], effort: float = 1.0) -> list[Floats]:
    """Return combinations of the basis that are local minima, of the least that are found.

    Descents start from what is given and near it, later ones with more rows: queries have no signs,
    and what has the least error may have them and be more than independent queries. As many start
    as there is work for, one at least, and those that are ahead go to the end.

    Args:
        bases: each (rows, rank).
        effort: scales the number of starts and of steps.
    """
    rng = np.random.default_rng(SEED)
    found: list[Floats] = []
    sizes = np.abs(few.basis).max(axis=1)  # sums are beside counts
    cost = len(STAGES) * MOST_STEPS * descent_cost(few, len(bases[0]))
    count = max(1, int(min(STARTS * max(1.0, effort), effort * WORK / cost)))
    for number in range(count):
        start = bases[number % len(bases)]
        if number >= len(bases):
            if not may_go_on():
                break
            more = np.zeros((number // len(bases) - 1, start.shape[1]))
            change = CHANGES[number % len(CHANGES)] * float(np.abs(start * sizes).max()) / sizes
            start = np.concatenate([start, more])
            start = start + change * rng.standard_normal(start.shape)
        found.append(descend(few, start, effort, STAGES[:FIRST]))
    ahead = sorted(found, key=lambda each: error_of(few, each))[:FINISHED]
    return [descend(few, each, effort, STAGES[FIRST:]) for each in ahead]


def error_of(few: LowRank, matrix: Floats) -> float:
    """Return the weighted error of combinations of the basis at a unit budget.

    Args:
        matrix: (rows, rank), over the basis of ``few``.
    """
    return float(few.weights2 @ variances_of(few, matrix))


def variances_of(few: LowRank, matrix: Floats) -> Floats:
    """Return the variance of every query at a unit budget, (queries,).

    Args:
        matrix: (rows, rank), over the basis of ``few``.
    """
    norm = float(np.abs(matrix @ few.basis).sum(axis=0).max())
    spread = few.coefficients @ np.linalg.pinv(matrix)
    return np.asarray(np.square(spread).sum(axis=1) * norm**2)


def descend(
    few: LowRank,
    start: Floats,
    effort: float = 1.0,
    stages: Sequence[tuple[float, int]] = STAGES,
    most: int = MOST_STEPS,
    bounds: Bounds | None = None,
) -> Floats:
    """Return combinations of the basis whose error under Laplace noise is a local minimum.

    Minimises the log of (largest L1 norm of a column)^2 times the cost of the inverse, with
    corners rounded ever less. Source: LRM (Yuan et al. 2012) asks for the same optimum.

    Args:
        start: (rows, rank), as the result.
        effort: scales the number of steps.
        stages: rounding of the corners, and the power that stands for the maximum.
        most: steps of a stage.
        bounds: limits of mean variances at a unit budget; they may be missed.
    """
    few, scale = _conditioned(few)
    cost = descent_cost(few, len(start))
    steps = int(np.clip(effort * WORK / (len(stages) * cost), FEWEST_STEPS, most))
    # The loss does not depend on scale; a unit norm keeps tolerances meaningful.
    matrix: Floats = start @ scale
    matrix = matrix / np.abs(matrix @ few.basis).sum(axis=0).max()
    for smooth, power in stages:
        loss = _Loss(few, matrix, smooth, power, bounds)
        _, flat = minimise(
            loss,
            matrix.ravel(),
            ftol=1e-7,
            maxiter=steps,
            signed=True,
            cornered=True,
            cost=cost,
            lull=LULL,
        )
        found = flat.reshape(matrix.shape)
        matrix = found / np.abs(found @ few.basis).sum(axis=0).max()
    return np.asarray(np.linalg.solve(scale.T, matrix.T).T)


def _conditioned(few: LowRank) -> tuple[LowRank, Floats]:
    """Return the queries over orthogonal rows, and their basis over these rows, (rank, rank).

    Squares of large numbers beside counts would be a valley so narrow that a descent, which starts
    as if all directions were alike, ended on its slope: errors of moments were half as much again.
    A sparse basis has rows of one length instead, which leaves it sparse.
    """
    if few.is_sparse:
        scale = np.diag(np.linalg.norm(few.basis, axis=1))
    else:
        scale = np.transpose(np.linalg.qr(few.basis.T).R)
    basis = np.asarray(np.linalg.solve(scale, few.basis), dtype=np.float64)
    return replace(few, basis=basis, coefficients=few.coefficients @ scale), scale


def _multiplied(few: LowRank) -> tuple[Any, Any]:
    """Return what multiplies as the basis and its transpose do: without zeros, where most are."""
    if not few.is_sparse:
        return few.basis, np.ascontiguousarray(few.basis.T)
    from scipy.sparse import csr_array  # .1 s

    return csr_array(few.basis), csr_array(few.basis.T)


class _Loss:
    """The log of the smoothed error of combinations of the basis, with its gradient.

    Mean variances beyond their bounds count as the squares of what they are beyond.
    """

    def __init__(
        self, few: LowRank, start: Floats, smooth: float, power: int, bounds: Bounds | None
    ) -> None:
        self.basis, self.cells = _multiplied(few)
        self.few, self.shape, self.smooth, self.power = few, start.shape, smooth, power
        self.shares = np.zeros((0, len(few.queries)))
        if bounds is not None:  # of which the norm is one now, but for what is rounded
            limits = bounds.limits * math.exp(self._norm(start)[0])
            self.shares = bounds.shares / limits[:, np.newaxis]

    def _norm(self, L: Floats) -> tuple[float, Floats]:
        """Return the log of the square of the largest smoothed norm, and half its derivative."""
        A = np.asarray(self.cells @ L.T)  # (cells, rows)
        size = np.sqrt(A * A + self.smooth**2)
        columns = size.sum(axis=1)
        largest = float(columns.max())
        powers = (columns / largest) ** (self.power - 1)
        sum_of = float((powers * columns).sum()) / largest
        A /= size
        A *= (powers / (largest * sum_of))[:, np.newaxis]
        value = 2 * (math.log(largest) + math.log(sum_of) / self.power)
        return value, np.asarray((self.basis @ A).T)

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        L, few = flat.reshape(self.shape), self.few
        try:
            inverse = np.linalg.inv(L.T @ L)
        except np.linalg.LinAlgError:
            return np.inf, np.zeros_like(flat)
        spread = few.coefficients @ inverse
        variances = (spread * few.coefficients).sum(axis=1)
        total = float(few.weights2 @ variances)
        if not total > 0 or not (variances > 0).all():
            return np.inf, np.zeros_like(flat)
        norm, slope = self._norm(L)
        shares = self.shares * math.exp(norm)
        ratios = shares @ variances
        beyond = np.maximum(ratios - 1, 0)
        by_variance = few.weights2 / total + 2 * STRICT * beyond @ shares
        slope *= 2 + 4 * STRICT * float(beyond @ ratios)
        slope -= 2 * L @ (spread.T * by_variance) @ spread
        value = norm + math.log(total) + STRICT * float(beyond @ beyond)
        return value, np.ascontiguousarray(slope).ravel()
