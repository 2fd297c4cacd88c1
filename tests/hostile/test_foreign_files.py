"""Files of other writers, whole and damaged: answered or refused with a code, and never charged."""

from __future__ import annotations

import gzip
import random
import shutil
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.privacy.vault.files import duckdb as duckdb_module
from dpsql.privacy.vault.sealed_errors import DAMAGED
from tests.support.effort import effort, first_seed

DAMAGES = effort(5)
SECRET = "a-private-value"
CATALOG = """
[budget]
epsilon = 1000
[table.t]
source = "t.{ending}"
privacy_unit = {unit}
[table.t.column]
k = {{ type = "text", domain = ["a", "b"], other = true }}
n = {{ type = "integer", domain = [0, 9] }}
x = {{ type = "number", bounds = [0, 25] }}
[table.sound]
source = "sound.parquet"
privacy_unit = "row"
[table.sound.column]
n = {{ type = "integer", domain = [0, 9] }}
"""
STATEMENTS = [
    "SELECT k, COUNT(*) AS c, SUM(x) AS s FROM t GROUP BY k",
    "SELECT n, COUNT(*) FROM t GROUP BY n",
    "SELECT AVG(x) FROM t WHERE k = 'a'",
]
ROWS = 3000
_draw = np.random.default_rng(1)
NUMBERS = _draw.integers(0, 100, ROWS) / 4
K = [("a", "b", SECRET)[i % 3] for i in range(ROWS)]


def rows(**over: Any) -> pa.Table:
    columns = {"k": pa.array(K), "n": pa.array(np.arange(ROWS) % 10), "x": pa.array(NUMBERS)}
    return pa.table({**columns, "who": pa.array(np.arange(ROWS) // 3), **over})


DECIMALS = pa.array([Decimal(int(each * 4)) / 4 for each in NUMBERS], pa.decimal128(9, 2))
HALVES = pa.array(NUMBERS.astype(np.float16))
SPLIT = {"use_dictionary": False, "column_encoding": {"x": "BYTE_STREAM_SPLIT"}}
UNREADABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "decimals": ({"x": DECIMALS}, SPLIT),
    "halves": ({"x": HALVES}, SPLIT),
}
READABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain decimals": ({"x": DECIMALS}, {}),
    "plain halves": ({"x": HALVES}, {}),
    "split doubles": ({}, SPLIT),
    "split integers": ({"x": DECIMALS}, {**SPLIT, "store_decimal_as_integer": True}),
    "dictionaries": ({"k": pa.array(K).dictionary_encode()}, {}),
    "large texts": ({"k": pa.array(K, pa.large_string())}, {}),
    "views": ({"k": pa.array(K, pa.string_view())}, {}),
    "deltas": ({}, {"use_dictionary": False, "column_encoding": {
        "n": "DELTA_BINARY_PACKED", "k": "DELTA_BYTE_ARRAY"}}),
    "pages of version 2": ({}, {"data_page_version": "2.0", "write_page_checksum": True}),
    **{codec: ({}, {"compression": codec}) for codec in ("gzip", "brotli", "zstd", "lz4", "none")},
}  # fmt: skip
Write = Callable[[Path], None]


def parquet(**options: Any) -> Write:
    return lambda path: pq.write_table(rows(), path, row_group_size=1000, **options)


def polars(path: Path) -> None:
    pl.DataFrame(pl.from_arrow(rows())).write_parquet(path)


def text(path: Path) -> None:
    found = pl.DataFrame(pl.from_arrow(rows())).write_csv().encode()
    path.write_bytes(gzip.compress(found) if path.suffix == ".gz" else found)


def database(path: Path) -> None:
    table = rows()
    with duckdb.connect(str(path)) as connection:
        connection.register("r", table)
        connection.execute("CREATE TABLE t AS FROM r")


WRITERS: dict[str, tuple[str, Write]] = {
    "snappy": ("parquet", parquet()),
    "zstd": ("parquet", parquet(compression="zstd")),
    "gzip": ("parquet", parquet(compression="gzip")),
    "plain": ("parquet", parquet(compression="none", use_dictionary=False)),
    "polars": ("parquet", polars),
    "csv": ("csv.gz", text),
    "duckdb": ("duckdb", database),
}


def asked(folder: Path, ending: str, write: Write, unit: str = '"row"') -> dict[str, str]:
    """What is said of each statement, empty for an answer; nothing is charged for a refusal."""
    folder.mkdir(exist_ok=True)
    write(folder / f"t.{ending}")
    (folder / "c.toml").write_text(CATALOG.format(ending=ending, unit=unit))
    pq.write_table(rows().select(["n"]), folder / "sound.parquet")
    told = {}
    with dpsql.connect(folder / "c.toml", epsilon=1) as connection:
        for sql in STATEMENTS:
            before, error = connection.budget, None
            try:
                connection.execute(sql).fetchall()
            except dpsql.Error as caught:
                error = caught
            told[sql] = "" if error is None else str(error)
            if error is not None:
                assert error.code in ("E_DATA", "E_POLICY"), (sql, told[sql])
                assert connection.budget == before
                assert SECRET not in told[sql]
            (count,) = connection.execute("SELECT COUNT(*) FROM sound").fetchone() or (0,)
            assert abs(count - ROWS) < 60
    return told


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("name", [*READABLE, *UNREADABLE])
def test_what_others_write_is_answered_or_refused_with_what_helps(
    name: str, tmp_path: Path
) -> None:
    over, options = {**READABLE, **UNREADABLE}[name]

    def write(path: Path) -> None:
        pq.write_table(rows(**over), path, **options)

    for unit in ('"row"', '{ column = "who", max_rows = 3 }'):
        folder = tmp_path / str(len(unit))
        told = asked(folder, "parquet", write, unit)
        if name in READABLE:
            assert not any(told.values()), told
        else:
            of_x = [said for sql, said in told.items() if "x" in sql.split("FROM")[0]]
            assert all(DAMAGED[0] in said and DAMAGED[1] in said for said in of_x), told


def _put(data: bytes, path: Path) -> None:
    path.write_bytes(data)


@pytest.mark.parametrize("writer", WRITERS)
def test_damaged_files_are_refused_and_cost_nothing(writer: str, tmp_path: Path) -> None:
    ending, write = WRITERS[writer]
    rng = random.Random(first_seed(1))
    whole = tmp_path / f"whole.{ending}"
    write(whole)
    data = whole.read_bytes()
    refused = 0
    for number in range(DAMAGES):
        damaged = bytearray(data)
        start, size = rng.randrange(len(data)), rng.choice([1, 8, 60, 500])
        kind = rng.randrange(4)
        if kind == 0:
            del damaged[start:]
        elif kind == 1:
            del damaged[start : start + size]
        else:
            flipped = bytes(
                each ^ rng.choice([0xFF, 0x10, 0x01]) for each in damaged[start : start + size]
            )
            damaged[start : start + size] = flipped
        folder = tmp_path / str(number)
        told = asked(folder, ending, partial(_put, bytes(damaged)))
        refused += any(told.values())
        shutil.rmtree(folder)
    assert refused > DAMAGES // 6


@pytest.mark.parametrize("change", ["removed", "cut off", "other rows", "other types"])
def test_files_that_change_while_they_are_read(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What opened before is not what is read: a typed refusal, and connecting again helps."""
    room, folder = duckdb_module.FileTable._room, tmp_path / "f"
    changed: list[str] = []

    def change_and_open(table: duckdb_module.FileTable) -> Any:
        path = folder / "t.parquet"
        if table.name == "t" and not changed:
            changed.append(change)
            over = {"n": pa.array([5] * ROWS)} if change == "other rows" else {"n": pa.array(K)}
            data = path.read_bytes()
            path.unlink()
            if change == "cut off":
                path.write_bytes(data[:-900])
            elif change != "removed":
                pq.write_table(rows(**over), path)
        return room(table)

    monkeypatch.setattr(duckdb_module.FileTable, "_room", change_and_open)
    told = asked(folder, "parquet", parquet())
    assert changed
    assert "the data have changed" in next(iter(told.values())), told
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert not any(asked(folder, "parquet", parquet()).values())
