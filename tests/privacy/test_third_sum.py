"""The third sum of a ledger: the deltas of releases of keys, and old ledgers that have none."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from dpsql.errors import BudgetExceeded, DataError, LedgerError
from dpsql.privacy.budget.accounting import Cost, Policy, cost_of, gaussian_cost, laplace_cost
from dpsql.privacy.budget.hash_chain import Cause
from dpsql.privacy.budget.ledger import Ledger
from tests.privacy.place import POLICY, TENTH, Place, refused, spend
from tests.support.effort import effort, first_seed

PART = Fraction(1, 10**10)
SPLIT = Policy(Fraction(1), Fraction(1, 10**9), discovery=5 * PART)


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def keys(ledger: Ledger, delta: Fraction = PART, epsilon: Fraction = 2 * TENTH) -> Cost:
    cost = cost_of(ledger.policy, "laplace", epsilon, None, delta)
    ledger.debit(cost, "plan", "data-1", (), Cause(["CREATE DOMAIN d FROM t (c)"]))
    return cost


def test_deltas_add_up_to_their_limit_and_no_further(here: Place) -> None:
    ledger = here.create(SPLIT)
    for left in reversed(range(10)):
        keys(ledger, PART / 2, TENTH / 2)
        assert ledger.status().remaining_discovery == left * PART / 2
    with pytest.raises(BudgetExceeded, match="discovery_delta"):
        keys(ledger, PART / 2)
    assert ledger.status().remaining_epsilon == Fraction(1, 2)
    spend(ledger)  # what needs no delta is admitted still
    assert here.open(SPLIT).status().remaining_discovery == 0
    assert [entry.delta for entry in ledger.entries()][1:] == [PART / 2] * 10 + [Fraction(0)]


@pytest.mark.parametrize("seed", range(effort(8)))
def test_a_request_takes_a_tenth_or_as_of_epsilon_whether_analysts_are_declared_or_not(
    here: Place, seed: int
) -> None:
    """Nobody's budget, or one's of several: no part is too large by a thousandth, nor refused."""
    draw = Random(first_seed(seed))
    names = [f"analyst:{i}" for i in range(draw.randrange(3))]
    ledger = here.create(SPLIT, nested={name: Fraction(1, 2) for name in names})
    for _ in range(12):
        within = tuple(names[:1])
        share, whole = SPLIT.discovery / max(1, len(names)), Fraction(1, 2 if names else 1)
        epsilon = Fraction(draw.randrange(1, 200), 1000)
        status = ledger.status()
        left = min(status.discovery_left(within), share * max(TENTH, epsilon / whole))
        if epsilon > status.remaining_within(within) or not left:
            continue
        over = cost_of(ledger.policy, "laplace", epsilon, None, left * Fraction(1001, 1000))
        with pytest.raises(BudgetExceeded) as caught:
            ledger.debit(over, "plan", "data-1", within)
        assert (caught.value.requested, caught.value.remaining) == (over.delta, left)
        assert ledger.status().entries == status.entries
        ledger.debit(replace(over, delta=left), "plan", "data-1", within)
    assert ledger.status().entries


def test_a_ledger_without_a_discovery_delta_admits_none(here: Place) -> None:
    ledger = here.create(POLICY)
    with pytest.raises(BudgetExceeded):
        keys(ledger)
    spend(ledger)


def test_the_renyi_budget_is_that_of_what_is_left_of_delta() -> None:
    assert SPLIT.renyi_budget == Policy(Fraction(1), 5 * PART).renyi_budget
    assert SPLIT.renyi_budget < POLICY.renyi_budget
    assert SPLIT.total_epsilon_units == POLICY.total_epsilon_units


@pytest.mark.parametrize("part", [Fraction(-1), Fraction(1, 10**9), Fraction(1, 10**8), 0.5])
def test_a_part_that_is_none_is_refused(part: Fraction) -> None:
    with pytest.raises(DataError):
        Policy(Fraction(1), Fraction(1, 10**9), discovery=part)


def test_entries_of_old_ledgers_read_as_before(here: Place) -> None:
    """Neither terms nor debits without a delta say anything of one, so that hashes are the same."""
    ledger = here.create(POLICY)
    spend(ledger, asked=Cause(["SELECT 1"]))
    created, debit = ledger.entries()
    assert all(len(terms) == 3 for terms in json.loads(created.detail)["budgets"].values())
    assert json.loads(debit.detail) == {"statements": 1, "sql": "SELECT 1"}
    assert here.open(POLICY).status().total_discovery == 0


def test_versions_that_know_no_third_sum_cannot_read_a_ledger_that_has_one(here: Place) -> None:
    created = here.create(SPLIT).entries()[0]
    (terms,) = json.loads(created.detail)["budgets"].values()
    assert terms[3:] == [str(5 * PART)], "three values are unpacked by them"


def test_a_delta_that_was_altered_breaks_the_chain(here: Place) -> None:
    ledger = here.create(SPLIT)
    keys(ledger)
    ledger.close()
    here.sql("UPDATE entry SET detail = replace(detail, '/10000000000', '/90000000000')")
    refused("E_LEDGER_TAMPERED", lambda: here.open(SPLIT))


def test_a_migration_may_set_a_part_aside_but_not_below_what_is_used(here: Place) -> None:
    ledger = here.create(POLICY)
    spend(ledger)
    anchors = here.anchors
    split = Ledger.migrate(here.path, anchors, SPLIT, "catalog-2", {})
    keys(split, 3 * PART, Fraction(3, 5))
    less = replace_discovery(SPLIT, 2 * PART)
    refused("E_POLICY_CHANGED", lambda: Ledger.migrate(here.path, anchors, less, "catalog-3", {}))
    enough = replace_discovery(SPLIT, 3 * PART)
    ledger = Ledger.migrate(here.path, anchors, enough, "catalog-3", {})
    assert ledger.status().remaining_discovery == 0
    assert ledger.status().spent_epsilon == Fraction(7, 10)


def replace_discovery(policy: Policy, part: Fraction) -> Policy:
    return Policy(policy.epsilon, policy.delta, policy.alpha, part)


def test_another_part_is_another_policy(here: Place) -> None:
    here.create(SPLIT)
    refused("E_POLICY_CHANGED", lambda: here.open(replace_discovery(SPLIT, PART)))


def test_nested_budgets_keep_the_delta_of_what_they_are_charged(here: Place) -> None:
    ledger = here.create(SPLIT, nested={"table:t": Fraction(1, 2)})
    cost = cost_of(ledger.policy, "laplace", 2 * TENTH, None, PART)
    ledger.debit(cost, "plan", "data-1", ("table:t",))
    assert here.open(SPLIT).status().remaining_discovery == 4 * PART
    assert replace(cost, delta=Fraction(0)).under(SPLIT).delta == 0
    assert cost.under(SPLIT).delta == PART


def test_gaussian_keys_are_charged_in_both_sums(here: Place) -> None:
    ledger = here.create(SPLIT)
    rho = Fraction(1, 1000)
    ledger.debit(cost_of(ledger.policy, "gaussian", 2 * TENTH, rho, PART), "plan", "data-1")
    status = ledger.status()
    assert status.spent_epsilon is None
    assert status.remaining_discovery == 4 * PART
    assert status.spent_renyi == gaussian_cost(SPLIT, rho, 2 * TENTH).renyi_units * Fraction(
        1, 10**12
    )


@pytest.mark.parametrize("delta", [Fraction(-1), Fraction(1), 1e-9])
def test_a_delta_that_is_none_is_no_cost(here: Place, delta: Fraction) -> None:
    with pytest.raises(DataError):
        replace(laplace_cost(SPLIT, TENTH), delta=delta)


def test_an_entry_whose_delta_cannot_be_read_is_tampered_with(here: Place) -> None:
    ledger = here.create(SPLIT)
    keys(ledger)
    entry = ledger.entries()[1]
    broken = replace(entry, detail='{"statements": 1, "sql": "", "delta": [1]}')
    from dpsql.privacy.budget.hash_chain import read_cost

    with pytest.raises(LedgerError):
        read_cost(broken)
