"""Forks: a child has all that its parent knew, and of its threads the one that forked.

What another thread held when a process forked, nobody gives back in the child. So locks are new
there. SQLite and DuckDB have locks that cannot be made new, and SQLite knows nothing of forks: in
the child it takes files for locked, or for its own to write. A fork waits for the threads that use
them, each for milliseconds, and for modules that are being imported; a child for which that took
too long is refused. Source: SQLite, "How To Corrupt An SQLite Database File", 2.6.

Python's own lock of imports is not held from the last look to the fork: what other libraries do
before a fork comes in between, and may wait for a thread that imports (logging does).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

LIMIT = 5.0
"""Seconds that a fork waits at most; a charge takes some 20 ms, an import up to a second."""
PATIENCE = 0.05
"""Seconds for which it first holds locks while it waits for more; twice as many every time."""

T = TypeVar("T")


class _Mine(threading.local):
    """The locks taken by the thread that forks."""

    def __init__(self) -> None:
        self.taken: list[Any] = []


_fresh: WeakSet[Any] = WeakSet()
_awaited: WeakSet[Any] = WeakSet()
_ended_alone: WeakSet[object] = WeakSet()
_inherited: list[object] = []
_forking = threading.RLock()
"""Held while a process forks, and for a moment by whoever makes a lock that forks wait for."""
_mine = _Mine()
_is_whole = True


def fresh(lock: T) -> T:
    """A lock that is free in a child. What it guards has to be in order at any time."""
    _fresh.add(lock)
    return lock


def awaited(lock: T) -> T:
    """A lock that a fork waits for, and takes. It is held for milliseconds, and with no other.

    None is made while a process forks: it would not have been waited for.
    """
    with _forking:
        _awaited.add(lock)
    return lock


def in_child(work: Callable[[], object]) -> None:
    """Do something in every child, after locks are new."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)


def is_whole() -> bool:
    """True if no parent of this process was in the middle of something when it forked."""
    return _is_whole


def ended_where_opened(connection: T) -> T:
    """Never end a DuckDB in a child: it would wait for threads that are not there, or crash."""
    _ended_alone.add(connection)
    return connection


def is_inherited(connection: object) -> bool:
    """True if a connection is of the parent of this process."""
    return any(each is connection for each in _inherited)


def _imported_elsewhere() -> bool:
    """True if other threads import anything: in a child the same import would wait for them.

    A thread has a module's lock from before it is looked for until all of it is there. One that
    this thread has is of a module that forks while it is imported.
    """
    known = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    owners = {getattr(lock(), "owner", None) for lock in list(known.values())}
    return bool(owners - {None, threading.get_ident()})


def _missing() -> list[Any]:
    held = set(map(id, _mine.taken))
    return [each for each in list(_awaited) if id(each) not in held]


def _before() -> None:
    """Take every lock while nothing is imported.

    Whoever imports may wait for a lock that is taken here (a class is completed), and whoever has
    one may import. So a lock is never held for long while others are waited for.
    """
    end, patience = time.monotonic() + LIMIT, PATIENCE
    while not _is_still(min(end, time.monotonic() + patience)) and time.monotonic() < end:
        _after_in_parent()
        time.sleep(patience / 10)
        patience *= 2


def _is_still(end: float) -> bool:
    """True if all is taken, and nothing imported, before the end. Some may be taken if not."""
    if not _take(_forking, end) or not all(_take(lock, end) for lock in _missing()):
        return False
    while _imported_elsewhere():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _take(lock: Any, end: float) -> bool:
    is_taken: bool = lock.acquire(timeout=max(0.0, end - time.monotonic()))
    if is_taken:
        _mine.taken.append(lock)
    return is_taken


def _after_in_parent() -> None:
    while _mine.taken:
        _mine.taken.pop().release()


def _after_in_child() -> None:
    global _is_whole
    was_whole, _is_whole = _is_whole, False  # until all is done: interrupts are passed over here
    is_whole = was_whole and not _missing() and not _imported_elsewhere()
    _mine.taken.clear()
    for lock in (_forking, *_fresh, *_awaited):
        lock._at_fork_reinit()
    _inherited.extend(_ended_alone)
    _ended_alone.clear()
    if _inherited:
        with suppress(ImportError, AttributeError):  # else they end, and may crash, at the exit
            import ctypes  # one more reference than are ever given back

            for each in _inherited:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    _is_whole = is_whole


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
