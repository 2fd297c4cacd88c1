"""Affordability: the forecast cost against the budget that is left."""

from __future__ import annotations

from fractions import Fraction

from dpsql.engine.explanation import Explanation
from dpsql.errors import BudgetExceeded
from dpsql.privacy.budget.status import Status
from dpsql.strategy.noise_law import law


def refuse_over_budget(status: Status, own: str | None, forecast: Explanation) -> None:
    """Refuse a forecast that costs more than is left, as its request would be.

    Args:
        status: budgets as the ledger has them now.
        own: name of the budget of the analyst who asks, None where there is none.
        forecast: what the request would cost; of a pure law its epsilon is held against what
            remains, of others against what their own Renyi order leaves.
    """
    left = forecast.remaining
    if not forecast.free and not law(forecast.noise).is_pure:
        left = _gaussian_left(status, own)
    if not forecast.free and forecast.epsilon > left:
        raise BudgetExceeded(forecast.epsilon, left)


def _gaussian_left(status: Status, own: str | None) -> Fraction:
    """The largest epsilon of one more request with Gaussian noise."""
    inner = None if own is None else status.nested.get(own)
    whole = status.remaining_gaussian_epsilon
    return whole if inner is None else min(whole, inner.remaining_gaussian_epsilon)
