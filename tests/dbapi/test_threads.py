"""Threads that share one connection, though they should not, take turns and get right answers."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise
from tests.support.tables import Tables, open_tables

CATALOG = """
[budget]
epsilon = 100000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 49] }
"""
FORMS = (
    "SELECT COUNT(*) * 2 AS n FROM t WHERE a = {k}",
    "SELECT SUM(n) * 2 FROM (SELECT a, COUNT(*) AS n FROM t WHERE a = {k} GROUP BY a) AS q",
    "SELECT 2 * COUNT(*) FILTER (WHERE a = {k}) AS n FROM t",
)
THREADS, EACH = 6, 12


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    rows = [(k,) for k in range(50) for _ in range(k)]
    tables: Tables = {"t": ("a BIGINT", rows)}
    with open_tables(tmp_path, CATALOG, tables) as (connection, _), zero_noise():
        yield connection


def outcomes(connection: Connection) -> Counter[str]:
    """What comes of statements that threads ask at once, each for another number."""

    def ask(thread: int) -> list[str]:
        found = []
        for i in range(EACH):
            k = 1 + (thread * EACH + i) % 49
            try:
                row = connection.execute(FORMS[i % len(FORMS)].format(k=k)).fetchone()
            except dpsql.Error as error:
                found.append(error.code)
            else:
                found.append("right" if row == (2 * k,) else "wrong")
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        return Counter(each for found in pool.map(ask, range(THREADS)) for each in found)


def test_each_thread_has_its_own_answers(connection: Connection) -> None:
    assert outcomes(connection) == {"right": THREADS * EACH}


def test_threads_that_do_not_take_turns_are_found(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_turn", contextlib.nullcontext())
    found: Counter[str] = Counter()
    for _ in range(5):
        found += outcomes(connection)
        connection.set("fresh", "on")
        if found["right"] < found.total():
            break
    assert found["right"] < found.total()


def test_a_closed_connection_says_so_while_another_thread_has_the_turn(
    connection: Connection,
) -> None:
    begun, done = threading.Event(), threading.Event()

    def hold() -> None:
        with connection._turn:
            begun.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    begun.wait(10)
    connection.close()
    with pytest.raises(dpsql.InterfaceError, match="closed"):
        connection.execute("SELECT COUNT(*) FROM t")
    done.set()
    holder.join()
