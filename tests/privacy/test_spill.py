"""Codes in files of the curator's folder: the same vectors, little memory, and nothing left."""

from __future__ import annotations

import errno
import os
import random
import resource
import stat
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange
from dpsql.catalog.read import read_catalog
from dpsql.errors import CatalogError, DataUnavailable
from dpsql.privacy.vault.codes import row_texts, spill, tally
from dpsql.privacy.vault.files import duckdb as duckdb_module
from dpsql.privacy.vault.unit import unit_numbers
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import AnyResolution, Nodes, cells_of
from tests.privacy.additivity import NUMBERS
from tests.privacy.covering import draw_sets, draw_table
from tests.support.effort import effort, first_seed
from tests.support.seam import zero_noise
from tests.support.tables import scribe

SALT = b"0123456789abcdef"
ROWS = 150_000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    found = tmp_path / "scratch"
    found.mkdir()
    yield found
    assert [*found.iterdir()] == []
    assert held_in(found) == []


def held_in(folder: Path) -> list[int]:
    """The rights on files in a folder that this process has open or mapped, listed or not."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(each).startswith(f"{folder}/"):
                found.append(stat.S_IMODE(each.stat().st_mode))
        except OSError:  # that of the listing itself
            continue
    return found


def spilled(table: Table, folder: Path) -> Table:
    return replace(table, options=(("spill", str(folder)),))


@pytest.mark.parametrize("seed", range(8))
def test_vectors_are_those_of_codes_in_memory(
    seed: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = draw_table(seed)
    table = drawn.write(tmp_path / "t.parquet")
    plain, other = TableVault(table, SALT), TableVault(spilled(table, folder), SALT)
    plain.load()
    monkeypatch.setattr(unit_numbers, "STRIDE", 7)
    monkeypatch.setattr(unit_numbers, "GATHERED", 5)
    monkeypatch.setattr(spill, "MARKED", 1)
    for view, resolutions, units in draw_sets(seed, drawn, 8):
        expected = plain.within(view).tally(resolutions, units)
        found = other.within(view).tally(resolutions, units)
        what = str((drawn, view, resolutions, units))
        np.testing.assert_array_equal(found, expected, err_msg=what)
    for vault in (plain, other):
        vault.close()


def large(path: Path, rows: int = ROWS, who: str = "i * 7919 % 9973") -> Table:
    """Rows of 24 bytes of codes, two in three of units with too many."""
    with duckdb.connect() as scribe:
        scribe.execute("SET enable_progress_bar = false")
        columns = f"{who} AS who, i % 100 AS age, i % 89 / 3.0 AS x, i % 97 / 7.0 AS y"
        scribe.execute(f"COPY (SELECT {columns} FROM range({rows}) AS t(i)) TO '{path}'")
    columns_of = {
        "age": Column("age", "integer", IntegerRange(0, 99)),
        **{key: replace(NUMBERS["bounds"], name=key) for key in "xy"},
    }
    return Table("t", str(path), Unit("who", 2), columns_of)


def count(vault: TableVault) -> list[int]:
    sets: list[AnyResolution] = [
        cells_of("age", np.arange(100)),
        Nodes("x", 1, 1, 16, (0,) * NUMBERS["bounds"].null),
    ]
    return [*vault.tally(sets).ravel().tolist(), *vault.tally(sets[:1], True).tolist()]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worked on at a time is small, so that what is kept stands out."""
    monkeypatch.setattr(unit_numbers, "STRIDE", 10_000)
    monkeypatch.setattr(unit_numbers, "GATHERED", 5_000)
    monkeypatch.setattr(unit_numbers, "CONTENTS", 2048)
    monkeypatch.setattr(unit_numbers, "BATCH", 2048)
    monkeypatch.setattr("dpsql.privacy.vault.files.duckdb.ROWS", 8192)
    monkeypatch.setattr("dpsql.privacy.vault.codes.digests.ROWS", 1024)
    monkeypatch.setattr("dpsql.privacy.vault.codes.row_texts.ROWS", 1024)
    monkeypatch.setattr(tally, "CHUNK", 4096)
    monkeypatch.setattr("dpsql.privacy.vault.unit.unit_counts.CHUNK", 4096)


@pytest.mark.parametrize(
    "who", ["i", "i * 7919 % {}", "i * 7919 % 97", "'u' || (i * 7919 % {})", "'unit ' || i"]
)
@pytest.mark.parametrize("keys", [(), ("age", "x")])
def test_a_row_takes_no_more_memory_than_is_counted_for_it(
    who: str, keys: tuple[str, ...], tmp_path: Path, small_blocks: None
) -> None:
    """Read, lined up and counted, of few and many units, with keys and without."""
    peaks = []
    for rows in (ROWS // 5, ROWS):
        path = tmp_path / f"{rows}.parquet"
        table = replace(large(path, rows, who.format(rows // 2)), keys=keys, room=rows)
        vault = TableVault(table, SALT)
        tracemalloc.start()
        vault.load()
        count(vault)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        vault.close()
    taken = (peaks[1] - peaks[0]) / (ROWS - ROWS // 5)
    assert 10 < taken < spill.bytes_of_row(table)


@pytest.mark.parametrize("seed", range(effort(4)))
def test_tables_share_the_room_that_there_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(first_seed(seed))
    tables = {}
    for i in range(draw.randrange(1, 6)):
        unit = draw.choice([Unit(), Unit("who", 2)])
        columns = {"age": Column("age", "integer", IntegerRange(0, draw.choice([9, 999])))}
        hint = draw.choice([None, None, draw.randrange(1, 2000)])
        public = draw.random() < 0.2
        tables[f"t{i}"] = Table(f"t{i}", "t.csv", unit, columns, public, row_count_hint=hint)
    half = draw.randrange(100, 300_000)
    monkeypatch.setattr(spill, "memory", lambda: 2 * half)
    held = {key: each for key, each in tables.items() if not each.public}
    stated = sum((e.row_count_hint or 0) * spill.bytes_of_row(e) for e in held.values())
    if stated > half:
        with pytest.raises(DataUnavailable, match="more than is left"):
            spill.share_room(tables)
        return
    shared = spill.share_room(tables)
    assert shared == tables
    others = []
    for each in shared.values():
        if each.public:
            assert each.room == 0
        elif each.row_count_hint is not None:
            assert each.room == each.row_count_hint
        else:
            size = spill.bytes_of_row(each) * each.room
            if each.unit.column:  # as many tables that statements derive of it have room as stay
                size += spill.MOST_DERIVED * spill.kept_bytes(each)
            others.append(size)
    assert sum(others) <= half - stated
    assert all(each >= (half - stated) // len(others) - 800 for each in others)
    assert spill.room_left(shared.values()) >= (half - stated) - sum(others)


def test_memory_does_not_grow_with_the_rows(
    folder: Path, tmp_path: Path, small_blocks: None
) -> None:
    table, peaks, found = large(tmp_path / "t.parquet"), [], []
    for each in (table, spilled(table, folder)):
        vault = TableVault(each, SALT)
        tracemalloc.start()
        vault.load()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        found.append(count(vault))
        if each is not table:
            assert set(held_in(folder)) == {0o600}
        vault.close()
    assert found[0] == found[1]
    assert peaks[0] > 40 * ROWS
    assert peaks[1] < peaks[0] / 3


CATALOG = """
[budget]
epsilon = 10

[table.t]
source = "t.parquet"
privacy_unit = {{ column = "who", max_rows = 2 }}
{spill}

[table.t.column]
age = {{ type = "integer", domain = [0, 99] }}
"""
BYTES = 14 + spill.BESIDE
"""What a row takes in memory: a unit and a cell."""
ASKED = "SELECT COUNT(*) AS n FROM t WHERE age < 50"
BY_UNIT = "SELECT COUNT(DISTINCT who) AS n FROM t"


def catalog(folder: Path, spill: str = "") -> Path:
    path = folder / "c.toml"
    path.write_text(CATALOG.format(spill=spill), encoding="utf-8")
    return path


EDGES = [0, 63, 64, 65, 1000]
"""Rows at the edge of what is set to 64 in the code, or is room for 64 of them; and far beyond."""


@contextmanager
def edges_at(rows: int) -> Iterator[None]:
    """Every limit of a block, and what half of the memory holds, is at a number of rows."""
    limits = {
        spill: ["MARKED"],
        unit_numbers: ["STRIDE", "GATHERED", "BATCH", "CONTENTS"],
        tally: ["CHUNK"],
        duckdb_module: ["ROWS"],
        row_texts: ["ROWS", "TOGETHER"],
    }
    with ExitStack() as changed:
        for module, names in limits.items():
            for name in names:
                changed.enter_context(mock.patch.object(module, name, rows))
        changed.enter_context(mock.patch.object(spill, "memory", return_value=2 * rows * BYTES))
        yield


@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("", "i"),
        ("", "'u' || i"),
        ("row_count_hint = 64", "'u' || i"),
        ('spill = "scratch"\nrow_count_hint = 64', "i"),
        ('spill = "scratch"\nrow_count_hint = 64', "'u' || i"),
    ],
)
def test_no_number_of_rows_at_any_edge_is_one_too_many(
    way: str, name: str, folder: Path, tmp_path: Path
) -> None:
    """Neighbours at the edge of each limit: both are answered, at the same price, and rightly."""
    for rows in EDGES:
        with scribe() as connection:
            drawn = f"SELECT {name} AS who, i % 100 AS age FROM range({rows}) r(i)"
            connection.execute(f"COPY ({drawn}) TO '{tmp_path}/t.parquet'")
        with edges_at(64), zero_noise(), dpsql.connect(catalog(tmp_path, way), epsilon=1) as c:
            before = c.budget.entries
            for sql, true in ((ASKED, sum(i % 100 < 50 for i in range(rows))), (BY_UNIT, rows)):
                assert c.execute(sql).fetchall() == [(true,)], (rows, sql)
            assert c.budget.entries == before + 2


RESERVE = os.posix_fallocate


class Disk:
    """A disk with so many free bytes, of which files take what they reserve."""

    def __init__(self, free: int) -> None:
        self.free = free

    def take(self, file: int, start: int, size: int) -> None:
        self.free -= size
        if self.free < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        RESERVE(file, start, size)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_stated_is_reserved_before_the_first_row(
    seed: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for the stated rows no smaller number is refused; with less, all numbers are."""
    monkeypatch.setattr(spill, "MARKED", 1)
    drawn = draw_table(seed)
    whole = spilled(drawn.write(tmp_path / "t.parquet"), folder)
    stated = len(drawn.rows) + 3
    table = replace(whole, room=stated)
    disk = Disk(stated * (spill.bytes_of_row(table) + 4 * 8))  # counting units takes 4, 8 times
    monkeypatch.setattr("os.posix_fallocate", disk.take)
    room = TableVault(table, SALT)
    for view, resolutions, units in draw_sets(seed, drawn, 8):
        room.within(view).tally(resolutions, units)
    assert disk.free < stated * (spill.bytes_of_row(table) + 4 * 8)
    room.close()
    needed = stated * (spill.bytes_of_row(table) - spill.MOST_VIEWS - 12)
    for rows in (0, 1, len(drawn.rows)):
        monkeypatch.setattr("os.posix_fallocate", Disk(needed // 4).take)
        fewer = replace(drawn, rows=drawn.rows[:rows])
        vault = TableVault(
            replace(spilled(fewer.write(tmp_path / "t.parquet"), folder), room=stated),
            SALT,
        )
        with pytest.raises(DataUnavailable, match="no room left"):
            vault.load()


@contextmanager
def files_of(size: int) -> Iterator[None]:
    """Files of so many bytes at most, as on a disk that has no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_is_full_for_every_number_of_rows_or_for_none(folder: Path, tmp_path: Path) -> None:
    """The system itself refuses what is more: of no row, of one, and of as many as are stated."""
    drawn, found, numbers = draw_table(1), {}, (0, 1, 12)
    tables = {}
    for rows in numbers:
        table = replace(drawn, rows=(drawn.rows * 12)[:rows]).write(tmp_path / f"{rows}.parquet")
        tables[rows] = replace(spilled(table, folder), room=numbers[-1])
    for size in (0, 1, 8, 11, 12, 13, 16, 31, 47, 48, 49, 80, 95, 96, 97, 1000):
        for rows, table in tables.items():
            vault = TableVault(table, SALT)
            with files_of(size):
                try:
                    vault.load()
                    found[size, rows] = ""
                except DataUnavailable as error:
                    found[size, rows] = f"{error}"
            vault.close()
        assert len({bool(found[size, rows]) for rows in numbers}) == 1, size
    assert sum("no room left" in each for each in found.values()) == sum(map(bool, found.values()))
    assert {bool(each) for each in found.values()} == {True, False}


@pytest.mark.parametrize("rows", EDGES)
def test_what_memory_has_no_room_for_is_refused_whatever_rows_there_are(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "memory", lambda: 1 << 62)  # as where the limit of a process is less
    with scribe() as connection:
        drawn = f"SELECT i AS who, i % 100 AS age FROM range({rows}) r(i)"
        connection.execute(f"COPY ({drawn}) TO '{tmp_path}/t.parquet'")
    with dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        with pytest.raises(DataUnavailable, match="outgrow the memory") as caught:
            connection.execute(ASKED)
        assert "row_count_hint" in str(caught.value.hint)
        assert connection.budget.entries == 0


def test_more_rows_than_there_is_room_for_are_refused_where_they_are_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "memory", lambda: 2 * 1000 * BYTES)
    with pytest.raises(DataUnavailable, match="row_count_hint = 1001 takes 0 MiB") as caught:
        dpsql.connect(catalog(tmp_path, "row_count_hint = 1001"), epsilon=1)
    assert "`spill`" in str(caught.value.hint)


def test_room_on_a_disk_is_looked_for_before_rows_are(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(tmp_path / "t.parquet")
    free = SimpleNamespace(free=2 * 42 * 1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    dpsql.connect(catalog(tmp_path, 'spill = "scratch"\nrow_count_hint = 1000'), epsilon=1).close()
    with pytest.raises(DataUnavailable, match="more than is free in the folder"):
        dpsql.connect(catalog(tmp_path, 'spill = "scratch"\nrow_count_hint = 1001'), epsilon=1)


def test_a_full_disk_says_so_and_charges_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(tmp_path / "t.parquet")
    way = 'spill = "scratch"\nrow_count_hint = 1000'
    with dpsql.connect(catalog(tmp_path, way), epsilon=1) as connection:
        full = OSError(errno.ENOSPC, "No space left on device")
        with monkeypatch.context() as patched:
            patched.setattr("tempfile.TemporaryFile", raising(full))
            with pytest.raises(DataUnavailable, match="no room left"):
                connection.execute(ASKED)
        assert connection.budget.entries == 0
        connection.execute(ASKED)  # the policy and the ledger are the same
        assert connection.budget.entries == 1
        assert held_in(folder)


def raising(error: Exception) -> Any:
    def work(**_: object) -> object:
        raise error

    return work


@pytest.mark.parametrize(
    ("spill", "why"),
    [
        ("spill = 3\nrow_count_hint = 9", "spill = 3"),
        ('spill = ""\nrow_count_hint = 9', "spill"),
        ('spill = "scratch"', "spill without row_count_hint"),
        ("public = true", "public"),
    ],
)
def test_a_folder_that_is_none_is_refused(spill: str, why: str, tmp_path: Path) -> None:
    if "public" in spill:
        text = CATALOG.format(spill='public = true\nspill = "x"').replace("privacy_unit", "# ")
        (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    else:
        catalog(tmp_path, spill)
    with pytest.raises(CatalogError, match=why):
        read_catalog(tmp_path / "c.toml")


def test_a_folder_that_is_not_there_is_told_before_any_charge(tmp_path: Path) -> None:
    large(tmp_path / "t.parquet")
    way = 'spill = "none"\nrow_count_hint = 1000'
    with dpsql.connect(catalog(tmp_path, way), epsilon=1) as connection:
        with pytest.raises(DataUnavailable, match="no folder"):
            connection.execute(ASKED)
        assert connection.budget.entries == 0
