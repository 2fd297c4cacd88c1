"""How much a search may do: products of numbers, counted from public sizes, never time.

What is counted depends on what is asked and on ``effort`` alone, so that a plan can be made again.
Where the count is used up, a search returns the best that it has found, and no other one begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

SELECTION = 1.5e11
"""Products of numbers that the choice of one strategy takes at most, for effort 1: ten to twenty
seconds on an ordinary core. The largest published workloads that were tried take half of it."""

PLANNING = 2e11
"""The same of all strategies that are tried for one table; one choice may exceed it."""

SECOND = 1e10
"""Products of numbers in a second where they are those of large matrices."""

EIGEN = 3.0
"""Work of the eigenvectors of a symmetric matrix, in cubes of its size."""


@dataclass(slots=True)
class WorkDone:
    """What was done, of what may be done; ``is_cut`` where something was left undone for it."""

    most: float
    done: float = 0.0
    is_cut: bool = False


class Listener(Protocol):
    """What hears of work while it is done, and decides nothing."""

    def begin(self, most: float) -> None:
        """Planning begins, which may do so many products of numbers."""

    def add(self, amount: float) -> None:
        """So many more are done."""

    def end(self) -> None:
        """It has ended, or failed."""


_meter: ContextVar[WorkDone | None] = ContextVar("dpsql_meter", default=None)
_listener: ContextVar[Listener | None] = ContextVar("dpsql_listener", default=None)


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Let a listener hear of the work inside."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def metered(most: float) -> Iterator[WorkDone]:
    """Count what is done inside, by itself; it counts for what is around it as well."""
    meter, around, listener = WorkDone(most), _meter.get(), _listener.get()
    token = _meter.set(meter)
    if listener is not None and around is None:
        listener.begin(most)
    try:
        yield meter
    finally:
        _meter.reset(token)
        if around is not None:
            around.done += meter.done
            around.is_cut |= meter.is_cut
        elif listener is not None:
            listener.end()


def spend(amount: float, is_cut: bool = False) -> None:
    """Count some work, of something that may have been cut short itself."""
    meter, listener = _meter.get(), _listener.get()
    if meter is not None:
        meter.done += amount
        meter.is_cut |= is_cut
    if meter is not None and listener is not None:
        listener.add(amount)


def left() -> float:
    """Return how much may still be done, infinite where nobody counts."""
    meter = _meter.get()
    return math.inf if meter is None else meter.most - meter.done


def may_go_on() -> bool:
    """Say whether there is work left to do; where there is none, what asks is cut short."""
    meter = _meter.get()
    if meter is None or meter.done < meter.most:
        return True
    meter.is_cut = True
    return False
