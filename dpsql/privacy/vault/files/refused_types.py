"""Parquet types of which one stored value can make a whole table unreadable: refused by schema."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec

import duckdb

from dpsql.catalog.catalog import Table
from dpsql.catalog.domain import Spans
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import find, unavailable
from dpsql.privacy.vault.files.data_files import find_files, is_parquet
from dpsql.privacy.vault.files.duckdb_pool import reader
from dpsql.privacy.vault.files.footers import BESIDES, OLD, TIMES, UNREADABLE
from dpsql.privacy.vault.files.schemas import cached_source
from dpsql.privacy.vault.files.source import Source, connect, harden, read_schema


def refuse_unreadable(tables: Iterable[Table]) -> None:
    """Refuse tables that can be unreadable, from the schemas of their Parquet files alone.

    A source that does not open is left for when it is asked for. Raises: DataUnavailable (E_DATA).
    """
    files: list[tuple[Table, tuple[str, ...]]] = []
    for table in tables:
        if not table.public and is_parquet(table.source):
            with suppress(DataUnavailable):
                files.append((table, find_files(table.source, table.name)[1]))
    with ExitStack() as opened:
        connection: duckdb.DuckDBPyConnection | None = None

        def read(table: Table, paths: tuple[str, ...]) -> Source:
            nonlocal connection
            if len(files) == 1:
                with reader(paths) as kept:
                    return read_schema(kept, table.source, "parquet", paths, table.name)
            if connection is None:
                connection = opened.enter_context(connect(threads=1))
                harden(connection, tuple(path for _, each in files for path in each))
            return read_schema(connection, table.source, "parquet", paths, table.name)

        for table, paths in files:
            try:
                source = cached_source(table.source, paths, partial(read, table, paths))
            except (DataUnavailable, OSError, duckdb.Error):
                continue
            refuse_risky(source, table)


def refuse_risky(source: Source, table: Table) -> None:
    """Refuse a Parquet source with a declared column that can make it unreadable here.

    What is stored in such a way is a fact of the schema: values make no difference.
    Raises: DataUnavailable (E_DATA).
    """
    if UNREADABLE in _ways(source, _read_of(table)) or TIMES in _ways(source, _keys_of(table)):
        problem = "a column is stored in a type of which some values cannot be read"
        hint = (
            "write timestamps in microseconds and decimals in a fixed length; times of day"
            " without a zone, and as text where they tell units or keys"
        )
        unavailable(table.name, table.source, problem, hint)
    for column in table.columns.values():
        zone = column.domain.zone if isinstance(column.domain, Spans) else "UTC"
        if zone != "UTC" and OLD in _ways(source, [column.name]):
            problem = (
                f"column {column.name!r} is stored in 96 bits, which do not say whether its times "
                f"are instants or those of a clock in {zone}"
            )
            hint = "leave `zone` out, which takes them as they are; or write them in microseconds"
            unavailable(table.name, table.source, problem, hint)
    beside = _ways(source, _read_of(table)) & set(BESIDES)
    if beside and find_spec("pyarrow") is None:  # asks without importing it
        problem = "times of day, and instants in milliseconds or 96 bits, are read by the package"
        problem += " pyarrow, which is missing"
        hint = "pip install 'dpsql[arrow]', or write timestamps in microseconds, times as text"
        unavailable(table.name, table.source, problem, hint)


def refuse_apart(apart: Iterable[str], table: Table) -> None:
    """Refuse columns of a Delta table by which it is partitioned: its files lack them.

    Raises: DataUnavailable (E_DATA).
    """
    for name in sorted(apart):
        if name.casefold() in map(str.casefold, _read_of(table)):
            problem = f"the Delta table is partitioned by {name!r}, which is in none of its files"
            hint = "leave the column out, write the rows without partitions, or let Spark read it "
            hint += "where it has Delta"
            unavailable(table.name, table.source, problem, hint)


def _read_of(table: Table) -> list[str]:
    """The columns that are read of a table."""
    return [*(column.name for column in table.columns.values()), *_keys_of(table)]


def _keys_of(table: Table) -> list[str]:
    """The columns that tell a table's units and keys."""
    return [*table.keys, *([table.unit.column] if table.unit.column else [])]


def _ways(source: Source, names: Iterable[str]) -> set[str]:
    """Return the ways in which the columns of some names are stored."""
    places = {find(source.columns, name) for name in names} - {None}
    return {how for i, how in enumerate(source.stored) if i in places}
