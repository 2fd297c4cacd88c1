"""Columns whose reader may fail at a single value: they are read once when a table is opened.

DuckDB has no way to fetch timestamps in milliseconds, times of day and decimals of any length as
they are stored, so a value beyond what it can hold would make every statement fail. Such a table is
refused before anything can be asked of it, with one constant text.
"""

from __future__ import annotations

import duckdb

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.source import Source, parquet_sql, quote, unavailable

RISKY = (
    "SELECT name FROM parquet_schema(?) WHERE converted_type = 'TIMESTAMP_MILLIS' "
    "OR contains(logical_type, 'MILLIS=M') OR duckdb_type LIKE 'TIME%' AND duckdb_type NOT LIKE "
    "'TIMESTAMP%' OR converted_type = 'DECIMAL' AND type = 'BYTE_ARRAY'"
)


def check_readable(connection: duckdb.DuckDBPyConnection, source: Source, table: Table) -> None:
    """Refuse a table with a declared column, or a privacy unit, that cannot be read.

    Raises: DataUnavailable (E_DATA), the same for every column and value.
    """
    if source.kind != "parquet":
        return
    declared = [column.name for column in table.columns.values()]
    names = [*declared, *([table.unit.column] if table.unit.column else [])]
    stored = {source.columns[source.position(name)][0] for name in names}
    risky = sorted(stored & _risky(connection, source))
    if risky:
        digests = ", ".join(f"bit_xor(hash({quote(name)}))" for name in risky)
        try:
            sql = f"SELECT {digests} FROM {parquet_sql('replace')}"
            connection.execute(sql, [list(source.paths)]).fetchall()
            return
        except duckdb.Error:
            problem = "it holds values that cannot be read"
        hint = "write timestamps in microseconds, and decimals with at most 38 digits"
        unavailable(table.name, table.source, problem, hint)


def _risky(connection: duckdb.DuckDBPyConnection, source: Source) -> set[str]:
    """Return the names of columns that are stored in such a way, from the schema alone."""
    found = [connection.execute(RISKY, [path]).fetchall() for path in source.paths]
    return {name for rows in found for (name,) in rows}
