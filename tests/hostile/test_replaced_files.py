"""Files that go, are cut short or are replaced while they are in use: refused, told, no waiting."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import dpsql
from tests.support.tables import write_tables

CATALOG = """
[budget]
epsilon = 1000
[table.t]
source = "t.parquet"
privacy_unit = { column = "who", max_rows = 2 }
[table.t.column]
age = { type = "integer", domain = [0, 9] }
sex = { type = "text", domain = ["f", "m"] }
"""
TABLES = {"t": "SELECT i // 2 AS who, i % 10 AS age, 'fm'[1 + i % 2] AS sex FROM range(40) r(i)"}
MADE = (
    "SELECT sex, COUNT(*) FROM t GROUP BY sex",
    "CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1)"
    " FOR (SELECT sex, age, COUNT(*) FROM t GROUP BY CUBE (sex, age))",
)
ASKED = (
    MADE[0],
    "SELECT age, COUNT(*) FROM t GROUP BY age",
    "EXPLAIN SELECT COUNT(*) FROM t WHERE age < 5",
    "SELECT sex, COUNT(*) FROM s GROUP BY sex",
    "SHOW budget",
)
FILES = {
    "data": "t.parquet",
    "catalog": "t.toml",
    "ledger": "t.ledger",
    "releases": "t.releases",
    "synthetic": "t.synthetic",
    "lock": "t.ledger.lock",
    "anchor": "state/dpsql/anchors/*.anchor",
    "note": "state/dpsql/anchors/*.source",
    "anchors": "state/dpsql/anchors/sources.lock",
    "state": "state",
}
LIMIT = 20
"""Seconds of all statements; they take a twentieth of that."""


def leave(path: Path) -> None:
    """Nothing is done: what is asked of the copy is answered."""


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def litter(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


def make_folder(path: Path) -> None:
    remove(path)
    path.mkdir()


def link_to_nothing(path: Path) -> None:
    remove(path)
    path.symlink_to(path.parent / "nothing" / "here")


def make_pipe(path: Path) -> None:
    remove(path)
    os.mkfifo(path)


HOW = (remove, cut, empty, litter, make_folder, link_to_nothing, make_pipe)


class Waits(BaseException):
    """Raised where something waits: no handler of errors takes it for one."""


@contextmanager
def limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Waits

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A folder with all files, and a copy that it is made from again."""
    folder = tmp_path_factory.mktemp("used") / "t"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        write_tables(folder, CATALOG, TABLES)
        with dpsql.connect(folder / "t.toml", epsilon=1) as connection:
            for sql in MADE:
                connection.execute(sql)
        shutil.copytree(folder, folder.parent / "copy")
        yield folder, folder.parent / "copy"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_file_in_use_that_is_not_as_it_was_is_told(
    made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, name: str, is_open: bool
) -> None:
    folder, copy = made
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    for how in (leave, *HOW):
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        (path,) = folder.glob(FILES[name])
        if path.is_dir() and how in (cut, empty, litter):
            continue
        with limited():
            told = asked_after(how, path, folder / "t.toml", is_open)
            assert how is not leave or not told
            for code, hint in told:
                assert code not in ("E_UNEXPECTED", "E_INTERNAL"), how
                assert hint, (how, code)


def asked_after(
    how: Callable[[Path], None], path: Path, catalog: Path, is_open: bool
) -> list[tuple[str, str | None]]:
    """The errors of statements after a file was changed, by a connection that was there before."""
    found = []
    kept = dpsql.connect(catalog, epsilon=1) if is_open else None
    how(path)
    for sql in ASKED:
        try:
            if kept is not None:
                kept.execute(sql).fetchall()
                continue
            with dpsql.connect(catalog, epsilon=1) as connection:
                connection.execute(sql).fetchall()
        except dpsql.Error as error:
            found.append((str(error.code), error.hint))
    if kept is not None:
        kept.close()
    return found


def test_a_state_folder_that_is_a_file_is_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_tables(tmp_path, CATALOG, TABLES)
    with pytest.raises(dpsql.Error, match="its folder, is not there") as caught:
        dpsql.connect(tmp_path / "t.toml", epsilon=1)
    assert caught.value.code == "E_LEDGER_IO"
