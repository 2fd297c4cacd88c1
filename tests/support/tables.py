"""Tables of a test: in a database, in the files beside it, and in a catalog over those."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import duckdb

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.sql.text.lexemes import split_statements

World = tuple[Connection, duckdb.DuckDBPyConnection]
Tables: TypeAlias = "Mapping[str, str | tuple[str, Sequence[Sequence[Any]]]]"
"""Every table is a SELECT, or its columns as DuckDB declares them, and its rows."""

BANDS = (
    "lo BIGINT, hi BIGINT, name VARCHAR",
    [(0, 1, "low"), (2, 5, "mid"), (2, 9, "wide"), (8, 9, "none")],
)
"""A public table of ranges that overlap."""


_numbers = itertools.count()


@cache
def _kept() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def scribe() -> duckdb.DuckDBPyConnection:
    """What writes files, with temporary tables of its own: DuckDB takes 12 ms of CPU to start."""
    return _kept().cursor()


def own_database() -> duckdb.DuckDBPyConnection:
    """An empty database in memory, attached to the same DuckDB."""
    connection, name = scribe(), f"own{next(_numbers)}"
    connection.execute(f"ATTACH ':memory:' AS {name}; USE {name}")
    return connection


def close_scribes() -> None:
    """End the database that scribes share."""
    if _kept.cache_info().currsize:
        _kept().close()
        _kept.cache_clear()


def write_tables(folder: Path, catalog: str, tables: Tables) -> duckdb.DuckDBPyConnection:
    """Write ``t.toml`` and a Parquet file for each table; return a database with the same."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "t.toml").write_text(catalog, encoding="utf-8")
    database = own_database()
    for name, table in tables.items():
        if isinstance(table, str):
            database.execute(f"CREATE TABLE {name} AS {table}")
        else:
            columns, rows = table
            database.execute(f"CREATE TABLE {name} ({columns})")
            insert(database, name, rows)
        database.execute(f"COPY {name} TO '{folder / name}.parquet' (FORMAT parquet)")
    return database


def insert(database: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows by one statement: DuckDB takes half a millisecond for every statement."""
    if rows:
        kinds = [kind for _, kind, *_ in database.execute(f"DESCRIBE {table}").fetchall()]
        listed = ", ".join(f"unnest(CAST(? AS {kind}[]))" for kind in kinds)
        columns = [list(column) for column in zip(*rows, strict=True)]
        database.execute(f"INSERT INTO {table} SELECT {listed}", columns)


@contextmanager
def open_tables(folder: Path, catalog: str, tables: Tables) -> Iterator[World]:
    """A connection to tables, with a state of its own, and the database with the same tables."""
    with (
        write_tables(folder, catalog, tables) as database,
        mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "state")}),
        dpsql.connect(folder / "t.toml", epsilon=1) as connection,
    ):
        yield connection, database


def statements_of(path: Path) -> list[str]:
    """The statements of a file of SQL."""
    return [each.body.strip() for each in split_statements(path.read_text(encoding="utf-8"))]


@contextmanager
def stored_world(folder: Path, sql: str, names: Sequence[str], catalog: str) -> Iterator[World]:
    """Tables that SQL makes: as files beside a catalog, measured as cells, and in a database."""
    with duckdb.connect() as database:
        database.execute(sql)
        for name in names:
            database.execute(f"COPY {name} TO '{folder / name}.parquet' (FORMAT parquet)")
        (folder / "c.toml").write_text(catalog)
        with dpsql.connect(folder / "c.toml", epsilon=1) as connection:
            connection.set("mechanism", "identity")
            yield connection, database
