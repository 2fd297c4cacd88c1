"""Tables of DuckDB databases, for dpsql, with all rights: batches of Arrow, and counts there.

source = { engine = "duck", table = "/srv/clinic.db#visits", read = "push" }
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.catalog import Table
from dpsql.data_engine import (
    ArrowEngine,
    Counter,
    Dialect,
    FetchedSql,
    OwnerSql,
    RequestedColumn,
    fingerprint,
    held,
    unavailable,
)

FAMILIES = {
    **dict.fromkeys(("INTEGER", "BIGINT"), "integer"),
    "DOUBLE": "float",
    "VARCHAR": "text",
    "DATE": "date",
    "BOOLEAN": "boolean",
    "TIMESTAMP": "timestamp",
    "TIME": "time",
}


USUAL = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "text": "VARCHAR"}


def family_of(stored: str) -> str:
    """Return the family of a native type."""
    return FAMILIES.get(stored, "nested")


def quoted(text: str, mark: str) -> str:
    """Write a text between marks."""
    return f"{mark}{text.replace(mark, 2 * mark)}{mark}"


class DuckDialect(Dialect):
    """The leaves of DuckDB: each is total, and looks at one row."""

    usual = USUAL

    def identifier(self, name: str) -> str:
        return quoted(name, '"')

    def literal(self, text: str) -> str:
        return quoted(text, "'")

    def double(self, value: float) -> str:
        return f"CAST('{value!r}' AS DOUBLE)"

    def fetch(self, asked: RequestedColumn, column: str, stored: str) -> FetchedSql:
        missing = f"({column} IS NULL)"
        if asked.form == "number" and stored == "DOUBLE":
            missing = f"({column} IS NULL OR isnan({column}))"
        return FetchedSql(self._value(asked, column, stored), missing)

    def _value(self, asked: RequestedColumn, column: str, stored: str) -> str:
        match asked.form:
            case "place":
                pairs = [(self.literal(each), i) for i, each in enumerate(asked.texts)]
                listed = " ".join(f"WHEN {column} = {one} THEN {self.whole(i)}" for one, i in pairs)
                return f"CASE {listed} END" if pairs else "CAST(NULL AS BIGINT)"
            case "day":
                day = column if stored == "DATE" else f"CAST({column} AS DATE)"
                return self._finite(column, f"datediff('day', DATE '1970-01-01', {day})")
            case "clock":
                return self._finite(column, f"epoch_us(CAST({column} AS TIMESTAMP))")
            case "time":
                return f"CAST(epoch_us({column}) AS BIGINT)"
        return f"CAST({column} AS {'DOUBLE' if asked.form == 'number' else 'BIGINT'})"

    def _finite(self, column: str, value: str) -> str:
        return f"CASE WHEN isfinite({column}) THEN CAST({value} AS BIGINT) END"

    def owner(self, column: str, stored: str) -> OwnerSql:
        known, value = f"({column} IS NOT NULL)", f"CAST({column} AS BIGINT)"
        match family_of(stored):
            case "text":
                return OwnerSql(column, column, known)
            case "float":
                value = f"CAST(CAST({column} + 0.0::DOUBLE AS BIT) AS BIGINT)"
                known = f"({column} IS NOT NULL AND NOT isnan({column}))"
            case "date":
                value = self._value(RequestedColumn("", "day"), column, stored)
                known = f"({column} IS NOT NULL AND isfinite({column}))"
            case "timestamp":
                value = self._value(RequestedColumn("", "clock"), column, stored)
                known = f"({column} IS NOT NULL AND isfinite({column}))"
            case "time":
                value = self._value(RequestedColumn("", "time"), column, stored)
        return OwnerSql(value, f"CAST({value} AS VARCHAR)", known)

    def to_whole(self, double: str) -> str:
        return f"CAST({double} AS BIGINT)"

    def to_double(self, whole: str) -> str:
        return f"CAST({whole} AS DOUBLE)"

    def rounded(self, double: str) -> str:
        return f"round_even({double}, 0)"

    def divided(self, whole: str, by: int) -> str:
        return f"({whole} // {by})"

    def md5(self, texts: Sequence[str]) -> str:
        return f"md5(concat_ws('|', {', '.join(texts)}))"

    def first_digits(self, digest: str, digits: int) -> str:
        return f"left({digest}, {digits})"


DIALECT = DuckDialect()


class DuckTable:
    """One table of a database."""

    kind = "duck"

    def __init__(self, path: str, table: str) -> None:
        self.paths, self.table = (os.path.realpath(path),), table
        self.relation = DIALECT.identifier(table)
        with closing(self._connect()) as found:
            rows = found.sql(f"SELECT * FROM {self.relation} LIMIT 0")
            self.schema: pa.Schema = rows.to_arrow_table().schema
            self.types = tuple(zip(rows.columns, map(str, rows.types), strict=True))

    def fingerprint(self) -> str:
        return fingerprint(self.paths, self.types)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        listed = ", ".join(map(DIALECT.identifier, names)) or "1"
        session = held(("duck", self.paths), lambda: closing(self._connect()))
        with session as connection:
            found = connection.cursor().sql(f"SELECT {listed} FROM {self.relation}")
            yield from found.to_arrow_reader(100)

    def open_counter(self) -> Counter:
        return DuckCounter(self._connect(), self.relation)

    def _connect(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(self.paths[0], read_only=True, config={"threads": 1})


class DuckCounter:
    """A session that counts the rows of one table."""

    dialect: Dialect = DIALECT

    def __init__(self, connection: duckdb.DuckDBPyConnection, relation: str) -> None:
        self._connection, self.relation, self._kept = connection, relation, 0

    def keep(self, select: str) -> str | None:
        self._kept += 1
        self._connection.execute(f"CREATE TEMP TABLE kept_{self._kept} AS {select}")
        return f"kept_{self._kept}"

    def rows(self, select: str) -> Iterator[tuple[int, ...]]:
        yield from self._connection.execute(select).fetchall()

    def close(self) -> None:
        self._connection.close()


class DuckEngine(ArrowEngine):
    """Opens tables of databases, and says how its SQL is written."""

    dialect = DIALECT
    family_of = staticmethod(family_of)


def open_table(table: Table) -> Any:
    """Find a table by its source: the absolute path of a database, and a name."""
    path, _, name = table.source.partition("://")[2].partition("#")
    if not os.path.isabs(path) or not os.path.isfile(path):
        unavailable(table.name, table.source, "there is no such file; give its absolute path")
    try:
        return DuckTable(path, name or table.name)
    except duckdb.CatalogException:
        unavailable(table.name, table.source, "the database holds no table of that name")


ENGINE = DuckEngine(open_table)
