"""Pieces of work that one thread does at a time: who wants one that is taken waits, and may end."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from dpsql.interrupts import AGAIN, check
from dpsql.records import dataclass

Name: TypeAlias = "tuple[Any, Any]"
"""Whose piece it is, and which."""


@dataclass(frozen=True, slots=True, eq=False)
class _Taker:
    thread: int


class ExclusiveWork:
    """The pieces that are taken, by name; each is free again when its taker leaves, however.

    Nothing is worked out under a lock: whoever takes a piece works on it while all others go on.
    Raises: KeyboardInterrupt, for who waits and is asked to end, as ``check``.
    """

    def __init__(self) -> None:
        self._takers: dict[Name, _Taker] = {}
        self._changed = threading.Condition(threading.Lock())

    @contextmanager
    def some(self, wanted: Collection[Name]) -> Iterator[list[Name]]:
        """Take those of some pieces that are free; none, after a while, where none of them is."""
        with self._those(wanted, AGAIN) as free:
            check()
            yield free

    @contextmanager
    def free(self, wanted: Name) -> Iterator[bool]:
        """Take a piece if it is free; say whether it was."""
        with self._those([wanted], 0) as free:
            yield bool(free)

    @contextmanager
    def _those(self, wanted: Collection[Name], patience: float) -> Iterator[list[Name]]:
        me = _Taker(threading.get_ident())
        try:
            with self._changed:
                free = [each for each in wanted if each not in self._takers]
                self._takers.update(dict.fromkeys(free, me))
                if not free and patience:
                    self._changed.wait(patience)
            yield free
        finally:  # of what was taken, whenever an interrupt came
            with self._changed:
                for name in [name for name, taker in self._takers.items() if taker is me]:
                    del self._takers[name]
                self._changed.notify_all()

    @contextmanager
    def one(self, wanted: Name) -> Iterator[None]:
        """Take a piece once it is free; who has it already keeps it."""
        taker = self._takers.get(wanted)
        if taker is not None and taker.thread == threading.get_ident():
            yield
            return
        while True:
            with self.some([wanted]) as taken:
                if taken:
                    yield
                    return
