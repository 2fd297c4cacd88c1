"""Places at the doors of a server: the descriptors that clients may take, divided when it starts.

Whatever stands at one door, the others have theirs, and so have the ledger, the rows, the processes
that plan and the operator. In a flood whoever idles longest at a door makes room there, and nobody
else is let in until that one has gone: no door ever takes more than its part.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dpsql.errors import UsageError
from dpsql.records import dataclass

RESERVE = 24
"""Descriptors for no client: ledgers, stores, rows, the twin, users and certificates that are read
anew, the operator, listening, and one client at each door who has just come."""
EACH = 3
"""Those of a session: its socket, the ledger's lock, which it may wait for, and one to the twin."""
EACH_OF_PAGE = 2
EACH_OF_PLANNING = 3
"""Those of a process that plans: its pipe, and two that tell either side of the other's end."""
LEAST = 4
"""Places of each door, without which nobody could make room."""
WATCHING = 32
"""Connections to the metrics at once: each has a thread."""
MOST_OPEN = 1 << 16
"""Descriptors that a server asks the system for, where it may have as many."""
SHORT = frozenset({"EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"})
"""Errors after which whoever leaves makes room."""
LOOK = 1.0
"""Seconds between two looks at whether a server that waits for somebody to leave is closed."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Division:
    """The clients that each door of a server may have at once, and the processes that plan.

    ``sessions`` are signed in, ``arriving`` are about to; ``page`` and ``watching`` are connections
    to the page and to the metrics.
    """

    sessions: int
    arriving: int
    page: int
    watching: int
    planning: int

    @classmethod
    def of(cls, most: int, limit: int, used: int, planning: int) -> Division:
        """Divide the descriptors that are left: an eighth to metrics and page each, a quarter to
        planning, of the rest a quarter to who signs in, and no more than anybody needs.

        Args:
            most: sessions that are wanted.
            planning: processes that plan, of which two are enough.
            limit: descriptors that the process may open.
            used: those that it has open before it listens.

        Raises: UsageError (E_LISTEN) where that is too little for one session.
        """
        free = limit - used - RESERVE
        watching = min(WATCHING, max(LEAST, free // 8))
        page = min(2 * most, max(LEAST, free // 8 // EACH_OF_PAGE))
        planning = min(planning, max(2, free // 4 // EACH_OF_PLANNING))
        rest = free - watching - EACH_OF_PAGE * page - EACH_OF_PLANNING * planning
        arriving = min(most, max(LEAST, rest // 4))
        sessions = min(most, (rest - arriving) // EACH)
        if sessions < 1:
            least = (2 + EACH_OF_PAGE) * LEAST + EACH + EACH_OF_PLANNING * planning
            needed = used + RESERVE + least
            what = f"this process may open {limit} files, and a server needs {needed}"
            raise UsageError("E_LISTEN", what, hint=f"ulimit -n {max(1024, needed)}")
        return cls(sessions, arriving, page, watching, planning)

    @classmethod
    def here(cls, most: int, planning: int) -> Division:
        """The division of what this process may open now. Raises: UsageError (E_LISTEN)."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = MOST_OPEN if limit == resource.RLIM_INFINITY else limit
        return cls.of(most, limit, len(os.listdir("/dev/fd")), planning)


def raise_limit() -> None:
    """Have this process open as many files as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # the kernel has limits of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def hang_up(connection: socket.socket) -> None:
    """End a connection from another thread: whoever reads or writes it is told."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class ClientPlaces(Generic[T]):
    """The clients at one door, the oldest first.

    Args:
        most: how many there may be.
        leave: hangs up on one, who gives the place back once its socket is closed.
        is_idle: says whether one may be hung up on to make room; by default, any.
    """

    def __init__(
        self, most: int, leave: Callable[[T], object], is_idle: Callable[[T], bool] | None = None
    ) -> None:
        self.most = most
        self._leave = leave
        self._is_idle = is_idle or (lambda _: True)
        self._leaving: dict[T, bool] = {}
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._leaving)

    def take(self, one: T) -> bool:
        """Give somebody a place; say whether anybody had to make room for that."""
        with self._changed:
            self._leaving[one] = False
            is_full = len(self._leaving) > self.most
        if is_full:
            self.make_room(one)
        return is_full

    def make_room(self, newest: T | None = None) -> None:
        """Hang up on who has idled longest; on the newest where nobody else idles."""
        with self._changed:
            idle = (e for e, leaves in self._leaving.items() if not leaves and e is not newest)
            oldest = next((each for each in idle if self._is_idle(each)), newest)
            if oldest is None:
                return
            self._leaving[oldest] = True
        self._leave(oldest)

    def bear(self, why: str) -> None:
        """Make room after a failure to let somebody in, where that is what helps."""
        if why in SHORT:
            self.make_room()

    def give(self, one: T) -> None:
        """Take back the place of somebody who has gone."""
        with self._changed:
            self._leaving.pop(one, None)
            self._changed.notify_all()

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Wait until no more are here than may be, or all is over."""
        with self._changed:
            while len(self._leaving) > self.most and not is_over():
                self._changed.wait(LOOK)
