"""Ticks: fixed moments that answers wait for, so that they do not tell how long they took."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from dpsql.errors import UsageError, printable
from dpsql.records import dataclass

LONGEST_TICK = 10.0
"""Seconds: a server that stops waits for answers that wait."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """Multiples of ``period`` seconds; without a period nothing waits."""

    period: float = 0.0
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def parse(cls, text: str) -> Ticks:
        """Read ``500ms`` or ``1s``. Raises: UsageError (E_LISTEN).

        >>> Ticks.parse("500ms").period, Ticks.parse("2s").period
        (0.5, 2.0)
        """
        found = re.fullmatch(r"(\d{1,6})(ms|s)", text)
        period = int(found[1]) / (1000 if found[2] == "ms" else 1) if found else 0.0
        if not 0 < period <= LONGEST_TICK:
            what = f"--tick {printable(text)}"
            raise UsageError("E_LISTEN", what, hint=f"1ms to {LONGEST_TICK:g}s")
        return cls(period)

    def left(self, after: float = 0.0) -> float:
        """Seconds until the first tick that is at least ``after`` seconds from now.

        >>> Ticks(1.0, lambda: 7.25).left(), Ticks(1.0, lambda: 7.25).left(1.0), Ticks().left(1.0)
        (0.75, 1.75, 1.0)
        """
        if not self.period:
            return after
        return after + -(self.clock() + after) % self.period

    def wait(self) -> None:
        """Wait for the next tick."""
        if self.period:
            time.sleep(self.left())

    def later(self, work: Callable[[], None]) -> None:
        """Do something at the next tick; at once where there are none."""
        left = self.left()
        if not left:
            return work()
        timer = threading.Timer(left, work)
        timer.daemon = True
        timer.start()
