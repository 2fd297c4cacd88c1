"""What a ledger shows of itself: totals, sums, and the largest requests still admitted."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.privacy.amounts import UNITS
from dpsql.privacy.chain import WHOLE, State


@dataclass(frozen=True, slots=True)
class Status:
    """What was preset, what was spent and the largest single requests still admitted.

    ``spent_epsilon`` is the sum of pure epsilons, None once Gaussian noise was used;
    ``entries`` counts debits; ``seq`` and ``head`` name the last link of the chain.
    """

    total_epsilon: Fraction
    total_delta: Fraction
    spent_epsilon: Fraction | None
    spent_renyi: Fraction
    total_renyi: Fraction
    remaining_epsilon: Fraction
    remaining_rho: Fraction
    remaining_gaussian_epsilon: Fraction
    entries: int
    ledger_id: str
    seq: int
    head: str


def status_of(state: State) -> Status:
    """Return what may be shown of a state; all of it follows from the history of requests."""
    policy, spent = state.terms.policy, state.spent[WHOLE]
    return Status(
        total_epsilon=policy.epsilon,
        total_delta=policy.delta,
        spent_epsilon=None if spent.gaussian else Fraction(spent.epsilon_units, UNITS),
        spent_renyi=Fraction(spent.renyi_units, UNITS),
        total_renyi=policy.renyi_budget,
        remaining_epsilon=spent.largest_pure(policy),
        remaining_rho=spent.largest_rho(policy),
        remaining_gaussian_epsilon=spent.largest_gaussian(policy),
        entries=state.debits,
        ledger_id=state.ledger_id,
        seq=state.seq,
        head=state.head,
    )
