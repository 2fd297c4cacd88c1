"""The twin answers whoever needs it, whatever has died; analysts do not see each other in it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpsql.errors import OperationalError, UsageError
from dpsql.server import own_postgres, twin_server
from dpsql.server.catalog_twin import Twin, open_twin
from dpsql.server.own_postgres import (
    OwnPostgres,
    PackagedPostgres,
    SystemPostgres,
    find_postgres,
)
from dpsql.server.twin_connection import TwinError, last_of

ASKED = "SELECT relname FROM pg_class WHERE relname = 'visits'"
TABLES = (("visits", "privacy unit: row", (("age", "integer", "0 to 9"),)),)


def packaged() -> OwnPostgres:
    """The PostgreSQL that is used where the system has none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_postgres, "FOLDERS", ())
        patch.setattr("shutil.which", lambda name: None)
        return find_postgres()


@contextmanager
def opened(own: OwnPostgres) -> Iterator[Twin]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(twin_server, "find_postgres", lambda: own)
        found = open_twin("auto", "clinic")
    assert found.server.folder is not None
    folder = found.server.folder.path
    found.declare(TABLES)
    yield found
    found.close()
    assert not folder.exists()


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    """By programs as a system has them: those of the package, which it has made fit to be run."""
    packaged()
    programs = Path(str(files("pgserver").joinpath("pginstall", "bin")))
    with opened(SystemPostgres(programs, 16)) as found:
        yield found


@pytest.fixture(autouse=True)
def _never_started(twin: Twin) -> None:
    twin.server._starts.clear()


def end_all(twin: Twin) -> None:
    assert twin.server.folder is not None
    number = int((twin.server.folder.path / "postmaster.pid").read_text().split()[0])
    os.kill(number, signal.SIGKILL)
    while own_postgres.is_running(twin.server.folder.path):
        pass


def end_one(twin: Twin) -> None:
    """Kill the process of a connection: PostgreSQL ends all others, and recovers."""
    with twin.lent("ana") as connection:
        number = connection.backend_pid
    os.kill(number, signal.SIGKILL)


ENDS: dict[str, Callable[[Twin], None]] = {"all of it": end_all, "one process": end_one}


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("how", ["run", "describe", "declare", "alive", "in the middle"])
def test_whoever_needs_it_gets_one_that_lives(twin: Twin, what: str, how: str) -> None:
    reader = twin.reader("ana")
    assert len(reader.run(ASKED)[0] or ()) == 1
    if how == "in the middle":

        def ask(connection: object) -> int:
            if not ended:
                ended.append(True)
                ENDS[what](twin)
            connection.send_query(ASKED.encode())  # type: ignore[attr-defined]
            return int(last_of(connection).ntuples)  # type: ignore[arg-type]

        ended: list[bool] = []
        assert reader._asked(ASKED, ask) == 1
        return
    ENDS[what](twin)
    if how == "describe":
        assert reader.describe(ASKED, [])[1][0].name == "relname"
    elif how == "declare":
        twin.declare((*TABLES, ("other", "", (("x", "text", ""),))))
    elif how == "alive":
        assert twin.is_alive()
    assert len(reader.run(ASKED)[0] or ()) == 1


def test_one_that_dies_again_and_again_is_given_up_for_a_while(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twin_server, "STARTS", 1)
    end_all(twin)
    assert twin.is_alive()
    end_all(twin)
    assert not twin.is_alive()
    with pytest.raises(OperationalError, match="has died 1 times"):
        twin.reader("ana").run(ASKED)
    twin.server._starts.clear()  # as time does
    assert twin.reader("ana").run(ASKED)[0] is not None


def test_analysts_are_roles_that_neither_see_nor_end_each_other(twin: Twin) -> None:
    seen = "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database()"
    with twin.lent("ana") as ana, twin.lent("bo") as bo:
        for connection, text in ((ana, "SELECT 'of ana'"), (bo, seen)):
            connection.send_query(text.encode())
            found = last_of(connection)
        told = [found.get_value(row, 1) or b"" for row in range(found.ntuples)]
        assert not any(b"of ana" in text for text in told)
        bo.send_query(f"SELECT pg_terminate_backend({ana.backend_pid})".encode())
        with pytest.raises(TwinError) as refused:
            last_of(bo)
        assert refused.value.state == "42501"
    assert twin.role("ana") != twin.role("bo")
    assert "ana" not in twin.role("ana")


def test_that_of_the_package_is_started_again_too() -> None:
    with opened(packaged()) as twin:
        for end in ENDS.values():
            assert len(twin.reader("ana").run(ASKED)[0] or ()) == 1
            end(twin)
        assert len(twin.reader("ana").run(ASKED)[0] or ()) == 1


def emptied(folder: Path) -> None:
    for each in folder.iterdir():
        each.unlink()


LEFT: dict[str, Callable[[Path], object]] = {
    "nothing": shutil.rmtree,
    "an empty folder": emptied,
    "part of it": lambda folder: (folder / "PG_VERSION").unlink(),
    "no word of its process": lambda folder: (folder / "postmaster.pid").unlink(),
    "half a word of it": lambda folder: (folder / "postmaster.pid").write_text(""),
    "the number of another": lambda folder: (folder / "postmaster.pid").write_text(
        f"{os.getpid()}\n{folder}\n"
    ),
}
"""Remains of the twin of a server that was killed, while that stopped or not."""


@pytest.mark.parametrize("left", LEFT)
def test_whatever_one_has_left_hinders_no_other(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no process is ended but its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    folder = tmp_path / "dpsql-twin-left"
    folder.mkdir()
    for name in ("PG_VERSION", "postmaster.pid", "base"):
        (folder / name).write_text("16\n")
    folder.with_name(f"{folder.name}.lock").touch()
    LEFT[left](folder)
    started: list[Path] = []
    own: Any = SimpleNamespace(start=started.append)
    monkeypatch.setattr(twin_server, "find_postgres", lambda: own)
    found = twin_server.open_twin_server("auto")
    assert started == [found.folder.path if found.folder else None]
    assert not folder.exists()
    found.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("releases", "has_package", "wanted"),
    [
        ([15, 17, 16], True, SystemPostgres(Path("17"), 17)),
        ([15], True, PackagedPostgres()),
        ([15, 14], False, SystemPostgres(Path("15"), 15)),
        ([13], False, None),
        ([], False, None),
    ],
)
def test_the_newest_of_the_system_comes_first_and_an_old_one_last(
    releases: list[int],
    has_package: bool,
    wanted: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for each in releases:
        folder = tmp_path / str(each) / "bin"
        folder.mkdir(parents=True)
        for name in own_postgres.PROGRAMS:
            (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {each}.3 (Debian)'")
            (folder / name).chmod(0o755)
    monkeypatch.setattr(own_postgres, "FOLDERS", (f"{tmp_path}/*/bin",))
    monkeypatch.setattr("shutil.which", lambda name: None)
    if not has_package:
        monkeypatch.setitem(sys.modules, "pgserver", None)
        monkeypatch.setitem(sys.modules, "pgserver.postgres_server", None)
    if wanted is None:
        with pytest.raises(UsageError, match="from 14 on"):
            find_postgres()
        return
    found = find_postgres()
    assert type(found) is type(wanted)
    assert getattr(found, "release", None) == getattr(wanted, "release", None)
