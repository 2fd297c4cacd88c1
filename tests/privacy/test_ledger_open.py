"""Which ledgers are created, opened and migrated, and which are refused."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql import files
from dpsql.errors import BudgetExceeded
from dpsql.privacy.budget.accounting import Policy
from dpsql.privacy.budget.ledger import Ledger
from tests.privacy.place import POLICY, PURE, TENTH, Place, refused, spend


def test_creation_over_anything_is_refused(place: Place) -> None:
    ledger = place.create()
    spend(ledger)
    ledger.close()
    refused("E_LEDGER_EXISTS", place.create)
    place.path.unlink()
    refused("E_LEDGER_EXISTS", place.create)  # the anchor remembers
    place.anchor().unlink()
    journal = place.path.with_name(place.path.name + "-journal")
    idle = journal.read_bytes()
    journal.write_bytes(b"hot")
    refused("E_LEDGER_EXISTS", place.create)
    journal.unlink()
    journal.symlink_to(place.path.with_name("nowhere"))
    refused("E_LEDGER_EXISTS", place.create)
    journal.unlink()
    journal.write_bytes(idle)  # nothing is to be undone by it
    assert place.create().status().entries == 0


def test_creation_over_a_foreign_or_dangling_name_is_refused(place: Place) -> None:
    place.path.parent.mkdir(parents=True)
    place.path.symlink_to(place.path.with_name("elsewhere"))
    place.create()
    assert place.path.with_name("elsewhere").exists()  # the real path is what counts
    place.path.with_name("other").write_bytes(b"")
    other = place.path.with_name("other")
    action = lambda: Ledger.create(other, place.anchors, POLICY, "catalog-1")  # noqa: E731
    refused("E_LEDGER_EXISTS", action)


def test_a_missing_ledger_is_never_created_by_use(place: Place) -> None:
    refused("E_LEDGER_MISSING", place.open)
    ledger = place.open_or_create()
    spend(ledger)
    place.path.unlink()
    for action in (place.open, place.open_or_create, ledger.status, lambda: spend(ledger)):
        refused("E_LEDGER_MISSING", action)
    assert not place.path.exists()


def test_open_or_create_opens_what_exists(place: Place) -> None:
    spend(place.open_or_create())
    assert place.open_or_create().status().entries == 1


def test_links_and_relative_paths_lead_to_one_ledger(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend(place.create())
    link = place.path.parent.with_name("link")
    link.symlink_to(place.path.parent)
    monkeypatch.chdir(place.path.parent)
    for way in (
        link / place.path.name,
        Path(place.path.name),
        Path("../data/../link/adult.ledger"),
    ):
        opened = Ledger.open(way, place.anchors, POLICY, "catalog-1")
        assert opened.status().entries == 1
    assert len(list(place.anchors.iterdir())) == 1


def test_a_changed_catalog_is_refused_until_it_is_migrated(place: Place) -> None:
    spend(place.create())
    raised = Policy(Fraction(2), POLICY.delta)
    refused("E_POLICY_CHANGED", lambda: place.open(policy_hash="catalog-2"))
    refused("E_POLICY_CHANGED", lambda: place.open(raised))
    Ledger.migrate(place.path, place.anchors, raised, "catalog-2", note="board decision 7")
    refused("E_POLICY_CHANGED", place.open)
    ledger = place.open(raised, "catalog-2")
    status = ledger.status()
    assert (status.total_epsilon, status.spent_epsilon) == (Fraction(2), TENTH)
    act = ledger.entries()[-1]
    assert act.kind == "policy"
    assert json.loads(act.detail)["note"] == "board decision 7"


def test_migrations_that_would_forget_are_refused(place: Place) -> None:
    spend(place.create(), Fraction(1, 2))

    def migrate(policy: Policy) -> Ledger:
        return Ledger.migrate(place.path, place.anchors, policy, "catalog-2")

    refused("E_POLICY_CHANGED", lambda: migrate(Policy(Fraction(1, 4), POLICY.delta)))
    refused("E_POLICY_CHANGED", lambda: migrate(PURE))
    assert place.open().status().entries == 1
    assert migrate(Policy(Fraction(1, 2), POLICY.delta)).status().remaining_epsilon < TENTH


def test_nested_budgets_keep_their_sums_over_migrations(place: Place) -> None:
    ledger = place.create(nested={"table:a": Fraction(1, 2)})
    spend(ledger, TENTH, within=("table:a",))
    Ledger.migrate(
        place.path, place.anchors, POLICY, "c2", {"table:a": Fraction(1, 5), "table:b": TENTH}
    )
    ledger = place.open(policy_hash="c2")
    error = refused("E_BUDGET", lambda: spend(ledger, Fraction(1, 2), within=("table:a",)))
    assert isinstance(error, BudgetExceeded)
    assert error.remaining == TENTH
    spend(ledger, TENTH, within=("table:a", "table:b"))


def test_salt_and_name_stay(place: Place) -> None:
    first = place.create()
    again = place.open()
    assert len(first.salt) == 32
    assert (again.salt, again.ledger_id) == (first.salt, first.ledger_id)
    assert Ledger.create(place.path.with_name("b"), place.anchors, POLICY, "c").salt != first.salt


def test_a_closed_ledger_is_refused(place: Place) -> None:
    ledger = place.create()
    ledger.close()
    refused("E_LEDGER_IO", ledger.status)


def test_network_disks_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    here = os.path.realpath(tmp_path)
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        f"2 1 0:9 / {here} rw shared:3 - nfs4 host:/x rw\n"
        f"3 2 8:2 / {here}/local rw - ext4 /dev/b rw\nodd line\n"
    )
    assert files.on_network_disk(tmp_path / "a", mounts)
    assert not files.on_network_disk(tmp_path / "local" / "a", mounts)
    assert not files.on_network_disk(Path("/"), mounts)
    assert not files.on_network_disk(Path("/"), tmp_path / "none")
    monkeypatch.setattr("dpsql.privacy.budget.ledger.on_network_disk", lambda _: True)
    refused("E_LEDGER_IO", Place(tmp_path).create)
