"""Old copies, foreign files and edits fail closed."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy.budget.anchor import Anchor, read_anchor
from dpsql.privacy.budget.ledger import Ledger
from tests.privacy.place import POLICY, PURE, Place, refused, spend


def test_an_old_copy_put_back_is_detected(place: Place) -> None:
    ledger = place.create()
    spend(ledger)
    old = place.path.read_bytes()
    spend(ledger)
    place.path.write_bytes(old)
    for action in (ledger.status, lambda: spend(ledger), place.open, place.open_or_create):
        refused("E_LEDGER_ROLLBACK", action)


def test_an_old_copy_that_went_on_is_detected(place: Place) -> None:
    ledger = place.create()
    spend(ledger)
    old = place.path.read_bytes()
    spend(ledger)
    anchor = place.anchor().read_bytes()
    place.path.write_bytes(old)
    known = read_anchor(place.anchor())
    assert known is not None
    path = place.anchor()
    path.unlink()
    Anchor(known.ledger_id, 1, _last(place)).write(path, place.path)
    second = place.open()
    spend(second)
    spend(second)
    place.anchor().write_bytes(anchor)
    refused("E_LEDGER_ROLLBACK", place.open)
    refused("E_LEDGER_ROLLBACK", ledger.status)


def _last(place: Place) -> str:
    db = sqlite3.connect(place.path)
    (found,) = db.execute("SELECT hash FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
    db.close()
    return str(found)


def test_a_copy_elsewhere_verifies_but_cannot_be_used(place: Place) -> None:
    ledger = place.create()
    for _ in range(3):
        spend(ledger)
    twin = Place(place.path.parent.parent / "copy")
    twin.path.parent.mkdir(parents=True)
    shutil.copy(place.path, twin.path)
    refused("E_LEDGER_ROLLBACK", twin.open)
    twin.anchors = place.anchors
    refused("E_LEDGER_ROLLBACK", twin.open)
    adopted = Ledger.adopt(twin.path, place.anchors, note="moved")
    assert adopted.status().entries == 3
    assert (
        Ledger.open(twin.path, place.anchors, POLICY, "catalog-1").entries()[-1].kind == "adopted"
    )


def test_adoption_does_not_overrule_an_anchor(place: Place) -> None:
    ledger = place.create()
    old = place.path.read_bytes()
    spend(ledger)
    place.path.write_bytes(old)
    with pytest.raises(LedgerError) as caught:
        Ledger.adopt(place.path, place.anchors)
    assert caught.value.code == "E_LEDGER_ROLLBACK"
    assert str(place.anchor()) in str(caught.value)
    place.anchor().unlink()  # what would work, as it says
    assert Ledger.adopt(place.path, place.anchors).entries()[-1].kind == "adopted"
    spend(place.open())


def test_an_anchor_behind_is_a_crash_and_catches_up(place: Place) -> None:
    ledger = place.create()
    spend(ledger)
    behind = place.anchor().read_bytes()
    spend(ledger)
    place.anchor().write_bytes(behind)
    again = place.open()
    assert again.status().entries == 2
    spend(again)
    known = read_anchor(place.anchor())
    assert known is not None
    assert known.seq == 3


def test_a_crash_before_the_first_anchor_is_harmless(place: Place) -> None:
    place.create()
    place.anchor().unlink()
    assert place.open_or_create().status().entries == 0
    spend(place.open())
    place.anchor().unlink()
    refused("E_LEDGER_ROLLBACK", place.open)


def test_the_ledger_of_another_catalog_is_refused(place: Place) -> None:
    place.create()
    other = place.path.with_name("other.ledger")
    Ledger.create(other, place.anchors, POLICY, "catalog-1")
    shutil.copy(other, place.path)
    refused("E_LEDGER_MISMATCH", place.open)
    for anchor in place.anchors.iterdir():
        anchor.unlink()
    refused("E_LEDGER_MISMATCH", lambda: place.open(policy_hash="catalog-2"))


@pytest.mark.parametrize("content", ["", "{}", "[1]", "null", "not json", '{"seq": -1}', '"x"'])
def test_an_anchor_that_cannot_be_read_is_refused(place: Place, content: str) -> None:
    place.create()
    place.anchor().write_text(content)
    refused("E_LEDGER_TAMPERED", place.open)
    assert Ledger.adopt(place.path, place.anchors).entries()[-1].kind == "adopted"
    spend(place.open())


DAMAGE = ("TAMPERED", "VERSION", "ROLLBACK", "MISMATCH", "IO")

TAMPERINGS = [
    ["UPDATE entry SET epsilon_units = 1 WHERE seq = 2"],
    ["UPDATE entry SET plan_hash = 'x' WHERE seq = 1"],
    ["UPDATE entry SET at = 'yesterday' WHERE seq = 1"],
    ["UPDATE entry SET detail = replace(detail, '\"1\"', '\"9\"') WHERE seq = 0"],
    ["DELETE FROM entry WHERE seq = 2"],
    ["DELETE FROM entry WHERE seq = 3"],
    ["DELETE FROM entry WHERE seq = 0"],
    ["DELETE FROM entry"],
    ["UPDATE entry SET seq = 9 WHERE seq = 3"],
    ["UPDATE budget SET spent_epsilon = 0"],
    ["UPDATE budget SET gaussian = 1"],
    ["DELETE FROM budget"],
    ["INSERT INTO budget VALUES ('more', 0, 0, 0)"],
    ["UPDATE head SET seq = 2"],
    ["UPDATE head SET hash = 'x'"],
    ["UPDATE head SET salt = x'00'"],
    ["DELETE FROM head"],
    ["CREATE TABLE more (x)"],
    ["CREATE TRIGGER t AFTER INSERT ON entry BEGIN UPDATE budget SET spent_epsilon = 0; END"],
    ["CREATE INDEX i ON entry (at)"],
    ["CREATE VIEW v AS SELECT 1"],
    ["DROP TABLE budget"],
]


@pytest.mark.parametrize("statements", TAMPERINGS, ids=lambda s: s[0][:40])
def test_edits_are_detected(place: Place, statements: list[str]) -> None:
    ledger = place.create()
    for _ in range(3):
        spend(ledger)
    place.sql(*statements)
    refused("E_LEDGER_TAMPERED", place.open)
    with pytest.raises(LedgerError):
        ledger.verify()


def test_edits_are_detected_by_a_handle_in_use(place: Place) -> None:
    ledger = place.create()
    spend(ledger)
    place.sql("UPDATE budget SET spent_epsilon = 0")
    refused("E_LEDGER_TAMPERED", lambda: spend(ledger))


def test_a_deleted_tail_with_matching_totals_is_a_rollback(place: Place) -> None:
    ledger = place.create(PURE)
    first = spend(ledger)
    spend(ledger)
    place.sql(
        "DELETE FROM entry WHERE seq = 2",
        f"UPDATE head SET seq = 1, hash = '{first.head}'",
        f"UPDATE budget SET spent_epsilon = {10**11}, spent_renyi = {10**11}",
    )
    refused("E_LEDGER_ROLLBACK", lambda: place.open(PURE))
    refused("E_LEDGER_ROLLBACK", ledger.status)


@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty", "header"])
def test_damaged_files_are_refused(place: Place, damage: str) -> None:
    spend(place.create())
    whole = place.path.read_bytes()
    content = {
        "garbage": b"not a database" * 100,
        "truncated": whole[: len(whole) // 2],
        "empty": b"",
        "header": whole[:100] + bytes(len(whole) - 100),
    }[damage]
    place.path.write_bytes(content)
    with pytest.raises(LedgerError) as caught:
        place.open()
    assert caught.value.code in {"E_LEDGER_TAMPERED", "E_LEDGER_VERSION"}


@pytest.mark.slow
def test_every_damaged_byte_fails_closed_or_changes_nothing(place: Place) -> None:
    ledger = place.create()
    spend(ledger)
    status = ledger.status()
    whole = place.path.read_bytes()
    refusals = set()
    for offset in range(0, len(whole), 211):
        broken = bytearray(whole)
        broken[offset] ^= 0x55
        place.path.write_bytes(bytes(broken))
        try:
            assert place.open().status() == status
        except LedgerError as error:
            refusals.add(error.code)
    assert {"E_LEDGER_TAMPERED"} <= refusals <= {f"E_LEDGER_{x}" for x in DAMAGE}
    place.path.write_bytes(whole)
    assert place.open().status() == status


@pytest.mark.parametrize("pragma", ["user_version=2", "user_version=0", "application_id=7"])
def test_other_versions_are_refused(place: Place, pragma: str) -> None:
    place.create()
    place.sql(f"PRAGMA {pragma}")
    refused("E_LEDGER_VERSION", place.open)


@pytest.mark.parametrize("bit", range(0, 32, 5))
def test_a_flipped_bit_of_the_version_is_told_as_damage_too(place: Place, bit: int) -> None:
    place.create()
    whole = bytearray(place.path.read_bytes())
    whole[63 - bit // 8] ^= 1 << bit % 8  # where SQLite keeps user_version
    place.path.write_bytes(whole)
    with pytest.raises(LedgerError, match="damaged") as told:
        place.open()
    assert "restore it from a copy that verifies" in str(told.value.hint)


def test_a_write_ahead_log_is_turned_off_again(place: Place) -> None:
    ledger = place.create()
    place.sql("PRAGMA journal_mode=WAL")
    spend(ledger)
    assert not place.path.with_name(place.path.name + "-wal").exists()
    assert place.open().status().entries == 1
