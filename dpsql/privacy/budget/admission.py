"""Admission of a cost by the budgets of a ledger, and the refusal where they do not admit it."""

from __future__ import annotations

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.privacy.budget.accounting import Cost
from dpsql.privacy.budget.hash_chain import State, budget_text
from dpsql.privacy.budget.refusals import changed_meanwhile, undiscoverable


def admitted(
    state: State, cost: Cost, within: tuple[str, ...], policy_hash: str | None = None
) -> Cost:
    """Return a cost at the order of the whole budget, where all budgets admit it.

    Args:
        state: sums of the ledger, verified up to its last entry.
        cost: of the release, at any order.
        within: nested budgets that are charged too.
        policy_hash: catalog that a handle was opened under, None for whichever is in force.

    Guarantee: no sum of a budget that is charged exceeds it afterwards, by a rule of its policy.
    Raises: BudgetExceeded; LedgerError E_LEDGER_MISMATCH for a budget that there is none of,
    E_POLICY_CHANGED where another catalog is in force.
    """
    if policy_hash not in (None, state.terms.policy_hash):
        raise changed_meanwhile()
    if not state.terms.budgets.keys() >= set(within):
        raise LedgerError("E_LEDGER_MISMATCH", "this ledger has no such nested budget")
    cost = cost.under(state.terms.policy)
    is_left = not cost.delta or cost.delta <= state.discoverable(cost.epsilon, within)
    if is_left and state.charge(cost, within) is not None:
        return cost
    raise _refused_cost(state, cost, within)


def _refused_cost(state: State, cost: Cost, within: tuple[str, ...]) -> BudgetExceeded:
    """Return the refusal of a cost that a state does not admit."""
    if cost.delta and cost.delta > state.discoverable(cost.epsilon, within):
        return undiscoverable(cost.delta, state.discoverable(cost.epsilon, within))
    what = "epsilon" if cost.is_pure else "epsilon, Gaussian noise"
    left, whose = state.remaining(cost, within), state.refusing(cost, within)
    return BudgetExceeded(cost.epsilon, left, what, tuple(map(budget_text, whose)))
