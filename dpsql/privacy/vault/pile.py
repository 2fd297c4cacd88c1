"""Arrays that grow part by part: in memory, or in files without a name in the curator's folder.

A file is never listed in its folder, so that nothing of it is left when the process ends, however
it ends. Its blocks are given back to the disk and not wiped.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import sys
import tempfile
import weakref
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Table
from dpsql.catalog.domain import Bins
from dpsql.plan.machine import memory

SHARE = 2
"""Codes take at most one in this many bytes of the machine's memory: counting needs some too."""
SLACK = 8
"""An array that has to grow has room for one more in this many numbers afterwards."""
MARKED = 1 << 20
"""Bytes of flags from which on they are worth a file."""
MOST_VIEWS = 16
"""Views that are remembered, one byte per row each."""


class PileRoom:
    """The room of a table's piles: a folder, or memory, for ``rows`` rows each.

    Guarantee: nothing is counted here, so that no number of rows is one too many. Whether there is
    room is decided before, by a public number of rows (see :func:`no_room`), and that much is taken
    before the first row: whether it is there is the same for all tables of no more rows.
    """

    def __init__(self, folder: str | None = None, rows: int = 0) -> None:
        self.folder = folder
        self.rows = rows

    @classmethod
    def of(cls, table: Table) -> PileRoom:
        """The room of a table: for the rows that the catalog states, where it says how many."""
        stated = 0 if table.engine else table.row_count_hint or 0
        return cls(table.option("spill"), stated)

    def pile(self, size: int = 0) -> Pile:
        """Start an array, that of so many numbers where that is known."""
        return Pile(self, size or self.rows)

    def flags(self, rows: int) -> npt.NDArray[np.bool_]:
        """Return flags (rows,) that are all set."""
        if self.folder is None or rows < MARKED:
            return np.ones(rows, dtype=np.bool_)
        with self.open() as file:
            os.posix_fallocate(file.fileno(), 0, rows)  # a full disk fails here, not when written
            found = np.frombuffer(mmap.mmap(file.fileno(), rows), dtype=np.bool_)
        found[:] = True
        return found

    def open(self) -> BinaryIO:
        """Open a file that has no name, for its owner alone."""
        return tempfile.TemporaryFile(dir=self.folder)


class Pile:
    """One array that grows by parts of one type.

    In memory it grows in place where it can: pages that are written once are not written again.
    """

    def __init__(self, room: PileRoom, size: int = 0) -> None:
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


def no_room(table: Table) -> tuple[str, str] | None:
    """Tell why the codes of a table have no room, and what helps; None where they have some.

    Decided by ``row_count_hint``, what the catalog declares, and the machine: never by rows. Where
    it is not stated, there is room for as many as :func:`room_for` says, whatever that is.
    """
    if table.row_count_hint is None or table.engine:
        return None
    room, folder = _room_of(table), table.option("spill")
    size = table.row_count_hint * bytes_of_row(table)
    told = f"row_count_hint = {table.row_count_hint} takes {size >> 20} MiB for codes"
    if folder is None:
        problem = f"{told}, more than half of the memory, {room >> 20} MiB"
        hint = "`spill` names a folder with room for them"
    else:
        problem = f"{told}, more than is free in the folder of `spill`, {room >> 20} MiB"
        hint = "make room, or name another folder"
    return None if size <= room else (problem, hint)


def room_for(table: Table) -> int:
    """The number of rows that there is room for, as far as public numbers say."""
    return _room_of(table) // max(1, bytes_of_row(table))


def _room_of(table: Table) -> int:
    """The bytes that codes of a table may take: half of the memory, or what is free on a disk.

    A folder that is not there is told when it is needed.
    """
    folder = table.option("spill")
    if folder is None or not os.path.isdir(folder):
        return memory() // SHARE if folder is None else sys.maxsize
    return shutil.disk_usage(folder).free


def bytes_of_row(table: Table) -> int:
    """Bytes that are kept of every row: codes, places in bins, measures, keys, and whose it is.

    In files the order is kept too in which rows of crowded units are taken, and the rows of views.
    """
    of_unit, kept = (12, 0) if table.option("spill") is None else (24, MOST_VIEWS)
    size = 1 + kept + 9 * len(table.keys) + (of_unit if table.unit.column else 0)
    for column in table.columns.values():
        size += 8 if column.bounds else 0
        size += 4 if isinstance(column.domain, Bins) else 0
        size += np.min_scalar_type(column.size).itemsize if column.domain else 0
    return size


def why_not(error: BaseException) -> str | None:
    """Say what is missing for codes to be kept, None for an error about something else."""
    if isinstance(error, MemoryError):
        return "its codes outgrow the memory"
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "there is no room left in the folder of `spill`" if is_full else None
