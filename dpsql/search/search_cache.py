"""Cache of searches: their results by the facts searched, with the work that they took.

The work of a result that is found again is counted as if it were done now: what a plan is does not
depend on what was planned before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from dpsql.forks import fresh
from dpsql.search.work_limit import left, noted, spend

T = TypeVar("T")


class SearchCache(Generic[T]):
    """The latest results of so many numbers in all, at least one, by the facts they are of.

    What ended early since no more work may be done is not remembered, and neither is what had no
    room. What is remembered is shared, so that it must not be changed.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._found: OrderedDict[Hashable, tuple[T, int, float]] = OrderedDict()
        # Not held while ``find`` runs: two threads may search the same, and then agree.
        self._lock = fresh(threading.Lock())

    def of(self, key: Hashable, size: int, find: Callable[[], T]) -> T:
        """Return what ``find`` finds for some facts, a result of so many numbers.

        Args:
            key: the facts, all that the result follows from.
            size: numbers of the result.
            find: the search, whose work is counted.
        """
        with self._lock:
            known = self._found.get(key)
            if known is not None:
                self._found.move_to_end(key)
        if known is not None and known[2] < left():
            spend(known[2])
            return known[0]
        with noted() as meter:
            found = find()
        if not (meter.is_cut or meter.is_tight) and left() > 0:
            self._put(key, (found, size, meter.done))
        return found

    def _put(self, key: Hashable, entry: tuple[T, int, float]) -> None:
        with self._lock:
            self._found[key] = entry
            while len(self._found) > 1 and sum(s for _, s, _ in self._found.values()) > self.most:
                self._found.popitem(last=False)
