"""What leaves the membrane about the data files is keyed: nobody can guess sizes and times by it.

A name of the data version stands in ledger entries, releases and scopes. Whoever reads those and
lacks the ledger's salt must not be able to test a guess about the files.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.privacy.doors.vaults import Vaults

SQL = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"


def names_of(connection: Connection) -> set[str]:
    """Everything stored for a request that is derived from the data version."""
    engine = connection.engine
    found = {entry.data_version for entry in connection.entries() if entry.kind == "debit"}
    found |= set(engine.scopes(["adult"]))
    with closing(sqlite3.connect(engine.store.releases.file.path)) as db:
        found |= {name for (name,) in db.execute("SELECT request FROM release")}
        found |= {name for (name,) in db.execute("SELECT scope FROM measured")}
    return found


def asked_with(connection: Connection, salt: bytes) -> set[str]:
    """The names after a request under another salt; all else is equal, the files too."""
    engine = connection.engine
    engine.store.releases.file.path.unlink(missing_ok=True)
    engine.vaults = Vaults(engine.catalog, salt)
    charges = len(connection.entries())
    connection.execute(SQL, epsilon=1)
    assert len(connection.entries()) == charges + 1
    last = {connection.entries()[-1].data_version}
    return names_of(connection) - {e.data_version for e in connection.entries()} | last


def check_keyed(connection: Connection) -> None:
    assert not asked_with(connection, b"one") & asked_with(connection, b"two")


def test_every_name_of_the_data_version_depends_on_the_salt(adult: Connection) -> None:
    check_keyed(adult)


def test_an_unkeyed_version_is_found(adult: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def unkeyed(self: Vaults, tables: Iterable[str]) -> str:
        facts = [(table, self[table].data_version) for table in tables]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    monkeypatch.setattr(Vaults, "versions", unkeyed)
    with pytest.raises(AssertionError):
        check_keyed(adult)


def test_the_version_is_the_same_after_a_restart(demo: Path) -> None:
    found = []
    for _ in range(2):
        with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
            connection.execute(SQL)
            found.append(names_of(connection))
            assert connection.budget.entries == 1
    assert found[0] == found[1]
