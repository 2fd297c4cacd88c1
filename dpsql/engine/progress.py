"""Progress of planning, for whoever waits: its counted work beside the most that it may do.

A search counts its work and has a limit (``search/work_limit.py``), far above most plans:
a time to the limit would be no forecast of when they end. What is told decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpsql.records import dataclass, field
from dpsql.search.work_limit import heard

EVERY = 1.0
"""Seconds between two lines."""


@dataclass(slots=True)
class PlanningProgress:
    """Counts the work of one planning, of at most ``most``, and says which part of it is done."""

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    most: float = 0.0
    done: float = 0.0
    begun: float = field(init=False)
    told: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self.told = self.clock()

    def begin(self, most: float) -> None:
        """A planning begins, which may do so much."""
        self.most, self.done = most, 0.0
        self.begun = self.told = self.clock()

    def add(self, amount: float) -> None:
        """Some of it is done."""
        self.done += amount
        now = self.clock()
        if now - self.told < EVERY or not self.most:
            return
        self.told = now
        self.say(f"planning: {_part(self.done / self.most)} of the most that it may do")

    def end(self) -> None:
        """Planning has ended; what comes now is short, or tells of itself."""
        if self.told > self.begun:
            self.say("measuring")


def _part(share: float) -> str:
    """Write a part in percent.

    >>> _part(0.0004), _part(0.256), _part(1.2)
    ('under 1 %', '25 %', '100 %')
    """
    return "under 1 %" if share < 0.01 else f"{min(100, int(100 * share))} %"


@contextmanager
def looking_ahead(report: Callable[[str], None] | None) -> Iterator[None]:
    """Tell ``report`` of every planning inside, once a second."""
    if report is None:
        yield
        return
    with heard(PlanningProgress(report)):
        yield
