"""The interface of all vaults, the vault over any data engine, and the silence of its failures."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Lock
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from dpsql.catalog.catalog import SERVERS, Column, Table, Unit
from dpsql.catalog.composite_keys import sought_column, stored_parts
from dpsql.catalog.discovery import Sought
from dpsql.errors import DataUnavailable, OperationalError, ProgrammingError
from dpsql.privacy.budget.hash_chain import subkey
from dpsql.privacy.vault.codes.spill import (
    MOST_VIEWS,
    SpillRoom,
    folder_of,
    remedy,
    require_files,
    reserve_memory,
    why_not,
)
from dpsql.privacy.vault.data_engine import Classes, Counts, Flags, Room, StoredTable, unavailable
from dpsql.privacy.vault.exclusive_work import ExclusiveWork
from dpsql.privacy.vault.pushdown import open_pushed
from dpsql.privacy.vault.sealed_errors import CHANGED, UnreadableRows, seal_errors
from dpsql.privacy.vault.servers.versions import stated_versions
from dpsql.privacy.vault.stored_rows import (
    StoredRows,
    ask_all,
    check_keys,
    lined_up,
    open_table,
    position,
    written,
)
from dpsql.privacy.vault.unit.key_counts import Pairs, find_pairs, read_pairs
from dpsql.privacy.vault.unit.rows import Rows, declared, fits, fits_view, mark, tally, view
from dpsql.privacy.vault.unit.unit_numbers import Digest
from dpsql.records import dataclass, field, replace
from dpsql.relation.row_view import RowView
from dpsql.relation.unit_local import DerivedTable
from dpsql.workload.cells import AnyResolution, cells_of

T = TypeVar("T")
COUNT, LINED_UP = "", "\0"
"""Pieces of a read beside columns: rows without any, and the order of those of crowded units."""
OpenBase: TypeAlias = "Callable[[str, Table], TableVault]"
"""Opens a stored table that a relation is over, by a name of its own."""
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


@dataclass(frozen=True, slots=True, eq=False)
class ReadRows:
    """The rows that are read by now, when their files were written, and views of them.

    Columns that are read later are in another one, so that whoever counts has the same throughout.
    """

    rows: Rows | None = None
    is_lined_up: bool = False
    written: tuple[int, ...] = ()
    views: dict[RowView, Flags] = field(default_factory=dict)


class TableVault:
    """The vault of a table, whose rows an engine holds or a relation makes; see :class:`Vault`.

    Guarantee: rows outside the view are dropped, then each unit keeps at most ``max_rows`` rows,
    chosen by a salted hash of the unit's own rows alone. What a row is, is a
    function of that row: see :mod:`dpsql.privacy.vault.codes.encode`.
    """

    def __init__(
        self,
        table: Table,
        salt: bytes,
        opened: OpenBase | None = None,
        taken: ExclusiveWork | None = None,
    ) -> None:
        self._table = table
        self._key = key_of(table, salt)
        self._view = RowView(tuple(sorted(table.columns)))
        self._held = ReadRows()
        self._taken, self._place = taken or ExclusiveWork(), object()
        self._lock = Lock()
        self._found: tuple[str, Sought, Pairs] | None = None
        require_files(table)
        self._reader, self.bases = _open_reader(table, salt, opened or _opener(salt))
        self.is_retired = False
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

    @property
    def is_counted_there(self) -> bool:
        """True if a server counts the rows: its session is used by one statement at a time."""
        return self._pushed is not None

    def is_of(self, table: Table) -> bool:
        """Say whether it is of a table that is declared in this way."""
        return self._table is table or self._table == table

    def check(self) -> None:
        self._check_version()
        if self._pushed is not None:
            self._pushed.check()

    @property
    def is_as_opened(self) -> bool:
        """True if the source is the version opened, in the very files that rows were read from."""
        try:
            self._check_version()
        except (DataUnavailable, OperationalError):
            return False
        held = self._held
        return held.rows is None or held.written == written(self.sources)

    def _check_version(self) -> None:
        require_files(self._table)
        if self._fingerprint() != self.data_version:
            unavailable(self._table.name, self._table.source, *CHANGED)

    def load(self, columns: Collection[str] | None = None) -> None:
        if self._pushed is None:
            self._load_rows(columns)
        elif not self._pushed.is_loaded:
            seal_errors(self._load_codes)

    def _load_codes(self) -> None:
        assert self._pushed is not None
        self._pushed.load()
        if self._fingerprint() != self.data_version:
            raise ValueError

    def _load_rows(self, columns: Collection[str] | None) -> None:
        """Have columns read, and rows lined up: what another thread is reading is waited for."""
        while missing := self._missing(columns):
            with self._taken.some([(self._place, each) for each in missing]) as mine:
                pieces = frozenset(piece for _, piece in mine) & self._missing(columns)
                require_files(self._table, is_read=True)
                problem = seal_errors(partial(self._no_room, pieces)) if pieces else None
            if problem is not None:
                unavailable(self._table.name, self._table.source, problem, remedy(problem))

    @property
    def stored(self) -> StoredTable:
        """The stored table, where an engine holds the rows."""
        assert isinstance(self._reader, StoredRows)
        return self._reader.stored

    def rows(self) -> Rows:
        """Return the encoded rows, read once, for what is made of them inside the vault."""
        while missing := self._missing(None) - {LINED_UP}:
            with self._taken.some([(self._place, each) for each in missing]) as mine:
                if pieces := frozenset(piece for _, piece in mine) & self._missing(None):
                    self._read(pieces)
        assert self._held.rows is not None
        return self._held.rows

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
        if folder_of(self._table) is not None:
            require_files(self._table)
        return seal_errors(count)

    def find(self, column: str, sought: Sought) -> None:
        self._found = None
        found = self._sought(column, sought)
        self._found = column, sought, seal_errors(lambda: self._pairs(found))

    def pairs(self, column: str, sought: Sought) -> Pairs:
        known, self._found = self._found, None
        if known is not None and known[:2] == (column, sought):
            return known[2]
        found = self._sought(column, sought)
        return seal_errors(lambda: self._paid(found))

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

    def beside(self, apart: bool = False) -> TableVault:
        """Return a vault over the rows read by now, with a session of its own where ``apart``."""
        other = copy.copy(self)
        other._place, other._found = object(), None
        if apart:
            other._pushed = open_pushed(self._table, self._reader, self._key)
        return other

    def retire(self) -> None:
        """Close the session with a server; rows go with the last who counts them."""
        if self._pushed is not None:
            self._pushed.close()

    def close(self) -> None:
        self._held, self._found = ReadRows(), None
        if self._pushed is not None:
            self._pushed.close()

    def _tally(self, resolutions: Resolutions, units: bool, room: Room = None) -> Counts:
        if self._pushed is not None:
            return self._pushed.tally(self._view, resolutions, units)
        return tally(self._kept, self._inside(), self._table, resolutions, units, room)

    def _mark(self, resolutions: Resolutions) -> Counts:
        if self._pushed is not None:
            return np.minimum(self._tally(resolutions, True), 1)
        return mark(self._kept, self._inside(), self._table, resolutions)

    def _pairs(self, column: Column) -> Pairs:
        if self._fingerprint() != self.data_version:
            raise self._changed()
        stored, parts = self.stored, stored_parts(self._table, column)
        names = [stored.columns[position(self._table, stored, each.name)][0] for each in parts]
        digest = Digest(self._key)
        if self._table.engine in SERVERS:
            unit = ask_all(stored, self._table)[1]
            return read_pairs(stored, column, names[0], unit, digest)
        assert column.sought is not None
        wanted, rows = list(zip(parts, names, strict=True)), self._kept
        facts = (stored, column.sought, wanted, rows.owners, rows.count, digest)
        return self._beside(lambda: find_pairs(*facts))[0]

    def _paid(self, column: Column) -> Pairs:
        try:
            return self._pairs(column)
        except UnreadableRows:
            raise ValueError from None  # it is paid for

    @property
    def _kept(self) -> Rows:
        """The rows, which are there by now."""
        assert self._held.rows is not None
        return self._held.rows

    def _inside(self) -> Flags:
        """Return which rows stay in the view, (rows,), worked out once."""
        views = self._held.views
        found = views.get(self._view)
        if found is None:
            found = view(self._kept, self._table, self._view)
            with self._lock:
                while len(views) >= MOST_VIEWS:
                    del views[next(iter(views))]
                views[self._view] = found
        return found

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
        """Return what is to be done before some columns can be counted: all that can be begun."""
        wanted, held = self._all, self._held
        if self._apart and columns is not None:
            wanted &= frozenset(map(str.casefold, columns))
        if held.rows is None:
            return wanted or frozenset({COUNT})
        missing = wanted - held.rows.codes.keys() - held.rows.numbers.keys()
        return missing or (frozenset() if held.is_lined_up else frozenset({LINED_UP}))

    def _read(self, pieces: frozenset[str]) -> None:
        """Read columns that are missing, beside those that are there, and swap them in."""
        held = self._held
        if LINED_UP in pieces:
            if held.rows is not None:
                rows = lined_up(held.rows, self._table, self._key)
                self._swap(held, replace(held, rows=rows, is_lined_up=True))
            return
        found, written_at = self._beside(lambda: self._reader.read(pieces - {COUNT}))
        with self._lock:
            held = self._held
            if held.rows is None:
                self._held = ReadRows(found, found.owners is None, written_at)
            elif held.written == written_at:
                self._held = replace(held, rows=held.rows.with_columns(found))
            else:
                raise self._changed()

    def _swap(self, before: ReadRows, after: ReadRows) -> None:
        """Have other rows, unless those before were let go of meanwhile."""
        with self._lock:
            if self._held is before:
                self._held = after

    def _beside(self, read: Callable[[], T]) -> tuple[T, tuple[int, ...]]:
        """Read what is lined up with rows. Guarantee: of the very same files.

        Raises: UnreadableRows.
        """
        before, held = written(self.sources), self._held
        if held.rows is None or before == held.written:  # else a row would be of two persons
            found = read()
            if (self._fingerprint(), written(self.sources)) == (self.data_version, before):
                return found, before
        raise self._changed()

    def _changed(self) -> UnreadableRows:
        return UnreadableRows(self._table.name, self._table.source, *CHANGED)

    def _no_room(self, pieces: frozenset[str]) -> str | None:
        """Read columns or line rows up; why there is no room for them, None if there is."""
        try:
            self._read(pieces)
        except (MemoryError, OSError) as error:
            problem = why_not(error)
            if problem is None:
                raise
            self.close()
            return problem
        return None


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
        from dpsql.privacy.vault.unit.local_rows import (  # few tables are relations
            rows_of,
            take_stock,
        )

        reserve_memory(self.table)
        tables = self.table.bases
        rows = {t.name.casefold(): b.rows() for t, b in zip(tables, self.bases, strict=True)}
        stock = take_stock(tables, rows, Digest(self.key))
        return rows_of(self.table, self.table.relation, stock, SpillRoom.of(self.table))


def _open_reader(
    table: Table, salt: bytes, opened: OpenBase
) -> tuple[RowReader, dict[str, TableVault]]:
    """Open what holds the rows of a table, and the vaults that a relation is over, by name."""
    if not isinstance(table, DerivedTable):
        return StoredRows(table, open_table(table)), {}
    named = [_base(base) for base in table.bases]
    bases = {name: opened(name, base) for name, base in named}
    found = [bases[name] for name, _ in named]
    stored = {base.name: vault.stored for base, vault in zip(table.bases, found, strict=True)}
    check_keys(table.bases, {name.casefold(): each for name, each in stored.items()})
    return RelatedRows(table, found, key_of(table, salt)), bases


def key_of(table: Table, salt: bytes) -> str:
    """Return what orders the rows of a unit, in hexadecimal: of a stored table, or of relations.

    Relations share one, so that all of a statement keep the same groups of a unit.
    """
    is_derived = isinstance(table, DerivedTable)
    return subkey(salt, "relations" if is_derived else f"rows of {table.name.casefold()}").hex()


def _base(table: Table) -> tuple[str, Table]:
    """A stored table and its name; of one whose rows belong to units by reference, plain rows."""
    name = table.name.casefold()
    return (
        (name, table) if table.unit.through is None else (f"\0{name}", replace(table, unit=Unit()))
    )


def _opener(salt: bytes) -> OpenBase:
    """Open stored tables, each once."""
    found: dict[str, TableVault] = {}

    def opened(name: str, table: Table) -> TableVault:
        if name not in found:
            found[name] = TableVault(table, salt)
        return found[name]

    return opened
