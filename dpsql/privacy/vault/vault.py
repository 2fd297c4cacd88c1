"""What every vault answers, the vault over any data engine, and how failures in it are silenced."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from dpsql.catalog.catalog import Column, Table
from dpsql.errors import InternalError, ProgrammingError, is_interrupt
from dpsql.privacy.vault.data_engine import (
    NESTED,
    Asked,
    Batch,
    Classes,
    Counts,
    DataEngine,
    Flags,
    StoredTable,
    find,
    unavailable,
)
from dpsql.privacy.vault.duckdb import FILES
from dpsql.privacy.vault.plugged import find_plugged
from dpsql.privacy.vault.rows import (
    Digest,
    Rows,
    ask,
    declared,
    fits,
    line_up,
    load_rows,
    tally,
    view,
)
from dpsql.privacy.vault.source import connect
from dpsql.workload.cells import AnyResolution, cells_of

T = TypeVar("T")
COLUMNAR = ("parquet", "duckdb")
"""Kinds of files of which some columns are read without the others."""
WIDE = 64
"""Columns from which on a table in such files is read column by column, as they are asked for."""
MOST_VIEWS = 16
"""Views that are remembered, one byte per row each."""

ACCEPTED = {
    "integer": ("integer", "float", "decimal"),
    "number": ("integer", "float", "decimal"),
    "text": ("text",),
    "boolean": ("boolean", "integer"),
    "date": ("date", "timestamp"),
}
"""The families of stored types that serve a column, by its declared type."""


class Vault(Protocol):
    """One private table, read once per version of its data.

    Guarantee: every vector is a marginal of one table of integer codes, the declared view of some
    columns, in which tables that differ by one privacy unit differ by at most ``max_rows`` rows.
    """

    @property
    def data_version(self) -> str:
        """Fingerprint of paths, sizes, modification times and schema; never of values."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths of the files that hold the rows."""

    def check(self) -> None:
        """Raise DataUnavailable if the source has gone or is no longer the version opened."""

    def load(self, columns: Collection[str] | None = None) -> None:
        """Read and encode some columns, or all; counting does it when it has not been done.

        Each is read once. Raises: InternalError, with one constant text.
        """

    def count(self, attributes: Sequence[str], classes: Sequence[Classes]) -> Counts:
        """Count the rows of every combination of classes.

        ``classes[i]`` gives the class of every cell of ``attributes[i]``, or -1 for "leave such
        rows out". Shape: the number of classes of each attribute; () for the grand total.
        Raises: InternalError, with one constant text.
        """

    def tally(self, resolutions: Sequence[AnyResolution], units: bool = False) -> Counts:
        """Add up what the rows add to every combination of cells and nodes.

        With ``units``, count the different privacy units with at least one row in a cell, which
        takes resolutions into cells. Shape: the size of each resolution; () for none.
        Guarantee: whole numbers, the same for any order of the rows; one row adds ``block_unit``
        in total, or nothing.
        Raises: InternalError, with one constant text.
        """

    def within(self, columns: Collection[str]) -> Vault:
        """Return this vault with the view of fewer columns than all that are declared.

        A row is in it whose values in these columns are declared, whatever is in the others.
        """

    def close(self) -> None:
        """Forget the rows; a later count reads them again."""


class TableVault:
    """The vault of a table that an engine holds; see :class:`Vault`.

    Guarantee: rows outside the declared view are dropped, then each unit keeps at most
    ``max_rows`` rows, chosen by a salted hash of the unit's own rows alone. What a row is, is a
    function of that row: see :mod:`dpsql.privacy.vault.encode`.
    """

    def __init__(self, table: Table, salt: bytes) -> None:
        self._table = table
        self._salt = salt.hex()
        self._columns = frozenset(table.columns)
        self._rows: Rows | None = None
        self._views: dict[frozenset[str], Flags] = {}
        self._stored = open_table(table)
        self._data_version = self._fingerprint()
        columnar = table.engine is None and self._stored.kind in COLUMNAR
        # where units have several rows, what is in all columns says which of them are kept
        self._apart = columnar and table.unit.column is None and len(table.columns) > WIDE

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths of the files that hold the rows."""
        return self._stored.paths

    @property
    def data_version(self) -> str:
        return self._data_version

    def check(self) -> None:
        if self._fingerprint() != self._data_version:
            problem = "the data have changed since they were opened"
            unavailable(self._table.name, self._table.source, problem, "connect again")

    def load(self, columns: Collection[str] | None = None) -> None:
        missing = self._missing(columns)
        if self._rows is None or missing:
            sealed(lambda: self._load(missing))

    def count(self, attributes: Sequence[str], classes: Sequence[Classes]) -> Counts:
        if len(set(map(str.casefold, attributes))) != len(attributes):
            raise ProgrammingError("E_WORKLOAD", "an attribute was asked for twice")
        return self.tally([cells_of(a, c) for a, c in zip(attributes, classes, strict=True)])

    def tally(self, resolutions: Sequence[AnyResolution], units: bool = False) -> Counts:
        if not fits(resolutions, self._table, units):
            raise ProgrammingError("E_WORKLOAD", "cells or nodes do not fit the table")
        self.load([*self._columns, *(name for each in resolutions for name in each.columns)])
        return sealed(lambda: self._tally(resolutions, units))

    def within(self, columns: Collection[str]) -> TableVault:
        self.load(columns)
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
            facts = self._stored.fingerprint()
        except OSError:
            unavailable(self._table.name, self._table.source, "there is no such file any more")
        if self._table.unit.column is None:
            return facts
        return hashlib.sha256(f"{facts} {self._table.unit}".encode()).hexdigest()

    def _missing(self, columns: Collection[str] | None) -> frozenset[str]:
        """Return the declared columns that are to be read before some can be counted."""
        wanted = frozenset(declared(self._table))
        if self._apart and columns is not None:
            wanted &= frozenset(map(str.casefold, columns))
        return wanted if self._rows is None else wanted - self._rows.known

    def _load(self, columns: frozenset[str]) -> None:
        chosen = {key: each for key, each in self._table.columns.items() if key in columns}
        rows = read_rows(self._stored, replace(self._table, columns=chosen), self._salt)
        if self._fingerprint() != self._data_version:
            raise ValueError
        if self._rows is None:
            self._rows = rows
        else:
            self._rows.add(rows)


def open_vault(table: Table, salt: bytes) -> Vault:
    """Open the source of a table; rows are not read yet.

    ``salt`` is the ledger's secret; it decides which rows of a unit with too many are kept.
    Raises: DataUnavailable if the source is missing, unreadable or lacks a declared column.
    """
    return TableVault(table, salt)


def find_engine(table: Table) -> DataEngine:
    """Return the engine that serves the source of a table: a public fact, from its form.

    Raises: DataUnavailable where none is installed; OperationalError (E_ENGINE) for a broken one.
    """
    return find_plugged(table) if table.engine else FILES


def open_table(table: Table) -> StoredTable:
    """Let the engine of a table's source open it, and check that its columns fit the catalog.

    Raises: DataUnavailable.
    """
    stored = find_engine(table).open(table)
    for column in table.columns.values():
        _check_type(table, column, _family(table, stored, column.name), stored.untyped)
    if table.unit.column is not None and _family(table, stored, table.unit.column) == NESTED:
        problem = f"privacy unit column {table.unit.column!r} has a nested type"
        unavailable(table.name, table.source, problem)
    return stored


def read_rows(stored: StoredTable, table: Table, salt: str) -> Rows:
    """Read, encode and line up all rows of a table."""
    rows = load_rows(_batches(stored, table), table)
    if rows.owners is None:
        return rows
    with connect() as connection:
        return replace(rows, queue=line_up(rows, table, Digest(connection, salt)))


def ask_all(stored: StoredTable, table: Table) -> tuple[list[Asked], str | None]:
    """Return what is asked of every row: the declared columns and the unit, and nothing else."""
    columns = declared(table).values()
    found = [stored.columns[position(table, stored, each.name)] for each in columns]
    asked = [ask(each, *known) for each, known in zip(columns, found, strict=True)]
    if table.unit.column is None:
        return asked, None
    return asked, stored.columns[position(table, stored, table.unit.column)][0]


def _batches(stored: StoredTable, table: Table) -> Iterator[Batch]:
    """Yield all rows as the engine hands them over, checked."""
    asked, unit = ask_all(stored, table)
    for batch in stored.read(asked, unit):
        batch.check(asked, unit is not None)
        yield batch


def _check_type(table: Table, column: Column, family: str, untyped: bool) -> None:
    accepted = ACCEPTED[column.type]
    if untyped or family in accepted:
        return
    unavailable(
        table.name,
        table.source,
        f"column {column.name!r} is declared {column.type} but stored as "
        f"{'a nested or unknown type' if family == NESTED else family}",
        f"{column.type} columns are stored as {', '.join(accepted)}",
        code="E_POLICY",
    )


def _family(table: Table, stored: StoredTable, name: str) -> str:
    return stored.columns[position(table, stored, name)][1]


def position(table: Table, stored: StoredTable, name: str) -> int:
    """Return where a declared column is among those of its source. Raises: DataUnavailable."""
    found = find(stored.columns, name)
    if found is None:
        unavailable(
            table.name,
            table.source,
            f"column {name!r} is declared but the file has no such column",
            "`dpsql init FILE` lists the columns of a file",
        )
    return found


def sealed(work: Callable[[], T]) -> T:
    """Run ``work``; whatever it raises becomes one constant error that carries no trace of it.

    Guarantee: text, cause and context of the error are independent of the data. Ctrl-C stays one.
    """
    try:
        return work()
    except Exception as error:
        interrupted = is_interrupt(error)
    if interrupted:
        raise KeyboardInterrupt
    raise InternalError("E_INTERNAL", "the table could not be counted; details are withheld")
