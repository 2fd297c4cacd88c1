"""Checkpoints of a ledger: what is opened by them is what all of its entries come to."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.privacy.budget import ledger as ledger_module
from dpsql.privacy.budget import ledger_file
from dpsql.privacy.budget.accounting import Policy
from dpsql.privacy.budget.anchor import Anchor
from dpsql.privacy.budget.hash_chain import Entry, State, read_checkpoint, read_terms
from dpsql.privacy.budget.ledger import Ledger
from dpsql.records import replace
from tests.privacy.place import POLICY, Place, act, refused, spend
from tests.support.effort import effort, first_seed

EVERY = 4
"""Entries from one checkpoint to the next in these tests."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "CHECKPOINTS", EVERY)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the entries that were folded."""
    found: list[int] = []
    after = State.after

    def counted(state: State, entry: Entry) -> State:
        found.append(entry.seq)
        return after(state, entry)

    monkeypatch.setattr(State, "after", counted)
    return found


@pytest.mark.parametrize("seed", range(first_seed(0), first_seed(0) + effort(3)))
def test_what_is_opened_by_a_checkpoint_is_what_all_entries_come_to(
    seed: int, tmp_path: Path, read: list[int]
) -> None:
    place, draw = Place(tmp_path), random.Random(seed)
    total = Policy(Fraction(3), POLICY.delta, None, Fraction(1, 10**10))
    ledger = place.create(total)
    for _ in range(16):
        ledger = act(place, ledger, draw)
        policy = ledger.policy
        read.clear()
        other = place.open(policy)
        assert len(read) <= EVERY
        assert other.check() == ledger.check()
        sums = dict(other.check().spent)
        other.verify()
        assert {name: each.releases for name, each in other.check().spent.items()} == {
            name: each.releases for name, each in sums.items()
        }
        assert other.check() == ledger.check()
        other.close()
    found = ledger.entries()
    assert [each.seq for each in found] == list(range(len(found)))
    checkpoints = [each.seq for each in found if each.is_checkpoint]
    assert checkpoints == list(range(EVERY, len(found), EVERY))


def test_a_receipt_names_its_own_entry_beside_a_checkpoint(place: Place) -> None:
    ledger = place.create()
    receipts = [spend(ledger, Fraction(1, 100)) for _ in range(3 * EVERY)]
    for receipt in receipts:
        found = ledger.entry(receipt.seq)
        assert found is not None
        assert (found.kind, found.hash) == ("debit", receipt.head)
    ledger.settle(receipts[EVERY], "failed")
    assert ledger.verify().entries == 3 * EVERY


def test_versions_without_checkpoints_read_an_act_that_changes_nothing(place: Place) -> None:
    ledger = place.create(nested={"analyst:ana": Fraction(1, 2)})
    before = ledger.check().terms
    for _ in range(EVERY):
        spend(ledger, Fraction(1, 100), within=("analyst:ana",))
    (found,) = (each for each in ledger.entries() if each.is_checkpoint)
    assert read_terms(found) == (ledger.ledger_id, before)
    assert (found.kind, found.note) == ("policy", "what all entries so far come to")


def test_ledgers_without_a_checkpoint_at_its_place_are_read_from_the_first_entry(
    place: Place, monkeypatch: pytest.MonkeyPatch, read: list[int]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ledger_module, "CHECKPOINTS", 10**9)
        ledger = place.create()
        for _ in range(EVERY + 1):
            spend(ledger, Fraction(1, 100))
    read.clear()
    assert place.open().check() == ledger.check()
    assert read == list(range(1, EVERY + 2))


@pytest.mark.parametrize("is_before", [True, False])
def test_a_charge_that_was_cut_short_before_the_anchor_is_there(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    ledger = place.create()
    for _ in range(EVERY - 1):
        spend(ledger, Fraction(1, 100))

    append = ledger_file.append

    def cut(*given: Any) -> None:
        if not (is_before and given[1].is_checkpoint):
            raise OSError("power cut")
        append(*given)

    with monkeypatch.context() as patch:
        if is_before:
            patch.setattr(ledger_file, "append", cut)
        else:
            patch.setattr(Ledger, "_advance", cut)
        refused("E_LEDGER_IO", lambda: spend(ledger, Fraction(1, 100)))
    found = place.open()
    assert found.check().debits == EVERY - is_before
    spend(found, Fraction(1, 100))
    assert found.verify().entries == EVERY + 1 - is_before


def forge(place: Place, seq: int, before: str, after: str) -> None:
    """Change one entry, and seal all that follow anew, with the anchor and without."""
    with ledger_file.connect(place.path) as db:
        entries = list(ledger_file.entries_after(db, -1))
        entry = entries[seq]
        entries[seq] = replace(entry, detail=entry.detail.replace(before, after))
        assert entries[seq] != entry
        previous = entries[seq - 1].hash
        db.execute("BEGIN")
        for at in range(seq, len(entries)):
            entries[at] = entries[at].seal(previous)
            previous = entries[at].hash
            new = (entries[at].detail, previous, at)
            db.execute("UPDATE entry SET detail = ?, hash = ? WHERE seq = ?", new)
        db.execute("UPDATE head SET hash = ?", (previous,))
        db.execute("COMMIT")
    ledger_id = read_terms(entries[0])[0]
    Anchor(ledger_id, entries[-1].seq, previous).write(place.anchor(), place.path)


def test_a_checkpoint_that_forgets_what_was_spent_is_refused(place: Place) -> None:
    """By whoever opens the ledger while its totals say more; by ``verify`` whatever they say."""
    ledger = place.create()
    for _ in range(EVERY):
        spend(ledger, Fraction(1, 100))
    (found,) = (each for each in ledger.entries() if each.is_checkpoint)
    units = read_checkpoint(found).spent[""].epsilon_units
    forge(place, EVERY, f'"spent":{{"":[{units},', '"spent":{"":[0,')
    refused("E_LEDGER_TAMPERED", place.open)
    with closing(sqlite3.connect(place.path)) as db:
        db.execute("UPDATE budget SET spent_epsilon = spent_epsilon - ?", (units,))
        db.commit()
    refused("E_LEDGER_TAMPERED", place.open().verify)


def test_damage_to_what_is_before_a_checkpoint_is_found_by_verify_and_changes_no_sum(
    place: Place,
) -> None:
    ledger = place.create()
    for _ in range(2 * EVERY):
        spend(ledger, Fraction(1, 100))
    before = ledger.check()
    place.sql("UPDATE entry SET plan_hash = 'other' WHERE seq = 2")
    found = place.open()
    assert found.check() == before
    refused("E_LEDGER_TAMPERED", found.verify)


@pytest.mark.parametrize(
    "change",
    ["detail = detail || ' '", "hash = 'x'", "kind = 'adopted'", "detail = x'00'", "id = 'x'"],
)
def test_a_damaged_checkpoint_is_refused(place: Place, change: str) -> None:
    ledger = place.create()
    for _ in range(EVERY + 1):
        spend(ledger, Fraction(1, 100))
    with closing(sqlite3.connect(place.path)) as db:
        db.execute("PRAGMA ignore_check_constraints = 1")
        try:
            db.execute(f"UPDATE entry SET {change} WHERE seq = {EVERY}")
        except sqlite3.IntegrityError:  # STRICT keeps blobs out
            return
        db.commit()
    refused("E_LEDGER_TAMPERED", place.open)
