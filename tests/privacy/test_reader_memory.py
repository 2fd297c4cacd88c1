"""DuckDB's limit on memory is no oracle: rows are streamed, and more of them need no more of it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.files import source as source_module
from dpsql.privacy.vault.files.duckdb_pool import end_readers
from dpsql.privacy.vault.files.source import CONFIG
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import Cells

LIMITS = [1 << bits for bits in range(21, 27)]
"""Bytes, from what reads nothing up to what holds all rows."""
ROWS = 250_000
"""More than the groups of rows that are read at a time."""
HELD_ROWS, HELD_IN = 800_000, 48 << 20
"""Rows, and bytes that do not hold them."""
OPTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "parquet": (),
    "csv": (),
    "view": (("table", "streamed"), ("view", "true")),
}


STREAMING = {
    "streamed": "SELECT upper(who) AS who, c FROM t WHERE c < 20",
    "united": "SELECT who, c FROM t UNION ALL FROM (VALUES ('nobody', 1))",
    "unfolded": "SELECT who, unnest([c, 1]) AS c FROM t",
}
HOLDING = {
    "grouped": "SELECT who, max(c) AS c FROM t GROUP BY who",
    "listed": "SELECT who, list(c)[1] AS c FROM t GROUP BY who",
    "different": "SELECT DISTINCT who, c FROM t",
    "united_once": "SELECT who, c FROM t UNION SELECT who, c FROM t",
    "others": "SELECT who, c FROM t EXCEPT SELECT 'x', 1",
    "sorted": "SELECT who, c FROM t ORDER BY c, who",
    "first": "SELECT who, c FROM t ORDER BY c LIMIT 5",
    "numbered": "SELECT who, row_number() OVER (PARTITION BY who) AS c FROM t",
    "joined": "SELECT a.who, b.c FROM t a JOIN t b USING (who)",
    "crossed": "SELECT a.who, b.c FROM t a, t b",
    "found": "SELECT who, c FROM t WHERE EXISTS (SELECT 1 FROM t x WHERE x.c > t.c)",
    "median": "SELECT who, (SELECT median(c) FROM t) AS c FROM t",
    "listed_all": "SELECT 'x' AS who, len(list(who)) AS c FROM t",
    "windowed": "SELECT who, len(list(c) OVER (PARTITION BY c)) AS c FROM t",
    "told_apart": "SELECT who, count(DISTINCT c) OVER (PARTITION BY who) AS c FROM t",
    "lesser": "SELECT a.who, b.c FROM t a JOIN t b ON a.who < b.who AND a.c > b.c",
    "repeated": "WITH RECURSIVE a AS (SELECT who, c FROM t UNION SELECT who, 0 FROM a) FROM a",
}
"""Views by how DuckDB works them out: row by row, or holding rows."""
KEEPING = ("listed", "listed_all", "windowed", "told_apart", "median", "lesser", "repeated")
"""Those that hold rows in memory, whatever folder there is."""


def write(folder: Path, kind: str, rows: int) -> str:
    """A file of so many rows, of a kind; texts that name units are read twice."""
    selected = f"SELECT i % 10 AS c, 'number ' || i // 3 AS who FROM range({rows}) r(i)"
    if kind in ("parquet", "csv"):
        with duckdb.connect() as scribe:
            scribe.execute(f"COPY ({selected}) TO '{folder}/{rows}.{kind}'")
        return f"{folder}/{rows}.{kind}"
    with duckdb.connect(f"{folder}/{rows}.duckdb") as scribe:
        scribe.execute(f"CREATE TABLE t AS {selected}")
        for name, sql in {**STREAMING, **HOLDING}.items():
            scribe.execute(f"CREATE VIEW {name} AS {sql}")
    return f"{folder}/{rows}.duckdb"


def is_answered(source: str, kind: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say whether all rows are read and counted within a limit."""
    monkeypatch.setitem(CONFIG, "memory_limit", f"{limit}B")
    end_readers()
    columns = {"c": Column("c", "integer", IntegerRange(0, 9))}
    table = Table("t", source, Unit("who", 2), columns, options=OPTIONS[kind])
    try:
        TableVault(table, b"salt" * 8).tally([Cells(("c",), (np.arange(10),))], True)
    except DataUnavailable:
        return False
    finally:
        end_readers()
    return True


@pytest.mark.parametrize("kind", OPTIONS)
def test_more_rows_need_no_more_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the rows are read within twice the least limit."""
    some, more = (write(tmp_path, kind, rows) for rows in (ROWS, 4 * ROWS))
    least = next(each for each in LIMITS if is_answered(some, kind, each, monkeypatch))
    assert is_answered(more, kind, 2 * least, monkeypatch)


def opened(source: str, view: str, **options: str) -> TableVault:
    columns = {"c": Column("c", "integer", IntegerRange(0, 9))}
    every = {"table": view, "view": "true", **options}
    return TableVault(
        Table("t", source, Unit("who", 2), columns, options=tuple(every.items())), b"salt" * 8
    )


def test_views_that_hold_rows_are_refused_before_any_is_read(tmp_path: Path) -> None:
    """Of no row as of many; those that hand rows on are opened."""
    for rows in (0, 30):
        source = write(tmp_path, "view", rows)
        for view in STREAMING:
            opened(source, view).load()
        for view in [*HOLDING][:: 1 + rows // 10]:
            with pytest.raises(DataUnavailable, match="sorts, groups or joins") as caught:
                opened(source, view)
            assert "spill" in f"{caught.value.hint}"


@pytest.mark.parametrize("rows", [0, 30])
def test_what_no_folder_holds_is_refused_before_any_row_is_read(rows: int, tmp_path: Path) -> None:
    source, room = write(tmp_path, "view", rows), tmp_path / "room"
    room.mkdir()
    refused = set[str]()
    for view in HOLDING:
        try:
            opened(source, view, spill=str(room))
        except DataUnavailable as error:
            refused.add(view if "which no folder holds" in str(error) else str(error))
    assert refused == {*KEEPING}


@pytest.mark.parametrize("view", ["different", "sorted"])
def test_rows_of_views_are_held_in_a_folder(
    view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than the memory holds are read, and nothing is left of them."""
    source, room = write(tmp_path, "view", HELD_ROWS), tmp_path / "room"
    room.mkdir()
    monkeypatch.setitem(CONFIG, "memory_limit", f"{HELD_IN}B")
    seen = set[int]()

    def connect(*given: Any, **named: Any) -> Any:
        seen.update(each.stat().st_mode for each in room.iterdir())
        return source_module.connect(*given, **named)

    monkeypatch.setattr("dpsql.privacy.vault.files.duckdb.connect", connect)
    read, cells = opened(source, view, spill=str(room)), [Cells(("c",), (np.arange(10),))]
    assert read.tally(cells, True).sum() > 0
    assert seen == {stat.S_IFDIR | 0o700, stat.S_IFREG | 0o600}  # the folder and its lock
    assert [*room.iterdir()] == []
    monkeypatch.setattr("dpsql.privacy.vault.files.duckdb._spilling", lambda _: connect())
    with pytest.raises(DataUnavailable):
        opened(source, view, spill=str(room)).load()
