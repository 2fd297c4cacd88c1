"""A transaction of one thread stays locked for others, whatever its process does beside it."""

from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from unittest import mock

import pytest

import dpsql
from dpsql.answer.change_counter import change_counter
from dpsql.answer.store import File, Store
from dpsql.catalog.read import read_catalog
from dpsql.files import keep_private
from dpsql.privacy.budget.curator_acts import ledger_file, verify_ledger
from tests.support.world import catalog_text, write_data

COUNT = "SELECT COUNT(*) FROM adult"
LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    db.execute("BEGIN EXCLUSIVE")
    print("taken")
except sqlite3.OperationalError as error:
    print(error)
"""


def locked(path: Path) -> bool:
    """Whether another process finds the file locked."""
    command = [sys.executable, "-c", LOCK, str(path)]
    return subprocess.check_output(command, text=True).strip() == "database is locked"


def file_of(folder: Path) -> File:
    return Store(folder / "x.toml").releases.file


def test_the_count_follows_every_commit(tmp_path: Path) -> None:
    counter = change_counter(tmp_path / "x.db")
    assert counter.read() == b""
    seen = [counter.read()]
    for number in range(3):
        with closing(sqlite3.connect(tmp_path / "x.db")) as db, db:
            db.execute(f"CREATE TABLE t{number} (a)")
        seen.append(counter.read())
    (tmp_path / "x.db").unlink()
    assert counter.read() == b""
    with closing(sqlite3.connect(tmp_path / "x.db")) as db, db:
        db.execute("CREATE TABLE t (a)")
    assert counter.read() == seen[1]
    assert len(set(seen)) == 4


def test_one_counter_for_all_and_none_when_nobody_asks(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    (tmp_path / "other.db").symlink_to(path)
    path.write_bytes(bytes(100))
    first = change_counter(path)
    assert first is change_counter(tmp_path / "other.db")
    first.read()
    file = first._file
    assert file is not None
    os.fstat(file)
    del first
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


WORK: dict[str, Callable[[Path], object]] = {
    "count": lambda folder: file_of(folder).counter.read(),
    "a store that is forgotten": lambda folder: (file_of(folder).counter.read(), gc.collect()),
    "rights": lambda folder: keep_private(folder / "x.releases"),
    "read": lambda folder: Store(folder / "x.toml").releases.all(),
}


@pytest.mark.parametrize("work", WORK)
def test_a_transaction_stays_locked(tmp_path: Path, work: str) -> None:
    file = file_of(tmp_path)
    with file.opened("BEGIN IMMEDIATE"):
        pass  # what reads makes no file
    with file.opened() as db:
        db.execute("SELECT * FROM release").fetchall()
        assert locked(file.path)
        WORK[work](tmp_path)
        assert locked(file.path)
    assert not locked(file.path)


def test_a_new_file_is_closed_before_it_has_its_name(tmp_path: Path) -> None:
    """Another thread may lock it from then on."""
    link = os.link

    def checked(name: str, path: Path) -> None:
        made = os.stat(name)
        for descriptor in map(int, os.listdir("/dev/fd")):
            with suppress(OSError):
                assert not os.path.samestat(os.fstat(descriptor), made)
        link(name, path)

    with mock.patch("os.link", checked):
        keep_private(tmp_path / "x")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["x"]


def test_a_session_leaves_the_locks_of_others(tmp_path: Path) -> None:
    """Connecting, asking again, EXPLAIN, verifying: with each file locked by another thread."""
    write_data(tmp_path, "table")
    catalog = tmp_path / "x.toml"
    catalog.write_text(catalog_text(), encoding="utf-8")
    with dpsql.connect(catalog, epsilon=1) as connection:
        connection.execute(COUNT)
        for path in (tmp_path / "x.releases", ledger_file(read_catalog(catalog))):
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("BEGIN")
                db.execute("SELECT * FROM sqlite_master").fetchall()
                with dpsql.connect(catalog, epsilon=1) as other:
                    other.execute(COUNT)
                    other.execute(f"EXPLAIN {COUNT} WHERE age > 30")
                    repr((other.budget, other.entries()))
                gc.collect()
                verify_ledger(catalog)
                assert locked(path)
