"""Parquet types of which one stored value can make a whole table unreadable: refused by schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import duckdb

from dpsql.catalog.catalog import Table
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import find, unavailable
from dpsql.privacy.vault.source import (
    Source,
    connect,
    find_files,
    harden,
    is_parquet,
    read_schema,
)

# DuckDB has no way to fetch timestamps in milliseconds, times of day and decimals of any length as
# they are stored, so a value beyond what it can hold would make every statement fail. What is
# stored in such a way is a fact of the schema: it is refused before anything can be asked.
RISKY = (
    "converted_type = 'TIMESTAMP_MILLIS' OR contains(logical_type, 'MILLIS=M') "
    "OR duckdb_type LIKE 'TIME%' AND duckdb_type NOT LIKE 'TIMESTAMP%' "
    "OR converted_type = 'DECIMAL' AND type = 'BYTE_ARRAY'"
)
SCHEMA = f"SELECT name, COALESCE(num_children, 0), COALESCE({RISKY}, FALSE) FROM parquet_schema(?)"


def refuse_unreadable(tables: Iterable[Table]) -> None:
    """Refuse tables that can be unreadable, from the schemas of their Parquet files alone.

    A source that does not open is left for when it is asked for. Raises: DataUnavailable (E_DATA).
    """
    files: list[tuple[Table, tuple[str, ...]]] = []
    for table in tables:
        if not table.public and is_parquet(table.source):
            with suppress(DataUnavailable):
                files.append((table, find_files(table.source, table.name)[1]))
    if not files:
        return
    with connect(threads=1) as connection:
        harden(connection, tuple(path for _, paths in files for path in paths))
        for table, paths in files:
            try:
                source = read_schema(connection, table.source, "parquet", paths, table.name)
                risky = risky_columns(connection, source)
            except (DataUnavailable, OSError, duckdb.Error):
                continue
            _refuse(risky, source, table)


def refuse_risky(connection: duckdb.DuckDBPyConnection, source: Source, table: Table) -> None:
    """Refuse an open Parquet source with a declared column that can make it unreadable.

    Raises: DataUnavailable (E_DATA).
    """
    _refuse(risky_columns(connection, source), source, table)


def _refuse(risky: set[str], source: Source, table: Table) -> None:
    declared = [column.name for column in table.columns.values()]
    names = [*declared, *table.keys, *([table.unit.column] if table.unit.column else [])]
    found = {find(source.columns, name) for name in names} - {None}
    if any(name in risky for i, (name, _) in enumerate(source.columns) if i in found):
        problem = "a column is stored in a type of which some values cannot be read"
        hint = (
            "write timestamps in microseconds, decimals in a fixed length and times of day as text"
        )
        unavailable(table.name, table.source, problem, hint)


def risky_columns(connection: duckdb.DuckDBPyConnection, source: Source) -> set[str]:
    """Return the names of columns that are stored in such a way, from the schema alone."""
    schemas = (connection.execute(SCHEMA, [path]).fetchall() for path in source.paths)
    return {name for schema in schemas for name, risky in _columns(schema) if risky}


def _columns(schema: list[tuple[str, int, bool]]) -> Iterator[tuple[str, bool]]:
    """Name the columns of a schema, which lists the fields of each below it; first comes its root.

    >>> list(_columns([("root", 2, False), ("s", 1, False), ("x", 0, True), ("x", 0, False)]))
    [('s', False), ('x', False)]
    """
    below = 0
    for name, children, risky in schema[1:]:
        if not below:
            yield name, risky
        below += children - bool(below)
