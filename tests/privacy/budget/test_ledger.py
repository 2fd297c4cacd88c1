"""What a ledger admits and charges."""

from __future__ import annotations

import shutil
from contextlib import closing
from fractions import Fraction
from typing import Any

import pytest

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.privacy.budget.accounting import Policy, gaussian_cost, laplace_cost, rho_for
from dpsql.privacy.budget.hash_chain import Cause
from dpsql.privacy.budget.ledger import Ledger
from tests.privacy.place import POLICY, PURE, TENTH, Place, refused, spend


def test_a_debit_is_an_entry_a_receipt_and_less_to_spend(place: Place) -> None:
    ledger = place.create()
    receipt = spend(ledger)
    status = ledger.status()
    assert (receipt.seq, receipt.head) == (status.seq, status.head) == (1, receipt.head)
    assert receipt.ledger_id == status.ledger_id == ledger.ledger_id
    assert (receipt.epsilon, receipt.rho, receipt.noise) == (TENTH, None, "laplace")
    assert status.spent_epsilon == TENTH
    assert status.remaining_epsilon == Fraction(9, 10)
    assert (status.total_epsilon, status.total_delta) == (POLICY.epsilon, POLICY.delta)
    created, debit = ledger.entries()
    assert created.kind == "created"
    assert (debit.plan_hash, debit.data_version, debit.state) == ("plan", "data-1", "reserved")
    ledger.settle(receipt, "released")
    assert ledger.entries()[1].state == "released"
    assert ledger.verify() == ledger.status()


def test_the_folder_of_an_anchor_may_be_lost_only_while_nothing_was_charged(place: Place) -> None:
    """Before: an untouched ledger could not be opened either, "not writable and durable"."""
    place.create()
    shutil.rmtree(place.anchors)
    spend(place.open())
    shutil.rmtree(place.anchors)
    refused("E_LEDGER_ROLLBACK", place.open)


def test_exactly_the_budget_is_granted_and_refusals_charge_nothing(place: Place) -> None:
    ledger = place.create(PURE)
    for _ in range(10):
        spend(ledger)
    before = place.path.read_bytes()
    error = refused("E_BUDGET", lambda: spend(ledger, Fraction(1, 10**6)))
    assert isinstance(error, BudgetExceeded)
    assert (error.requested, error.remaining) == (Fraction(1, 10**6), Fraction(0))
    assert place.path.read_bytes() == before
    assert ledger.verify().entries == 10


def test_one_unit_too_much_is_refused(place: Place) -> None:
    ledger = place.create(PURE)
    unit = Fraction(1, 10**12)
    error = refused("E_BUDGET", lambda: spend(ledger, 1 + unit))
    assert isinstance(error, BudgetExceeded)
    assert error.difference == unit
    spend(ledger, Fraction(1))
    refused("E_BUDGET", lambda: spend(ledger, unit))


def test_gaussian_debits_and_what_remains(place: Place) -> None:
    ledger = place.create()
    whole = rho_for(POLICY.epsilon, POLICY.delta)
    ledger.debit(gaussian_cost(POLICY, whole / 2, TENTH), "plan", "data-1")
    status = ledger.status()
    assert status.spent_epsilon is None
    assert status.remaining_rho <= whole / 2
    cost = gaussian_cost(POLICY, rho_for(Fraction(1), POLICY.delta), Fraction(1))
    error = refused("E_BUDGET", lambda: ledger.debit(cost, "plan", "data-1"))
    assert isinstance(error, BudgetExceeded)
    assert error.remaining == status.remaining_gaussian_epsilon
    rest = rho_for(error.remaining, POLICY.delta)
    ledger.debit(gaussian_cost(POLICY, rest, error.remaining), "plan", "data-1")


def test_nested_budgets_are_charged_at_their_own_order(place: Place) -> None:
    ledger = place.create(nested={"table:visits": Fraction(1, 2), "analyst:ann": TENTH})
    assert ledger.nested == {"table:visits": Fraction(1, 2), "analyst:ann": TENTH}
    rho = rho_for(Fraction(1, 2), POLICY.delta)
    cost = gaussian_cost(POLICY, rho, Fraction(1, 2))
    ledger.debit(cost, "plan", "data-1", ("table:visits",))
    spend(ledger, TENTH, within=("analyst:ann", "analyst:ann"))
    error = refused("E_BUDGET", lambda: spend(ledger, TENTH, within=("analyst:ann",)))
    assert isinstance(error, BudgetExceeded)
    assert error.remaining < TENTH
    refused("E_BUDGET", lambda: spend(ledger, TENTH, within=("table:visits",)))
    refused("E_LEDGER_MISMATCH", lambda: spend(ledger, TENTH, within=("table:nobody",)))
    spend(ledger)
    assert place.open().verify().entries == 3


def test_the_ledger_computes_the_cost_at_its_own_order(place: Place) -> None:
    with closing(place.create()) as first:
        first.debit(laplace_cost(POLICY, TENTH), "plan", "data-1")
    raised = Policy(Fraction(4), POLICY.delta)
    ledger = Ledger.migrate(place.path, place.anchors, raised, "catalog-2", note="raise")
    assert ledger.policy.alpha == POLICY.alpha != raised.alpha
    receipt = ledger.debit(laplace_cost(raised, TENTH), "plan", "data-1")
    assert receipt.cost == laplace_cost(ledger.policy, TENTH)


@pytest.mark.parametrize("cost", [0, -1, 1.0, True, float("nan"), 2**63, "5", None], ids=repr)
def test_what_is_not_a_cost_is_refused(place: Place, cost: Any) -> None:
    ledger = place.create()
    refused("E_EPSILON", lambda: ledger.debit(cost, "plan", "data-1"))
    altered = laplace_cost(POLICY, TENTH)
    object.__setattr__(altered, "epsilon_units", cost)
    if cost is not None:
        refused("E_EPSILON", lambda: ledger.debit(altered, "plan", "data-1"))
    assert ledger.status().entries == 0


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 5000, None, 7, "\ud800", "nul\x00"], ids=repr)
def test_names_that_an_entry_cannot_hold_are_refused(place: Place, name: Any) -> None:
    ledger = place.create()
    cost = laplace_cost(POLICY, TENTH)
    with pytest.raises(LedgerError):
        ledger.debit(cost, name, "data-1")
    with pytest.raises(LedgerError):
        ledger.debit(cost, "plan", name)
    with pytest.raises(LedgerError):
        ledger.debit(cost, "plan", "data-1", (name,))
    assert ledger.status().entries == 0


def test_no_refund_exists(place: Place) -> None:
    ledger = place.create()
    receipt = spend(ledger)
    ledger.settle(receipt, "failed")
    assert ledger.status().spent_epsilon == TENTH
    refused("E_RECEIPT", lambda: ledger.settle(receipt, "released"))
    refused("E_RECEIPT", lambda: ledger.settle(receipt, "refunded"))  # type: ignore[arg-type]
    assert not any("refund" in name for name in dir(Ledger))


@pytest.mark.parametrize(
    "sql", ['SELECT 1 AS "delta":"1/2"', '","delta":"1/2","', '\\","delta":"1/2']
)
def test_sql_is_never_read_as_the_delta_of_an_entry(place: Place, sql: str) -> None:
    ledger = place.create()
    spend(ledger, asked=Cause((sql,)))
    entry = ledger.entries()[1]
    assert entry.sql == sql
    assert entry.delta == 0
    assert ledger.verify().remaining_discovery == ledger.status().total_discovery
