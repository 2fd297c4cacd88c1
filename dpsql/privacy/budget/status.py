"""Status of a ledger: totals, sums, and the largest requests still admitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from dpsql.amounts import UNITS
from dpsql.privacy.budget.hash_chain import ANALYST, WHOLE, State
from dpsql.records import dataclass


@dataclass(frozen=True, slots=True)
class NestedBudget:
    """A budget inside the whole one; what remains is what both of them admit.

    ``entries`` counts the debits that were charged to it.
    """

    total_epsilon: Fraction
    remaining_epsilon: Fraction
    remaining_rho: Fraction
    remaining_gaussian_epsilon: Fraction
    total_discovery: Fraction = Fraction(0)
    remaining_discovery: Fraction = Fraction(0)
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The preset and spent totals, and the largest single requests still admitted.

    ``spent_epsilon`` is the sum of pure epsilons, None once Gaussian noise was used;
    ``total_discovery`` and ``remaining_discovery`` are the deltas for keys that nobody listed;
    ``entries`` counts debits; ``seq`` and ``head`` name the last link of the chain; ``nested``
    holds the budgets inside this one by their names.
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
    nested: Mapping[str, NestedBudget]
    total_discovery: Fraction = Fraction(0)
    remaining_discovery: Fraction = Fraction(0)

    def remaining_within(self, names: Iterable[str]) -> Fraction:
        """Return the largest pure epsilon that the whole and those of these budgets admit."""
        own = [self.nested[name].remaining_epsilon for name in names if name in self.nested]
        return min([self.remaining_epsilon, *own])

    def discovery_left(self, names: Iterable[str]) -> Fraction:
        """Return the delta for keys that is left in the whole and in those of these budgets."""
        own = [self.nested[name].remaining_discovery for name in names if name in self.nested]
        return min([self.remaining_discovery, *own])

    def discovery_part(self, names: Iterable[str], epsilon: Fraction) -> Fraction:
        """Return the delta for keys that goes with an epsilon: all of it with all of epsilon.

        What an analyst asks goes by that analyst's share and epsilon.
        """
        own = next((self.nested[name] for name in names if name.startswith(ANALYST)), self)
        return own.total_discovery * min(Fraction(1), epsilon / own.total_epsilon)


def status_of(state: State) -> Status:
    """Return what may be shown of a state; all of it follows from the history of requests."""
    policy, spent = state.terms.policy, state.spent[WHOLE]
    pure, gaussian = spent.largest_pure(policy), spent.largest_gaussian(policy)
    rho = spent.largest_rho(policy)
    nested = {
        name: NestedBudget(
            inner.epsilon,
            min(pure, state.spent[name].largest_pure(inner)),
            min(rho, state.spent[name].largest_rho(inner)),
            min(gaussian, state.spent[name].largest_gaussian(inner)),
            state.terms.share([name])[0],
            state.undiscovered_in([name]),
            state.spent[name].releases,
        )
        for name, inner in state.terms.budgets.items()
        if name != WHOLE
    }
    return Status(
        total_epsilon=policy.epsilon,
        total_delta=policy.delta,
        spent_epsilon=None if spent.gaussian else Fraction(spent.epsilon_units, UNITS),
        spent_renyi=Fraction(spent.renyi_units, UNITS),
        total_renyi=policy.renyi_budget,
        remaining_epsilon=pure,
        remaining_rho=rho,
        remaining_gaussian_epsilon=gaussian,
        entries=state.debits,
        ledger_id=state.ledger_id,
        seq=state.seq,
        head=state.head,
        nested=nested,
        total_discovery=policy.discovery,
        remaining_discovery=state.undiscovered,
    )
