"""The errors that no answer of a plan may exceed: little more than those of plain noise."""

from __future__ import annotations

import math

from dpsql.plan.baselines import plain_variance
from dpsql.plan.candidate_plan import total_error
from dpsql.plan.target import Target
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import unit_reach
from dpsql.workload.layout import Place, WeightedAnswer

CAP = 1.1
"""Largest standard error of an answer, root mean square, as a multiple of plain noise's.

Of the published workloads it binds in one, the 21 marginals of Adult, where a table of two cells
would be at 1.34 (decision 40).
"""

FAIR = 1.05
"""Largest standard error of a shown column of a request of several statements, as a multiple of
what its statement has by itself with its share of the budget."""

NEAR_ALONE = 1.01
"""The most that a standard error of a brief search for a statement by itself may be, as a multiple
of that of one in earnest: what is compared with it is that much nearer."""

EXACTLY, AIM = FAIR - 1e-3, FAIR / NEAR_ALONE - 1e-3
"""The limits for what is searched for, where nothing has less alone and where a brief search says
what it has: shares are rounded, and scales of noise."""

COARSE = 0.9
"""Part of its limit below which the variance of plain noise is told from it: scales below one."""


def find_limits(target: Target, noise: Noise, own: float | None = None) -> dict[Place, float]:
    """Return the largest mean variance of every answer, at a unit budget.

    Those of the target where it has some, else by plain noise. ``own`` is the budget for one row,
    where limits are to be those of plain noise as it is drawn.
    """
    if target.limits is not None:
        return {place: target.limits[place] for place in target.asked}
    sensitivity = target.plain(noise)
    variances = {
        place: plain_variance(sensitivity, asked.weight, noise)
        for place, asked in target.asked.items()
    }
    return {
        place: CAP**2 * v * (_drawn(v, noise, own) if _is_whole(target, target.asked[place]) else 1)
        for place, v in variances.items()
    }


def plain_error(target: Target, noise: Noise) -> float:
    """Return the total error of plain noise at a unit budget, or that of what limits are by."""
    if target.limits is not None:
        means = {place: each / AIM**2 for place, each in find_limits(target, noise).items()}
        return total_error(target, target.layouts[0], means)
    sensitivity = target.plain(noise)
    means = {p: plain_variance(sensitivity, e.weight, noise) for p, e in target.asked.items()}
    return total_error(target, target.layouts[0], means)


def plain_cost(target: Target, noise: Noise) -> float:
    """Sensitivity of all numbers of a target to one privacy unit, weighted: L1 or squared L2."""
    power = law(noise).norm
    if not target.units:
        return float(target.plain(noise) * target.rows_per_unit**power)
    (layout,) = target.layouts
    names = layout.workload.attributes
    reach = unit_reach([layout.resolutions[name] for name in names], target.rows_per_unit)
    reach = int(reach**power) if target.occupied else reach
    asked = target.asked.values()
    return float(reach * sum((each.weight * _most(each)) ** power for each in asked))


def _most(asked: WeightedAnswer) -> float:
    """Return the most that one union counts for: one, or the largest of different values."""
    return 1.0 if asked.distinct is None else max(map(abs, asked.distinct[1]), default=1.0)


def _is_whole(target: Target, asked: WeightedAnswer) -> bool:
    """Say whether an answer is a whole number, as counts are: others have finer steps than one."""
    values = () if asked.distinct is None else asked.distinct[1]
    columns = target.table.columns
    numbers = [*values, *(term.scale for term in asked.terms)]
    for term in asked.terms:
        for name, polynomial in term.polynomials.items():
            if columns[name].type != "integer":
                return False
            numbers += [*map(float, polynomial.coefficients), polynomial.null]
    factors = (factor for term in asked.terms for factor in term.factors.values())
    return all(float(each).is_integer() for each in numbers) and all(f.integer for f in factors)


def _drawn(variance: float, noise: Noise, own: float | None) -> float:
    """Return which part of its limit a variance is for noise on whole numbers, one if most."""
    if own is None:
        return 1.0
    chosen = law(noise)
    size = math.sqrt(variance) if chosen.norm == 1 else variance
    scale = float(chosen.rate) * size / own
    part = chosen.variance(scale) / (chosen.unit_variance(own) * variance)
    return part if part < COARSE else 1.0
