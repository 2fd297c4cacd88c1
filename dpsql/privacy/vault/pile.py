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
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Table
from dpsql.catalog.domain import Bins
from dpsql.plan.machine import memory
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.records import replace

SHARE = 2
"""Codes take at most one in this many bytes of the machine's memory: counting needs some too."""
BESIDE = 80
"""Bytes a row that numbering, counting and lining up the rows of units take while they run, where
units have whole numbers or texts of some 20 bytes."""
SOUGHT = 16
"""Bytes of a value of a column of which something is to be found: as of bins and of a measure."""
SLACK = 8
"""An array that has to grow has room for one more in this many numbers afterwards."""
MARKED = 1 << 20
"""Bytes of flags from which on they are worth a file."""
MOST_VIEWS = 16
"""Views that are remembered, one byte per row each."""


class PileRoom:
    """The room of a table's piles: a folder, or memory, for ``rows`` rows each.

    Guarantee: nothing is counted here, so that no number of rows is one too many. Whether there is
    room is decided before, by a public number of rows (see :func:`share_room`), and that much is
    taken before the first row: whether it is there is the same for all tables of no more rows.
    """

    def __init__(self, folder: str | None = None, rows: int = 0) -> None:
        self.folder = folder
        self.rows = rows

    @classmethod
    def of(cls, table: Table) -> PileRoom:
        """The room of a table, as its catalog shares it out."""
        return cls(table.option("spill"), table.room)

    def pile(self, size: int = 0) -> Pile:
        """Start an array of so many numbers, where that is known, or of as many as there may be.

        In a folder the room for as many as there may be is taken in any case.
        """
        return Pile(self, size or self.rows if self.folder is None else max(size, self.rows))

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


def share_room(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Return the tables of a catalog with the numbers of rows that each has room for.

    That are those that ``row_count_hint`` states; tables in memory that state none have equal parts
    of what is left of half of the memory. Decided by that, by what the catalog declares, and by the
    machine: never by rows. Raises: DataUnavailable (E_DATA) for more than there is.
    """
    held = {key: each for key, each in tables.items() if not (each.public or each.is_pushed)}
    stated = {key: each.row_count_hint or 0 for key, each in held.items()}
    within = [key for key, each in held.items() if each.option("spill") is None]
    left = memory() // SHARE
    for key, each in held.items():
        folder, size = each.option("spill"), stated[key] * bytes_of_row(each)
        told = f"row_count_hint = {stated[key]} takes {size >> 20} MiB for codes"
        if folder is None and size > left:
            problem = f"{told}, more than is left of half of the memory, {left >> 20} MiB"
            hint = "`spill` names a folder with room for them"
            unavailable(each.name, each.source, problem, hint)
        if folder is None:
            left -= size
        elif os.path.isdir(folder) and size > (free := shutil.disk_usage(folder).free):
            problem = f"{told}, more than is free in the folder of `spill`, {free >> 20} MiB"
            unavailable(each.name, each.source, problem, "make room, or name another folder")
    others = [key for key in within if not stated[key]]
    rooms = {**stated, **{key: left // len(others) // bytes_of_row(held[key]) for key in others}}
    return {key: replace(each, room=rooms.get(key, 0)) for key, each in tables.items()}


def bytes_of_row(table: Table) -> int:
    """Bytes that every row takes: codes, places in bins, measures, keys, and whose it is.

    In memory what is worked out beside is counted too, while units are numbered and counted. In
    files the order is kept in which rows of crowded units are taken, and the rows of views.
    """
    of_unit, kept = (12 + BESIDE, 0) if table.option("spill") is None else (24, MOST_VIEWS)
    size = 1 + kept + 9 * len(table.keys) + (of_unit if table.unit.column else 0)
    for column in table.columns.values():
        size += SOUGHT if column.sought is not None else 0
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
