"""What keeps a store from being read or written is told as it is, and what would work."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import dpsql
from dpsql.answer.change_counter import ChangeCounter
from dpsql.answer.store import File, Store
from dpsql.errors import LedgerError
from tests.support.tables import open_tables

CATALOG = """
[budget]
epsilon = 1000
[table.t]
source = "t.parquet"
privacy_unit = { column = "who", max_rows = 2 }
[table.t.column]
sex = { type = "text", domain = ["f", "m"] }
"""
TABLES = {"t": "SELECT i // 2 AS who, 'fm'[1 + i % 2] AS sex FROM range(40) r(i)"}
COUNT = "SELECT COUNT(*) FROM t"


def failing(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("told by SQLite")
    error.sqlite_errorname = name
    return error


def refused(file: File, error: Exception, begins: str) -> LedgerError:
    def fail(_: sqlite3.Connection) -> None:
        raise error

    with pytest.raises(LedgerError) as caught:
        file.read(fail) if begins == "read" else file.write(fail, "it stays out of {}")
    return caught.value


TOLD = [
    (failing("SQLITE_FULL"), "the disk is full"),
    (failing("SQLITE_BUSY"), "another process has held it for too long"),
    (failing("SQLITE_BUSY_SNAPSHOT"), "another process has held it for too long"),
    (failing("SQLITE_LOCKED"), "another process has held it for too long"),
    (failing("SQLITE_READONLY_DIRECTORY"), "it may only be read"),
    (failing("SQLITE_CANTOPEN"), "it cannot be opened"),
    (failing("SQLITE_IOERR_WRITE"), "the disk fails, or has no room"),
    (OSError(errno.ENOSPC, "x"), "the disk is full"),
    (OSError(errno.EACCES, "x"), "permission is denied"),
    (OSError(errno.EROFS, "x"), "it may only be read"),
    (OSError(errno.ENOENT, "x"), "it, or its folder, is not there"),
    (OSError(errno.EMFILE, "x"), "this process has too many files open"),
    (OSError(errno.EIO, "x"), "the disk fails, or has no room"),
]


@pytest.mark.parametrize(("error", "what"), TOLD, ids=[str(i) for i in range(len(TOLD))])
def test_a_trouble_is_told_as_it_is(tmp_path: Path, error: Exception, what: str) -> None:
    file = Store(tmp_path / "x.toml").releases.file
    file.write(lambda db: None, "")
    for begins in ("read", "write"):
        found = refused(file, error, begins)
        assert found.code == "E_LEDGER_IO"
        assert str(found).startswith(
            f"the store of releases x.releases cannot be read: {what}"
            if begins == "read"
            else f"it stays out of x.releases: {what}"
        )
        assert found.hint


@pytest.mark.parametrize(
    "error", [failing("SQLITE_ERROR"), failing("SQLITE_NOTADB"), ValueError(), KeyError("x")]
)
def test_damage_is_damage(tmp_path: Path, error: Exception) -> None:
    file = Store(tmp_path / "x.toml").releases.file
    file.write(lambda db: None, "")
    assert refused(file, error, "read").code == "E_LEDGER_TAMPERED"


def test_troubles_of_real_files(tmp_path: Path) -> None:
    file = Store(tmp_path / "x.toml").releases.file
    file.path.mkdir()
    with pytest.raises(LedgerError, match="cannot be opened"):
        file.read(lambda db: None)
    file.path.rmdir()
    file.path.write_bytes(b"no database" * 100)
    with pytest.raises(LedgerError, match="is damaged"):
        file.read(lambda db: None)
    file.path.unlink()
    file.write(lambda db: None, "")
    real = sqlite3.connect
    with closing(real(file.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with (
            mock.patch.object(sqlite3, "connect", lambda path, **_: real(path, timeout=0.01)),
            pytest.raises(LedgerError, match="another process has held it"),
        ):
            file.read(lambda db: None)


@contextmanager
def uncommitted_outside() -> Iterator[None]:
    """Outside of transactions the count is that of a change that is under way, and is undone.

    SQLite writes it to the file before the change is made to stay.
    """
    read = ChangeCounter.read

    def ahead(counter: ChangeCounter) -> bytes:
        found = read(counter)
        with closing(sqlite3.connect(counter._path, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                return found
        return (int.from_bytes(found, "big") + 1).to_bytes(4, "big") if found else found

    with mock.patch.object(ChangeCounter, "read", ahead):
        yield


def test_a_change_that_is_undone_hides_no_release(tmp_path: Path) -> None:
    with open_tables(tmp_path, CATALOG, TABLES) as (one, _):
        one.execute("SELECT COUNT(*) FROM t WHERE sex = 'f'")
        with dpsql.connect(one.catalog.path, epsilon=1) as other, ExitStack() as choosing:
            real = other.engine.settle

            def settle(step: Any) -> Any:
                choosing.close()
                one.execute(COUNT)
                return real(step)

            choosing.enter_context(uncommitted_outside())
            with mock.patch.object(other.engine, "settle", settle):
                assert other.execute(COUNT).result.cost.free  # type: ignore[union-attr]
        assert len([entry for entry in one.entries() if entry.kind == "debit"]) == 2


def test_the_count_of_changes_is_that_of_what_was_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "x.toml")
    store.tables.file.write(lambda db: None, "")
    store.releases.file.write(lambda db: None, "")
    true = store.tables.file.counter.read(), store.releases.file.counter.read()
    with uncommitted_outside():
        assert store.tables.file.counter.read() != true[0]
        assert store.tables.all_with_count() == ({}, true[0])
        assert store.releases.candidates(["x"], [["y"]]).changes == true[1]
