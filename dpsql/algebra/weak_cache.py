"""Weak cache: results computed from an object, kept for as long as the object is in use."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from dpsql.forks import fresh

T = TypeVar("T")


class WeakCache(Generic[T]):
    """The latest results of so many numbers in all, at least one, by the object they are of.

    Objects are told apart by being the same: they are not to change. An entry goes when its object
    does, before another one can take its place; results must not hold their object.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._found: OrderedDict[int, tuple[weakref.ref[object], T, int]] = OrderedDict()
        # Reentrant: a garbage collection inside may end an owner, whose callback takes the lock.
        self._lock = fresh(threading.RLock())

    def of(self, owner: object, size: int, find: Callable[[], T]) -> T:
        """Return what ``find`` finds of an object, a result of so many numbers.

        Args:
            owner: an object that does not change; told apart by being the same.
            size: numbers of the result, of which there may be ``most`` in all.
            find: called where nothing is remembered; its result must not hold ``owner``.
        """
        key = id(owner)
        with self._lock:
            known = self._found.get(key)
            if known is not None and known[0]() is owner:
                self._found.move_to_end(key)
                return known[1]
        return self.put(owner, size, find())

    def put(self, owner: object, size: int, found: T) -> T:
        """Remember a result of an object, and return it.

        Args: as ``of``; ``found`` must not hold ``owner``.
        """
        key = id(owner)
        with self._lock:
            self._found[key] = weakref.ref(owner, lambda gone: self._forget(key, gone)), found, size
            while len(self._found) > 1 and sum(s for _, _, s in self._found.values()) > self.most:
                self._found.popitem(last=False)
        return found

    def _forget(self, key: int, gone: object) -> None:
        with self._lock:
            known = self._found.get(key)
            if known is not None and known[0] is gone:
                del self._found[key]

    def __len__(self) -> int:
        return len(self._found)
