"""A ledger in a temporary directory, and what tests do with it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import BudgetExceeded, Error
from dpsql.privacy.budget.accounting import Policy, gaussian_cost, laplace_cost
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.budget.receipt import Receipt
from dpsql.records import replace

POLICY = Policy(Fraction(1), Fraction(1, 10**9))
PURE = Policy(Fraction(1), Fraction(0))
TENTH = Fraction(1, 10)


class Place:
    """A ledger's files in a fresh directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "data" / "adult.ledger"
        self.anchors = directory / "state" / "anchors"

    def create(self, policy: Policy = POLICY, **more: Any) -> Ledger:
        return Ledger.create(self.path, self.anchors, policy, "catalog-1", **more)

    def open(self, policy: Policy = POLICY, policy_hash: str = "catalog-1") -> Ledger:
        return Ledger.open(self.path, self.anchors, policy, policy_hash)

    def open_or_create(self) -> Ledger:
        return Ledger.open_or_create(self.path, self.anchors, POLICY, "catalog-1")

    def anchor(self) -> Path:
        (found,) = self.anchors.glob("*.anchor")
        return found

    def sql(self, *statements: str) -> None:
        db = sqlite3.connect(self.path)
        for statement in statements:
            db.execute(statement)
        db.commit()
        db.close()


def spend(ledger: Ledger, epsilon: Fraction = TENTH, **more: Any) -> Receipt:
    return ledger.debit(laplace_cost(ledger.policy, epsilon), "plan", "data-1", **more)


def refused(code: str, action: Callable[[], object]) -> Error:
    with pytest.raises(Error) as caught:
        action()
    assert caught.value.code == code
    return caught.value


def act(place: Place, ledger: Ledger, draw: random.Random) -> Ledger:
    """Do one thing that a ledger is for, and return the handle that goes on."""
    if draw.random() < 0.25:
        names = draw.sample(["analyst:ana", "analyst:bo", "table:t"], draw.randint(0, 3))
        nested = {name: Fraction(draw.randint(2, 9), 5) for name in names}
        total = Policy(Fraction(draw.randint(3, 9)), POLICY.delta, None, Fraction(1, 10**10))
        try:
            found = Ledger.migrate(place.path, place.anchors, total, "catalog-1", nested)
        except Error:
            return ledger
        ledger.close()
        return found
    epsilon = Fraction(1, draw.randint(5, 90))
    cost = laplace_cost(ledger.policy, epsilon)
    if draw.random() < 0.3:
        cost = gaussian_cost(ledger.policy, epsilon / 50, epsilon)
    if draw.random() < 0.3:
        cost = replace(cost, delta=Fraction(1, 10**12))
    known = sorted(name for name in ledger.nested if name)
    within = tuple(draw.sample(known, draw.randint(0, len(known))))
    try:
        receipt = ledger.debit(cost, "plan", "data", within)
        ledger.settle(receipt, draw.choice(["released", "failed"]))
    except BudgetExceeded:
        pass
    return ledger
