"""Two processes with the same statement at the same time: one pays, the other takes its release."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any
from unittest import mock

import pytest

import dpsql
from dpsql.engine import engine
from dpsql.engine.request_locks import lock_request
from dpsql.errors import LedgerError
from tests.engine.test_discover import sell

pytestmark = pytest.mark.slow

ASK = """
import json, sys
import dpsql

with dpsql.connect(sys.argv[1], epsilon=1) as connection:
    for line in sys.stdin:
        cursor = connection.executescript(json.loads(line))
        while cursor.nextset():
            pass
        result = cursor.result
        print(json.dumps([result.cost.free, result.rows]), flush=True)
"""
BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"
CLIPPED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = 'svt') SUM(capital_gain) FROM adult"
LEARNED = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = 'mwem') sex, race, COUNT(*) AS n "
    "FROM adult GROUP BY sex, race"
)
BOTH = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = 'svt') sex, SUM(capital_gain) AS s "
    "FROM adult GROUP BY sex"
)


DOMAIN = "CREATE DOMAIN IF NOT EXISTS products FROM sales (product) OPTIONS (epsilon = 1)"
PRIVATE = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(keys = 'private') sex, product, COUNT(*) AS n "
    "FROM sales GROUP BY sex, product"
)
STATEMENTS = [
    (BY_SEX, {1}),
    (f"{BY_SEX};{BY_SEX}", {0}),
    (CLIPPED, {1}),
    (BOTH, {2, 3}),
    (LEARNED, {1}),
    (f"SET fresh = on;{BY_SEX}", {2}),
]
"""Statements, and how many charges two processes make together that ask at the same time.

A search for a clip that hits nothing is made again, which is a charge of its own.
"""


def test_the_second_takes_what_the_first_released(demo: Path) -> None:
    command = [sys.executable, "-c", ASK, str(demo / "adult.toml")]
    both = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(2)]
    with dpsql.connect(demo / "adult.toml") as connection:
        for sql, charges in STATEMENTS:
            before = connection.budget.entries
            found = asked_together(both, sql)
            made = connection.budget.entries - before
            assert made in charges, sql
            if "fresh" not in sql:
                assert found[0][1] == found[1][1]
                assert 2 - sum(free for free, _ in found) in range(min(made, 1), made + 1)
    for each in both:
        each.communicate(timeout=60)
    assert not list(demo.glob("*-*.lock"))


def asked_together(both: list[subprocess.Popen[str]], sql: str) -> list[list[Any]]:
    """What processes answer that ask the same at the same moment: was it free, and the rows."""
    for each in both:
        assert each.stdin is not None
        each.stdin.write(json.dumps(sql) + "\n")
        each.stdin.flush()
    return [json.loads(each.stdout.readline()) for each in both if each.stdout is not None]


def test_one_synthetic_table_of_a_name(demo: Path) -> None:
    create = (
        "CREATE SYNTHETIC TABLE s FROM adult "
        "FOR (SELECT sex, race, COUNT(*) FROM adult GROUP BY sex, race)"
    )
    with (
        dpsql.connect(demo / "adult.toml", epsilon=1) as one,
        dpsql.connect(demo / "adult.toml", epsilon=1) as two,
    ):
        one.execute(create)
        with pytest.raises(dpsql.ProgrammingError, match="there is a table 's' already"):
            two.execute(create)
        assert two.budget.entries == 1
        assert two.execute("SELECT COUNT(*) FROM s").result.cost.free  # type: ignore[union-attr]


def test_threads_take_turns_and_find(tmp_path: Path) -> None:
    store = tmp_path / "x.releases"
    made: list[int] = []
    found: list[tuple[int, bool]] = []

    def ask() -> None:
        def make() -> int:
            time.sleep(0.02)
            made.append(len(made))
            return made[-1]

        with lock_request(store, "a"):
            found.append((made[0], True) if made else (make(), False))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(timeout=60)
    assert made == [0]
    assert sorted(found) == [(0, False)] + [(0, True)] * 7
    assert list(tmp_path.iterdir()) == []


def test_other_names_are_not_held_up_and_oneself_is_not(tmp_path: Path) -> None:
    store = tmp_path / "x.releases"
    with lock_request(store, "a"), lock_request(store, "b"), lock_request(store, "a"):
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []


def _hold(store: Path, told: object) -> None:
    with lock_request(store, "a"):
        told.set()  # type: ignore[attr-defined]
        time.sleep(600)


def _pass(store: Path) -> None:
    with lock_request(store, "a"):
        pass


def test_a_killed_holder_gives_its_turn_up(tmp_path: Path) -> None:
    store, spawn = tmp_path / "x.releases", multiprocessing.get_context("spawn")
    told = spawn.Event()
    holder = spawn.Process(target=_hold, args=(store, told))
    holder.start()
    assert told.wait(60)
    waiting = spawn.Process(target=_pass, args=(store,))
    waiting.start()
    waiting.join(1)
    assert waiting.is_alive()
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    waiting.join(60)
    assert waiting.exitcode == 0
    holder.join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_does_not_have_the_turn(tmp_path: Path) -> None:
    store = tmp_path / "x.releases"
    fork = multiprocessing.get_context("fork")
    with lock_request(store, "a"):
        idle = fork.Process(target=time.sleep, args=(600,))
        waits = fork.Process(target=_pass, args=(store,))
        idle.start()
        waits.start()
        waits.join(0.5)
        assert waits.is_alive()
    waits.join(60)
    assert waits.exitcode == 0
    idle.kill()
    idle.join()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions bind no one")
def test_where_nothing_can_be_stored_nothing_is_charged(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with (
            pytest.raises(LedgerError, match="nothing was charged"),
            lock_request(tmp_path / "x", "a"),
        ):
            raise AssertionError
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_that_is_gone_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(LedgerError, match="nothing was charged"),
        lock_request(tmp_path / "no" / "x", "a"),
    ):
        raise AssertionError


@pytest.mark.parametrize("sql", [DOMAIN, PRIVATE])
def test_what_others_find_meanwhile_is_taken_free(tmp_path: Path, sql: str) -> None:
    catalog = sell(tmp_path)
    with dpsql.connect(catalog, epsilon=1) as one, dpsql.connect(catalog, epsilon=1) as other:
        once = iter([DOMAIN])

        @contextmanager
        def late(store: Path, name: str) -> Iterator[None]:
            for each in once:
                other.execute(each)
            with lock_request(store, name):
                yield

        with mock.patch.object(engine, "lock_request", late):
            found = one.execute(sql).result
        searches = [entry for entry in one.entries() if "CREATE DOMAIN" in str(entry.sql)]
        assert len(searches) == 1
        assert one.budget.entries == 1 + (sql == PRIVATE)
        if sql == DOMAIN:
            assert found.message == "domain products was found before: free"
            assert "free: from entry 1" in str(one.explain(sql))
