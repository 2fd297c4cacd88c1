"""Progress of planning, for whoever waits: how long it can still take, at most.

A search counts its work and has a limit (``search/meter.py``), so the time so far tells what the
rest of the limit takes. Most plans are found long before; what is told decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpsql.records import dataclass, field
from dpsql.search.meter import heard

EVERY = 1.0
"""Seconds between two lines."""


@dataclass(slots=True)
class Outlook:
    """Counts the work of one planning, of at most ``most``, and says what is left of it."""

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
        """Count work that is done, and tell of it now and then."""
        self.done += amount
        now = self.clock()
        if now - self.told < EVERY or not self.done:
            return
        self.told = now
        rest = max(0.0, self.most - self.done) / self.done * (now - self.begun)
        self.say(f"planning, at most {_duration(rest)} more")

    def end(self) -> None:
        """Say that planning is over, if it was told of: what comes is short, or tells of itself."""
        if self.told > self.begun:
            self.say("measuring")


def _duration(seconds: float) -> str:
    """Write a time as people do.

    >>> _duration(0.2), _duration(47.1), _duration(400)
    ('1 s', '48 s', '7 min')
    """
    return f"{int(seconds) + 1} s" if seconds < 100 else f"{int(seconds / 60) + 1} min"


@contextmanager
def looking_ahead(report: Callable[[str], None] | None) -> Iterator[None]:
    """Tell ``report`` of every planning inside, once a second."""
    if report is None:
        yield
        return
    with heard(Outlook(report)):
        yield
