"""Connections to DuckDB that load no extension, spill nothing to disk and read no statistics."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from dpsql.errors import InternalError

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
    "memory_limit": "80%",
}
NEEDED = {"unused_columns"}
"""Steps of the optimiser that stay on: columns that nobody asked for are not read."""


def connect(threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open an empty in-memory DuckDB without optimiser.

    Guarantee: no expression is folded, moved or pruned by what a file says of its other rows.
    Raises: InternalError if the optimiser cannot be switched off.
    """
    config = dict(CONFIG)
    if threads is not None:
        config["threads"] = threads
    connection = duckdb.connect(config=config)
    switch_off(connection)
    if not is_switched_off(connection):
        raise InternalError("E_INTERNAL", "the optimiser could not be switched off")
    return connection


def switch_off(connection: duckdb.DuckDBPyConnection) -> None:
    """Switch off every step of the optimiser but those NEEDED, and keep rows in stored order."""
    steps = {name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall()}
    connection.execute(f"SET disabled_optimizers = '{','.join(sorted(steps - NEEDED))}'")
    connection.execute("SET preserve_insertion_order = true")


def is_switched_off(connection: duckdb.DuckDBPyConnection) -> bool:
    """Say whether the optimiser reads no statistics and rows come in stored order."""
    settings = "current_setting('disabled_optimizers'), current_setting('preserve_insertion_order')"
    ((off, in_order),) = connection.execute(f"SELECT {settings}").fetchall()
    steps = {name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall()}
    return in_order is True and "statistics_propagation" in (steps - NEEDED) <= set(off.split(","))


def create_enum(connection: duckdb.DuckDBPyConnection, name: str, texts: Sequence[str]) -> None:
    """Create an ENUM type of declared values, in declared order."""
    listed = "SELECT unnest(range(len($1))) AS cell, unnest(CAST($1 AS VARCHAR[])) AS text"
    connection.execute(f"CREATE TEMP TABLE {name} AS {listed}", [list(texts)])
    ordered = f"SELECT text FROM {name} ORDER BY cell"
    connection.execute(f"CREATE TEMP TYPE {name} AS ENUM ({ordered})")
