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


class PileRoom:
    """Where the piles of a table are: in a folder, or in memory.

    Guarantee: nothing is counted here, so that no number of rows is one too many. Whether there is
    room is decided before, by a public number of rows; see :func:`no_room`.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder

    def pile(self, size: int = 0) -> Pile:
        """Start an array, that of so many numbers where that is known."""
        return Pile(self, size)

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
        self._expected = 0 if room.folder else size
        self._found: npt.NDArray[Any] | None = None
        self._size = 0
        self._file: BinaryIO | None = None

    def add(self, part: npt.NDArray[Any]) -> None:
        """Add numbers (rows,) at the end. Raises: OSError for a disk that is full."""
        if self._found is None:
            self._found = np.empty(self._expected, dtype=part.dtype)
        if self._found.dtype != part.dtype:
            raise ValueError("parts of one array have one type")
        if self._room.folder is None:
            self._append(self._found, part)
        elif len(part):
            self._open().write(part.tobytes())

    def _append(self, found: npt.NDArray[Any], part: npt.NDArray[Any]) -> None:
        size = self._size + len(part)
        if size > len(found):
            found.resize(size + size // SLACK, refcheck=False)  # nobody else has seen it
        found[self._size : size] = part
        self._size = size

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = self._room.open()
            weakref.finalize(self, self._file.close)  # where rows are read in vain
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
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype=found.dtype)


def no_room(table: Table) -> tuple[str, str] | None:
    """Why the codes of a table have no room, and what helps; None where they have some.

    Decided by ``row_count_hint``, what the catalog declares, and the machine: never by rows.
    """
    if table.row_count_hint is None or table.engine:
        return None
    size, folder = table.row_count_hint * bytes_of_row(table), table.option("spill")
    told = f"row_count_hint = {table.row_count_hint} takes {size >> 20} MiB for codes"
    if folder is None:
        if size <= memory() // SHARE:
            return None
        problem = f"{told}, more than half of the memory, {memory() // SHARE >> 20} MiB"
        return problem, "`spill` names a folder with room for them"
    free = shutil.disk_usage(folder).free if os.path.isdir(folder) else size
    problem = f"{told}, more than is free in the folder of `spill`, {free >> 20} MiB"
    return None if size <= free else (problem, "make room, or name another folder")


def bytes_of_row(table: Table) -> int:
    """Bytes that are kept of every row: codes, places in bins, measures, keys, and whose it is."""
    size = 9 * len(table.keys) + (13 if table.unit.column else 0)
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
