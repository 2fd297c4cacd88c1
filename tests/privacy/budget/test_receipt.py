"""A receipt pays for one measurement, in one process."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from typing import Any

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy.budget.receipt import Receipt
from tests.privacy.place import Place, refused, spend


def test_a_receipt_is_used_once(place: Place) -> None:
    receipt = spend(place.create())
    receipt.redeem("plan", "data-1", "laplace")
    refused("E_RECEIPT", lambda: receipt.redeem("plan", "data-1"))


@pytest.mark.parametrize(
    "use", [("other", "data-1"), ("plan", "data-2"), ("plan", "data-1", "gaussian")]
)
def test_a_receipt_for_something_else_is_void(place: Place, use: tuple[Any, ...]) -> None:
    receipt = spend(place.create())
    refused("E_RECEIPT", lambda: receipt.redeem(*use))
    refused("E_RECEIPT", lambda: receipt.redeem("plan", "data-1"))


def test_receipts_cannot_be_made_copied_or_changed(place: Place) -> None:
    receipt = spend(place.create())
    parts = ("id", 1, "head", "plan", "data-1", receipt.cost, object())
    refused("E_RECEIPT", lambda: Receipt(*parts))
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        refused("E_RECEIPT", lambda a=attempt: a(receipt))  # type: ignore[misc]
    with pytest.raises(AttributeError):
        receipt.plan_hash = "other"  # type: ignore[misc]


def test_threads_redeem_a_receipt_once(place: Place) -> None:
    receipt, wins = spend(place.create()), []

    def use() -> None:
        try:
            receipt.redeem("plan", "data-1")
            wins.append(1)
        except LedgerError:
            pass

    threads = [threading.Thread(target=use) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ledger_and_receipt_are_refused_in_a_forked_child(place: Place) -> None:
    ledger = place.create()
    receipt = spend(ledger)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        codes = []
        for action in (
            ledger.status,
            lambda: spend(ledger),
            lambda: receipt.redeem("plan", "data-1"),
        ):
            try:
                action()
                codes.append("done")
            except LedgerError as error:
                codes.append(error.code)
        os.write(write, " ".join(codes).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"E_FORK E_FORK E_FORK"
    os.close(read)
    os.close(write)
    receipt.redeem("plan", "data-1")
    assert ledger.status().entries == 1
