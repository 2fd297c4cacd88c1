"""The default vault: DuckDB fetches the rows once, numpy encodes and counts them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path

from dpsql.catalog.catalog import Table
from dpsql.errors import ProgrammingError
from dpsql.privacy.vault.encode import Flags
from dpsql.privacy.vault.hardened import connect
from dpsql.privacy.vault.load import load_rows
from dpsql.privacy.vault.readable import check_readable
from dpsql.privacy.vault.rows import Rows, fits, tally, view
from dpsql.privacy.vault.source import ACCEPTED, Source, family, open_source, unavailable
from dpsql.privacy.vault.vault import Classes, Counts, sealed
from dpsql.workload.cells import AnyResolution, cells_of

MOST_VIEWS = 16
"""Views that are remembered, one byte per row each."""


class DuckDBVault:
    """A table in Parquet, CSV or DuckDB files; see :class:`dpsql.privacy.vault.vault.Vault`.

    Guarantee: rows outside the declared view are dropped, then each unit keeps at most
    ``max_rows`` rows, chosen by a salted hash of the unit's own rows alone. What a row is, is a
    function of that row: see :mod:`dpsql.privacy.vault.encode`.
    """

    def __init__(self, table: Table, salt: bytes, threads: int | None = None) -> None:
        self._table = table
        self._salt = salt.hex()
        self._threads = threads
        self._columns = frozenset(table.columns)
        self._rows: Rows | None = None
        self._views: dict[frozenset[str], Flags] = {}
        with connect(threads) as connection:
            self._source = open_source(connection, table.source, table.name)
            self._check_columns()
            check_readable(connection, self._source, table)
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

    def within(self, columns: Collection[str]) -> DuckDBVault:
        self.load()
        narrower = copy.copy(self)  # the rows and the views worked out so far are shared
        narrower._columns = frozenset(name.casefold() for name in columns)
        if not narrower._columns <= self._table.columns.keys():
            raise ProgrammingError("E_WORKLOAD", "the view is of columns that the table lacks")
        return narrower

    def close(self) -> None:
        self._rows = None
        self._views.clear()

    def _tally(self, resolutions: Sequence[AnyResolution], units: bool) -> Counts:
        assert self._rows is not None
        kept = self._view(self._columns)
        return tally(self._rows, kept, self._table, resolutions, units)

    def _view(self, columns: frozenset[str]) -> Flags:
        """Return which rows are in the declared view of some columns, worked out once."""
        assert self._rows is not None
        if columns not in self._views:
            if len(self._views) >= MOST_VIEWS:
                del self._views[next(iter(self._views))]
            self._views[columns] = view(self._rows, self._table, columns)
        return self._views[columns]

    def _fingerprint(self) -> str:
        try:
            facts = self._source.fingerprint()
        except OSError:
            unavailable(self._table.name, self._table.source, "there is no such file any more")
        if self._table.unit.column is None:
            return facts
        return hashlib.sha256(f"{facts} {self._table.unit}".encode()).hexdigest()

    def _check_columns(self) -> None:
        for column in self._table.columns.values():
            kind = self._kind(column.name)
            accepted = ACCEPTED[column.type]
            if self._source.kind == "csv":
                continue
            if kind not in accepted:
                unavailable(
                    self._table.name,
                    self._table.source,
                    f"column {column.name!r} is declared {column.type} but stored as "
                    f"{kind or 'a nested or unknown type'}",
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

    def _kind(self, name: str) -> str | None:
        return family(self._source.columns[self._position(name)][1])

    def _load(self) -> None:
        with connect(self._threads) as connection:
            if open_source(connection, self._table.source, self._table.name) != self._source:
                raise ValueError
            rows = load_rows(connection, self._source, self._table, self._salt)
        if self._fingerprint() != self._data_version:
            raise ValueError
        self._rows = rows


def describe_source(path: str) -> list[tuple[str, str]]:
    """Return the name and the type family of every column of a file; values are never read.

    Raises: DataUnavailable.
    """
    with connect() as connection:
        source: Source = open_source(connection, path, Path(path).name)
    return [(name, family(stored) or "nested") for name, stored in source.columns]
