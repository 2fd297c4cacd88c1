"""When it is in the ledger what became of debits, and what a crash leaves."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy.budget import ledger_file
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.budget.receipt import Receipt
from tests.privacy.place import Place, refused, spend

LITTLE = Fraction(1, 10**4)


def on_disk(place: Place) -> dict[int, str]:
    """What the file says of each debit, whoever has it open."""
    db = sqlite3.connect(place.path)
    found = dict(db.execute("SELECT seq, state FROM entry WHERE kind = 'debit'").fetchall())
    db.close()
    return found


def test_a_release_is_written_with_the_next_debit(place: Place) -> None:
    ledger = place.create()
    ledger.settle(spend(ledger), "released")
    assert on_disk(place) == {1: "reserved"}
    spend(ledger)
    assert on_disk(place) == {1: "released", 2: "reserved"}


def test_a_release_is_written_when_the_handle_is_closed(place: Place) -> None:
    ledger = place.create()
    ledger.settle(spend(ledger), "released")
    ledger.close()
    assert on_disk(place) == {1: "released"}
    refused("E_LEDGER_IO", ledger.status)


def test_a_failure_is_written_at_once(place: Place) -> None:
    ledger = place.create()
    first, second = spend(ledger), spend(ledger)
    ledger.settle(first, "released")
    ledger.settle(second, "failed")
    assert on_disk(place) == {1: "released", 2: "failed"}


def test_a_ledger_that_is_gone_closes(place: Place) -> None:
    ledger = place.create()
    ledger.settle(spend(ledger), "released")
    place.path.unlink()
    ledger.close()


def test_a_debit_is_settled_by_the_handle_that_made_it(place: Place) -> None:
    ledger = place.create()
    receipt = spend(ledger)
    refused("E_RECEIPT", lambda: place.open().settle(receipt, "failed"))
    assert on_disk(place) == {1: "reserved"}


def test_what_could_not_be_written_is_written_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = place.create()
    receipt = spend(ledger)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(ledger_file, "set_state", full)
    refused("E_LEDGER_IO", lambda: ledger.settle(receipt, "failed"))
    refused("E_LEDGER_IO", lambda: spend(ledger))  # nothing is charged where it cannot be written
    assert on_disk(place) == {1: "reserved"}
    monkeypatch.undo()
    spend(ledger)
    assert on_disk(place) == {1: "failed", 2: "reserved"}


UNCLOSED = """
import os, sys
import dpsql

asked = dpsql.connect(sys.argv[1], epsilon=1).execute("SELECT COUNT(*) FROM adult")
if sys.argv[2] == "held":
    connection = asked.connection
if sys.argv[2] == "killed":
    os._exit(0)
if sys.argv[2] == "raised":
    raise SystemExit(asked.fetchone()[0] * 0)
"""


@pytest.mark.parametrize(
    ("end", "state"),
    [("held", "released"), ("left", "released"), ("raised", "released"), ("killed", "reserved")],
)
def test_a_program_that_closes_nothing_notes_its_last_release(
    demo: Path, end: str, state: str
) -> None:
    catalog = demo / "adult.toml"
    subprocess.run([sys.executable, "-c", UNCLOSED, str(catalog), end], check=True)
    (place,) = demo.rglob("*.ledger")
    db = sqlite3.connect(place)
    assert db.execute("SELECT state FROM entry WHERE kind = 'debit'").fetchall() == [(state,)]
    db.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_dies_leaves_its_last_debit_reserved(place: Place) -> None:
    place.create()
    child = os.fork()
    if child == 0:
        ledger = place.open()
        for _ in range(3):
            ledger.settle(spend(ledger), "released")
        os._exit(0)
    os.waitpid(child, 0)
    assert on_disk(place) == {1: "released", 2: "released", 3: "reserved"}
    ledger = place.open()
    assert ledger.verify().spent_epsilon == Fraction(3, 10)
    spend(ledger)
    assert on_disk(place)[3] == "reserved"


@pytest.mark.parametrize("seed", range(6))
def test_handles_that_take_turns_write_what_is_theirs(place: Place, seed: int) -> None:
    """Any order of debits, outcomes, listings and closings by three handles on one ledger."""
    chance = random.Random(seed)
    handles = {0: place.create(), 1: place.open(), 2: place.open()}
    waiting: dict[int, dict[int, Receipt]] = {0: {}, 1: {}, 2: {}}
    unwritten: dict[int, dict[int, str]] = {0: {}, 1: {}, 2: {}}
    known: dict[int, str] = {}

    def written(who: int) -> None:
        known.update(unwritten[who])
        unwritten[who].clear()

    for _ in range(60):
        who = chance.randrange(3)
        act = chance.choice(("debit", "debit", "settle", "settle", "fail", "list", "close"))
        if act == "debit":
            receipt = spend(handles[who], LITTLE)
            written(who)
            known[receipt.seq] = "reserved"
            waiting[who][receipt.seq] = receipt
        elif act in ("settle", "fail") and waiting[who]:
            seq = chance.choice(sorted(waiting[who]))
            outcome = "released" if act == "settle" else "failed"
            settle(handles[who], waiting[who].pop(seq), outcome)
            unwritten[who][seq] = outcome
            if act == "fail":
                written(who)
        elif act == "list":
            listed = {e.seq: e.state for e in handles[who].entries() if e.kind == "debit"}
            assert listed == known | unwritten[who]
        elif act == "close":
            handles[who].close()
            written(who)
            handles[who] = place.open()
            waiting[who].clear()
        assert on_disk(place) == known
    assert handles[0].verify().spent_epsilon == len(known) * LITTLE


def settle(ledger: Ledger, receipt: Receipt, outcome: str) -> None:
    """Settle a debit once: the second time is refused."""
    ledger.settle(receipt, outcome)  # type: ignore[arg-type]
    with pytest.raises(LedgerError):
        ledger.settle(receipt, "released")
