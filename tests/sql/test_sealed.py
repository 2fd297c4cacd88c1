"""An evaluation ends at its limit, and the next one is none the worse for it."""

from __future__ import annotations

import os
import threading

import duckdb
import pytest

from dpsql import sealed
from dpsql.errors import ProgrammingError
from dpsql.sealed import PrefetchedConnection, SealedConnection

LONG = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"


def test_what_takes_too_long_is_interrupted_and_nothing_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sealed, "_clock", sealed._Clock())
    first, second = SealedConnection(), SealedConnection()
    monkeypatch.setattr(sealed, "TIME_LIMIT", 0.1)
    for _ in range(3):
        with pytest.raises(ProgrammingError, match="too long"):
            first.run(LONG)
        assert first.run("SELECT 1") == second.run("SELECT 1") == [(1,)]
    first.close()
    second.close()
    watching = sealed._clock._thread
    if watching is not None:
        watching.join(60)
    assert sealed._clock._thread is None
    assert not sealed._clock._running


def test_what_is_paid_for_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "_clock", sealed._Clock())
    monkeypatch.setattr(sealed, "TIME_LIMIT", 0.1)
    slow = "SELECT sum((a.range + b.range) % 7) FROM range(10000) a, range(20000) b"
    connection = SealedConnection()

    def refused() -> bool:
        try:
            connection.query(slow)
        except ProgrammingError as error:
            return "too long" in str(error)
        return False

    assert any(refused() for _ in range(20))  # who watches the time may come late to one
    assert connection.query(slow, limits=10_000)[1][0][0] > 0
    connection.close()


def test_a_connection_is_opened_beside_other_work_once() -> None:
    opened: list[threading.Thread] = []

    def opening() -> duckdb.DuckDBPyConnection:
        opened.append(threading.current_thread())
        return duckdb.connect()

    ahead = PrefetchedConnection(opening)
    ahead.begin()
    ahead.begin()
    first, second = ahead.take(), ahead.take()
    assert [each is threading.current_thread() for each in opened] == [False, True]
    assert first is not second
    for each in (first, second):
        assert each.execute("SELECT 1").fetchall() == [(1,)]
        each.close()


def test_what_nobody_takes_is_closed() -> None:
    kept: list[duckdb.DuckDBPyConnection] = []

    def opening() -> duckdb.DuckDBPyConnection:
        kept.append(duckdb.connect())
        return kept[-1]

    ahead = PrefetchedConnection(opening)
    ahead.close()
    ahead.begin()
    ahead.close()
    with pytest.raises(duckdb.ConnectionException):
        kept[0].execute("SELECT 1")
    ahead.take().close()
    assert len(kept) == 2


def test_an_error_beside_other_work_is_told_to_who_needs_the_connection() -> None:
    def opening() -> duckdb.DuckDBPyConnection:
        raise MemoryError

    ahead = PrefetchedConnection(opening)
    ahead.begin()
    for _ in range(2):
        with pytest.raises(MemoryError):
            ahead.take()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_does_not_wait_for_a_thread_that_it_lacks() -> None:
    begun, go = threading.Event(), threading.Event()

    def opening() -> duckdb.DuckDBPyConnection:
        begun.set()
        go.wait(60)
        return duckdb.connect()

    ahead = PrefetchedConnection(opening)
    ahead.begin()
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        ahead._opening = duckdb.connect
        os._exit(ahead.take().execute("SELECT 42").fetchall() != [(42,)])
    _, status = os.waitpid(child, 0)
    go.set()
    ahead.close()
    assert status == 0
