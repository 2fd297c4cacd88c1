"""Kept instances of DuckDB: they start once, read one source each, and hold nothing afterwards."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.errors import InternalError
from dpsql.privacy.doors.vaults import open_ahead
from dpsql.privacy.vault.files import duckdb_pool
from dpsql.privacy.vault.files.duckdb_pool import KEPT, end_readers, reader
from dpsql.privacy.vault.files.source import connect
from dpsql.sealed import PrefetchedConnection
from tests.support.tables import open_tables, scribe

CATALOG = """
[budget]
epsilon = 1000
[table.t]
source = "t.parquet"
privacy_unit = { column = "who", max_rows = 2 }
[table.t.column]
age = { type = "integer", domain = [0, 9] }
sex = { type = "text", domain = ["f", "m"] }
"""
ROWS = "SELECT i // 2 AS who, i % 10 AS age, 'fm'[1 + i % 2] AS sex FROM range(40) r(i)"
HELD = (
    "SELECT count(*) FROM (SELECT table_name FROM duckdb_tables() UNION ALL SELECT type_name FROM"
    " duckdb_types() WHERE NOT internal UNION ALL SELECT view_name FROM duckdb_views()"
    " WHERE NOT internal)"
)


@pytest.fixture(autouse=True)
def _none_waits() -> Iterator[None]:
    end_readers()
    yield
    end_readers()


def written(folder: Path, name: str) -> tuple[str, ...]:
    path = folder / f"{name}.parquet"
    scribe().execute(f"COPY ({ROWS}) TO '{path}' (FORMAT parquet)")
    return (str(path.resolve()),)


def count(paths: tuple[str, ...]) -> int:
    with reader(paths) as connection:
        connection.execute("CREATE TEMP TABLE mine AS SELECT 1")
        connection.execute("CREATE TEMP TYPE own AS ENUM ('a')")
        ((rows,),) = connection.execute("SELECT count(*) FROM read_parquet(?)", [paths]).fetchall()
        return int(rows)


def test_a_session_starts_one_instance_for_a_table(tmp_path: Path) -> None:
    with mock.patch.object(duckdb_pool.ahead, "take", wraps=duckdb_pool.ahead.take) as started:
        with open_tables(tmp_path, CATALOG, {"t": ROWS}) as (connection, _):
            for keys in ("sex", "age", "sex, age"):
                connection.execute(f"SELECT {keys}, COUNT(*) FROM t GROUP BY ALL")
            catalog = connection.catalog.path
        with dpsql.connect(catalog, epsilon=1) as again:
            again.execute("SELECT age, COUNT(*) FROM t WHERE sex = 'f' GROUP BY age")
    assert started.call_count == 1


def test_what_a_reader_creates_is_undone(tmp_path: Path) -> None:
    paths = written(tmp_path, "t")
    assert [count(paths), count(paths)] == [40, 40]
    (kept,) = duckdb_pool._idle.values()
    assert kept.execute(HELD).fetchall() == [(0,)]


def test_an_instance_reads_its_own_files_alone(tmp_path: Path) -> None:
    one, two = written(tmp_path, "one"), written(tmp_path, "two")
    count(one)
    (kept,) = duckdb_pool._idle.values()
    with pytest.raises(duckdb.PermissionException):
        kept.execute("SELECT count(*) FROM read_parquet(?)", [two])
    with mock.patch.dict(duckdb_pool._idle, {two: kept}), pytest.raises(duckdb.Error):
        count(two)
    assert count(two) == 40
    open_to_all = duckdb.connect()
    with (
        mock.patch.dict(duckdb_pool._idle, {one: open_to_all}),
        pytest.raises(InternalError, match="could not be locked"),
    ):
        count(one)


def test_files_are_read_as_they_are_now(tmp_path: Path) -> None:
    paths = written(tmp_path, "t")
    assert count(paths) == 40
    facts = os.stat(paths[0])
    scribe().execute(f"COPY ({ROWS.replace('40', '60')}) TO '{tmp_path}/u' (FORMAT parquet)")
    os.utime(tmp_path / "u", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    os.replace(tmp_path / "u", paths[0])
    assert count(paths) == 60


def test_a_fault_and_a_reader_that_goes_away_end_an_instance(tmp_path: Path) -> None:
    paths = written(tmp_path, "t")
    count(paths)
    with pytest.raises(duckdb.Error), reader(paths) as connection:
        connection.execute("SELECT nothing")
    assert not duckdb_pool._idle

    def rows() -> Generator[Any, None, None]:
        with reader(paths) as connection:
            yield connection.execute("SELECT age FROM read_parquet(?)", [paths]).fetchall()

    reading = rows()
    assert len(next(reading)) == 40
    reading.close()
    assert not duckdb_pool._idle
    assert count(paths) == 40


def test_two_readers_at_once_have_instances_of_their_own(tmp_path: Path) -> None:
    paths = written(tmp_path, "t")
    with reader(paths) as one, reader(paths) as two:
        assert one is not two
    assert list(duckdb_pool._idle) == [paths]
    for i in range(KEPT + 2):
        count(written(tmp_path, f"t{i}"))
    assert len(duckdb_pool._idle) == KEPT
    assert paths not in duckdb_pool._idle


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_no_instance_of_its_parent(tmp_path: Path) -> None:
    paths = written(tmp_path, "t")
    count(paths)
    assert duckdb_pool._idle
    child = os.fork()
    if child == 0:
        os._exit(len(duckdb_pool._idle) + duckdb_pool._taking.locked())
    assert os.waitpid(child, 0)[1] == 0
    assert duckdb_pool._idle  # the parent goes on with it
    assert count(paths) == 40


def test_a_reader_that_was_opened_ahead_reads_its_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_pool, "ahead", PrefetchedConnection(connect))
    one, two = written(tmp_path, "one"), written(tmp_path, "two")
    open_ahead()
    with mock.patch.object(duckdb_pool.ahead, "_opening", side_effect=AssertionError):
        assert count(one) == 40
    with reader(one) as connection, pytest.raises(duckdb.PermissionException):
        connection.execute("SELECT count(*) FROM read_parquet(?)", [list(two)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_no_reader_that_its_parent_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duckdb_pool, "ahead", PrefetchedConnection(connect))
    open_ahead()
    duckdb_pool.ahead._wait()
    child = os.fork()
    if child == 0:
        os._exit(len(duckdb_pool.ahead._opened))
    assert os.waitpid(child, 0)[1] == 0
    assert len(duckdb_pool.ahead._opened) == 1
    duckdb_pool.ahead.close()
