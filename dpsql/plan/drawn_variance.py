"""The last choice among plans: by the variance of the noise that would be drawn.

Searches compare errors in the limit of fine noise, so that what they find serves every budget.
Noise on whole numbers has less variance where its scale is not large beside one, so that small
integers may be better than what would be best in the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fractions import Fraction

from dpsql.errors import ProgrammingError
from dpsql.plan.candidate_plan import (
    CandidatePlan,
    by_error,
    easier_than,
    least_error,
    total_error,
    worst_of,
)
from dpsql.plan.choice import Chooser
from dpsql.plan.limits import AIM, CAP, find_limits
from dpsql.plan.plan import Part
from dpsql.plan.target import Target, mean_variances
from dpsql.records import replace
from dpsql.search.coarse_noise import AMOUNTS, FINE, drawn_part
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import Resolution
from dpsql.workload.layout import Layout, Place


def best_drawn(
    chooser: Chooser, amount: Fraction, earnest: bool = True, most: float = math.inf
) -> CandidatePlan:
    """Return the plan of one table with the least error at about this budget.

    ``amount`` is an epsilon or a rho, of which so much counts as AMOUNTS have at most; the errors
    that are returned are those in the limit. Unless in ``earnest``, there is no search where
    nothing that it could find seems to come near the limits; ``free`` is 0 then. What has a larger
    error than the ``most`` without limits is not kept within them.
    """
    target = chooser.target
    amount, own = counted_of(target, chooser.noise, amount)
    chooser = replace(chooser, own=own)
    hopeless = None if earnest else chooser.hopeless()
    if hopeless is None:
        selected = chooser.selected()
        free = least_error(selected)
        if free > most:
            return replace(min(selected, key=by_error), free=free)
        found = chooser.within(selected)
    else:
        selected, free, found = [hopeless], 0.0, chooser.unweighed(hopeless)
    best = replace(min(found, key=by_error), free=free)
    if best.is_optimal and is_finest(best.strategy):
        return best
    limits = find_limits(target, chooser.noise, own)
    coarse = _coarse_of(chooser, selected)
    if not any(is_coarse(each, own) for each in (best, *found, *coarse)):
        return replace(best, easier=easier_than(best, found, limits))
    others = [*selected, *coarse]
    found += [each for each in others if not any(each is known for known in found)]
    rated = [pair for each in found if (pair := _rated(target, each, amount, limits)) is not None]
    plain = (
        total_error(target, target.layouts[0], limits)
        / (CAP if target.limits is None else AIM) ** 2
    )
    if min((pair[0].error for pair in rated), default=math.inf) > plain / chooser.doubtful:
        from dpsql.strategy.queries import (
            QueriesStrategy,  # searches that most requests do without
        )

        are_found = any(each.strategy.kind == QueriesStrategy.kind for each in found)
        asked = [] if are_found else chooser.queries()
        pairs = [_rated(target, each, amount, limits) for each in asked]
        rated += [pair for pair in pairs if pair is not None]
    chosen = min(rated, key=lambda pair: by_error(pair[0]), default=(best, best))[1]
    easier = easier_than(chosen, (each for _, each in rated), limits)
    return replace(chosen, free=free, easier=easier)


def _rated(
    target: Target, chosen: CandidatePlan, amount: Fraction, limits: Mapping[Place, float]
) -> tuple[CandidatePlan, CandidatePlan] | None:
    """Return a plan with its errors as drawn, and as it was; None where it is not allowed."""
    try:
        found = drawn(target, chosen, amount)
    except ProgrammingError:  # one block would drown another, which then seems to tell nothing
        return None
    is_within = len(target.asked) == 1 or worst_of(found, limits) <= 1
    return (found, chosen) if is_within else None


def is_finest(strategy: Strategy) -> bool:
    """Say whether no noise can have a smaller scale: one block, of the least sensitivity.

    The smaller the scale, the less is the variance beside its limit. A strategy that is optimal in
    the limit and has noise of the smallest scale is optimal at every budget.
    """
    return len(strategy.blocks) == 1 and strategy.sensitivities() == (1,)


def is_coarse(chosen: CandidatePlan, own: float) -> bool:
    """Say whether the noise of some block is coarse at a budget for one row."""
    return min(drawn_part(chosen.strategy, own)) < FINE


def _coarse_of(chooser: Chooser, found: Iterable[CandidatePlan]) -> list[CandidatePlan]:
    """Return what may be better where noise is coarse, with errors of its own."""
    out = []
    for each in found:
        for other in each.coarse:
            with suppress(ProgrammingError):  # one block would drown another
                out.append(chooser.rated(each.layout, other, each.lower))
    return out


def drawn(target: Target, chosen: CandidatePlan, amount: Fraction) -> CandidatePlan:
    """Return the same with the errors of the noise that is drawn, for a unit budget."""
    noise = law(chosen.strategy.noise)
    layout, rows = chosen.layout, target.rows_per_unit
    part = Part("", chosen.strategy, used(layout, chosen.strategy), amount, rows)
    limit = noise.unit_variance(float(amount)) * rows**2
    means = mean_variances(part.forecast, layout.products)
    means = {place: mean / limit for place, mean in means.items()}
    return replace(chosen, means=means, error=total_error(target, layout, means))


def error_at(chosen: CandidatePlan, target: Target, amount: Fraction) -> float:
    """Return the total error at a budget, of noise as it is drawn where that is coarse."""
    noise = law(chosen.strategy.noise)
    _, own = counted_of(target, noise.name, amount)
    limit = chosen.error * noise.unit_variance(float(amount))
    if not is_coarse(chosen, own):
        return limit
    try:
        found = drawn(target, chosen, amount)
    except ProgrammingError:  # one block would drown another, which then seems to tell nothing
        return limit
    return found.error * target.rows_per_unit**2 * noise.unit_variance(float(amount))


def least_part(chosen: CandidatePlan, target: Target, whole: Target, amount: Fraction) -> float:
    """Return which part of a budget keeps answers within the limits, above one where all does not.

    ``whole`` is what is asked beside them, which the limits are those of. Counts of units are
    measured as plain noise is. Noise that is coarse for all of the budget is finer for a part, and
    has more of its limit: it tells nothing but whether all of the budget does.
    """
    noise = law(chosen.strategy.noise)
    if whole.units:
        if whole.limits is None:
            return float(CAP**-noise.norm)
        return float(worst_of(chosen, whole.limits) ** (noise.norm / 2))
    amount, own = counted_of(target, noise.name, amount)
    limits = find_limits(whole, noise.name, own)
    part = worst_of(chosen, limits) ** (noise.norm / 2)
    if part > 1 and is_coarse(chosen, own):
        part = max(1.0, worst_of(drawn(target, chosen, amount), limits) ** (noise.norm / 2))
    return float(part)


def counted_of(target: Target, noise: Noise, amount: Fraction) -> tuple[Fraction, float]:
    """Return what counts of a budget, at most as much as AMOUNTS have, and so much for one row."""
    rows = Fraction(target.rows_per_unit) ** law(noise).norm
    amount = min(amount, Fraction(AMOUNTS[-1]) * rows)
    return amount, float(amount / rows)


def used(layout: Layout, strategy: Strategy) -> Mapping[str, Resolution]:
    """Return the resolutions of the attributes that a strategy measures."""
    names = {name for block in strategy.blocks for name in block.attributes}
    return {name: each for name, each in layout.resolutions.items() if name in names}
