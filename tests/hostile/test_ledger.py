"""Hostile ledgers, through connect: fail closed, and the budget never grows."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

import dpsql
from dpsql.privacy.budget.accounting import Policy
from dpsql.privacy.budget.ledger import Ledger
from tests.support.world import ledger_state, refusal

pytestmark = pytest.mark.usefixtures("one_reader")

COUNT = "SELECT COUNT(*) FROM adult"


def spend(world: Path, times: int = 1) -> None:
    """Make charges of epsilon 1, each for another question."""
    with dpsql.connect(world, epsilon=1) as connection:
        connection.execute("SET fresh = on")
        for _ in range(times):
            connection.execute(COUNT)


def code(world: Path) -> str:
    """The code that connect fails with."""
    return refusal(lambda: dpsql.connect(world)).code


def test_a_missing_ledger_is_not_made_anew(world: Path) -> None:
    """B157."""
    spend(world)
    with dpsql.connect(world, epsilon=1) as connection:
        world.with_suffix(".ledger").unlink()
        assert refusal(lambda: connection.execute(COUNT)).code == "E_LEDGER_MISSING"
    assert code(world) == "E_LEDGER_MISSING"
    assert not world.with_suffix(".ledger").exists()


@pytest.mark.parametrize(
    "statement",
    ["UPDATE entry SET epsilon_units = 1 WHERE seq = 1", "DELETE FROM entry WHERE seq = 1"],
)
def test_edits_are_detected(world: Path, statement: str) -> None:
    """B159."""
    spend(world, 2)
    database = sqlite3.connect(world.with_suffix(".ledger"))
    database.execute(statement)
    database.commit()
    database.close()
    assert code(world) in ("E_LEDGER_TAMPERED", "E_LEDGER_ROLLBACK")


def test_the_ledger_of_another_catalog(world: Path) -> None:
    """B160."""
    spend(world)
    other = world.parent / "other"
    other.mkdir()
    for name in ("world.toml", "adult.parquet", "visits.parquet"):
        shutil.copy(world.parent / name, other)
    text = (other / "world.toml").read_text("utf-8").replace("epsilon = 1000", "epsilon = 7")
    (other / "world.toml").write_text(text, encoding="utf-8")
    spend(other / "world.toml")
    shutil.copy(other / "world.ledger", world.parent)
    assert code(world) == "E_LEDGER_MISMATCH"


def test_an_old_copy_is_a_rollback(world: Path) -> None:
    """B162: a copy holds every committed entry, and cannot be used once it is old."""
    spend(world, 2)
    with dpsql.connect(world) as connection:
        before = connection.entries()
        shutil.copy(world.with_suffix(".ledger"), world.parent / "kept")
        database = sqlite3.connect(world.parent / "kept")
        assert database.execute("SELECT count(*) FROM entry").fetchone() == (len(before),)
        database.close()
    spend(world)
    shutil.copy(world.parent / "kept", world.with_suffix(".ledger"))
    assert code(world) == "E_LEDGER_ROLLBACK"


def test_a_network_disk_is_refused(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B163."""
    monkeypatch.setattr("dpsql.privacy.budget.ledger.on_network_disk", lambda _: True)
    assert code(world) == "E_LEDGER_IO"
    assert not world.with_suffix(".ledger").exists()


def test_a_place_that_cannot_be_written_is_named(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refused(path: Path, *how: int, **where: int) -> int:
        if str(path).endswith(".toml"):
            return real(path, *how, **where)
        raise PermissionError

    monkeypatch.setattr("dpsql.privacy.budget.ledger_file.os.open", refused)
    with pytest.raises(dpsql.Error, match="E_LEDGER_IO") as caught:
        dpsql.connect(world)
    assert "writable" in str(caught.value.hint)


def test_links_and_relative_paths_lead_to_one_ledger(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B165."""
    spend(world)
    with dpsql.connect(world) as connection:
        state = ledger_state(connection)
    elsewhere = world.parent / "elsewhere"
    elsewhere.mkdir()
    os.symlink(world, elsewhere / "link.toml")
    os.symlink(world.parent, elsewhere / "folder")
    monkeypatch.chdir(elsewhere)
    for path in ("link.toml", "folder/world.toml", "../world.toml", "./../elsewhere/link.toml"):
        with dpsql.connect(path, epsilon=1) as connection:
            assert ledger_state(connection) == state
    assert not list(elsewhere.glob("*.ledger"))


def test_a_newer_format_is_refused(world: Path) -> None:
    """B166."""
    spend(world)
    database = sqlite3.connect(world.with_suffix(".ledger"))
    (version,) = database.execute("PRAGMA user_version").fetchone()
    database.execute(f"PRAGMA user_version = {version + 1}")
    database.close()
    assert code(world) == "E_LEDGER_VERSION"


def test_creation_over_a_file_is_refused(world: Path) -> None:
    """B184."""
    spend(world)
    with dpsql.connect(world) as connection:
        budget, facts = connection.catalog.budget, connection.catalog.policy_hash()
    policy = Policy(budget.epsilon * 2, budget.delta)
    path = world.with_suffix(".ledger")
    error = refusal(lambda: Ledger.create(path, world.parent / "anchors", policy, facts))
    assert error.code == "E_LEDGER_EXISTS"


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"\0" * 4096])
def test_a_file_that_is_no_ledger_is_refused(world: Path, content: bytes) -> None:
    world.with_suffix(".ledger").write_bytes(content)
    assert code(world).startswith("E_LEDGER_")
    assert world.with_suffix(".ledger").read_bytes() == content


def test_a_damaged_store_of_releases_charges_nothing(world: Path) -> None:
    spend(world)
    world.with_suffix(".releases").write_bytes(b"not a database")
    with dpsql.connect(world, epsilon=1) as connection:
        before = ledger_state(connection)
        assert refusal(lambda: connection.execute(COUNT)).code == "E_LEDGER_TAMPERED"
        assert ledger_state(connection) == before
