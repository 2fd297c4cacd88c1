"""A ledger in a temporary directory, and what tests do with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import Error
from dpsql.privacy.budget.accounting import Policy, laplace_cost
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.budget.receipt import Receipt

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
