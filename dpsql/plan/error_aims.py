"""The least largest error: strategies whose errors, answer by answer, are what was aimed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsql.plan.candidate_plan import CandidatePlan, emphasised
from dpsql.plan.choice import Chooser
from dpsql.plan.target import reading_variances
from dpsql.search.work_limit import may_go_on, portion
from dpsql.search.workload_rows import measure_queries
from dpsql.workload.layout import Place

ROUNDS = 10
"""Rounds of weighing answers anew by quick plans, and as many in which shares settle."""

STEP = 1.0
"""Power of a ratio of variances by which weights grow at first."""

CALM = 3
"""Rounds after which steps become shorter."""

AIMING = 0.5
"""Part of the work for a table that weighing answers anew has."""

FAINT = 0.1
"""Weight of all rows of an answer that nothing is aimed at, in its own unit, relative to the least
of the others."""

Aims = Mapping[Place, float]


def aimed(chooser: Chooser, aims: Aims) -> CandidatePlan:
    """Return the strategy with the least largest variance of a row, relative to those aimed at.

    Answers that are nearest to the largest count for more, until all are alike: the weights are
    the multipliers of the convex problem that this is for given rows.
    """
    weights = _emphasis(chooser, aims, chooser.target.layouts[0].rows)
    found = [chooser.select(layout, weights) for layout in chooser.layouts()]
    ratios = [_ratios(chosen, aims) for chosen in found]
    start = min(range(len(found)), key=lambda i: max(ratios[i].values()))
    found += _queries(chooser, aims)
    with portion(AIMING):
        return _best(_adjusted(chooser, aims, found, start, weights), aims)


def _emphasis(chooser: Chooser, aims: Aims, rows: Mapping[Place, int]) -> dict[Place, float]:
    """Return what multiplies the weights of answers: those aimed at count alike, others faintly."""
    asked = chooser.target.asked
    wanted = {p: (aim * rows[p]) ** -0.5 / asked[p].weight for p, aim in aims.items()}
    least = FAINT * min(each * rows[place] ** 0.5 for place, each in wanted.items())
    return {place: wanted.get(place, least / rows[place] ** 0.5) for place in asked}


def _adjusted(
    chooser: Chooser,
    aims: Aims,
    known: Sequence[CandidatePlan],
    start: int,
    weights: dict[Place, float],
) -> list[CandidatePlan]:
    """Return strategies for weights that grow with the errors of answers, beside those known."""
    found = list(known)
    ratio = _ratios(found[start], aims)
    for number in range(2 * ROUNDS):
        # All answers miss or keep their aims alike: weights have nothing left to shift.
        if min(ratio.values()) > 0.999 * max(ratio.values()) or not may_go_on():
            break
        power = STEP / (1 + number % ROUNDS // CALM)
        for place, each in ratio.items():
            weights[place] *= (each / max(ratio.values())) ** power
        if number < ROUNDS:
            chosen = chooser.quick(found[start], weights, "far")
        else:
            settled = chooser.shared(_best(found, aims), weights, "own")
            if settled is None:
                break
            chosen = settled
        ratio = _ratios(chosen, aims)
        found.append(chosen)
    return found


def _best(found: list[CandidatePlan], aims: Aims) -> CandidatePlan:
    return min(found, key=lambda chosen: max(_ratios(chosen, aims).values()))


def _queries(chooser: Chooser, aims: Aims) -> list[CandidatePlan]:
    """The queries themselves, with noise in proportion to what is aimed at."""
    out = []
    weights = _emphasis(chooser, aims, dict.fromkeys(chooser.target.asked, 1))
    for plain in chooser.queries():
        strategy = measure_queries(emphasised(plain.layout, weights), chooser.noise)
        if strategy is not None:
            out.append(chooser.rated(plain.layout, strategy, 0.0))
    return out


def _ratios(chosen: CandidatePlan, aims: Aims) -> dict[Place, float]:
    """The largest variance of a row of every answer, as a multiple of what is aimed at."""
    forecast = chosen.strategy.forecast(chosen.strategy.unit_variances())
    readings = [chosen.layout.products[place] for place in aims]
    found = reading_variances(forecast, readings)
    return {place: float(v.max()) / aims[place] for place, v in zip(aims, found, strict=True)}
