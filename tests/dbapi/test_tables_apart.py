"""Nobody waits for a read that they do not need: one is held, and all else is answered meanwhile.

No clock decides: what would wait for the held read never ends, and a watchdog says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.dbapi.connection import Connection
from dpsql.dbapi.site import Site, open_site
from dpsql.interrupts import Cancellation
from dpsql.privacy.vault.files.duckdb import FileEngine
from dpsql.privacy.vault.stored_rows import StoredRows
from dpsql.privacy.vault.vault import RelatedRows
from tests.support.tables import write_tables

WATCHDOG = 120.0
CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4

[ledger]
anchor = "anchors"

[table.a]
source = "a.parquet"
privacy_unit = "row"
[table.a.column]
x = { type = "integer", domain = [0, 9] }
y = { type = "integer", domain = [0, 9] }

[table.b]
source = "b.parquet"
privacy_unit = "row"
[table.b.column]
x = { type = "integer", domain = [0, 9] }

[table.p]
source = "p.parquet"
privacy_unit = { column = "who", max_rows = 3 }
[table.p.column]
x = { type = "integer", domain = [0, 9] }
y = { type = "integer", domain = [0, 9] }
"""
ROWS = "SELECT i % 10 AS x, i % 7 AS y, i // 2 AS who FROM range(200) r(i)"
COUNT = "SELECT COUNT(*) FROM {} WHERE {} = {}"
JOIN = "SELECT COUNT(*) FROM p JOIN p AS q USING (who) WHERE p.x = 1 AND q.y = 2"


class Held:
    """A place that threads reach and wait in until it is let go of."""

    def __init__(self) -> None:
        self.reached, self.gate = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        self.gate.wait()  # which is opened at the end, whatever fails


@contextmanager
def holding(kind: str) -> Iterator[Held]:
    """Hold the reads of a kind."""
    held = Held()
    opens, reads, relates = FileEngine.open, StoredRows.read, RelatedRows.read

    def open_it(self: FileEngine, table: Any) -> Any:
        if kind == "opening" and table.name == "a":
            held.wait()
        return opens(self, table)

    def read(self: StoredRows, columns: frozenset[str]) -> Any:
        is_here = self.table.name == "a" and (kind != "column" or "y" in columns)
        if kind in ("first", "version", "column") and is_here:
            held.wait()
        return reads(self, columns)

    def relate(self: RelatedRows, columns: frozenset[str]) -> Any:
        if kind == "join":
            held.wait()
        return relates(self, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileEngine, "open", open_it)
        patch.setattr(StoredRows, "read", read)
        patch.setattr(RelatedRows, "read", relate)
        try:
            yield held
        finally:
            held.gate.set()


class Errand(threading.Thread):
    """A statement in a thread of its own, under a cancellation."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.work, self.wish = work, Cancellation()
        self.found: object = None

    def run(self) -> None:
        try:
            with self.wish:
                self.found = self.work()
        except BaseException as error:
            self.found = error

    def end(self) -> object:
        self.join(WATCHDOG)
        assert not self.is_alive(), "it waits for what it does not need"
        return self.found


def asked(connection: Connection, sql: str) -> Errand:
    errand = Errand(lambda: connection.execute(sql).fetchall())
    errand.start()
    return errand


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    write_tables(tmp_path, CATALOG, dict.fromkeys("abp", ROWS)).close()
    found = open_site(tmp_path / "t.toml")
    yield found
    found.close()


def session(site: Site) -> Connection:
    found = site.connect()
    found.set("epsilon", "1")
    return found


HELD = {
    "first": COUNT.format("a", "x", 1),
    "opening": COUNT.format("a", "x", 1),
    "version": COUNT.format("a", "x", 2),
    "column": COUNT.format("a", "y", 1),
    "join": JOIN,
}
ELSEWHERE: dict[str, Callable[[Site], object]] = {
    "count": lambda site: session(site).execute(COUNT.format("b", "x", 3)).fetchall(),
    "again": lambda site: session(site).execute(COUNT.format("b", "x", 5)).fetchall(),
    "show": lambda site: session(site).execute("SHOW budget").fetchall(),
    "explain": lambda site: session(site).explain(COUNT.format("b", "x", 4)),
    "sign-in": session,
    "same table": lambda site: session(site).execute(COUNT.format("a", "x", 5)).fetchall(),
    "explain the same": lambda site: session(site).explain(COUNT.format("a", "y", 5)),
    "joined table": lambda site: session(site).execute(COUNT.format("p", "x", 5)).fetchall(),
}


def needs(kind: str, other: str) -> bool:
    """True if an errand needs what is held."""
    of_a = kind in ("first", "opening", "version")
    return (of_a and other == "same table") or (kind == "opening" and other == "explain the same")


@pytest.mark.parametrize("kind", HELD)
def test_what_needs_no_held_read_is_answered_meanwhile(
    site: Site, kind: str, tmp_path: Path
) -> None:
    session(site).execute(COUNT.format("b", "x", 5))
    if kind in ("version", "column"):
        session(site).execute(COUNT.format("a", "x", 1))
    if kind == "version":
        with duckdb.connect() as made:
            made.execute(f"COPY ({ROWS.replace('200', '300')}) TO '{tmp_path / 'a.parquet'}'")
        site.engine.reopen()
    with holding(kind) as held:
        first = asked(session(site), HELD[kind])
        assert held.reached.wait(WATCHDOG)
        for other, work in ELSEWHERE.items():
            if not needs(kind, other):
                errand = Errand(lambda work=work: work(site))  # type: ignore[misc]
                errand.start()
                assert not isinstance(errand.end(), BaseException), (other, errand.found)
        assert first.is_alive()
        for pause in (0, 0.01, 0.1, 0.5):  # it is still at its text, or waits already
            waits = asked(session(site), HELD[kind].replace("COUNT(*)", "COUNT(*) AS n"))
            time.sleep(pause)
            waits.wish.ask()
            assert isinstance(waits.end(), KeyboardInterrupt), pause
        assert first.is_alive()
    assert isinstance(first.end(), list)


def test_who_waits_for_a_read_that_was_ended_reads_by_itself(site: Site) -> None:
    with holding("first") as held:
        first, second = (asked(session(site), COUNT.format("a", "x", i)) for i in (1, 2))
        assert held.reached.wait(WATCHDOG)
        first.wish.ask()
    ends = [first.end(), second.end()]
    assert isinstance(ends[1], list)


def test_columns_that_are_read_at_once_are_of_the_same_rows(site: Site) -> None:
    texts = [COUNT.format("a", name, i) for name in "xy" for i in range(5)]
    errands = [asked(session(site), text) for text in texts]
    assert all(isinstance(errand.end(), list) for errand in errands)
    held = site.engine.vaults.tables.found["a"]._held
    assert held.rows is not None
    assert held.rows.codes.keys() == {"x", "y"}
    assert held.rows.codes["x"].tolist() == [i % 10 for i in range(200)]
    assert held.rows.codes["y"].tolist() == [i % 7 for i in range(200)]
