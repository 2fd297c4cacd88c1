"""Tables of SQLite databases, for dpsql: source = "sqlite:///srv/clinic.db#visits"."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog import Table
from dpsql.privacy.vault.data_engine import (
    VERSION,
    Batch,
    RequestedColumn,
    Values64,
    fingerprint,
    unavailable,
)

FAMILIES = {"INTEGER": "integer", "REAL": "float", "TEXT": "text", "DATE": "date"}
ROWS = 10_000
FIRST_DAY = dt.date(1970, 1, 1).toordinal()


class SQLite:
    """Opens tables of SQLite databases; types are those of the schema, whatever is stored."""

    version = VERSION

    def open(self, table: Table) -> SQLiteTable:
        path, _, name = table.source.partition("://")[2].partition("#")
        if not os.path.isabs(path) or not os.path.isfile(path):
            unavailable(table.name, table.source, "there is no such file; give its absolute path")
        found = SQLiteTable((os.path.realpath(path),), name or table.name)
        if not found.columns:
            unavailable(table.name, table.source, "the database holds no table of that name")
        return found


@dataclass(frozen=True)
class SQLiteTable:
    """One table of a database."""

    paths: tuple[str, ...]
    table: str
    kind = "sqlite"
    untyped = False

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        with closing(self._connect()) as connection:
            found = connection.execute("SELECT name, type FROM pragma_table_info(?)", [self.table])
            return tuple((name, FAMILIES.get(kind.upper(), "other")) for name, kind in found)

    def fingerprint(self) -> str:
        logs = [path for path in (self.paths[0] + "-wal",) if os.path.exists(path)]
        return fingerprint([*self.paths, *logs], self.columns)

    def read(self, asked: Sequence[RequestedColumn], unit: str | None) -> Iterator[Batch]:
        wanted = [each.column for each in asked] + ([] if unit is None else [unit])
        for rows in self._rows(wanted):
            values: list[tuple[Any, ...]] = list(zip(*rows, strict=True))
            columns = [convert(each, found) for each, found in zip(asked, values, strict=False)]
            if unit is None:
                yield Batch(len(rows), columns)
            else:
                yield Batch(len(rows), columns, *owners(values[-1]))

    def texts(self, column: str) -> Iterator[NDArray[np.object_]]:
        for rows in self._rows([column]):
            texts = np.array([str(value) for (value,) in rows], dtype=object)
            yield np.ma.array(texts, mask=[value is None for (value,) in rows])

    def _rows(self, wanted: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        listed = ", ".join(map(identifier, wanted)) or "0"
        with closing(self._connect()) as connection:
            cursor = connection.execute(f"SELECT {listed} FROM {identifier(self.table)}")
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(f"file:{quote(self.paths[0])}?mode=ro", uri=True)
        # Text that is not UTF-8 must not raise, nor become other text.
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        return connection


def identifier(name: str) -> str:
    """Quote the name of a column or table."""
    return '"' + name.replace('"', '""') + '"'


def convert(asked: RequestedColumn, values: Sequence[Any]) -> Values64:
    """Convert each value by itself; what has not the form is unknown."""
    places = {text: place for place, text in enumerate(asked.texts)}
    found = [number(asked.form, places, value) for value in values]
    dtype, nothing = (np.float64, np.nan) if asked.form == "number" else (np.int64, 0)
    numbers: NDArray[Any] = np.array([nothing if n is None else n for n in found], dtype=dtype)
    missing = np.array([value is None for value in values])
    return Values64(numbers, missing, np.array([each is None for each in found]) & ~missing)


def number(form: str, places: dict[str, int], value: Any) -> int | float | None:
    """The number that a stored value stands for, if it has the form."""
    if form == "place":
        return places.get(value) if isinstance(value, str) else None
    if form == "day":
        return day(value)
    if form == "number":
        return float(value) if isinstance(value, int | float) else None
    return value if isinstance(value, int) else None


def day(value: Any) -> int | None:
    """Days since 1970 of a date as ISO text."""
    try:
        return dt.date.fromisoformat(value).toordinal() - FIRST_DAY
    except (TypeError, ValueError):
        return None


def owners(values: Sequence[Any]) -> tuple[NDArray[np.object_], NDArray[np.bool_]]:
    """The units of rows, as text that tells 1 from '1', and whether there is one."""
    named = [value if isinstance(value, str) else repr(value) + "\0" for value in values]
    return np.array(named, dtype=object), np.array([value is not None for value in values])


ENGINE = SQLite()
