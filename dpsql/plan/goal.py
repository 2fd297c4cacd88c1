"""Targets: the least budget that reaches a wanted standard error, from public facts only."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpsql.amounts import MIN_EPSILON
from dpsql.errors import DataError, decimal_text
from dpsql.plan.plan import Plan
from dpsql.plan.request import PlannedRequest, Request, make_plan
from dpsql.records import replace

DIGITS = 4
"""Significant digits of the epsilon that is found; it is rounded up."""

TRIES = 60
"""Most plans that a search makes before it takes the best that held."""
DROP = 10**4
"""Factor by which a search goes below an epsilon that held where nothing has failed yet."""
CLOSE = 0.995
"""Part of the wanted error that a plan must come to for the search to end."""


def least_epsilon(
    request_at: Callable[[Fraction], Request], limit: Fraction, worst: Callable[..., float]
) -> Fraction:
    """Return the least epsilon at which every statement keeps to the error that it demands.

    It is one that can be asked for: not below MIN_EPSILON.
    ``request_at`` forms the request at an epsilon, ``worst`` is the largest error of a request
    under a plan with its readings, as a multiple of what is demanded. The error falls as epsilon
    grows, for most in proportion, so a few plans suffice: a guess in proportion is taken where it
    lies between what failed and what held, else their geometric mean. Strategies do not depend on
    epsilon.
    Raises: DataError (E_EPSILON) where more than ``limit`` is needed; ProgrammingError (E_SETTING).
    """
    failed, held = Fraction(0), None
    epsilon = min(Fraction(1), limit)
    planned: PlannedRequest | None = None
    for _ in range(TRIES):
        request = request_at(epsilon)
        if planned is None or len(request.noises) > 1:
            planned = make_plan(request)
        else:
            planned = _rescaled(request, planned)
        ratio = worst(request, planned.plan, planned.readings)
        if ratio > 1:
            failed = epsilon
            if failed == limit:
                raise _out_of_reach(ratio, limit)
        else:
            held = epsilon
            if ratio >= CLOSE or held == MIN_EPSILON:
                break
        # A hair more than in proportion: what just misses would cost one plan more.
        guess = epsilon * Fraction(ratio * (1.0002 if ratio > 1 else 1.0))
        epsilon = max(min(_between(guess, failed, held), limit), MIN_EPSILON)
        if epsilon == held:
            break
    if held is None:
        raise _out_of_reach(ratio, limit)
    return held


def _rescaled(request: Request, planned: PlannedRequest) -> PlannedRequest:
    """Return the same strategies for the budget of a request that differs in nothing else."""
    plan = planned.plan
    before = plan.epsilon if plan.rho is None else plan.rho
    rho = None if plan.rho is None else request.rho
    now = request.epsilon if rho is None else rho
    parts = tuple(replace(part, amount=part.amount * now / before) for part in plan.parts)
    scaled = Plan(parts, plan.noise, request.epsilon, request.delta, rho)
    return replace(planned, plan=scaled)


def _between(guess: Fraction, failed: Fraction, held: Fraction | None) -> Fraction:
    """Return a rounded epsilon above what failed, and below what held unless none is left."""
    found = round_up(guess) if guess > 0 else Fraction(0)
    if failed < found and (held is None or found < held):
        return found
    if held is None:
        return round_up(2 * failed)
    low = max(failed, held / DROP)
    return min(round_up(Fraction(math.sqrt(low * held))), held)


def _out_of_reach(ratio: float, limit: Fraction) -> DataError:
    times = f"{ratio:.3g}" if ratio >= 1.1 else f"{ratio:.6g}"
    return DataError(
        "E_EPSILON",
        f"the error needs an epsilon above the limit of {decimal_text(limit)} for one request:"
        f" there the error is {times} times as large",
        hint="ask for a larger max_stddev or within, or for coarser groups",
    )


def round_up(value: Fraction) -> Fraction:
    """Return the least decimal of four significant digits that is not below a positive value.

    >>> round_up(Fraction(1, 3)), round_up(Fraction(12345))
    (Fraction(1667, 5000), Fraction(12350, 1))
    """
    exponent = math.floor(math.log10(value)) - DIGITS + 1
    unit = Fraction(10) ** exponent
    return -(-value // unit) * unit
