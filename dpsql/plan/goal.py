"""max_stddev: the least budget that reaches a wanted standard error, from public facts only."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpsql.errors import DataError, ProgrammingError, decimal_text
from dpsql.plan.request import Planned, Request, make_plan
from dpsql.plan.target import reading_variance

DIGITS = 4
"""Significant digits of the epsilon that is found; it is rounded up."""

TRIES = 12
CLOSE = 0.995
"""How near to the wanted error a plan must come for the search to end."""


def least_epsilon(request_at: Callable[[Fraction], Request], limit: Fraction) -> Fraction:
    """Return the least epsilon at which every statement keeps to its ``max_stddev``.

    ``request_at`` forms the request at an epsilon. The error falls as epsilon grows, nearly in
    proportion, so a few plans suffice; strategies do not depend on epsilon.
    Raises: DataError (E_EPSILON) where more than ``limit`` is needed; ProgrammingError (E_SETTING).
    """
    epsilon, best = Fraction(1), None
    for _ in range(TRIES):
        request = request_at(epsilon)
        ratio = _worst(request, make_plan(request))
        if ratio <= 1:
            best = epsilon if best is None else min(best, epsilon)
            if ratio >= CLOSE or not ratio:
                break
        following = round_up(epsilon * Fraction(ratio * (1.0002 if ratio > 1 else 1.0)))
        if following in (epsilon, best) or following > 2 * limit:
            epsilon = following
            break
        epsilon = following
    if best is None or best > limit:
        raise DataError(
            "E_EPSILON",
            f"max_stddev needs an epsilon of about {decimal_text(best or epsilon)}, above the "
            f"limit of {decimal_text(limit)} for one request",
            hint="ask for a larger max_stddev, or for coarser groups",
        )
    return best


def round_up(value: Fraction) -> Fraction:
    """Return the least decimal of four significant digits that is not below a positive value.

    >>> round_up(Fraction(1, 3)), round_up(Fraction(12345))
    (Fraction(1667, 5000), Fraction(12350, 1))
    """
    exponent = math.floor(math.log10(value)) - DIGITS + 1
    unit = Fraction(10) ** exponent
    return -(-value // unit) * unit


def _worst(request: Request, planned: Planned) -> float:
    """The largest standard error, as a multiple of what its statement may have at most."""
    worst = 0.0
    for i, item in enumerate(request.statements):
        if item.max_stddev is None:
            continue
        outputs = [o for select in item.selects for o in select.query.shell.outputs]
        if not any(output.aggregate is not None for output in outputs):
            raise ProgrammingError(
                "E_SETTING",
                "max_stddev needs a column that is a COUNT or a SUM itself",
                hint="SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_stddev = 5) COUNT(*) ...",
            )
        for j, (select, answer) in enumerate(item.answers()):
            shown = {output.aggregate for output in select.query.shell.outputs}
            if answer.aggregate not in shown or answer.rank is not None:
                continue
            if (i, j) in planned.readings:
                part, reading, _ = planned.readings[i, j]
                variance = reading_variance(planned.plan.parts[part].forecast, reading)
                worst = max(worst, math.sqrt(float(variance.max(initial=0))) / item.max_stddev)
    return worst
