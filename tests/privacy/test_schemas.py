"""The schemas of Parquet files are read once, and again when the files change."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import duckdb
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import IntegerRange
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.files import source
from dpsql.privacy.vault.files.duckdb import FILES
from dpsql.privacy.vault.files.footers import stored_as
from dpsql.privacy.vault.files.refused_types import refuse_unreadable

AGE = Column("age", "integer", IntegerRange(0, 9))


def reads(path: Path) -> int:
    """How often a schema is read to connect to a table and to open it; it has to be as it is."""
    table = Table("t", str(path), Unit(None, 1), {"age": AGE})
    with mock.patch.object(source, "stored_as", wraps=stored_as) as read:
        refuse_unreadable([table])
        opened = FILES.open(table)
    assert opened.columns == FILES.open(table).columns
    with source.connect(1) as connection:
        found = source.open_source(connection, str(path), "t")
    assert found == opened.source
    return read.call_count


def test_a_schema_is_read_once_for_every_version_of_a_file(tmp_path: Path) -> None:
    path, other = tmp_path / "t.parquet", tmp_path / "u.parquet"
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT 1 AS age) TO '{path}'")
        database.execute(f"COPY (SELECT 1::SMALLINT AS age) TO '{other}'")
    assert [reads(path), reads(path)] == [1, 0]
    facts = path.stat()
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # as old as the first
    os.replace(other, path)
    assert [reads(path), reads(path)] == [1, 0]
    path.chmod(0o400)
    assert reads(path) == 1


def test_many_files_are_described_once_and_all_compared(tmp_path: Path) -> None:
    with duckdb.connect() as database:
        for i in range(30):
            database.execute(f"COPY (SELECT 1 AS age) TO '{tmp_path}/{i:02}.parquet'")
        connection = source.connect(1)
        described = mock.patch.object(source, "_describe", wraps=source._describe)
        with connection, described as describe:
            found = source.open_source(connection, f"{tmp_path}/*.parquet", "t")
        assert len(found.paths) == 30
        assert describe.call_count == 1
        for selected in ("1 AS old", "1::SMALLINT AS age", "'1' AS age", "1 AS age, 2 AS b"):
            database.execute(f"COPY (SELECT {selected}) TO '{tmp_path}/17.parquet'")
            with source.connect(1) as connection, pytest.raises(DataUnavailable) as refused:
                source.open_source(connection, f"{tmp_path}/*.parquet", "t")
            assert "differ in their columns" in str(refused.value)
