"""Unions of identities: one histogram per support, one histogram of everything."""

from __future__ import annotations

import numpy as np

from dpsql.plan.noise_law import law
from dpsql.plan.templates.family import Family
from dpsql.plan.templates.joint import Found, Objective, Union
from dpsql.plan.templates.problem import Floats, Problem

MANY = 1000
"""Supports above which no set is compared with every other."""


def maximal(masks: list[int]) -> list[int]:
    """Return the masks that are contained in no other; very many masks are all kept.

    >>> maximal([1, 3, 4])
    [3, 4]
    """
    masks = sorted(set(masks))
    if len(masks) > MANY:
        return masks
    return sorted({m for m in masks if not any(m != o and m & ~o == 0 for o in masks)})


def identity_unions(problem: Problem, limit: int) -> list[tuple[Family, Found]]:
    """Return the histogram of all attributes (if it fits) and one per (maximal) support.

    Shares follow the cube-root (Laplace) or square-root (Gaussian) rule on the errors of the
    supports; the error is that of least squares over all of them. Source: HDMM, section 6.2.
    """
    supports = problem.components.supports
    families = [maximal(supports), sorted(set(supports))]
    union = int(np.bitwise_or.reduce(np.array(supports, dtype=object)))
    if problem.cells(union) <= limit:
        families.insert(0, [union])
    out = []
    for sets in [f for k, f in enumerate(families) if f not in families[:k]]:
        family = Family(problem.d, sets, problem.components.masks)
        objective = Objective(problem, family)
        union_of = Union((None,) * problem.d, split_weights(objective, (None,) * problem.d))
        out.append((family, Found(objective.error(union_of), union_of)))
    return out


def split_weights(objective: Objective, thetas: tuple[Floats | None, ...]) -> Floats:
    """Return the OPT_+ weights: each support is answered by the smallest set that contains it."""
    problem, family = objective.problem, objective.family
    t, r, totals = objective.values(thetas)
    errors = np.zeros(len(family.sets))
    _, over = family.measure(totals)
    sizes = [problem.cells(M) for M in family.sets]
    log_totals = np.log(totals)
    place = {M: m for m, M in enumerate(family.sets)}
    for support, group in zip(problem.components.supports, problem.components.groups, strict=True):
        home = place.get(support, -1)
        if home < 0:
            holders = [m for m, M in enumerate(family.sets) if support & ~M == 0]
            if not holders:
                continue
            home = min(holders, key=sizes.__getitem__)
        extra = family.sets[home]
        inside = sum(log_totals[i] for i in problem.axes(extra))
        values = problem.components.group_values(group, t, r)
        errors[home] += float((values * over[group.positions]).sum() / np.exp(inside))
    power = law(problem.noise).share_power / law(problem.noise).norm
    weights = np.maximum(errors, 1e-300) ** power
    return np.where(errors > 0, weights, 1e-3 * weights.max())
