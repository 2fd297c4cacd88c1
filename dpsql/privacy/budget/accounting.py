"""Accounting: the cost of a release, and what a preset (epsilon, delta) still admits.

Logarithms and exponentials are taken by ``decimal`` at 60 digits, where they are correctly
rounded; adding 1e-40 then makes every returned number a true upper bound, because the
quantities here are below 1e15 and a few roundings of relative size 1e-60 apart from exact.

Two sums are kept: of pure epsilons, and of Renyi divergences at one order fixed beforehand. A
release is admitted when, with it, either sum stays within its budget; a transcript then is
(epsilon, delta)-DP however its requests were chosen. Costs are integers of 1e-12 rounded up,
budgets rounded down.

A third sum is that of the chances with which releases of keys may break their promise. Its limit
is set apart from delta, and the order is fixed for the rest, so that either rule is (epsilon,
delta) as before. Source: Whitehouse and others 2023 (filters for approximate zCDP); an (epsilon,
delta)-DP release is epsilon-DP but for a chance of delta (Murtagh and Vadhan 2016, Lemma 3.2).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from dpsql.amounts import (
    LIMIT,
    MAX_DELTA,
    MAX_EPSILON,
    MIN_DELTA,
    MIN_EPSILON,
    UNITS,
    parse_delta,
    parse_delta_text,
    parse_epsilon,
    parse_epsilon_text,
    units_down,
    units_up,
)
from dpsql.errors import DataError
from dpsql.records import dataclass, field, replace
from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE, LAWS, Noise, is_name, law

_CTX = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Sixty digits: what rounding can add is far below _PAD."""
_PAD = Fraction(1, 10**40)
"""Added to every bound, so that it is one in spite of rounding."""
_LARGEST_ORDER = 2**40
"""The order at which the search for the best one ends."""


@lru_cache(maxsize=4096)
def conversion(order: int, delta: Fraction) -> Fraction:
    """Return an upper bound of c such that (order, tau)-RDP gives (tau + c, delta)-DP.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12.

    >>> round(float(conversion(35, Fraction(1, 10**9))), 4)
    0.476
    """
    top = _ln(1 / delta) + (order - 1) * _ln(Fraction(order - 1, order)) - _ln(Fraction(order))
    return top / (order - 1) + _PAD


@lru_cache(maxsize=1024)
def best_order(epsilon: Fraction, delta: Fraction) -> int:
    """Return the integer order at which the most zCDP fits into (epsilon, delta).

    It maximises (epsilon - c(order, delta)) / order, which rises and then falls. Any other
    order would be as safe, only tighter.

    >>> best_order(Fraction(1), Fraction(1, 10**9))
    35
    """
    return _peak(lambda order: (epsilon - conversion(order, delta)) / order)


@lru_cache(maxsize=1024)
def order_for_rho(rho: Fraction, delta: Fraction) -> int:
    """Return the integer order whose conversion of rho-zCDP at delta is the smallest."""
    return _peak(lambda order: -(order * rho + conversion(order, delta)))


@lru_cache(maxsize=4096)
def randomised_response(order: int, epsilon: Fraction) -> Fraction:
    """Return an upper bound of the Renyi divergence of any epsilon-DP mechanism.

    Randomised response is the worst one: ln((e^(a eps) + e^(eps - a eps)) / (1 + e^eps)) / (a - 1).

    >>> 0 < randomised_response(2, Fraction(1)) < 1
    True
    """
    # Not below -1000: a larger exponent only raises the bound, and e^-1000 is next to nothing.
    small = max(epsilon - 2 * order * epsilon, Fraction(-1000))
    # ln(1 + e^epsilon) is above epsilon: taking off less keeps this an upper bound.
    below = epsilon if epsilon > 1000 else _ln(1 + _exp(epsilon))
    top = order * epsilon + _ln(1 + _exp(small)) - below
    return top / (order - 1) + _PAD


def _peak(value: Callable[[int], Fraction]) -> int:
    """Return where a function that rises and then falls is largest, over integers from 2."""
    # Doubling first: most best orders are small, and a value costs a logarithm of 60 digits.
    low, high = 2, 4
    while high < _LARGEST_ORDER and value(high) > value(high // 2):
        low, high = high // 2, 2 * high
    while low < high:
        middle = (low + high) // 2
        if value(middle) < value(middle + 1):
            low = middle + 1
        else:
            high = middle
    return low


def _ln(x: Fraction) -> Fraction:
    return Fraction(_decimal(x).ln(_CTX))


def _exp(x: Fraction) -> Fraction:
    return Fraction(_decimal(x).exp(_CTX))


def _decimal(x: Fraction) -> Decimal:
    return _CTX.divide(Decimal(x.numerator), Decimal(x.denominator))


__all__ = [
    "LIMIT",
    "MAX_DELTA",
    "MAX_EPSILON",
    "MIN_DELTA",
    "MIN_EPSILON",
    "UNITS",
    "Cost",
    "Policy",
    "bounded_range_cost",
    "budget_for",
    "cost_at",
    "cost_of",
    "epsilon_for",
    "gaussian_cost",
    "laplace_cost",
    "parse_delta",
    "parse_delta_text",
    "parse_epsilon",
    "parse_epsilon_text",
    "rho_for",
    "units_down",
    "units_up",
]


@dataclass(frozen=True, slots=True)
class Policy:
    """A total (epsilon, delta) with the Renyi order and budget that go with it.

    ``alpha`` is None when delta is 0. Left out, it is the order that admits the most Gaussian
    noise; a ledger keeps the order it was created with. ``discovery`` is the part of delta that
    the release of keys which nobody listed may use up; the Renyi budget is for what is left.
    Raises: DataError E_EPSILON, E_DELTA when a total is not a fraction in range.

    >>> policy = Policy(Fraction(1), Fraction(1, 10**9))
    >>> policy.alpha, round(float(policy.renyi_budget), 4)
    (35, 0.524)
    """

    epsilon: Fraction
    delta: Fraction
    alpha: int | None = None
    discovery: Fraction = Fraction(0)
    renyi_budget: Fraction = field(init=False)
    total_epsilon_units: int = field(init=False, repr=False, compare=False)
    """The budget of rule 1, in units."""
    total_renyi_units: int = field(init=False, repr=False, compare=False)
    """The budget of rule 2, in units; 0 when there is no rule 2."""

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Fraction) or not 0 < self.epsilon <= 10**6:
            raise DataError("E_EPSILON", "a total epsilon must be a fraction in (0, 1000000]")
        if not isinstance(self.delta, Fraction) or not 0 <= self.delta < 1:
            raise DataError("E_DELTA", "a total delta must be a fraction in [0, 1)")
        if not isinstance(self.discovery, Fraction) or not 0 <= self.discovery <= self.delta:
            raise DataError("E_DELTA", "discovery_delta must be a fraction in [0, delta)")
        if 0 < self.delta == self.discovery:
            raise DataError("E_DELTA", "discovery_delta must be less than delta")
        if self.delta == 0:
            if self.alpha is not None:
                raise DataError("E_DELTA", "a total delta of 0 has no Renyi order")
            order, renyi = None, Fraction(0)
        else:
            rest = self.delta - self.discovery
            order = best_order(self.epsilon, rest) if self.alpha is None else self.alpha
            renyi = _renyi_budget(self.epsilon, rest, order)
        object.__setattr__(self, "alpha", order)
        object.__setattr__(self, "renyi_budget", renyi)
        object.__setattr__(self, "total_epsilon_units", units_down(self.epsilon))
        object.__setattr__(self, "total_renyi_units", units_down(renyi))


def _renyi_budget(epsilon: Fraction, delta: Fraction, order: int) -> Fraction:
    """Return epsilon - c(order, delta) in whole units, rounded down; not below 0."""
    return Fraction(max(0, units_down(epsilon - conversion(order, delta))), UNITS)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one release: its summand in either sum, known before it runs.

    ``epsilon_units`` is None for infinity (Gaussian noise); ``epsilon`` is as requested, ``rho``
    the zCDP parameter where the release has one. It holds but for a chance of ``delta``, which is
    above 0 only where keys are released that nobody listed.
    Raises: DataError E_EPSILON unless costs are plain integers in (0, 2^62).
    """

    epsilon_units: int | None
    renyi_units: int
    noise: Noise
    epsilon: Fraction
    rho: Fraction | None
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise DataError E_EPSILON unless every part has its type and range."""
        pure = 1 if self.epsilon_units is None else self.epsilon_units
        sound = (
            all(type(units) is int and 0 < units < LIMIT for units in (pure, self.renyi_units))
            and isinstance(self.noise, str)
            and (self.noise not in LAWS or LAWS[self.noise].is_pure == self.is_pure)
            and (self.noise in LAWS or is_name(self.noise))
            and _positive(self.epsilon)
            and (_positive(self.rho) or (self.rho is None and self.is_pure))
            and type(self.delta) is Fraction
            and 0 <= self.delta.numerator < self.delta.denominator
        )
        if not sound:
            raise DataError("E_EPSILON", "a cost must be a positive whole number of units")

    @property
    def is_pure(self) -> bool:
        """True if the release is epsilon-DP, without a delta."""
        return self.epsilon_units is not None

    def under(self, policy: Policy) -> Cost:
        """Return the cost of the same release where another policy fixes the Renyi order."""
        found = _cost(policy, self.noise, self.is_pure, self.epsilon, self.rho)
        return replace(found, delta=self.delta) if self.delta else found


def _positive(amount: object) -> bool:
    return type(amount) is Fraction and amount.numerator > 0


def cost_at(policy: Policy, noise: Noise, epsilon: Fraction, rho: Fraction | None) -> Cost:
    """Return the cost of a release that is epsilon-DP (if its law is pure) and rho-zCDP (if given).

    The Renyi cost is the least of the bounds that apply: epsilon itself, randomised response's
    divergence at epsilon, order * rho. At delta = 0 there is no order, and epsilon stands in.

    Args:
        policy: budget, whose delta decides the order.
        noise: name of the noise law.
        epsilon: pure epsilon that the release satisfies, or what was asked for.
        rho: concentrated DP that it satisfies, None where nothing but epsilon is known.
    """
    return _cost(policy, noise, law(noise).is_pure, epsilon, rho)


def _cost(
    policy: Policy, noise: Noise, is_pure: bool, epsilon: Fraction, rho: Fraction | None
) -> Cost:
    """Laws that are not installed any more stay charged, so this asks none."""
    order = policy.alpha
    pure = units_up(epsilon) if is_pure else None
    bounds = [] if pure is None else [pure]
    if is_pure and order is not None:
        bounds.append(units_up(randomised_response(order, epsilon)))
    if rho is not None and order is not None:
        bounds.append(units_up(order * rho))
    if not bounds:
        raise DataError(
            "E_DELTA",
            "Gaussian noise needs a delta above 0, and this catalog has delta = 0",
            hint="use noise = laplace",
        )
    renyi = min(*bounds, LIMIT - 1)  # the limit is above every total, so it is refused
    return Cost(pure, renyi, noise, epsilon, rho)


def laplace_cost(policy: Policy, epsilon: Fraction) -> Cost:
    """Return the cost of any epsilon-DP release.

    >>> laplace_cost(Policy(Fraction(1), Fraction(0)), Fraction(1, 2)).epsilon_units
    500000000000
    """
    return cost_of(policy, LAPLACE.name, epsilon, None)


def gaussian_cost(policy: Policy, rho: Fraction, epsilon: Fraction) -> Cost:
    """Return the cost of a rho-zCDP release; ``epsilon`` is what was asked for, and reported.

    Args:
        policy: budget, whose delta has to be above 0.
        rho: zCDP of the release.
        epsilon: as it was asked for; reported, never added up.

    Raises: DataError E_DELTA when the policy's delta is 0.
    """
    return cost_of(policy, GAUSSIAN.name, epsilon, rho)


def cost_of(
    policy: Policy,
    noise: Noise,
    epsilon: Fraction,
    rho: Fraction | None,
    delta: Fraction = Fraction(0),
) -> Cost:
    """Return the cost of a release by a noise law, that spends an epsilon or a rho.

    Args:
        policy: budget, whose delta decides the order.
        noise: name of the noise law, which says whether epsilon or rho is spent.
        epsilon: as it was asked for.
        rho: for laws that are not pure; None for others.
        delta: chance with which the release may fail to hold, taken off the budget's own delta.

    Raises: DataError E_EPSILON, E_DELTA.
    """
    is_pure = law(noise).is_pure
    _require(epsilon)
    _require(epsilon if is_pure else rho)
    found = _cost(policy, noise, is_pure, epsilon, None if is_pure else rho)
    return replace(found, delta=delta) if delta else found


def bounded_range_cost(policy: Policy, epsilon: Fraction) -> Cost:
    """Return the cost of an exponential mechanism whose scores times eta range over epsilon.

    It is epsilon-DP and epsilon^2/8-zCDP. Source: Cesar and Rogers 2021, Theorem 1.
    """
    _require(epsilon)
    return cost_at(policy, LAPLACE.name, epsilon, epsilon**2 / 8)


def rho_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest rho (rounded down) such that rho-zCDP implies (epsilon, delta)-DP.

    Orders are integers, as in Policy, so a request for the whole budget is admitted exactly.
    Source: Canonne, Kamath and Steinke 2020, Proposition 12.

    >>> round(float(rho_for(Fraction(1), Fraction(1, 10**9))), 6)
    0.014973
    """
    if delta == 0:
        raise DataError("E_DELTA", "Gaussian noise needs a delta above 0")
    _require(epsilon)
    order = best_order(epsilon, delta)
    return _renyi_budget(epsilon, delta, order) / order


def budget_for(noise: Noise, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the epsilon or rho that a noise law spends for (epsilon, delta)-DP.

    Args:
        noise: name of a law; a pure one spends epsilon itself.
        epsilon, delta: of the request; a pure law leaves delta unspent.
    """
    return epsilon if law(noise).is_pure else rho_for(epsilon, delta)


def epsilon_for(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the smallest epsilon (rounded up to 1e-12) that rho-zCDP implies at delta.

    >>> round(float(epsilon_for(Fraction(14973, 10**6), Fraction(1, 10**9))), 4)
    1.0
    """
    _require(rho)
    if delta == 0:
        raise DataError("E_DELTA", "zCDP implies no finite epsilon at delta = 0")
    order = order_for_rho(rho, delta)
    return max(Fraction(units_up(order * rho + conversion(order, delta)), UNITS), Fraction(0))


def _require(amount: Fraction | None) -> None:
    if not _positive(amount):
        raise DataError("E_EPSILON", "a privacy parameter must be a positive fraction")
