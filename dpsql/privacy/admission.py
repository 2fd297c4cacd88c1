"""Whether the budgets of a ledger admit a cost, and what is told where they do not."""

from __future__ import annotations

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.privacy.accounting import Cost
from dpsql.privacy.chain import State, budget_text
from dpsql.privacy.refusals import undiscoverable


def admitted(state: State, cost: Cost, within: tuple[str, ...]) -> Cost:
    """Return a cost at the order of the whole budget, where all budgets admit it.

    Raises: BudgetExceeded; LedgerError E_LEDGER_MISMATCH for a budget that there is none of.
    """
    if not state.terms.budgets.keys() >= set(within):
        raise LedgerError("E_LEDGER_MISMATCH", "this ledger has no such nested budget")
    cost = cost.under(state.terms.policy)
    if state.charge(cost, within) is not None:
        return cost
    raise _refused_cost(state, cost, within)


def _refused_cost(state: State, cost: Cost, within: tuple[str, ...]) -> BudgetExceeded:
    """Return the refusal of a cost that a state does not admit."""
    if cost.delta > state.undiscovered:
        return undiscoverable(cost.delta, state.undiscovered)
    what = "epsilon" if cost.is_pure else "epsilon, Gaussian noise"
    left, whose = state.remaining(cost, within), state.refusing(cost, within)
    return BudgetExceeded(cost.epsilon, left, what, tuple(map(budget_text, whose)))
