"""Forks: a child has all that its parent knew, and of its threads the one that forked.

What another thread held when a process forked, nobody gives back in the child. So locks are new
there. SQLite and DuckDB have locks that cannot be made new, and SQLite knows nothing of forks: in
the child it takes files for locked, or for its own to write. A fork waits for the threads that use
them, each for milliseconds, and for modules that are being imported; a child for which that took
too long is refused. Source: SQLite, "How To Corrupt An SQLite Database File", 2.6.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakSet

LIMIT = 5.0
"""Seconds that a fork waits at most; a charge takes some 20 ms, an import up to a second."""

T = TypeVar("T")

_fresh: WeakSet[Any] = WeakSet()
_awaited: WeakSet[Any] = WeakSet()
_ended_alone: WeakSet[object] = WeakSet()
_inherited: list[object] = []
_forking = threading.Lock()
_taken: list[Any] = []
"""What the thread that forks has of the locks that it waits for."""
_is_whole = True


def fresh(lock: T) -> T:
    """A lock that is free in a child. What it guards has to be in order at any time."""
    _fresh.add(lock)
    return lock


def awaited(lock: T) -> T:
    """A lock that a fork waits for, and takes. It is held for milliseconds, and with no other."""
    _awaited.add(lock)
    return lock


def in_child(work: Callable[[], object]) -> None:
    """Do something in every child, after locks are new."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)


def is_whole() -> bool:
    """Whether no parent of this process was in the middle of something when it forked."""
    return _is_whole


def ended_where_opened(connection: T) -> T:
    """Never end a DuckDB in a child: it would wait for threads that are not there, or crash."""
    _ended_alone.add(connection)
    return connection


def is_inherited(connection: object) -> bool:
    """Whether it is of the parent of this process."""
    return any(each is connection for each in _inherited)


def _imported_elsewhere() -> set[str]:
    """Modules that other threads are importing: in a child the import would wait for them."""
    found = set()
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            spec = object.__getattribute__(module, "__dict__").get("__spec__")
            if getattr(spec, "_initializing", False):
                found.add(name)
    frame = sys._getframe() if found else None
    while frame is not None:  # a module may fork while it is imported
        if frame.f_code.co_name == "<module>":
            found.discard(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return found


def _missing() -> list[Any]:
    held = set(map(id, _taken))
    return [each for each in list(_awaited) if id(each) not in held]


def _before() -> None:
    end = time.monotonic() + LIMIT
    if not _forking.acquire(timeout=LIMIT):
        return
    _taken.append(_forking)
    while (missing := _missing()) and time.monotonic() < end:
        for lock in missing:
            if lock.acquire(timeout=max(0.0, end - time.monotonic())):
                _taken.append(lock)
    while _imported_elsewhere() and time.monotonic() < end:
        time.sleep(0.001)


def _after_in_parent() -> None:
    while _taken:
        _taken.pop().release()


def _after_in_child() -> None:
    global _is_whole
    was_whole, _is_whole = _is_whole, False  # until all is done: interrupts are passed over here
    is_whole = was_whole and not _missing() and not _imported_elsewhere()
    _taken.clear()
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
