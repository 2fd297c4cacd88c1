"""Batches of rows that another thread reads while those before are worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

Each = TypeVar("Each")

AHEAD = 3
"""Batches that are read ahead: with one, whoever is sooner waits for the other at each of them."""


def read_ahead(batches: Iterator[Each], stop: Callable[[], None]) -> Iterator[Each]:
    """Yield all batches; while one is worked on, another thread reads the next ones.

    That thread is waited for in the end, and ``stop`` called before, should it still be reading.
    Raises: what ``batches`` raises, after those before. Guarantee: the batches and their order are
    those of ``batches``, so that which rows count does not depend on time or threads.
    """
    batch = next(batches, None)
    if batch is None:
        return
    from concurrent.futures import ThreadPoolExecutor  # 3 ms, and a short table needs none

    with ThreadPoolExecutor(1) as pool:
        begun = deque(pool.submit(next, batches, None) for _ in range(AHEAD))
        try:
            while batch is not None:
                yield batch
                batch = begun.popleft().result()
                begun.append(pool.submit(next, batches, None))
        finally:
            for each in begun:
                each.cancel()
            if not all(each.done() for each in begun):
                stop()
