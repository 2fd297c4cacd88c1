"""The interface of all vaults, the vault over any data engine, and the silence of its failures."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from dpsql.catalog.catalog import SERVERS, Column, Table, Unit
from dpsql.catalog.joint_keys import sought_column, stored_parts
from dpsql.catalog.sought import Sought
from dpsql.catalog.unit_local import DerivedTable
from dpsql.catalog.view import RowView
from dpsql.errors import ProgrammingError
from dpsql.privacy.chain import subkey
from dpsql.privacy.vault.data_engine import Classes, Counts, Flags, Room, StoredTable, unavailable
from dpsql.privacy.vault.distinct import Pairs, find_pairs, read_pairs
from dpsql.privacy.vault.failures import CHANGED, Unread, sealed
from dpsql.privacy.vault.owners import Digest
from dpsql.privacy.vault.pile import MOST_VIEWS, why_not
from dpsql.privacy.vault.pushed import open_pushed
from dpsql.privacy.vault.rows import Rows, declared, fits, fits_view, mark, tally, view
from dpsql.privacy.vault.stored_rows import (
    StoredRows,
    ask_all,
    check_keys,
    lined_up,
    open_table,
    position,
    written,
)
from dpsql.privacy.vault.versions import stated_versions
from dpsql.records import dataclass, replace
from dpsql.workload.cells import AnyResolution, cells_of

T = TypeVar("T")
Resolutions: TypeAlias = Sequence[AnyResolution]


class Vault(Protocol):
    """One private table, read once per version of its data.

    Guarantee: every vector is a marginal of one table of integer codes, the rows of a view, in
    which tables that differ by one privacy unit differ by at most ``max_rows`` rows.
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
        rows out". Shape: the number of classes of each attribute; () for the grand total. Raises:
        InternalError, with one constant text.
        """

    def tally(self, resolutions: Resolutions, units: bool = False, room: Room = None) -> Counts:
        """Add up what the rows add to every combination of cells and nodes.

        With ``units``, count the different privacy units with at least one row in a cell, which
        takes resolutions into cells. Shape: the size of each, or ``room``, a larger one in which
        all else is zero, where the vault can give it. The array is the caller's. Raises:
        InternalError, with one constant text.

        Guarantee: whole numbers, the same for any order; a row adds ``block_unit``.
        """

    def mark(self, resolutions: Resolutions) -> Counts:
        """Say of every combination of cells and unions whether it has a row: 1 or 0; as ``tally``.

        Guarantee: a privacy unit changes only those that it has a row in, each by one at most.
        """

    def find(self, column: str, sought: Sought) -> None:
        """Read the keys that privacy units have in a column, for ``pairs`` to return them.

        Raises: as ``pairs``; DataUnavailable for what cannot be read.
        """

    def pairs(self, column: str, sought: Sought) -> Pairs:
        """Return every privacy unit's keys in a column whose keys nobody listed.

        Guarantee: those of a unit follow from its own rows, and are at most ``max_keys``.
        Raises: ProgrammingError (E_WORKLOAD) where the catalog declares something else;
        InternalError, with one constant text.
        """

    def within(self, rows: RowView) -> Vault:
        """Return this vault with another view than that of all declared columns.

        Raises: ProgrammingError (E_WORKLOAD) where it is not one of this table's.
        """

    def close(self) -> None:
        """Forget the rows; a later count reads them again."""


class RowReader(Protocol):
    """The source of a vault's rows."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that hold them."""

    @property
    def apart(self) -> bool:
        """True if some columns are read without the others."""

    def fingerprint(self) -> str:
        """Return a digest of the version of the data. Raises: OSError, DataUnavailable."""

    def read(self, columns: frozenset[str]) -> Rows:
        """Read and encode some columns of all rows, by case-folded name; all unless ``apart``.

        Rows of a unit with too many are not lined up.
        """


class TableVault:
    """The vault of a table, whose rows an engine holds or a relation makes; see :class:`Vault`.

    Guarantee: rows outside the view are dropped, then each unit keeps at most ``max_rows`` rows,
    chosen by a salted hash of the unit's own rows alone. What a row is, is a
    function of that row: see :mod:`dpsql.privacy.vault.encode`.
    """

    def __init__(
        self, table: Table, salt: bytes, shared: dict[str, TableVault] | None = None
    ) -> None:
        self._table = table
        self._key = key_of(table, salt)
        self._view = RowView(tuple(sorted(table.columns)))
        self._rows: Rows | None = None
        self._lined_up = False
        self._written: tuple[int, ...] = ()
        self._views: dict[RowView, Flags] = {}
        self._found: tuple[str, Sought, Pairs] | None = None
        self._reader = _open_reader(table, salt, {} if shared is None else shared)
        self.sources = self._reader.paths
        self._all = frozenset(declared(table))
        self._apart = self._reader.apart
        self._pushed = open_pushed(table, self._reader, self._key)
        self._stated = stated_versions(table)
        self.data_version = self._fingerprint()

    @property
    def is_stale(self) -> bool:
        """True if the clock has begun another version since it was opened: see ``versions``.

        Of rows in files alone nothing is stated, at no time.
        """
        return any(self._stated) and self._stated != stated_versions(self._table)

    def check(self) -> None:
        if self._fingerprint() != self.data_version:
            unavailable(self._table.name, self._table.source, *CHANGED)
        if self._pushed is not None:
            self._pushed.check()

    def load(self, columns: Collection[str] | None = None) -> None:
        if self._pushed is None:
            self._load_rows(columns)
        elif not self._pushed.is_loaded:
            sealed(self._load_codes)

    def _load_codes(self) -> None:
        assert self._pushed is not None
        self._pushed.load()
        if self._fingerprint() != self.data_version:
            raise ValueError

    def _load_rows(self, columns: Collection[str] | None) -> None:
        missing = self._missing(columns)
        if self._rows is None or missing or not self._lined_up:
            problem = sealed(lambda: self._no_room(missing))
            if problem is not None:
                hint = "row_count_hint states how many rows there may be; `spill` names a folder"
                unavailable(self._table.name, self._table.source, problem, hint)

    @property
    def stored(self) -> StoredTable:
        """The stored table, where an engine holds the rows."""
        assert isinstance(self._reader, StoredRows)
        return self._reader.stored

    def rows(self) -> Rows:
        """Return the encoded rows, read once, for what is made of them inside the vault."""
        return self._load(self._missing(None))

    def count(self, attributes: Sequence[str], classes: Sequence[Classes]) -> Counts:
        if len(set(map(str.casefold, attributes))) != len(attributes):
            raise ProgrammingError("E_WORKLOAD", "an attribute was asked for twice")
        return self.tally([cells_of(a, c) for a, c in zip(attributes, classes, strict=True)])

    def tally(self, resolutions: Resolutions, units: bool = False, room: Room = None) -> Counts:
        return self._counted(resolutions, units, lambda: self._tally(resolutions, units, room))

    def mark(self, resolutions: Resolutions) -> Counts:
        return self._counted(resolutions, True, lambda: self._mark(resolutions))

    def _counted(self, resolutions: Resolutions, units: bool, count: Callable[[], T]) -> T:
        if not fits(resolutions, self._table, units):
            raise ProgrammingError("E_WORKLOAD", "cells or nodes do not fit the table")
        self.load([*self._view.names, *(name for each in resolutions for name in each.columns)])
        return sealed(count)

    def find(self, column: str, sought: Sought) -> None:
        self._found = None
        found = self._sought(column, sought)
        self._found = column, sought, sealed(lambda: self._pairs(found))

    def pairs(self, column: str, sought: Sought) -> Pairs:
        known, self._found = self._found, None
        if known is not None and known[:2] == (column, sought):
            return known[2]
        found = self._sought(column, sought)
        return sealed(lambda: self._paid(found))

    def _sought(self, column: str, sought: Sought) -> Column:
        found = sought_column(self._table, column, sought)
        by_unit = self._table.unit.through is None and isinstance(self._reader, StoredRows)
        if found is None or found.sought != sought or sought.what != "keys" or not by_unit:
            raise ProgrammingError("E_WORKLOAD", "the keys of this column are not to be found")
        if self._table.engine not in SERVERS:
            self._load_rows(())
        return found

    def within(self, rows: RowView) -> TableVault:
        if not fits_view(rows, self._table):
            raise ProgrammingError("E_WORKLOAD", "the view is of columns that the table lacks")
        self.load(rows.names)
        narrower = copy.copy(self)  # the rows and the views worked out so far are shared
        narrower._view = rows
        return narrower

    def beside(self) -> TableVault:
        """Return a vault over the rows read by now, with a session of its own."""
        other = copy.copy(self)
        other._views, other._rows = {}, self._rows and self._rows.beside()
        other._pushed = open_pushed(self._table, self._reader, self._key)
        return other

    def close(self) -> None:
        self._rows, self._lined_up, self._found = None, False, None
        self._views.clear()
        if self._pushed is not None:
            self._pushed.close()

    def _tally(self, resolutions: Resolutions, units: bool, room: Room = None) -> Counts:
        if self._pushed is not None:
            return self._pushed.tally(self._view, resolutions, units)
        assert self._rows is not None
        return tally(self._rows, self._inside(), self._table, resolutions, units, room)

    def _mark(self, resolutions: Resolutions) -> Counts:
        if self._pushed is not None or self._rows is None:
            return np.minimum(self._tally(resolutions, True), 1)
        return mark(self._rows, self._inside(), self._table, resolutions)

    def _pairs(self, column: Column) -> Pairs:
        if self._fingerprint() != self.data_version:
            raise Unread(self._table.name, self._table.source, *CHANGED)
        stored, parts = self.stored, stored_parts(self._table, column)
        names = [stored.columns[position(self._table, stored, each.name)][0] for each in parts]
        digest = Digest(self._key)
        if self._table.engine in SERVERS:
            unit = ask_all(stored, self._table)[1]
            return read_pairs(stored, column, names[0], unit, digest)
        assert self._rows is not None
        assert column.sought is not None
        wanted, rows = list(zip(parts, names, strict=True)), self._rows
        facts = (stored, column.sought, wanted, rows.owners, rows.count, digest)
        return self._beside(lambda: find_pairs(*facts))

    def _paid(self, column: Column) -> Pairs:
        try:
            return self._pairs(column)
        except Unread:
            raise ValueError from None  # it is paid for

    def _inside(self) -> Flags:
        """Return which rows stay in the view, (rows,), worked out once."""
        assert self._rows is not None
        if self._view not in self._views:
            if len(self._views) >= MOST_VIEWS:
                del self._views[next(iter(self._views))]
            self._views[self._view] = view(self._rows, self._table, self._view)
        return self._views[self._view]

    def _fingerprint(self) -> str:
        try:
            facts = self._reader.fingerprint()
        except OSError:
            gone, hint = "there is no such file any more", "put it back, and connect again"
            unavailable(self._table.name, self._table.source, gone, hint)
        if self._table.unit.column is None:
            return facts
        return hashlib.sha256(f"{facts} {self._table.unit}".encode()).hexdigest()

    def _missing(self, columns: Collection[str] | None) -> frozenset[str]:
        """Return the declared columns that are to be read before some can be counted."""
        wanted = self._all
        if self._apart and columns is not None:
            wanted &= frozenset(map(str.casefold, columns))
        rows = self._rows
        return wanted if rows is None else wanted - rows.codes.keys() - rows.numbers.keys()

    def _load(self, columns: frozenset[str]) -> Rows:
        """Read columns that are missing."""
        if self._rows is not None and not columns:
            return self._rows
        rows = self._beside(lambda: self._reader.read(columns))
        if self._rows is None:
            self._rows = rows
        else:
            self._rows.add(rows)
        return self._rows

    def _beside(self, read: Callable[[], T]) -> T:
        """Read what is lined up with rows. Guarantee: of the very same files. Raises: Unread."""
        before = written(self.sources)
        if self._rows is None or before == self._written:  # else a row would be of two persons
            found, self._written = read(), before
            if (self._fingerprint(), written(self.sources)) == (self.data_version, before):
                return found
        raise Unread(self._table.name, self._table.source, *CHANGED)

    def _no_room(self, columns: frozenset[str]) -> str | None:
        """Read columns and line rows up; why there is no room for them, None if there is."""
        try:
            self._line_up(columns)
        except (MemoryError, OSError) as error:
            problem = why_not(error)
            if problem is None:
                raise
            self.close()
            return problem
        return None

    def _line_up(self, columns: frozenset[str]) -> None:
        rows = self._load(columns)
        if not self._lined_up:
            self._rows, self._lined_up = lined_up(rows, self._table, self._key), True


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """The rows that a relation makes of those of its tables; see :class:`RowReader`."""

    table: DerivedTable
    bases: Sequence[TableVault]
    key: str

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for base in self.bases for path in base.sources))

    @property
    def apart(self) -> bool:
        return False

    def fingerprint(self) -> str:
        for base in self.bases:
            base.check()
        facts = self.table.relation, [base.data_version for base in self.bases]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def read(self, columns: frozenset[str]) -> Rows:
        from dpsql.privacy.vault.local_rows import rows_of, take_stock  # few tables are relations

        tables = self.table.bases
        rows = {t.name.casefold(): b.rows() for t, b in zip(tables, self.bases, strict=True)}
        return rows_of(self.table, self.table.relation, take_stock(tables, rows, Digest(self.key)))


def _open_reader(table: Table, salt: bytes, shared: dict[str, TableVault]) -> RowReader:
    if not isinstance(table, DerivedTable):
        return StoredRows(table, open_table(table))
    bases = [_open_base(base, salt, shared) for base in table.bases]
    stored = {base.name: vault.stored for base, vault in zip(table.bases, bases, strict=True)}
    check_keys(table.bases, {name.casefold(): each for name, each in stored.items()})
    return RelatedRows(table, bases, key_of(table, salt))


def key_of(table: Table, salt: bytes) -> str:
    """Return what orders the rows of a unit, in hexadecimal: of a stored table, or of relations.

    Relations share one, so that all of a statement keep the same groups of a unit.
    """
    is_derived = isinstance(table, DerivedTable)
    return subkey(salt, "relations" if is_derived else f"rows of {table.name.casefold()}").hex()


def _open_base(table: Table, salt: bytes, shared: dict[str, TableVault]) -> TableVault:
    """Open a stored table, once; of one whose rows belong to units by reference, plain rows."""
    name = table.name.casefold()
    if table.unit.through is not None:
        name, table = f"\0{name}", replace(table, unit=Unit())
    if name not in shared:
        shared[name] = TableVault(table, salt)
    return shared[name]


def open_vault(
    table: Table, salt: bytes, shared: dict[str, TableVault] | None = None
) -> TableVault:
    """Open the source of a table; rows are not read yet.

    ``salt`` is the ledger's secret; a key of the table, derived from it, decides which rows of a
    unit with too many are kept.
    ``shared`` are the vaults that are open already: the tables of a relation are read once.
    Raises: DataUnavailable if a source is missing, unreadable or lacks a declared column.
    """
    return TableVault(table, salt, shared)
