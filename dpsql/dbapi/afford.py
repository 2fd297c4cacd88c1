"""Whether a run would be refused: by the budget, or by anything else before its first charge."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.charges import Rehearsed
from dpsql.engine.explanation import Explanation
from dpsql.errors import BudgetExceeded
from dpsql.privacy.status import Status
from dpsql.sql.lexemes import split_statements
from dpsql.strategy.noise_law import law

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection

ACTS = ("forget",)
"""Kinds of statements that change something and cost nothing."""


def rehearse(connection: Connection, text: str) -> None:
    """Take a script as far as its first charge, on its own way, and refuse what would refuse it.

    Data are opened and read; nothing is charged, noted or stored. A script that writes rows, or
    forgets domains, is not gone through. Raises: as ``Connection.executescript``.
    """
    engine = connection.engine
    statements = [engine.read(each) for each in split_statements(text)]
    if any(each.kind in ACTS or each.rows is not None for each in statements):
        return
    engine.rehearses = True
    try:
        connection.executescript(text)
    except Rehearsed:
        pass
    finally:
        engine.rehearses = False


def refuse_over_budget(status: Status, own: str | None, forecast: Explanation) -> None:
    """Refuse a forecast that costs more than is left, as its request would be.

    ``own`` names the budget of the analyst who asks, if any. Raises: BudgetExceeded.
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
