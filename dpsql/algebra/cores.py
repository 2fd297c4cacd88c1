"""Pieces of one large array, shared out among several cores."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from dpsql.interrupts import AGAIN, HelperThreads, check

if TYPE_CHECKING:
    from concurrent.futures import Future

Piece = TypeVar("Piece")
Found = TypeVar("Found")

MOST = 8
"""Cores that work on one array at most: each has memory of its own."""


def run_on_cores(work: Callable[[Sequence[Piece]], None], pieces: Sequence[Piece]) -> None:
    """Do the work of all pieces, a share of them on every core: NumPy lets other threads run.

    ``work`` is given several pieces to do one after another. Pieces must share nothing that is
    written. Raises: what ``work`` raises, when all shares have ended, which then do at a ``check``.
    """
    shares = min(MOST, _cores(), len(pieces))
    if shares <= 1:
        work(pieces)
        return
    from concurrent.futures import ThreadPoolExecutor  # 3 ms, and rarely of use

    with ThreadPoolExecutor(shares - 1) as pool, HelperThreads() as helpers:
        others = [pool.submit(helpers.do, work, pieces[i::shares]) for i in range(1, shares)]
        work(pieces[::shares])
        for each in others:
            _await(each)


def share_in_order(work: Callable[[Piece], Found], pieces: Sequence[Piece]) -> Iterator[Found]:
    """Yield what comes of every piece, in their order; some are worked on at once, one on a core.

    No more wait than there are cores. Raises: what ``work`` raises, when those begun have ended;
    KeyboardInterrupt, where it was asked for while they are waited for.

    >>> [*share_in_order(len, ["a", "", "bcd"])]
    [1, 0, 3]
    """
    shares = min(MOST, _cores(), len(pieces))
    if shares <= 1:
        yield from map(work, pieces)
        return
    from concurrent.futures import ThreadPoolExecutor  # 3 ms, and rarely of use

    with ThreadPoolExecutor(shares) as pool, HelperThreads() as helpers:
        begun = deque(pool.submit(helpers.do, work, each) for each in pieces[:shares])
        for each in pieces[shares:]:
            found = _await(begun.popleft())
            begun.append(pool.submit(helpers.do, work, each))
            yield found
        while begun:
            yield _await(begun.popleft())


def _await(begun: Future[Found]) -> Found:
    while True:
        try:
            return begun.result(AGAIN)
        except TimeoutError:
            if begun.done():
                raise
            check()


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
