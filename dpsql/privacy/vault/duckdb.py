"""The default vault: DuckDB reads and encodes the rows once, numpy counts the codes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.catalog.catalog import Column, Table
from dpsql.errors import ProgrammingError
from dpsql.plan.cells import AnyResolution, cells_of
from dpsql.privacy.vault.base import Classes, Counts, sealed
from dpsql.privacy.vault.rows import Rows, fits, read_rows, tally
from dpsql.privacy.vault.source import Source, open_source, unavailable
from dpsql.privacy.vault.vectorize import (
    ACCEPTED,
    Encoding,
    encode,
    family,
    measure_sql,
    missing_sql,
    select_codes,
)

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
    "memory_limit": "80%",
}


class DuckDBVault:
    """A table in Parquet, CSV or DuckDB files; see :class:`dpsql.privacy.vault.base.Vault`.

    Guarantee: rows outside the declared view are dropped, then each unit keeps at most
    ``max_rows`` rows, chosen by a salted hash of the unit's own rows alone.
    """

    def __init__(self, table: Table, salt: bytes, threads: int | None = None) -> None:
        self._table = table
        self._salt = salt.hex()
        self._threads = threads
        self._attributes = [key for key, each in table.columns.items() if each.domain is not None]
        self._measures = [key for key, each in table.columns.items() if each.bounds is not None]
        self._rows: Rows | None = None
        with connect(threads) as connection:
            self._source = open_source(connection, table.source, table.name)
        self._check_columns()
        self._data_version = self._fingerprint()

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths of the files that hold the rows."""
        return self._source.paths

    @property
    def data_version(self) -> str:
        return self._data_version

    def check(self) -> None:
        if self._fingerprint() != self._data_version:
            problem = "the data have changed since they were opened"
            unavailable(self._table.name, self._table.source, problem, "connect again")

    def load(self) -> None:
        if self._rows is None:
            sealed(self._load)

    def count(self, attributes: Sequence[str], classes: Sequence[Classes]) -> Counts:
        if len(set(map(str.casefold, attributes))) != len(attributes):
            raise ProgrammingError("E_WORKLOAD", "an attribute was asked for twice")
        return self.tally([cells_of(a, c) for a, c in zip(attributes, classes, strict=True)])

    def tally(self, resolutions: Sequence[AnyResolution], units: bool = False) -> Counts:
        if not fits(resolutions, self._table, units):
            raise ProgrammingError("E_WORKLOAD", "cells or nodes do not fit the table")
        self.load()
        return sealed(lambda: self._tally(resolutions, units))

    def close(self) -> None:
        self._rows = None

    def _tally(self, resolutions: Sequence[AnyResolution], units: bool) -> Counts:
        assert self._rows is not None
        return tally(self._rows, self._table, resolutions, units)

    def _fingerprint(self) -> str:
        try:
            facts = self._source.fingerprint()
        except OSError:
            unavailable(self._table.name, self._table.source, "there is no such file any more")
        if self._table.unit.column is None:
            return facts
        choice = f"{facts} {self._table.unit} {duckdb.__version__}"  # hash() may change with it
        return hashlib.sha256(choice.encode()).hexdigest()

    def _check_columns(self) -> None:
        for column in self._table.columns.values():
            kind = self._kind(column.name)
            accepted = ACCEPTED[column.type]
            if self._source.kind == "csv":
                continue
            if kind not in accepted:
                stored = self._source.columns[self._position(column.name)][1]
                unavailable(
                    self._table.name,
                    self._table.source,
                    f"column {column.name!r} is declared {column.type} but stored as {stored}",
                    f"{column.type} columns are stored as {', '.join(accepted)}",
                    code="E_POLICY",
                )
        if self._table.unit.column is not None and self._kind(self._table.unit.column) is None:
            problem = f"privacy unit column {self._table.unit.column!r} has a nested type"
            unavailable(self._table.name, self._table.source, problem)

    def _position(self, name: str) -> int:
        position = self._source.find(name)
        if position is None:
            unavailable(
                self._table.name,
                self._table.source,
                f"column {name!r} is declared but the file has no such column",
                "`dpsql init FILE` lists the columns of a file",
            )
        return position

    def _raw(self, name: str) -> str:
        return self._source.column_sql(self._position(name))

    def _kind(self, name: str) -> str | None:
        return family(self._source.columns[self._position(name)][1])

    def _load(self) -> None:
        columns = [self._table.columns[key] for key in self._attributes]
        encodings = [
            encode(column, self._raw(column.name), str(self._kind(column.name)), i)
            for i, column in enumerate(columns)
        ]
        with connect(self._threads) as connection:
            if open_source(connection, self._table.source, self._table.name) != self._source:
                raise ValueError
            for i, each in enumerate(encodings):
                if each.texts:
                    create_enum(connection, f"e{i}", each.texts)
            sql, parameters = self._query(columns, encodings)
            arrays: dict[str, Any] = dict(connection.execute(sql, parameters).fetchnumpy())
        if self._fingerprint() != self._data_version:
            raise ValueError
        self._rows = read_rows(self._table, arrays)

    def _query(self, columns: list[Column], encodings: list[Encoding]) -> tuple[str, list[object]]:
        """Return the SELECT of all codes of the declared view, rows per unit bounded."""
        relation, parameters = self._source.relation_sql()
        bound: list[object] = list(parameters)
        kept = [f"c{i}" for i in range(len(columns))] + [
            f"q{i}" for i in range(len(self._measures))
        ]
        listed = ", ".join(kept) or "0 AS c"
        declared = [self._table.columns[key] for key in self._measures]
        raw = [self._raw(each.name) for each in declared]
        measures = [
            measure_sql(each, name, str(self._kind(each.name)))
            for each, name in zip(declared, raw, strict=True)
        ]
        unit = self._table.unit
        if unit.column is None:
            inner = select_codes(columns, encodings, measures, relation, ())
            return f"SELECT {listed} FROM ({inner})", bound
        owner = self._raw(unit.column)
        missing = missing_sql(owner, str(self._kind(unit.column)))
        extra = [f"CASE WHEN NOT {missing} THEN {owner} END", *raw]
        inner = select_codes(columns, encodings, measures, relation, extra)
        keys = ["x0", *kept[: len(columns)], *(f"x{i}" for i in range(1, len(extra)))]
        order = ", ".join([f"hash(?, {', '.join(keys)})", *keys])
        first = f"row_number() OVER (PARTITION BY x0 ORDER BY {order}) <= {unit.max_rows}"
        number = "CAST(dense_rank() OVER (ORDER BY x0) - 1 AS UINTEGER) AS u"
        sql = f"SELECT {listed}, {number} FROM ({inner}) WHERE x0 IS NOT NULL QUALIFY {first}"
        return sql, [*bound, self._salt]


def connect(threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open an empty in-memory DuckDB that loads no extension and spills nothing to disk."""
    config = dict(CONFIG)
    if threads is not None:
        config["threads"] = threads
    return duckdb.connect(config=config)


def create_enum(connection: duckdb.DuckDBPyConnection, name: str, texts: Sequence[str]) -> None:
    """Create an ENUM type of declared values, in declared order."""
    listed = "SELECT unnest(range(len($1))) AS cell, unnest(CAST($1 AS VARCHAR[])) AS text"
    connection.execute(f"CREATE TEMP TABLE {name} AS {listed}", [list(texts)])
    ordered = f"SELECT text FROM {name} ORDER BY cell"
    connection.execute(f"CREATE TEMP TYPE {name} AS ENUM ({ordered})")


def describe_source(path: str) -> list[tuple[str, str]]:
    """Return the (name, DuckDB type) of every column of a file; values are never read.

    Raises: DataUnavailable.
    """
    with connect() as connection:
        source: Source = open_source(connection, path, Path(path).name)
    return list(source.columns)
