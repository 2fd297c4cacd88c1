"""Failing disks and crashes lose budget at most."""

from __future__ import annotations

import os
import sqlite3
from fractions import Fraction
from typing import Any

import pytest

from dpsql.errors import DataError, LedgerError
from dpsql.privacy.budget import anchor, ledger_file
from dpsql.privacy.budget.accounting import Cost
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.budget.receipt import Receipt, issue
from tests.privacy.place import PURE, TENTH, Place, refused, spend


def test_a_full_file_fails_before_a_receipt(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = place.create()
    spend(ledger)
    settle = ledger_file._settle_settings

    def full(db: sqlite3.Connection) -> None:
        settle(db)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count={pages}")

    monkeypatch.setattr(ledger_file, "_settle_settings", full)

    def fill() -> None:
        for _ in range(1000):
            spend(ledger, Fraction(1, 10**6))

    refused("E_LEDGER_IO", fill)
    monkeypatch.undo()
    entries = place.open().status().entries
    spend(ledger)
    assert ledger.verify().entries == entries + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("limit", [0, 10, 4096, 20000])
def test_a_file_size_limit_fails_before_a_receipt(place: Place, limit: int) -> None:
    import resource
    import signal

    place.create()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        status = 3
        try:
            spend(place.open())
        except LedgerError as error:
            status = 0 if error.code == "E_LEDGER_IO" else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert place.open().verify().entries <= 1


def test_an_anchor_that_cannot_be_written_fails_before_a_receipt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = place.create()
    monkeypatch.setattr(anchor, "overwrite", _no_space)
    refused("E_LEDGER_IO", lambda: spend(ledger))
    monkeypatch.undo()
    assert ledger.status().entries == 1  # charged, and not released: the safe side
    spend(ledger)


def _no_space(*_: object) -> None:
    raise OSError(28, "no space")


def test_a_lock_that_cannot_be_taken_fails_closed(place: Place) -> None:
    ledger = place.create()
    lock = place.path.with_name(place.path.name + ".lock")
    lock.unlink()
    lock.mkdir()
    refused("E_LEDGER_IO", lambda: spend(ledger))


def test_a_read_only_connection_fails_closed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = place.create()
    connect = ledger_file.connect
    monkeypatch.setattr(ledger_file, "connect", lambda path: connect(path, "ro"))
    refused("E_LEDGER_IO", lambda: spend(ledger))


def test_a_crash_at_any_step_of_a_debit_never_gives_an_unpaid_receipt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = place.create()
    for step in ("append", "check_format", "totals", "hash_at"):
        monkeypatch.setattr(ledger_file, step, _interrupt)
        with pytest.raises(KeyboardInterrupt):
            spend(ledger)
        monkeypatch.undo()
        assert ledger.status().entries == 0
    monkeypatch.setattr(Ledger, "_advance", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        spend(ledger)
    monkeypatch.undo()
    assert ledger.status().entries == 1


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_durable_settings_are_on(place: Place) -> None:
    place.create()
    with ledger_file.connect(place.path) as db:
        found = {
            name: db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "fullfsync", "trusted_schema")
        }
    assert found == {
        "journal_mode": "persist",
        "synchronous": 3,
        "fullfsync": 1,
        "trusted_schema": 0,
    }


def test_the_receipt_exists_only_after_the_anchor_and_the_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, order = place.create(), []
    advance, sync = Ledger._advance, os.fdatasync

    def advanced(self: Ledger, state: Any) -> None:
        reader = sqlite3.connect(place.path)
        order.append(("committed", reader.execute("SELECT seq FROM head").fetchone()[0]))
        reader.close()
        advance(self, state)
        order.append(("anchored", anchor.read_anchor(place.anchor()).seq))  # type: ignore[union-attr]

    def issued(*parts: Any) -> Receipt:
        order.append(("issued", parts[1]))
        return issue(*parts)

    def synced(fd: int) -> None:
        order.append(("synced", 0))
        sync(fd)

    monkeypatch.setattr(Ledger, "_advance", advanced)
    monkeypatch.setattr("dpsql.privacy.budget.ledger.issue", issued)
    monkeypatch.setattr(os, "fdatasync", synced)
    spend(ledger)
    assert [step for step in order if step[0] != "synced"] == [
        ("committed", 1),
        ("anchored", 1),
        ("issued", 1),
    ]
    assert order.count(("synced", 0)) == 1  # the anchor


def test_costs_that_no_policy_could_hold(place: Place) -> None:
    ledger = place.create(PURE)
    cost = Cost(2**62 - 1, 2**62 - 1, "laplace", Fraction(10**5), None)
    refused("E_BUDGET", lambda: ledger.debit(cost, "plan", "data-1"))
    with pytest.raises(DataError):
        ledger.debit(Cost(None, 1, "gaussian", TENTH, TENTH), "plan", "data-1")
