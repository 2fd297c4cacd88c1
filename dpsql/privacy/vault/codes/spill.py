"""Arrays that grow part by part: in memory, or in files without a name in the curator's folder.

A file is never listed in its folder, so that nothing of it is left when the process ends, however
it ends. Its blocks are given back to the disk and not wiped.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Table
from dpsql.catalog.domain import Bins
from dpsql.files import MANY_OPEN, file_trouble
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.records import replace
from dpsql.relation.unit_local import DerivedTable, amounts
from dpsql.settings.machine import memory

SHARE = 2
"""Codes take at most one in this many bytes of the machine's memory: counting needs some too."""
BESIDE = 80
"""Bytes a row that numbering, counting and lining up the rows of units take while they run, where
units have whole numbers or texts of some 20 bytes."""
OWNED = 12
"""Bytes a row for whose it is, and as much again for the order in which those of a unit stay."""
SOUGHT = 16
"""Bytes of a value of a column of which something is to be found: as of bins and of a measure."""
SLACK = 8
"""An array that has to grow has room for one more in this many numbers afterwards."""
MOST_DERIVED = 16
"""Tables that statements derive whose rows stay when a turn begins, at most: as many as a session
asks, in the end. Each has rows of its own, which are made again of those of the stored tables."""
MARKED = 1 << 20
"""Bytes of flags from which on they are worth a file."""
MOST_VIEWS = 16
"""Views that are remembered, one byte per row each."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, a share of one, or a limit on the size of files, with no room left."""
OPENED = 8
"""Descriptors that opening, checking and reading the files of a table, or counting its rows, take
at once, beside those of what is kept."""


class SpillRoom:
    """The room of a table's piles: a folder, or memory, for ``rows`` rows each.

    Guarantee: nothing is counted here, so that no number of rows is one too many. Whether there is
    room is decided before, by a public number of rows (see :func:`share_room`), and that much is
    taken before the first row: whether it is there is the same for all tables of no more rows.
    """

    def __init__(self, folder: str | None = None, rows: int = 0) -> None:
        self.folder = folder
        self.rows = rows

    @classmethod
    def of(cls, table: Table) -> SpillRoom:
        """The room of a table, as its catalog shares it out."""
        return cls(folder_of(table), rows_of(table))

    @property
    def names(self) -> int:
        """Different names of units that there is room for in memory, where they always are."""
        return self.rows if self.folder is None else min(self.rows, memory() // SHARE // BESIDE)

    def spill(self, size: int | None = None) -> Spill:
        """Start an array of so many numbers, where that is known, or of as many as there may be.

        In a folder the room for as many as there may be is taken in any case.
        """
        known = self.rows if size is None else size
        return Spill(self, known if self.folder is None else max(known, self.rows))

    def flags(self, rows: int) -> npt.NDArray[np.bool_]:
        """Return flags (rows,) that are all set."""
        most = max(rows, self.rows)
        if self.folder is None or most < MARKED:
            return np.ones(rows, dtype=np.bool_)
        with self.open() as file:
            os.posix_fallocate(file.fileno(), 0, most)  # a full disk fails here, not when written
            found = np.frombuffer(mmap.mmap(file.fileno(), most), dtype=np.bool_, count=rows)
        found[:] = True
        return found

    def open(self) -> BinaryIO:
        """Open a file that has no name, for its owner alone."""
        return tempfile.TemporaryFile(dir=self.folder)


class Spill:
    """One array that grows by parts of one type.

    In memory it grows in place where it can: pages that are written once are not written again.
    """

    def __init__(self, room: SpillRoom, size: int = 0) -> None:
        self._room = room
        self._expected = size
        self._found: npt.NDArray[Any] | None = None
        self._size = 0
        self._file: BinaryIO | None = None

    def add(self, part: npt.NDArray[Any]) -> None:
        """Add numbers (rows,) at the end. Raises: OSError for a disk that is full."""
        if self._found is None:
            self._found = np.empty(0 if self._room.folder else self._expected, dtype=part.dtype)
        if self._found.dtype != part.dtype:
            raise ValueError("parts of one array have one type")
        if self._room.folder is None:
            self._append(self._found, part)
        else:
            self._open(part.itemsize).write(part.tobytes())
            self._size += len(part)

    def _append(self, found: npt.NDArray[Any], part: npt.NDArray[Any]) -> None:
        size = self._size + len(part)
        if size > len(found):
            found.resize(size + size // SLACK, refcheck=False)  # nobody else has seen it
        found[self._size : size] = part
        self._size = size

    def _open(self, size: int) -> BinaryIO:
        if self._file is None:
            self._file = self._room.open()
            weakref.finalize(self, self._file.close)  # where rows are read in vain
            if self._expected:
                os.posix_fallocate(self._file.fileno(), 0, self._expected * size)
        return self._file

    def array(self) -> npt.NDArray[Any]:
        """Return what has been piled up, and let go of it; read only, if it is in a file."""
        found, self._found = self._found, None
        if found is None:
            raise ValueError("nothing has been piled up")
        if self._file is None:
            found.resize(self._size, refcheck=False)
            return found
        with self._file as file:
            file.flush()
            os.ftruncate(file.fileno(), self._size * found.itemsize)
            if not self._size:
                return found
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype=found.dtype)


def folder_of(table: Table) -> str | None:
    """The folder in whose files codes are kept: that of a table, or of one that it is made of."""
    bases = table.bases if isinstance(table, DerivedTable) else (table,)
    return next((folder for each in bases if (folder := each.option("spill"))), None)


def rows_of(table: Table) -> int:
    """The rows that there is room for: as many as those have that a table is made of.

    That are all of a union, and those of the larger side of a join.
    """
    if not isinstance(table, DerivedTable):
        return table.room
    rooms = {each.name.casefold(): each.room for each in table.bases}
    return amounts(table.relation, rooms, max)[-1]


def kept_bytes(table: Table) -> int:
    """Bytes that are kept of all rows that there is room for, when nothing is worked out."""
    return rows_of(table) * _kept_of_row(table)


def _kept_of_row(table: Table) -> int:
    beside = BESIDE - OWNED if folder_of(table) is None and table.unit.column else 0
    return bytes_of_row(table) - beside


def room_left(tables: Iterable[Table]) -> int:
    """Bytes of half of the memory that are not for the rows of the tables of a catalog."""
    within = [each for each in tables if _is_held(each) and each.option("spill") is None]
    return memory() // SHARE - sum(each.room * bytes_of_row(each) for each in within)


def fit_beside(derived: Sequence[Table], stored: Collection[Table]) -> bool:
    """Say whether the rows of some tables stay beside those of the tables of a catalog.

    Each has room for the public number of its rows: in what is left of half of the memory, or, in a
    folder, in as much as the tables there take. One stays in any case.
    """
    within = sum(kept_bytes(each) for each in derived if folder_of(each) is None)
    spilled = sum(kept_bytes(each) for each in derived if folder_of(each) is not None)
    there = sum(each.room * bytes_of_row(each) for each in stored if each.option("spill"))
    return len(derived) <= 1 or (within <= room_left(stored) and spilled <= there)


def _is_held(table: Table) -> bool:
    return not (table.public or table.is_pushed)


def share_room(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Return the tables of a catalog with the numbers of rows that each has room for.

    That are those that ``row_count_hint`` states; tables in memory that state none have equal parts
    of what is left of half of the memory. What statements derive of units of several rows has room
    beside: for MOST_DERIVED tables by default, for one in a folder, else what is left of half of
    the memory. Decided by that, by what the catalog declares, and by the machine: never by rows.
    Raises: DataUnavailable (E_DATA) for more than there is.
    """
    held = {key: each for key, each in tables.items() if _is_held(each)}
    stated = {key: each.row_count_hint or 0 for key, each in held.items()}
    within = [key for key, each in held.items() if each.option("spill") is None]
    taken = {key: bytes_of_row(each) for key, each in held.items()}
    with_derived = {key: size + _of_derived(held[key]) for key, size in taken.items()}
    left = memory() // SHARE
    for key, each in held.items():
        folder, size = each.option("spill"), stated[key] * taken[key]
        told = f"row_count_hint = {stated[key]} takes {size >> 20} MiB for codes"
        if folder is None and size > left:
            problem = f"{told}, more than is left of half of the memory, {left >> 20} MiB"
            hint = "`spill` names a folder with room for them"
            unavailable(each.name, each.source, problem, hint)
        if folder is None:
            left -= size
        elif os.path.isdir(folder):
            needed, free = stated[key] * with_derived[key], shutil.disk_usage(folder).free
            if needed > free:
                told = (
                    f"row_count_hint = {stated[key]} takes {needed >> 20} MiB with what statements"
                )
                told += " derive of the rows, more than is free in the folder of `spill`"
                problem = f"{told}, {free >> 20} MiB"
                unavailable(each.name, each.source, problem, "make room, or name another folder")
    others = [key for key in within if not stated[key]]
    rooms = {**stated, **{key: left // len(others) // with_derived[key] for key in others}}
    for key, each in tables.items():
        if each.is_pushed:  # read here for relations alone
            rooms[key] = each.row_count_hint or left // bytes_of_row(each)
    return {key: _with_room(each, rooms) for key, each in tables.items()}


def _of_derived(table: Table) -> int:
    """Bytes a row for what statements derive of units of several rows."""
    if table.unit.column is None:
        return 0
    return _kept_of_row(table) * (MOST_DERIVED if folder_of(table) is None else 1)


def reserve_memory(table: DerivedTable) -> None:
    """Take the memory in which rows of files are brought together, by their public numbers.

    That of tables in memory is counted for them. Raises: MemoryError where there is less.
    """
    spilled = (each for each in table.bases if each.option("spill"))
    np.empty(BESIDE * sum(each.room for each in spilled), dtype=np.uint8)


def _with_room(table: Table, rooms: Mapping[str, int]) -> Table:
    found = replace(table, room=rooms.get(table.name.casefold(), 0))
    if isinstance(found, DerivedTable):
        return replace(found, bases=tuple(_with_room(each, rooms) for each in found.bases))
    return found


def bytes_of_row(table: Table) -> int:
    """Bytes that every row takes: codes, places in bins, measures, keys, and whose it is.

    In memory what is worked out beside is counted too, while units are numbered and counted, and
    rows are brought together. In files the order is kept in which rows of crowded units are taken,
    and the rows of views. Rows that belong to units by reference are kept without them and with.
    """
    is_within = folder_of(table) is None
    of_unit, kept = (OWNED + BESIDE, 0) if is_within else (2 * OWNED, MOST_VIEWS)
    size = 1 + kept
    for column in table.columns.values():
        size += SOUGHT if column.sought is not None else 0
        size += 8 if column.bounds else 0
        size += 4 if isinstance(column.domain, Bins) else 0
        size += np.min_scalar_type(column.size).itemsize if column.domain else 0
    size *= 1 if table.unit.through is None else 2
    return size + 9 * len(table.keys) + (of_unit if table.unit.column else 0)


def require_files(table: Table, is_read: bool = False) -> None:
    """Refuse a table where its files, and with ``is_read`` those of its codes, cannot be open.

    They are counted by what is declared and taken before the work, so that a limit is met by all
    rows or by none. Raises: DataUnavailable (E_DATA).
    """
    needed, problem = OPENED + (kept_files(table) if is_read else 0), None
    try:
        with ExitStack() as held:
            for _ in range(needed):
                held.enter_context(open(os.devnull, "rb", buffering=0))
    except OSError as error:
        problem = why_not(error)
        if problem is None:
            raise
    if problem is not None:
        unavailable(table.name, table.source, problem, remedy(problem))


def kept_files(table: Table) -> int:
    """Descriptors of what is kept of the rows of a table in a folder, and of what it is made of."""
    bases = table.bases if isinstance(table, DerivedTable) else ()
    own = sum(2 + (each.bounds is not None) for each in table.columns.values())
    of_unit = OPENED if table.unit.column else 2
    kept = own + 2 * len(table.keys) + of_unit if folder_of(table) is not None else 0
    return kept + sum(map(kept_files, bases))


def why_not(error: BaseException) -> str | None:
    """Say what is missing for codes to be kept, None for an error about something else."""
    if isinstance(error, MemoryError):
        return "its codes outgrow the memory"
    if isinstance(error, OSError) and file_trouble(error) is MANY_OPEN:
        return MANY_OPEN.what
    is_full = isinstance(error, OSError) and error.errno in FULL
    return "there is no room left in the folder of `spill`" if is_full else None


def remedy(problem: str) -> str:
    """Say what would help where something is missing for codes to be kept."""
    if problem == MANY_OPEN.what:
        return MANY_OPEN.hint
    return "row_count_hint states how many rows there may be; `spill` names a folder"
