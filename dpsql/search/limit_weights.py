"""Weights of answers for which the least total error keeps limits: for unions of marginals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.search.problem import Problem
from dpsql.search.residual import prices
from dpsql.strategy.noise_law import GAUSSIAN
from dpsql.workload.workload import Product, Workload

ROUNDS = 300
"""Most steps towards the multipliers."""

CLOSE = 1e-4
"""Relative distance to the limits at which the steps end."""

DAMPING = 0.7
"""Power of a ratio of variances by which squared weights move."""


def residual_emphasis(
    workload: Workload,
    answers: Sequence[Sequence[tuple[float, Product]]],
    weights2: Floats,
    limits: Floats,
) -> Floats | None:
    """Return what to multiply the weights of answers by, so that optimal shares keep the limits.

    The multipliers of the convex problem, for residual rows of the identity; None where others are
    asked. Covariances of the products of an answer are left out.

    Args:
        answers: sums of products.
        weights2: (answers,) what a unit of the mean variance of each counts.
        limits: (answers,) largest mean variances, at a unit budget of Gaussian noise.

    Source: ResidualPlanner (Xiao et al. 2023), weighted sum of variances.
    """
    problem = Problem(workload, GAUSSIAN.name)
    if not all(factors.trivial and not factors.large for factors in problem.factors):
        return None
    table = _table(problem, answers)
    price = prices(problem, np.array(problem.sizes, dtype=np.float64))
    emphasis2 = np.ones(len(answers))
    for _ in range(ROUNDS):
        R = (emphasis2 * weights2) @ table
        means = table @ _variances(R, price)
        moved = np.maximum(1.0, emphasis2 * (means / limits) ** DAMPING)
        settled = np.abs(moved - emphasis2).max(where=emphasis2 > 0, initial=0.0)
        emphasis2 = moved
        if settled <= CLOSE * emphasis2.max() and (means <= limits * (1 + CLOSE)).all():
            break
    return np.sqrt(emphasis2)


def _variances(R: Floats, price: Floats) -> Floats:
    """Return the variances of the components with the least R's at a unit budget."""
    root = np.sqrt(np.maximum(R, 1e-300) * price)
    return np.asarray(root.sum() * root / np.maximum(R, 1e-300))


def _table(problem: Problem, answers: Sequence[Sequence[tuple[float, Product]]]) -> Floats:
    """Return how much of every component is in the mean variance of an answer."""
    t, r = problem.identity_tables()
    components = problem.components
    place = {mask: c for c, mask in enumerate(components.masks)}
    keys = [[op.key for op in factors.operators] for factors in problem.factors]
    out = np.zeros((len(answers), len(place)))
    for a, answer in enumerate(answers):
        for scale, product in answer:
            found = {0: scale**2 / product.rows}
            for i, name in enumerate(problem.names):
                if name not in product.factors:
                    continue
                which, bit = keys[i].index(product.factors[name].key), components.bit(i)
                pairs = ((0, t[i][which]), (bit, r[i][which]))
                found = {m | b: x * y for m, x in found.items() for b, y in pairs}
            for mask, share in found.items():
                out[a, place[mask]] += share
    return out
