"""The sums that a budget holds, and what they still admit."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from dpsql.amounts import LIMIT, UNITS, units_up
from dpsql.privacy.budget.accounting import Cost, Policy, epsilon_for, laplace_cost, rho_for
from dpsql.records import dataclass, field


@dataclass(frozen=True, slots=True)
class BudgetSums:
    """The two sums so far, in units; they saturate above every possible total.

    >>> policy = Policy(Fraction(1), Fraction(0))
    >>> once = BudgetSums().add(laplace_cost(policy, Fraction(2, 3)))
    >>> twice = once.add(laplace_cost(policy, Fraction(2, 3)))
    >>> once.within(policy), twice.within(policy)
    (True, False)
    """

    epsilon_units: int = 0
    renyi_units: int = 0
    gaussian: bool = False
    releases: int = field(default=0, compare=False)
    """The number of releases; it decides nothing, and is not kept in the file."""

    def add(self, cost: Cost) -> BudgetSums:
        """Return both sums with one more release."""
        return self.plus(cost.epsilon_units, cost.renyi_units)

    def plus(self, epsilon_units: int | None, renyi_units: int) -> BudgetSums:
        """Return both sums with one more release of these costs; None is infinite."""
        return BudgetSums(
            min(self.epsilon_units + (epsilon_units or 0), LIMIT - 1),
            min(self.renyi_units + renyi_units, LIMIT - 1),
            self.gaussian or epsilon_units is None,
            self.releases + 1,
        )

    def has(self, less: BudgetSums) -> bool:
        """Say whether neither sum is below that of others, and no release of theirs is missing."""
        own, its = (
            (each.epsilon_units, each.renyi_units, each.gaussian, each.releases)
            for each in (self, less)
        )
        return all(mine >= other for mine, other in zip(own, its, strict=True))

    def within(self, policy: Policy) -> bool:
        """Say whether either rule holds.

        Guarantee: if every release of a transcript was within when it was added, the transcript
        is (epsilon, delta)-DP, however the releases were chosen. Source: Feldman and Zrnic 2021
        (Renyi filter); basic composition; the two rules act on disjoint sets of transcripts.
        """
        pure = not self.gaussian and self.epsilon_units <= policy.total_epsilon_units
        return pure or (policy.alpha is not None and self.renyi_units <= policy.total_renyi_units)

    def largest_pure(self, policy: Policy) -> Fraction:
        """Return the largest epsilon, in whole units, that a pure release may still have."""
        left = 0 if self.gaussian else max(0, policy.total_epsilon_units - self.epsilon_units)
        ceiling = policy.total_renyi_units + UNITS  # the divergence is at least epsilon - ln 2
        return _largest(
            left,
            max(left, ceiling),
            lambda e: self.add(laplace_cost(policy, e)).within(policy),
        )

    def largest_rho(self, policy: Policy) -> Fraction:
        """Return the largest rho that a Gaussian release may still have."""
        if policy.alpha is None:
            return Fraction(0)
        left = max(0, policy.total_renyi_units - self.renyi_units)
        return Fraction(left, UNITS * policy.alpha)

    def largest_gaussian(self, policy: Policy) -> Fraction:
        """Return the largest epsilon whose rho, at the policy's delta, may still be spent."""
        rho = self.largest_rho(policy)
        if rho == 0:
            return Fraction(0)
        near = units_up(epsilon_for(rho, policy.delta))
        return _largest(max(0, near - 4), near + 4, lambda e: rho_for(e, policy.delta) <= rho)


def _largest(low: int, high: int, admitted: Callable[[Fraction], bool]) -> Fraction:
    """Return the largest admitted number of units; ``low`` is known to be admitted."""
    while low < high:
        middle = (low + high + 1) // 2
        if admitted(Fraction(middle, UNITS)):
            low = middle
        else:
            high = middle - 1
    return Fraction(low, UNITS)
