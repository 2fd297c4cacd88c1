"""Whoever asks a read to end is heard after few rows, whatever is read; and it begins anew.

Looks are counted, not seconds: some for every batch, so that twice the rows have twice as many; and
bytes that are taken between two of them.
"""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.discovery import Sought
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import DataUnavailable
from dpsql.interrupts import Cancellation
from dpsql.privacy.vault.codes import distinct_integers, tally
from dpsql.privacy.vault.files import duckdb as duckdb_module
from dpsql.privacy.vault.files import lines
from dpsql.privacy.vault.servers.held_sessions import one_snapshot
from dpsql.privacy.vault.unit import key_counts, unit_counts, unit_numbers
from dpsql.privacy.vault.vault import TableVault
from dpsql.relation.header import read_header
from dpsql.relation.unit_local import DerivedTable, JoinRows, Scan
from tests.support.postgres import Server

SALT = bytes(32)
ROWS, BATCH = 6000, 500
NUMBER = 12
"""Bytes of a number, of whether it is there, and what threads take meanwhile."""
A = Column("a", "integer", IntegerRange(0, 9))
KEYS = Column("k", "text", sought=Sought("keys", 3))
SELECTED = "i % 10 AS a, 'k, ' || i % 7 AS k, i // 40 AS p, 'p' || i // 40 AS t FROM range({}) r(i)"


class Counted(Cancellation):
    """A cancellation that counts who looks at it, and may be asked for at one of these looks."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__()
        self.at, self.looks = at, 0

    def check(self) -> None:
        self.looks += 1
        if self.looks == self.at:
            self.ask()
        super().check()


def table_of(folder: Path, kind: str, rows: int, unit: Unit) -> Table:
    """A table of so many rows in files of a kind."""
    folder.mkdir(exist_ok=True)
    columns, options = {"a": A, "k": KEYS}, tuple[tuple[str, str], ...]()
    if kind in ("table", "view"):
        options = (("table", "t"), *([("view", "true")] if kind == "view" else []))
        with duckdb.connect(str(folder / "t.duckdb")) as made:
            made.execute(f"CREATE OR REPLACE {kind} t AS SELECT {SELECTED.format(rows)}")
        return Table("t", str(folder / "t.duckdb"), unit, columns, options=options)
    with duckdb.connect() as made:
        made.execute(f"COPY (SELECT {SELECTED.format(rows)}) TO '{folder / f't.{kind}'}'")
    return Table("t", str(folder / f"t.{kind}"), unit, columns)


def load(vault: TableVault) -> None:
    vault.load()


def seek(vault: TableVault) -> None:
    assert KEYS.sought is not None
    vault.find("k", KEYS.sought)


def joined(folder: Path, rows: int) -> TableVault:
    """Rows of units beside each other."""
    base = table_of(folder, "parquet", rows, Unit("p", 40))
    base = Table("t", base.source, base.unit, {"a": A})
    relation = JoinRows(Scan("t"), Scan("t"), "o", one=True)
    header = read_header(relation, {"t": base})
    facts = dict(header.columns)
    unit = Unit(header.unit, 50)
    return TableVault(DerivedTable("j", "", unit, facts, relation=relation, bases=(base,)), SALT)


Work = Callable[[TableVault], None]
READS: dict[str, tuple[str, Unit, Work]] = {
    "csv": ("csv", Unit(), load),
    "csv of units": ("csv", Unit("t", 5), load),
    "parquet": ("parquet", Unit(), load),
    "units by number": ("parquet", Unit("p", 5), load),
    "units by text": ("parquet", Unit("t", 5), load),
    "table": ("table", Unit("p", 5), load),
    "view": ("view", Unit("p", 5), load),
    "join": ("join", Unit(), load),
    "keys": ("parquet", Unit("p", 5), seek),
    "keys of rows": ("csv", Unit(), seek),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are many batches."""
    monkeypatch.setattr(duckdb_module, "ROWS", BATCH)
    monkeypatch.setattr(lines, "BLOCK", 20 * BATCH)
    for name in ("GATHERED", "CONTENTS", "STRIDE"):
        monkeypatch.setattr(unit_numbers, name, BATCH)
    for name in ("BLOCK", "SORTED"):
        monkeypatch.setattr(distinct_integers, name, BATCH)
    monkeypatch.setattr(key_counts, "BLOCK", BATCH)
    for module in (tally, unit_counts):
        monkeypatch.setattr(module, "CHUNK", BATCH)


def opened(folder: Path, name: str, rows: int) -> TableVault:
    """The vault of a table that is written anew, with the same rows."""
    kind, unit, _ = READS[name]
    return (
        joined(folder, rows)
        if kind == "join"
        else TableVault(table_of(folder, kind, rows, unit), SALT)
    )


class Measured(Counted):
    """Counts looks, and keeps the most bytes that were taken between two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self.before = 0, tracemalloc.get_traced_memory()[0]

    def check(self) -> None:
        now, peak = tracemalloc.get_traced_memory()
        self.most, self.before = max(self.most, peak - self.before), now
        tracemalloc.reset_peak()
        super().check()


def measured(folder: Path, name: str, rows: int) -> tuple[int, int]:
    """The looks while so many rows are read, and the most bytes between two of them."""
    vault = opened(folder / str(rows), name, rows)
    tracemalloc.start()
    try:
        asked = Measured()
        with asked:
            READS[name][2](vault)
            vault.tally([], READS[name][1].column is not None)
            asked.check()
        return asked.looks, asked.most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", READS)
def test_there_is_a_look_for_every_few_rows(name: str, tmp_path: Path) -> None:
    """Rows are worked on in blocks: between two looks, room for a number of each is taken."""
    measured(tmp_path, name, BATCH)  # what is imported is by then
    (few, small), (many, large) = (measured(tmp_path, name, n) for n in (ROWS, 6 * ROWS))
    assert many - few >= 5 * ROWS // (2 * BATCH)
    assert large - small <= 5 * ROWS * NUMBER


@pytest.mark.parametrize("of_one", [40, 4 * BATCH])
@pytest.mark.parametrize("name", [each for each in READS if each != "join"])
def test_nothing_sorts_more_rows_at_once_than_a_block(
    name: str, of_one: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can interrupt a call outside of Python; the keys of a unit stay together."""
    rows = SELECTED.replace("i // 40", f"i // {of_one}")
    monkeypatch.setattr("tests.privacy.test_reads_end.SELECTED", rows)
    vault, sorted_ = opened(tmp_path / "t", name, ROWS), list[int]()

    def see(_: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in ("sort", "argsort", "partition"):
            sorted_.append(len(called.__self__))

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        READS[name][2](vault)
        vault.tally([], READS[name][1].column is not None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert max(sorted_, default=0) <= BATCH + 40


@pytest.mark.parametrize("name", READS)
def test_a_read_ends_at_any_look_and_begins_anew(name: str, tmp_path: Path) -> None:
    vault, work = opened(tmp_path / "t", name, ROWS), READS[name][2]
    before = threading.active_count()
    for at in (1, 2, 3, 4, 7, 12):
        with Counted(at), pytest.raises(KeyboardInterrupt):
            work(vault)
        assert threading.active_count() == before
    work(vault)
    assert vault.tally([]) == opened(tmp_path / "t", name, ROWS).tally([])


def test_a_view_that_has_no_row_yet_ends_at_once(tmp_path: Path) -> None:
    """Without an end it would take hours."""
    table = table_of(tmp_path, "view", ROWS, Unit())
    with duckdb.connect(table.source) as made:
        made.execute(
            "CREATE OR REPLACE VIEW t AS SELECT SUM(SQRT(i))::BIGINT % 10 AS a, 'k' AS k"
            " FROM range(20000000000) r(i)"
        )
    table = replace(table, options=(*table.options, ("spill", str(tmp_path))))
    vault, asked = TableVault(table, SALT), Cancellation()
    timer = threading.Timer(0.3, asked.ask)
    timer.start()
    with asked, pytest.raises(KeyboardInterrupt):
        vault.load()
    timer.join()


@pytest.mark.parametrize("read", ["stream", "push"])
def test_a_read_of_postgresql_ends_at_once_and_begins_anew(database: Server, read: str) -> None:
    """Rows that are streamed, or kept there to be counted: without an end it would take hours."""

    def view(seconds: int) -> None:
        rows = f"SELECT i % 10 AS a FROM generate_series(1, 50) r(i), pg_sleep({seconds})"
        database.run(f"CREATE OR REPLACE VIEW public.slow AS {rows}")

    view(36_000)
    options = {"engine": "postgresql", "table": "public.slow", "dsn_env": "CLINIC_DSN"}
    options |= {"view": "true", "read": read, "version": "1"}
    source = "postgresql://public.slow"
    table = Table("slow", source, Unit(), {"a": A}, options=tuple(options.items()))
    with one_snapshot():
        vault, asked = TableVault(table, SALT), Cancellation()
        timer = threading.Timer(0.3, asked.ask)
        timer.start()
        with asked, pytest.raises(KeyboardInterrupt):
            vault.load()
        timer.join()
        vault.close()
    view(0)
    with one_snapshot():
        vault = TableVault(table, SALT)
        vault.load()
        assert vault.tally([]) == 50
        vault.close()


def test_damage_found_while_keys_are_read_is_told_before_a_charge(tmp_path: Path) -> None:
    vault = opened(tmp_path, "keys", ROWS)
    path = tmp_path / "t.parquet"
    vault.load(())
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataUnavailable):
        seek(vault)
