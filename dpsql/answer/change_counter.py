"""SQLite's count of the changes of a file, read without ending anybody's locks on it.

SQLite locks files by POSIX locks. A process loses all its locks on a file as soon as it closes any
descriptor of it: other processes then take a transaction that is under way for one that has
crashed, and undo it. So the file is opened once for all that use it in a process, and closed when
nobody does. Source: SQLite, "How To Corrupt An SQLite Database File", section 2.2.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from dpsql.forks import fresh


class ChangeCounter:
    """The change counter of one SQLite file; hold on to it while SQLite has the file open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._lock = fresh(threading.Lock())

    def read(self) -> bytes:
        """Four bytes that every commit changes; none where there is no file."""
        with self._lock:
            try:
                file = self._opened()
                if hasattr(os, "pread"):  # where to read next is the same in a forked child
                    # The counter stands at byte 24 of the header (SQLite's file format, section
                    # 1.3).
                    return os.pread(file, 4, 24)
                os.lseek(file, 24, os.SEEK_SET)
                return os.read(file, 4)
            except OSError:
                return b""

    def _opened(self) -> int:
        if self._file is not None:
            if os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                return self._file
            self._close()
        how = (getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK"))  # it may be no file
        self._file = os.open(self._path, os.O_RDONLY | sum(how))
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self._close()


_counters: WeakValueDictionary[str, ChangeCounter] = WeakValueDictionary()
_lock = fresh(threading.Lock())


def change_counter(path: Path) -> ChangeCounter:
    """The counter of a file, the same for all that ask in this process."""
    with _lock:
        real = os.path.realpath(path)
        found = _counters.get(real)
        if found is None:
            found = _counters[real] = ChangeCounter(path)
        return found
