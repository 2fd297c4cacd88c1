"""Pieces of one large array, shared out among several cores."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Piece = TypeVar("Piece")
Found = TypeVar("Found")

MOST = 8
"""Cores that work on one array at most: each has memory of its own."""


def share_out(work: Callable[[Sequence[Piece]], None], pieces: Sequence[Piece]) -> None:
    """Do the work of all pieces, a share of them on every core: NumPy lets other threads run.

    ``work`` is given several pieces to do one after another. Pieces must share nothing that is
    written. Raises: what ``work`` raises, when all shares have ended.
    """
    shares = min(MOST, _cores(), len(pieces))
    if shares <= 1:
        work(pieces)
        return
    from concurrent.futures import ThreadPoolExecutor  # 3 ms, and rarely of use

    with ThreadPoolExecutor(shares - 1) as pool:
        others = [pool.submit(work, pieces[i::shares]) for i in range(1, shares)]
        work(pieces[::shares])
        for each in others:
            each.result()


def share_in_order(work: Callable[[Piece], Found], pieces: Sequence[Piece]) -> Iterator[Found]:
    """Yield what comes of every piece, in their order; some are worked on at once, one on a core.

    No more wait than there are cores. Raises: what ``work`` raises, when those begun have ended.

    >>> [*share_in_order(len, ["a", "", "bcd"])]
    [1, 0, 3]
    """
    shares = min(MOST, _cores(), len(pieces))
    if shares <= 1:
        yield from map(work, pieces)
        return
    from concurrent.futures import ThreadPoolExecutor  # 3 ms, and rarely of use

    with ThreadPoolExecutor(shares) as pool:
        begun = deque(pool.submit(work, each) for each in pieces[:shares])
        for each in pieces[shares:]:
            found = begun.popleft().result()
            begun.append(pool.submit(work, each))
            yield found
        while begun:
            yield begun.popleft().result()


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
