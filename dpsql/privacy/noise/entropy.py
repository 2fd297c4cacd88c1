"""Random bits from the operating system; the only source of randomness on the private path."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError

Words = NDArray[np.uint64]

_SMALLEST = 1 << 8
"""Words of the first read from the operating system: most measurements need no more."""
_LARGEST = 1 << 18
"""Words of the largest read: 2 MiB, where the cost of a call is lost in that of the bytes."""
_live: WeakSet[Bits] = WeakSet()


class Bits:
    """A stream of independent uniform 64-bit words for one measurement; drop it afterwards.

    Guarantee: every word is handed out once, also over threads, and a forked child gets none.
    """

    __slots__ = ("__weakref__", "_buffer", "_chunk", "_lock", "_next", "_pid")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._chunk = _SMALLEST
        self._buffer: Words = np.empty(0, dtype=np.uint64)
        self._next = 0
        _live.add(self)

    def words(self, count: int) -> Words:
        """Return ``count`` fresh words, shape (count,).

        Raises: InternalError E_FORK in a process other than the one that made this object.
        """
        if os.getpid() != self._pid:
            raise InternalError("E_FORK", "random bits were asked for in a forked process")
        # Two threads with one word would draw equal noise, which a difference would cancel.
        with self._lock:
            if self._next + count > self._buffer.size:
                self._refill(count)
            taken = self._buffer[self._next : self._next + count]
            self._next += count
            return taken

    def halves(self, count: int) -> NDArray[np.uint32]:
        """Return ``count`` fresh halves of words, shape (count,)."""
        return self.words((count + 1) // 2).view(np.uint32)[:count]

    def flips(self, count: int) -> NDArray[np.bool_]:
        """Return ``count`` fair coins, shape (count,)."""
        octets = self.words((count + 63) // 64).view(np.uint8)
        return np.unpackbits(octets, count=count).view(np.bool_)

    def _refill(self, count: int) -> None:
        """Replace the buffer by at least ``count`` words; chunks grow, so small uses stay fast."""
        left = self._buffer[self._next :]
        fresh = self._draw(max(self._chunk, count - left.size))
        self._buffer = np.concatenate((left, fresh)) if left.size else fresh
        self._next = 0
        # Fourfold: a large measurement is at the largest read after five of them.
        self._chunk = min(4 * self._chunk, _LARGEST)

    def _draw(self, count: int) -> Words:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def _forget(self) -> None:
        """Empty the buffer; the words in it will never be handed out."""
        self._buffer = np.empty(0, dtype=np.uint64)
        self._next = 0

    def __reduce__(self) -> str:
        # A copy would hand out the same words once more.
        raise TypeError("random bits cannot be copied or stored")


def _forget_all() -> None:
    for bits in list(_live):
        bits._forget()


if hasattr(os, "register_at_fork"):
    # A child with the words of its parent would draw the very noise that the parent draws.
    os.register_at_fork(after_in_child=_forget_all)
