"""Streams of DuckDB: the same values as DuckDB itself hands over, whatever the rows per batch."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dpsql.catalog.catalog import Table, Unit
from dpsql.privacy.vault.data_engine import RequestedColumn
from dpsql.privacy.vault.files import duckdb as duckdb_module
from dpsql.privacy.vault.files.arrow_stream import Fetched, read_stream
from dpsql.privacy.vault.files.duckdb import FILES
from dpsql.privacy.vault.files.source import RowQuery, connect

ROWS = 140_000
"""More than a batch of DuckDB's, whose last is short."""
HOSTILE = f"""
SELECT CASE WHEN i % 7 = 0 THEN NULL ELSE (hash(i) >> 1)::BIGINT - 4611686018427387904 END AS whole,
       CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN 'NaN'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE
                  WHEN 3 THEN -0.0 ELSE i / 3 END AS number,
       (i % 3)::UTINYINT AS state,
       CASE WHEN i % 11 = 0 THEN NULL ELSE i % 2 = 0 END AS flag,
       CASE WHEN i % 13 = 0 THEN NULL WHEN i % 50 = 1 THEN 'naïve \U0001f600' || chr(0) || i
            WHEN i % 17 = 0 THEN '' ELSE repeat('x', (i % 40)::INTEGER) END AS text
FROM (SELECT hash(range) >> 1 AS i FROM range({ROWS}))
"""
TEXT_OF_MISSING = ""


def joined(sql: str, rows: int, **options: Any) -> Fetched:
    with connect(**options) as connection:
        batches = [*read_stream(RowQuery(connection, sql).stream(), rows)]
    assert all(0 < len(each["whole"]) <= rows for each in batches[:-1])
    assert len(batches[-1]["whole"]) == 0
    return {name: np.concatenate([each[name] for each in batches]) for name in batches[0]}


def same(value: Any, expected: Any, missing: Any) -> bool:
    if expected is None:
        return bool(math.isnan(value) if missing is math.nan else value == missing)
    if isinstance(expected, float):
        return (math.isnan(expected) and math.isnan(value)) or (
            value == expected and math.copysign(1, value) == math.copysign(1, expected)
        )
    return bool(value == expected)


def test_a_stream_hands_over_what_is_there_in_order(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    duckdb.execute(f"COPY ({HOSTILE}) TO '{path}' (ROW_GROUP_SIZE 10000)")
    sql = f"FROM read_parquet('{path}')"
    found = joined(sql, 9_999, threads=3)
    assert [each.dtype for each in found.values()] == [np.int64, np.float64, np.uint8, bool, object]
    assert all(each.flags.owndata and each.flags.writeable for each in found.values())
    with connect(threads=1) as connection:
        expected = connection.execute(sql).fetchall()
    missing = (0, math.nan, 0, False, TEXT_OF_MISSING)
    for column, truth, none in zip(
        found.values(), zip(*expected, strict=True), missing, strict=True
    ):
        pairs = zip(column.tolist(), truth, strict=True)
        assert all(same(value, each, none) for value, each in pairs)


def test_a_stream_without_rows_has_its_types() -> None:
    found = joined("SELECT 1::BIGINT AS whole, 'x' AS text, true AS flag WHERE false", 10)
    assert {name: (len(each), each.dtype) for name, each in found.items()} == {
        "whole": (0, np.int64),
        "text": (0, np.dtype(object)),
        "flag": (0, np.bool_),
    }


def test_a_batch_outlives_its_stream_and_leaves_the_connection_free() -> None:
    with connect() as connection:
        stream = read_stream(
            RowQuery(connection, "SELECT range AS whole FROM range(1000000)").stream(), 9
        )
        first = next(stream)["whole"]
        del stream
        assert connection.execute("SELECT 5").fetchall() == [(5,)]
    assert first.tolist() == [*range(9)]


@pytest.mark.parametrize(
    "value", ["1::HUGEINT", "[1]", "DATE '2020-01-01'", "{'a': 1}", "'x'::BLOB"]
)
def test_columns_of_other_types_are_refused(value: str) -> None:
    with connect() as connection, pytest.raises(ValueError, match="not read"):
        next(read_stream(RowQuery(connection, f"SELECT {value} AS v").stream(), 10))


def test_what_fails_while_it_is_read_is_an_error() -> None:
    sql = "SELECT CASE WHEN range = 300000 THEN error('no') ELSE '1' END AS v FROM range(400000)"
    with connect() as connection, pytest.raises((OSError, duckdb.Error)):
        for _ in read_stream(RowQuery(connection, sql).stream(), 100_000):
            pass


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_very_many_columns_come_as_frames_with_the_same_values(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"t.{kind}"
    columns = "i AS whole, i / 7 AS number, 't' || (i % 3) AS text, 'ü' || (i % 5) AS who"
    made = f"SELECT {columns} FROM (SELECT range - 40 AS i FROM range(5000))"
    duckdb.execute(f"COPY ({made}) TO '{path}'")
    stored = FILES.open(Table("t", str(path), Unit("who", 1), {}))
    asked = [
        RequestedColumn("whole", "whole"),
        RequestedColumn("number", "number"),
        RequestedColumn("text", "place", ("t0",)),
    ]

    def read() -> list[list[Any]]:
        batches = [*stored.read(asked, "who")]
        assert max(each.rows for each in batches) <= duckdb_module.ROWS
        values = [
            np.concatenate(
                [np.stack([*map(np.asarray, dataclasses.astuple(b.columns[i]))]) for b in batches],
                1,
            )
            for i in range(3)
        ]
        named = [each.units for each in batches if each.units is not None]
        units = [str(unit) for each in named for unit in each.tolist()]
        return [*(each.tolist() for each in values), units]

    streamed = read()
    monkeypatch.setattr(duckdb_module, "COLUMNS", 1)
    monkeypatch.setattr(duckdb_module, "ROWS", 1 << 13)
    assert repr(read()) == repr(streamed)
    assert len(streamed[-1]) == 5000
