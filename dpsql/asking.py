"""From statements and terms to a request, and a guard around its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from dpsql.errors import DataError, Error, InternalError
from dpsql.plan.goal import least_epsilon
from dpsql.plan.request import Request
from dpsql.sql.compiled import Compiled
from dpsql.terms import Terms

T = TypeVar("T")


def guarded(work: Callable[[], T]) -> T:
    """Run ``work``; an unforeseen failure gets one constant text, no cause and no context.

    Raises: InternalError (E_INTERNAL). A charge already made stays: refunds would depend on data.
    """
    try:
        return work()
    except Error:
        raise
    except Exception:
        pass
    raise InternalError("E_INTERNAL", "the request failed; a charge already made stays")


def form_request(workload: Sequence[Compiled], terms: Terms, default: Fraction | None) -> Request:
    """Form the request for statements on given terms; ``default`` is the epsilon where none is set.

    Raises: DataError (E_EPSILON) where there is no default either.
    """

    def request_at(epsilon: Fraction) -> Request:
        return Request(
            tuple(workload),
            epsilon,
            terms.delta,
            terms.noise,
            terms.mechanism,
            terms.effort,
            terms.reconstruct,
        )

    if any(item.max_stddev is not None for item in workload):
        return request_at(least_epsilon(request_at, terms.limit))
    return request_at(require_epsilon(terms, default))


def require_epsilon(terms: Terms, default: Fraction | None = None) -> Fraction:
    """The epsilon that is set, else the default. Raises: DataError (E_EPSILON)."""
    epsilon = default if terms.epsilon is None else terms.epsilon
    if epsilon is None:
        raise DataError(
            "E_EPSILON", "no epsilon is set", hint="SET epsilon = 0.5, or --epsilon 0.5"
        )
    return epsilon
