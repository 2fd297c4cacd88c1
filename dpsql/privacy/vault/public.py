"""Public tables, the only ones whose values are read as they are."""

from __future__ import annotations

import zlib
from typing import Any

import duckdb

from dpsql.catalog.catalog import Table
from dpsql.errors import InternalError, ProgrammingError
from dpsql.privacy.vault.hardened import connect
from dpsql.privacy.vault.source import Source, open_source, stored_types, unavailable

MOST_ROWS = 100_000
CSV_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "date": "DATE", "boolean": "BOOLEAN"}


def read_public(table: Table) -> dict[str, tuple[str, list[Any]]]:
    """Return the DuckDB type and all values of every column of a public table, in file order.

    Columns of CSV files are text unless the catalog declares another type.
    Raises: ProgrammingError (E_TOO_LARGE); DataUnavailable; InternalError if it is not public.
    """
    if not table.public:
        raise InternalError("E_INTERNAL", "only public tables can be read")
    with connect() as connection:
        source = open_source(connection, table.source, table.name)
        try:
            types = [
                _type(table, source, name, kind) for name, kind in stored_types(connection, source)
            ]
            rows = _read(connection, source, types)
        except (OSError, EOFError, zlib.error, duckdb.Error, ImportError, ValueError):
            unavailable(table.name, table.source, "the rows cannot be read")
    if len(rows) > MOST_ROWS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"public table {table.name!r} has more than {MOST_ROWS} rows",
            hint="keep the rows and columns that are joined",
        )
    names = [name for name, _ in source.columns]
    return {
        name: (kind, [row[i] for row in rows])
        for i, (name, kind) in enumerate(zip(names, types, strict=True))
    }


def _read(connection: duckdb.DuckDBPyConnection, source: Source, types: list[str]) -> list[Any]:
    """Return the rows, at most one more than there may be."""
    rows: list[Any] = []
    listed = [f"TRY_CAST({source.column_sql(i)} AS {kind}) AS p{i}" for i, kind in enumerate(types)]
    for result in source.select(connection, listed, range(len(types))):
        rows += result.fetchmany(MOST_ROWS + 1 - len(rows))
        if len(rows) > MOST_ROWS:
            break
    return rows


def _type(table: Table, source: Source, name: str, stored: str) -> str:
    column = table.columns.get(name.casefold())
    if source.kind != "csv" or column is None:
        return stored
    return CSV_TYPES.get(column.type, stored)
