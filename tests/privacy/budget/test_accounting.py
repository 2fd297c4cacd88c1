"""Costs, conversions and the two-order filter, against published figures and other code."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.amounts import LIMIT, UNITS, units_up
from dpsql.errors import DataError
from dpsql.privacy.budget.accounting import (
    Cost,
    Policy,
    best_order,
    conversion,
    cost_at,
    epsilon_for,
    gaussian_cost,
    laplace_cost,
    order_for_rho,
    randomised_response,
    rho_for,
)
from dpsql.privacy.budget.budget_sums import BudgetSums

TENTH, HUNDREDTH = Fraction(1, 10), Fraction(1, 100)
NANO = Fraction(1, 10**9)

# epsilon, delta, order, Renyi budget, rho, sigma, admitted at 0.01 and 0.1 by rule 1 / rule 2
VECTORS = [
    ("0.5", "1e-9", 66, 0.2609, 0.003953, 11.25, (50, 84), (5, 2)),
    ("1", "1e-6", 22, 0.5358, 0.024356, 4.531, (100, 490), (10, 7)),
    ("1", "1e-9", 35, 0.5240, 0.014973, 5.779, (100, 305), (10, 6)),
    ("2", "1e-9", 19, 1.0664, 0.056124, 2.985, (200, 1128), (20, 16)),
    ("3", "1e-9", 13, 1.5668, 0.120527, 2.037, (300, 2416), (30, 29)),
    ("4", "1e-9", 10, 2.0586, 0.205862, 1.558, (400, 4123), (40, 46)),
    ("10", "1e-9", 5, 5.4447, 1.088937, 0.678, (1000, 21786), (100, 225)),
]
EPSILONS = st.fractions(min_value=Fraction(1, 10**6), max_value=20, max_denominator=10**9)


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_vectors(
    row: tuple[str, str, int, float, float, float, tuple[int, int], tuple[int, int]],
) -> None:
    epsilon, delta = Fraction(row[0]), Fraction(row[1])
    policy = Policy(epsilon, delta)
    rho = rho_for(epsilon, delta)
    assert policy.alpha == row[2]
    assert float(policy.renyi_budget) == pytest.approx(row[3], abs=5e-5)
    assert float(rho) == pytest.approx(row[4], abs=5e-7)
    assert math.sqrt(1 / (2 * rho)) == pytest.approx(row[5], abs=5e-3)
    for each, admitted in ((HUNDREDTH, row[6]), (TENTH, row[7])):
        cost = laplace_cost(policy, each)
        assert cost.epsilon_units is not None
        by_rule_1 = policy.total_epsilon_units // cost.epsilon_units
        assert (by_rule_1, policy.total_renyi_units // cost.renyi_units) == admitted


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_filter_stops_after_the_better_rule(row: tuple[str, str, int]) -> None:
    policy = Policy(Fraction(row[0]), Fraction(row[1]))
    cost, spent, count = laplace_cost(policy, TENTH), BudgetSums(), 0
    while (more := spent.add(cost)).within(policy):
        spent, count = more, count + 1
    assert count == max(row[7])  # type: ignore[misc]


def test_one_gaussian_release_of_the_whole_budget_is_admitted_exactly() -> None:
    for epsilon, delta in [("0.5", "1e-9"), ("1", "1e-6"), ("7/3", "1e-15"), ("100", "1e-4")]:
        policy = Policy(Fraction(epsilon), Fraction(delta))
        rho = rho_for(policy.epsilon, policy.delta)
        assert BudgetSums().add(gaussian_cost(policy, rho, policy.epsilon)).within(policy)
        more = rho + Fraction(1, UNITS)
        assert not BudgetSums().add(gaussian_cost(policy, more, policy.epsilon)).within(policy)


def test_gaussian_noise_ends_the_pure_rule() -> None:
    policy = Policy(Fraction(1), NANO)
    spent = BudgetSums().add(gaussian_cost(policy, Fraction(1, 10**6), TENTH))
    assert spent.within(policy)
    assert not spent.add(laplace_cost(policy, Fraction(9, 10))).within(policy)
    assert BudgetSums().add(laplace_cost(policy, Fraction(9, 10))).within(policy)


def test_pure_policy_has_rule_1_only() -> None:
    policy = Policy(Fraction(1), Fraction(0))
    assert policy.alpha is None
    assert policy.total_renyi_units == 0
    spent = BudgetSums()
    for _ in range(10):
        spent = spent.add(laplace_cost(policy, TENTH))
        assert spent.within(policy)
    assert not spent.add(laplace_cost(policy, Fraction(1, 10**6))).within(policy)
    for attempt in (
        lambda: gaussian_cost(policy, TENTH, TENTH),
        lambda: rho_for(TENTH, Fraction(0)),
        lambda: epsilon_for(TENTH, Fraction(0)),
        lambda: Policy(Fraction(1), Fraction(0), 7),
    ):
        with pytest.raises(DataError) as caught:
            attempt()
        assert caught.value.code == "E_DELTA"


@given(EPSILONS, st.integers(2, 200))
@settings(max_examples=60, deadline=None)
def test_randomised_response_lies_below_both_simple_bounds(epsilon: Fraction, order: int) -> None:
    curve = randomised_response(order, epsilon)
    assert 0 < curve < min(epsilon, order * epsilon**2 / 2) + Fraction(2, 10**40)
    a, e = order, float(epsilon)
    p = 1 / (1 + math.exp(-e))
    terms = (
        a * math.log(p) + (1 - a) * math.log1p(-p),
        a * math.log1p(-p) + (1 - a) * math.log(p),
    )
    top = max(terms)
    direct = (top + math.log(sum(math.exp(t - top) for t in terms))) / (a - 1)
    assert float(curve) == pytest.approx(direct, rel=1e-6, abs=1e-10)


@given(EPSILONS, st.sampled_from(["1e-15", "1e-12", "1e-9", "1e-6", "1e-4"]))
@settings(max_examples=30, deadline=None)
def test_the_chosen_order_is_the_best_one(epsilon: Fraction, delta: str) -> None:
    small = Fraction(delta)
    order = best_order(epsilon, small)

    def fits(n: int) -> Fraction:
        return (epsilon - conversion(n, small)) / n

    others = {2, 3, order + 1, order + 2, 2 * order, 10 * order, max(2, order // 2)}
    assert all(fits(order) >= fits(n) for n in others | {max(2, order - 1)})


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10, max_denominator=10**10))
@settings(max_examples=30, deadline=None)
def test_rho_and_epsilon_are_inverse_up_to_rounding(rho: Fraction) -> None:
    epsilon = epsilon_for(rho, NANO)
    assert rho_for(epsilon, NANO) <= rho * (1 + Fraction(1, 10**6)) + Fraction(1, 10**9)
    assert epsilon_for(rho_for(epsilon, NANO), NANO) <= epsilon
    order = order_for_rho(rho, NANO)
    for other in {2, 3, max(2, order - 1), order + 1, 5 * order}:
        assert epsilon <= Fraction(units_up(other * rho + conversion(other, NANO)), UNITS)


def test_conversion_against_its_formula_in_floats() -> None:
    for order in (2, 3, 10, 35, 1000, 10**6):
        for delta in (1e-15, 1e-9, 1e-4):
            formula = math.log(1 / delta) + (order - 1) * math.log1p(-1 / order) - math.log(order)
            exact = float(conversion(order, Fraction(repr(delta))))
            assert exact == pytest.approx(formula / (order - 1), rel=1e-9, abs=1e-12)


def test_against_dp_accounting() -> None:
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    for epsilon, delta in [("0.5", "1e-9"), ("1", "1e-6"), ("4", "1e-9"), ("10", "1e-9")]:
        policy = Policy(Fraction(epsilon), Fraction(delta))
        rho = rho_for(policy.epsilon, policy.delta)
        event = accounting.GaussianDpEvent(float(1 / (2 * rho)) ** 0.5)
        renyi = RdpAccountant(orders=list(range(2, 200)))
        renyi.compose(event)
        found = renyi.get_epsilon(float(policy.delta))
        assert found == pytest.approx(float(epsilon_for(rho, policy.delta)), abs=1e-6)
        assert found == pytest.approx(float(policy.epsilon), abs=1e-6)
        exact = PLDAccountant()
        exact.compose(event)
        assert exact.get_epsilon(float(policy.delta)) <= float(policy.epsilon)


def test_many_small_laplace_releases_stay_within_the_tight_accountant() -> None:
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    policy = Policy(Fraction(1), Fraction(1, 10**6))
    count = policy.total_renyi_units // laplace_cost(policy, HUNDREDTH).renyi_units
    assert count > 100
    exact = PLDAccountant()
    exact.compose(accounting.LaplaceDpEvent(100.0), count)
    assert exact.get_epsilon(1e-6) <= 1.0


@given(
    st.lists(
        st.tuples(st.booleans(), st.fractions(min_value=Fraction(1, 10**4), max_value=1)),
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
@pytest.mark.slow
def test_what_is_said_to_remain_is_admitted_and_no_more(
    history: list[tuple[bool, Fraction]],
) -> None:
    policy, spent, unit = Policy(Fraction(1), NANO), BudgetSums(), Fraction(1, UNITS)
    for gaussian, epsilon in history:
        cost = (
            gaussian_cost(policy, rho_for(epsilon, NANO), epsilon)
            if gaussian
            else laplace_cost(policy, epsilon)
        )
        spent = more if (more := spent.add(cost)).within(policy) else spent
    pure, rho, both = spent.largest_pure(policy), spent.largest_rho(policy), Fraction(1, 2)
    assert pure == 0 or spent.add(laplace_cost(policy, pure)).within(policy)
    assert not spent.add(laplace_cost(policy, pure + unit)).within(policy)
    assert rho == 0 or spent.add(gaussian_cost(policy, rho, both)).within(policy)
    assert not spent.add(gaussian_cost(policy, rho + unit, both)).within(policy)
    gauss = spent.largest_gaussian(policy)
    if gauss > 0:
        assert spent.add(gaussian_cost(policy, rho_for(gauss, NANO), gauss)).within(policy)
    above = rho_for(gauss + unit, NANO)
    assert not spent.add(gaussian_cost(policy, above, gauss + unit)).within(policy)


@pytest.mark.parametrize(
    "units", [0, -1, 1.0, True, float("nan"), 2**62, 2**63, "5"], ids=lambda u: repr(u)
)
def test_costs_are_positive_integers(units: object) -> None:
    build: Callable[..., Cost] = Cost
    for parts in ((units, 1), (1, units)):
        with pytest.raises(DataError) as caught:
            build(*parts, "laplace", TENTH, None)
        assert caught.value.code == "E_EPSILON"


@pytest.mark.parametrize(
    "parts",
    [
        (None, 1, "laplace", TENTH, None),
        (1, None, "laplace", TENTH, None),
        (1, 1, "gaussian", TENTH, TENTH),
        (None, 1, "gaussian", TENTH, None),
        (1, 1, "Not a name", TENTH, None),
        (1, 1, "laplace", 0.1, None),
        (1, 1, "laplace", Fraction(0), None),
        (None, 1, "gaussian", TENTH, Fraction(-1)),
    ],
)
def test_costs_are_consistent(parts: tuple[object, ...]) -> None:
    build: Callable[..., Cost] = Cost
    with pytest.raises(DataError):
        build(*parts)


def test_costs_beyond_every_total_saturate_and_are_refused() -> None:
    policy = Policy(Fraction(1, 10**6), Fraction(1, 10**15))
    cost = gaussian_cost(policy, Fraction(10**9), Fraction(100))
    assert cost.renyi_units == LIMIT - 1
    spent = BudgetSums().add(cost).add(cost)
    assert spent.renyi_units == LIMIT - 1
    assert not spent.within(policy)


def test_a_release_with_both_guarantees_pays_the_smaller() -> None:
    policy = Policy(Fraction(1), NANO)
    exponential = cost_at(policy, "laplace", TENTH, TENTH**2 / 8)
    assert exponential.renyi_units == units_up(35 * TENTH**2 / 8)
    assert exponential.renyi_units < laplace_cost(policy, TENTH).renyi_units


@pytest.mark.parametrize("total", [Fraction(-1), 1.0, 1, True, Fraction(10**7), "1", None])
def test_totals_are_fractions_in_range(total: object) -> None:
    build: Callable[..., Policy] = Policy
    for pair in ((total, NANO), (Fraction(1), total), (Fraction(0), NANO)):
        with pytest.raises(DataError):
            build(*pair)


def test_costs_refuse_what_is_not_a_positive_fraction() -> None:
    policy = Policy(Fraction(1), NANO)
    for bad in (Fraction(0), Fraction(-1), 0.5, True):
        with pytest.raises(DataError):
            laplace_cost(policy, bad)  # type: ignore[arg-type]
        with pytest.raises(DataError):
            gaussian_cost(policy, bad, TENTH)  # type: ignore[arg-type]
