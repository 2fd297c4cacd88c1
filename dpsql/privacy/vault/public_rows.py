"""The rows of public tables: column by column, as they are looked at."""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import duckdb
import numpy as np

from dpsql.catalog.catalog import Table
from dpsql.catalog.delimited import Delimited
from dpsql.errors import Error, InternalError
from dpsql.privacy.vault.codes.spill import require_files
from dpsql.privacy.vault.data_engine import (
    NESTED,
    Form,
    RequestedColumn,
    StoredTable,
    Values64,
    unavailable,
)
from dpsql.privacy.vault.files.data_files import find_files, is_parquet
from dpsql.privacy.vault.files.duckdb import written_of
from dpsql.privacy.vault.files.duckdb_pool import reader
from dpsql.privacy.vault.files.footers import BESIDES
from dpsql.privacy.vault.files.lines import REMEDIES
from dpsql.privacy.vault.files.source import Source, connect, open_source, stored_types
from dpsql.privacy.vault.rejected_lines import find_rejected_lines
from dpsql.privacy.vault.stored_rows import find_engine
from dpsql.vectors import PublicValues

CSV_TYPES = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "decimal": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "boolean": "BOOLEAN",
}
ENGINE_TYPES = {**CSV_TYPES, "float": "DOUBLE", "time": "TIME"}
"""Types in which columns of engines are read, by the family that is stored."""
READ_AS: dict[str, Form] = {
    "BIGINT": "whole",
    "DOUBLE": "number",
    "BOOLEAN": "boolean",
    "DATE": "day",
    "TIMESTAMP": "clock",
    "TIME": "time",
}
"""Forms in which engines hand over values of these types."""
EPOCH = dt.datetime(1970, 1, 1)
MADE: dict[str, Callable[[Any], Any]] = {
    "BOOLEAN": bool,
    "DATE": lambda days: _within(lambda: (EPOCH + dt.timedelta(days=days)).date()),
    "TIMESTAMP": lambda micros: _within(lambda: EPOCH + dt.timedelta(microseconds=micros)),
    "TIME": lambda micros: _within(lambda: (EPOCH + dt.timedelta(microseconds=micros)).time()),
}
"""Values of Python, made of the numbers that are handed over."""
SPELLED: dict[str, Form] = {
    "BIGINT": "number",
    "DOUBLE": "number",
    "DATE": "day",
    "TIMESTAMP": "clock",
}
"""Forms of the values of these types, where they are texts."""


def _within(make: Callable[[], Any]) -> Any:
    """A day or an instant; None for one that no calendar has."""
    try:
        return make()
    except OverflowError:
        return None


def read_public(table: Table) -> dict[str, tuple[str, Sequence[Any]]]:
    """Return the DuckDB type and all values of every column of a public table, in file order.

    Columns of CSV files are text unless the catalog declares another type.
    Raises: DataUnavailable, also when values are looked at; InternalError if it is not public.
    """
    if not table.public:
        raise InternalError("E_INTERNAL", "only public tables can be read")
    require_files(table)
    if table.engine is not None or table.option("format") is not None:
        return _read_stored(table)
    with _room(table) as connection:
        source = _open(connection, table)
        try:
            stored = stored_types(connection, source)
            types = [_type(table, source, name, kind) for name, kind in stored]
            in_blocks = source.kind == "csv" or source.opened is not None
            lines = list(range(len(types))) if in_blocks else []
            for path in source.paths if source.kind in ("csv", "json") else ():
                _refuse_unread(table, path, source.written)
            rows = _select(connection, source, types, lines)
        except (OSError, EOFError, zlib.error, duckdb.Error, ImportError, ValueError):
            unavailable(table.name, table.source, "the rows cannot be read")
    found: dict[str, tuple[str, Sequence[Any]]] = {}
    for place, ((name, _), kind) in enumerate(zip(source.columns, types, strict=True)):
        column = partial(_column, table, source, types, place, len(rows))
        if lines:
            column = partial(list, [row[place] for row in rows])
        found[name] = (kind, PublicValues(len(rows), column))
    return found


def _read_stored(table: Table) -> dict[str, tuple[str, Sequence[Any]]]:
    """Read the rows of any engine, by the readings that it gives of private ones.

    Columns of nested types are left out, as are values that are not of the type of a column.
    """
    try:
        stored = find_engine(table).open(table)
        kinds = {name: _engine_type(table, stored, name, kind) for name, kind in stored.columns}
        read = {name: READ_AS[kind] for name, kind in kinds.items() if kind in READ_AS}
        asked = [RequestedColumn(name, form) for name, form in read.items()]
        found: dict[str, list[Any]] = {name: [] for name, kind in kinds.items() if kind != NESTED}
        for batch in stored.read(asked, None) if asked else ():
            batch.check(asked, by_unit=False)
            for each, values in zip(asked, batch.columns, strict=True):
                found[each.column] += _values(values, kinds[each.column])
        for name in found.keys() - {each.column for each in asked}:
            found[name] += [each for part in stored.texts(name) for each in part.tolist()]
    except Error:
        raise
    except Exception:
        found = {}  # raised below, so that no word of an engine is kept
    if not found or len({*map(len, found.values())}) > 1:
        unavailable(table.name, table.source, "the rows cannot be read")
    return {
        name: ("VARCHAR" if kinds[name] not in READ_AS else kinds[name], values)
        for name, values in found.items()
    }


def _engine_type(table: Table, stored: StoredTable, name: str, family: str) -> str:
    """The DuckDB type in which a column of an engine is read, NESTED for one that is not."""
    column = table.columns.get(name.casefold())
    declared = column is not None and (stored.untyped or column.type in ("date", "timestamp"))
    if column is not None and declared:
        family = column.type
    return NESTED if family == NESTED else ENGINE_TYPES.get(family, "VARCHAR")


def _values(values: Values64, kind: str) -> list[Any]:
    """Python's values, None where there is none of the type."""
    is_known = ~(values.missing | values.unknown)
    numbers = np.where(is_known, values.numbers, 0).tolist()
    made: Callable[[Any], Any] = MADE.get(kind, lambda each: each)
    pairs = zip(numbers, is_known.tolist(), strict=True)
    return [made(each) if known else None for each, known in pairs]


def _open(connection: duckdb.DuckDBPyConnection, table: Table) -> Source:
    named, written = table.option("table") or "", written_of(table)
    return open_source(connection, table.source, table.name, named, True, written=written)


def _refuse_unread(table: Table, path: str, written: Delimited) -> None:
    """Refuse a public file of which a line would go unseen."""
    for number, place, why in find_rejected_lines(path, written, table.kind):
        problem = f"line {number:,} is no row, it has {why}, at column {place:,}"
        unavailable(table.name, table.source, problem, REMEDIES[why])


def _column(table: Table, source: Source, types: list[str], place: int, count: int) -> list[Any]:
    """Read one column."""
    require_files(table)
    with _room(table, source) as connection:
        again = _open(connection, table)
        try:
            rows = _select(connection, again, types, [place]) if again == source else []
        except (OSError, EOFError, zlib.error, duckdb.Error, ImportError, ValueError):
            unavailable(table.name, table.source, "the rows cannot be read")
    if again != source or len(rows) != count:
        unavailable(table.name, table.source, "the data have changed since they were opened")
    return [value for (value,) in rows]


def _room(
    table: Table, source: Source | None = None
) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """A kept instance for Parquet files, unless something has to be registered with it."""
    beside = source is not None and not set(source.stored).isdisjoint(BESIDES)
    if beside or table.option("table") or not is_parquet(table.source):
        return connect()
    return reader(find_files(table.source, table.name)[1])


def _select(
    connection: duckdb.DuckDBPyConnection, source: Source, types: list[str], places: list[int]
) -> list[tuple[Any, ...]]:
    """Return all rows of some columns; of none, as many empty rows."""
    rows: list[tuple[Any, ...]] = []
    raw = [source.column_sql(i, SPELLED.get(types[i], "key")) for i in places]
    listed = [f"TRY_CAST({raw} AS {types[i]}) AS p{i}" for raw, i in zip(raw, places, strict=True)]
    for found in source.select(connection, listed or ["count(*)"], places):
        values = found.run().fetchall()
        rows += values if listed else [()] * values[0][0]
    return rows


def _type(table: Table, source: Source, name: str, stored: str) -> str:
    column = table.columns.get(name.casefold())
    is_apart = name.casefold() in map(str.casefold, source.apart)
    if not (source.untyped or is_apart) or column is None:
        return stored
    return CSV_TYPES.get(column.type, stored)
