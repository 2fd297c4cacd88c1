"""From statements and terms to a request."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.errors import DataError
from dpsql.plan.goal import least_epsilon
from dpsql.plan.request import Request
from dpsql.sql.compiled import Compiled
from dpsql.terms import Terms


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
            metric=terms.metric,
            rounds=terms.rounds,
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
