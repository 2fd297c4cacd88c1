"""Waits in what a session runs: whoever waits may be asked to end, or it is said why not here."""

from __future__ import annotations

import ast
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dpsql.files import patient_connections
from dpsql.interrupts import AGAIN, Cancellation, InterruptibleLock

ROOT = Path(__file__).parents[2] / "dpsql"
ROOMS = ("server", "page", "privacy", "engine", "answer", "dbapi")
WAITS = frozenset(["wait", "acquire", "join", "result", "recv", "accept", "communicate"])
"""Names of calls that wait; without a time they wait for ever."""
EXPLAINED = {
    "page/serving.py self._thread.join()": "the server is closed",
    "page/serving.py self.thread.join()": "the door's own thread, whose socket is shut before",
    "page/workers.py task.result()": "it is done",
    "privacy/vault/codes/prefetch.py batch.result()": "DuckDB's work, which is told to end",
    "privacy/vault/codes/prefetch.py wanted.acquire()": "the thread that is left behind",
    "server/arrivals.py listening().accept()": "the threads of the listeners",
    "server/analyst_session.py self._ticks.wait()": "a tick, of 10 s at most",
    "server/operator_socket.py connection.recv(1 << 16)": "the operator's own command, with a time",
    "server/operator_socket.py connection.recv(LONGEST)": "its own thread, with a time",
    "server/idle_clients.py seat.called.wait()": "until the client says something or is hung up on",
    "server/idle_clients.py self._bell.recv(4096)": "it has rung",
    "server/idle_clients.py self._thread.join()": "the server is closed",
    "server/supervisor.py self._line.recv(16)": "a server's thread for the end of its parent",
    "server/supervisor.py self._line.recv(4096)": "the parent, whose socket does not wait",
    "server/supervisor.py rung.recv(4096)": "the same",
    "server/reload.py self._thread.join()": "the server is closed",
    "server/client_socket.py self._socket.recv(PIECE)": "it does not wait",
    "server/client_socket.py self._socket.recv(max(PIECE, count - len(self._in)))": "idle clients",
}
"""Waits without a time, and why nobody need end them; the list may only shrink."""


def waits(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = {each.arg: each.value for each in node.keywords}
            is_timed = bool(named.keys() & {"timeout", "blocking"})
            if node.func.attr in ("wait", "join", "acquire", "result", "communicate"):
                is_timed |= bool(node.args)
            if node.func.attr in WAITS and not is_timed:
                yield f"{path.relative_to(ROOT).as_posix()} {ast.unparse(node)}"
            if ast.unparse(node.func) == "sqlite3.connect":
                assert ast.unparse(named["timeout"]) == "AGAIN", path
                assert "factory" in named, path


def test_every_wait_ends_or_is_explained() -> None:
    found = {each for room in ROOMS for path in (ROOT / room).rglob("*.py") for each in waits(path)}
    assert found - EXPLAINED.keys() == set()
    assert EXPLAINED.keys() - found == set()


def ended_within(work: Callable[[], object], begun: threading.Event) -> float:
    """Seconds until work in a thread has ended, from when another asked for it."""
    wish, times = Cancellation(), []

    def run() -> None:
        with wish:
            try:
                work()
            except KeyboardInterrupt:
                times.append(time.monotonic())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    begun.wait(30)
    asked = time.monotonic()
    wish.ask()
    thread.join(30)
    assert times, "it went on"
    return times[0] - asked


def test_who_waits_for_a_lock_may_be_asked_to_end() -> None:
    lock, begun = threading.Lock(), threading.Event()

    def wait() -> None:
        begun.set()
        with InterruptibleLock(lock):
            raise AssertionError

    with lock:
        assert ended_within(wait, begun) < 15
    with InterruptibleLock(lock):
        assert lock.locked()
    assert not lock.locked()


@pytest.mark.parametrize(
    "asked", ["BEGIN IMMEDIATE", "SELECT * FROM t", "INSERT INTO t VALUES (2)"]
)
def test_who_waits_for_a_database_may_be_asked_to_end(asked: str, tmp_path: Path) -> None:
    path, begun = str(tmp_path / "x.db"), threading.Event()

    def wait() -> None:
        made = {"timeout": AGAIN, "isolation_level": None, "factory": patient_connections()}
        with closing(sqlite3.connect(path, **made)) as mine:  # type: ignore[call-overload]
            begun.set()
            mine.execute(asked)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN EXCLUSIVE")
        assert ended_within(wait, begun) < 15  # SQLite's own wait took all of its seconds


def test_a_commit_waits_for_readers_and_is_done(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN")
        other.execute("SELECT * FROM t").fetchall()
        threading.Timer(8 * AGAIN, other.execute, ("COMMIT",)).start()
        made = {"timeout": AGAIN, "factory": patient_connections()}
        with closing(sqlite3.connect(path, **made)) as mine:  # type: ignore[call-overload]
            with mine:
                mine.execute("INSERT INTO t VALUES (1)")
            assert mine.execute("SELECT * FROM t").fetchall() == [(1,)]
        with closing(sqlite3.connect(path)) as third:
            assert third.execute("SELECT * FROM t").fetchall() == [(1,)]
