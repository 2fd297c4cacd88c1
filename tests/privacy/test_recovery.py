"""Old copies of a ledger that are restored are charged up to the sums that its anchor keeps."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql import files
from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.privacy.budget import anchor as anchor_module
from dpsql.privacy.budget import ledger as ledger_module
from dpsql.privacy.budget import ledger_file
from dpsql.privacy.budget.accounting import Policy
from dpsql.privacy.budget.anchor import Anchor, packed, read_anchor
from dpsql.privacy.budget.hash_chain import State
from dpsql.privacy.budget.history import moments
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.budget.outcomes import Outcomes
from dpsql.records import replace
from tests.privacy.place import POLICY, Place, act, refused, spend
from tests.support.effort import effort, first_seed

TOTAL = Policy(Fraction(3), POLICY.delta, None, Fraction(1, 10**10))


class Killed(BaseException):
    """The process has ended here: whoever catches errors does not catch this."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "CHECKPOINTS", 4)


def restore(place: Place, copy: bytes) -> None:
    place.path.write_bytes(copy)
    files.journal_of(place.path).unlink(missing_ok=True)


def recovered(place: Place) -> State | None:
    found = Ledger.recover(place.path, place.anchors)
    return None if found is None else found.check()


def holds(state: State, truth: State) -> None:
    """Nothing is left that was spent, and nothing is lost that was not."""
    assert not truth.unseen(replace(state, adoptions=truth.adoptions))
    assert state.terms.policy == truth.terms.policy
    assert state.terms.budgets == truth.terms.budgets
    for name in truth.terms.budgets:
        left, right = state.spent[name], truth.spent[name]
        assert (left, left.releases) == (right, right.releases)
    assert (state.debits, state.undiscovered) == (truth.debits, truth.undiscovered)


def history(place: Place, draw: random.Random, steps: int) -> tuple[list[bytes], State]:
    """Do what ledgers are for; return a copy of the file after every step, and what is true."""
    ledger, copies = place.create(TOTAL), []
    for _ in range(steps):
        ledger = act(place, ledger, draw)
        copies.append(place.path.read_bytes())
    ledger.close()
    copies.append(place.path.read_bytes())
    return copies, place.open(ledger.policy).check()


@pytest.mark.parametrize("seed", range(first_seed(0), first_seed(0) + effort(2)))
def test_a_copy_of_any_moment_is_charged_for_all_that_came_after(seed: int, tmp_path: Path) -> None:
    """Recovered again and again, from old copies of what went on after the last time too."""
    place, draw = Place(tmp_path), random.Random(seed)
    copies, truth = history(place, draw, 10)
    for _ in range(10):
        copy = draw.choice(copies)
        restore(place, copy)
        before = refusal(place, truth.terms.policy)
        assert before is None or "dpsql ledger recover" in str(before)
        found = recovered(place)
        assert (found is None) == (before is None)
        truth = place.open(truth.terms.policy).check() if found is None else found
        holds(
            Ledger.open(place.path, place.anchors, truth.terms.policy, "catalog-1").check(), truth
        )
        assert found is None or place.open(truth.terms.policy).entries()[-1].act == "recovered"
        assert recovered(place) is None
        ledger = act(place, place.open(truth.terms.policy), draw)
        ledger.verify()
        ledger.close()
        truth = place.open(ledger.policy).check()
        copies.append(place.path.read_bytes())


def refusal(place: Place, policy: Policy) -> LedgerError | None:
    """The refusal of opening; a change of the catalog that is not in the copy is older, too."""
    try:
        Ledger.terms_in_force(place.path, place.anchors)
    except LedgerError as error:
        return error
    return None


def test_nothing_more_is_admitted_than_was_left(place: Place) -> None:
    ledger = place.create()
    copy = place.path.read_bytes()
    for _ in range(3):
        spend(ledger, Fraction(3, 10))
    assert ledger.status().remaining_epsilon == Fraction(1, 10)
    restore(place, copy)
    found = Ledger.recover(place.path, place.anchors, "the disk was lost")
    assert found is not None
    assert found.status().remaining_epsilon == Fraction(1, 10)
    with pytest.raises(BudgetExceeded):
        spend(place.open(), Fraction(2, 10))
    spend(place.open())
    *_, told, _ = moments(place.open().entries())
    assert (told.change, told.entry.note) == (
        "requests of before: 3, epsilon 0.9",
        "the disk was lost",
    )
    with pytest.raises(LedgerError, match="older than its anchor"):
        ledger.status()  # a handle on what was lost does not go on


def test_a_budget_that_was_lowered_stays_low(place: Place) -> None:
    spend(place.create())
    copy = place.path.read_bytes()
    lower = Policy(Fraction(3, 10), POLICY.delta)
    Ledger.migrate(place.path, place.anchors, lower, "catalog-2")
    restore(place, copy)
    assert Ledger.recover(place.path, place.anchors) is not None
    refused("E_POLICY_CHANGED", place.open)
    assert place.open(lower, "catalog-2").status().remaining_epsilon == Fraction(2, 10)


def ending(monkeypatch: pytest.MonkeyPatch, last: int) -> list[str]:
    """End the process before, or in the midst of, a step that writes; return those until then."""
    done: list[str] = []

    def stop(name: str) -> None:
        done.append(name)
        if len(done) == last:
            raise Killed

    def around(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object) -> object:
            stop(f"before {name}")
            found = real(*given)
            stop(f"after {name}")
            return found

        return step

    for owner, name in (
        *((files, each) for each in ("_replace", "sync_directory", "copy_database")),
        (anchor_module, "overwrite"),
        (ledger_module, "copy_database"),
        (ledger_file, "append"),
        (Outcomes, "commit"),
    ):
        monkeypatch.setattr(owner, name, around(name, getattr(owner, name)))
    return done


@pytest.mark.parametrize("last", range(1, 12))
def test_a_recovery_that_ends_anywhere_can_be_done_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    ledger = place.create()
    spend(ledger)
    copy = place.path.read_bytes()
    for _ in range(5):
        spend(ledger)
    truth = ledger.check()
    restore(place, copy)
    with monkeypatch.context() as patched:
        done = ending(patched, last)
        try:
            recovered(place)
        except Killed:
            assert len(done) == last
        else:
            assert len(done) < last
            assert {each.split()[1] for each in done} >= {"_replace", "append", "commit"}
    found = recovered(place) or place.open().check()
    holds(found, truth)
    spend(place.open())
    place.open().verify()


@pytest.mark.parametrize("last", range(1, 12))
def test_a_charge_that_ends_anywhere_is_in_the_sums_if_it_was_acknowledged(
    place: Place, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    ledger = place.create()
    copy = place.path.read_bytes()
    acknowledged = 0
    with monkeypatch.context() as patched:
        ending(patched, last)
        try:
            for _ in range(3):
                spend(ledger)
                acknowledged += 1
        except Killed:
            pass
    restore(place, copy)
    recovered(place)
    assert acknowledged <= place.open().check().debits <= acknowledged + 1


def test_no_flipped_bit_of_an_anchor_leaves_more_than_was_left(place: Place) -> None:
    draw = random.Random(first_seed(3))
    ledger = place.create()
    copy = place.path.read_bytes()
    for _ in range(3):
        spend(ledger)
    truth, whole = ledger.check(), place.anchor().read_bytes()
    refusals = 0
    for _ in range(effort(80)):
        restore(place, copy)
        torn = bytearray(whole)
        bit = draw.randrange(8 * len(torn))
        torn[bit // 8] ^= 1 << bit % 8
        place.anchor().write_bytes(torn)
        try:
            found = recovered(place)
        except LedgerError:
            refusals += 1
        else:
            assert found is not None
            holds(found, truth)
    assert refusals


def test_no_flipped_bit_of_a_copy_leaves_more_than_was_left(place: Place) -> None:
    draw = random.Random(first_seed(4))
    ledger = place.create()
    spend(ledger)
    copy = place.path.read_bytes()
    for _ in range(3):
        spend(ledger)
    truth, whole = ledger.check(), place.anchor().read_bytes()
    for _ in range(effort(40)):
        torn = bytearray(copy)
        bit = draw.randrange(8 * len(torn))
        torn[bit // 8] ^= 1 << bit % 8
        restore(place, bytes(torn))
        place.anchor().write_bytes(whole)
        try:
            found = recovered(place)
        except LedgerError:
            continue
        assert found is not None
        holds(found, truth)


def test_without_sums_nothing_is_recovered(place: Place) -> None:
    """No anchor, one of an earlier version, of another ledger, or of an older moment."""
    ledger = place.create()
    spend(ledger)
    copy, older = place.path.read_bytes(), place.anchor().read_bytes()
    spend(ledger)
    anchor, newest = place.anchor(), place.anchor().read_bytes()
    known = read_anchor(anchor)
    assert known is not None
    restore(place, copy)
    anchor.unlink()
    assert "no anchor" in refused("E_LEDGER_ROLLBACK", lambda: recovered(place)).message
    for sums, code in (
        ("", "E_LEDGER_ROLLBACK"),
        ("{}", "E_LEDGER_TAMPERED"),
        (packed("{}"), "E_LEDGER_TAMPERED"),
    ):
        replace(known, sums=sums).write(anchor, place.path, anew=True)
        refused(code, lambda: recovered(place))
    replace(known, ledger_id="another").write(anchor, place.path, anew=True)
    refused("E_LEDGER_MISMATCH", lambda: recovered(place))
    anchor.write_bytes(older)
    assert recovered(place) is None  # in order: nobody can know of more
    anchor.write_bytes(newest)
    assert recovered(place) is not None


def test_a_copy_with_charges_that_its_anchor_has_not_seen_is_refused(place: Place) -> None:
    """Two ledgers went on from the same entries, and one of them was adopted."""
    ledger = place.create()
    spend(ledger)
    common, copies = place.path.read_bytes(), []
    for _ in range(3):
        spend(ledger, Fraction(1, 100))
        copies.append(place.path.read_bytes())
    restore(place, common)
    place.anchor().unlink()
    Ledger.adopt(place.path, place.anchors)
    for _ in range(6):
        spend(place.open(), Fraction(1, 20))
    for copy in copies:
        restore(place, copy)
        error = refused("E_LEDGER_ROLLBACK", lambda: recovered(place))
        assert "another went on from it" in error.message
    restore(place, common)
    assert recovered(place) is not None


def test_a_forged_recovery_lowers_nothing(place: Place) -> None:
    ledger = place.create()
    first = ledger.check()
    spend(ledger)
    state = ledger.check()
    entry = replace(first.recovery(first, ""), seq=state.seq + 1)
    with pytest.raises(LedgerError, match="lowers what was charged"):
        state.after(entry.seal(state.head))


def test_backups_are_whole_while_others_write(place: Place, tmp_path: Path) -> None:
    """Each verifies, has its anchor, and can be used where that is put back with it."""
    place.create()
    ended = threading.Event()

    def charge() -> None:
        ledger = place.open()
        while not ended.is_set():
            spend(ledger, Fraction(1, 1000))

    writer = threading.Thread(target=charge)
    writer.start()
    try:
        for number in range(effort(6)):
            folder = tmp_path / f"backup-{number}"
            folder.mkdir()
            status = Ledger.backup(place.path, place.anchors, folder)
            (copied,) = (folder / "anchor").iterdir()
            anchor = read_anchor(copied)
            assert anchor is not None
            assert (anchor.seq, anchor.hash) == (status.seq, status.head)
            assert copied.name == place.anchor().name
            modes = [each.stat().st_mode & 0o777 for each in (copied, folder / place.path.name)]
            assert modes == [0o600] * 2
    finally:
        ended.set()
        writer.join()
    truth = place.open().check()
    restore(place, (folder / place.path.name).read_bytes())
    found = recovered(place)
    holds(place.open().check() if found is None else found, truth)


def test_no_backup_is_made_of_a_ledger_without_its_anchor(place: Place, tmp_path: Path) -> None:
    spend(place.create())
    place.anchor().unlink()
    refused("E_LEDGER_ROLLBACK", lambda: Ledger.backup(place.path, place.anchors, tmp_path))


def test_a_copy_that_is_not_the_same_is_no_backup(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend(place.create())

    def damaged(path: Path, copy: Path) -> None:
        files.copy_database(path, copy)
        with sqlite3.connect(copy) as db:
            db.execute("UPDATE entry SET plan_hash = 'x' WHERE seq = 1")
        db.close()

    monkeypatch.setattr(ledger_module, "copy_database", damaged)
    refused("E_LEDGER_TAMPERED", lambda: Ledger.backup(place.path, place.anchors, tmp_path))


def test_anchors_of_many_budgets_stay_in_their_places(place: Place) -> None:
    """Records are of hundreds of sums, and overwritten all the same."""
    nested = {f"analyst:a{number}": Fraction(1) for number in range(200)}
    ledger = place.create(nested=nested)
    spend(ledger, Fraction(1, 100))
    inode = os.stat(place.anchor()).st_ino
    for number in range(6):
        spend(ledger, Fraction(1, 100), within=(f"analyst:a{number}",))
    assert os.stat(place.anchor()).st_ino == inode


def test_what_an_old_anchor_lacks_the_next_entry_writes(place: Place) -> None:
    ledger = place.create()
    state = ledger.check()
    Anchor(state.ledger_id, state.seq, state.head).write(place.anchor(), place.path, anew=True)
    copy = place.path.read_bytes()
    spend(ledger)
    spend(ledger)
    restore(place, copy)
    found = recovered(place)
    assert found is not None
    assert found.debits == 2


def test_a_ledger_is_copied_with_its_folder_elsewhere(place: Place, tmp_path: Path) -> None:
    """Moved and behind at once: the anchor of the old place is needed, and is told of."""
    ledger = place.create()
    spend(ledger)
    twin = Place(tmp_path / "twin")
    shutil.copytree(place.path.parent, twin.path.parent)
    refused("E_LEDGER_ROLLBACK", lambda: recovered(twin))
