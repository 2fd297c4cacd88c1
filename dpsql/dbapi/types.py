"""PEP 249 type objects and constructors."""

from __future__ import annotations

import datetime as dt
import time


class _TypeObject:
    """Equal to every result type it stands for (PEP 249)."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other in self.names if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.names)


STRING = _TypeObject("text")
NUMBER = _TypeObject("integer", "number", "boolean")
DATETIME = _TypeObject("date", "timestamp")
BINARY = _TypeObject()
ROWID = _TypeObject()
Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802
    """A date from seconds since the epoch (PEP 249)."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802
    """A time from seconds since the epoch (PEP 249)."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802
    """A time stamp from seconds since the epoch (PEP 249)."""
    return dt.datetime(*time.localtime(ticks)[:6])
