"""Visits: browser sessions, each with a token, an end, and a thread for what it asks."""

from __future__ import annotations

import hashlib
import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from dpsql.answer.result import Result
from dpsql.interrupts import Cancellation
from dpsql.page.sign_in import SignedInUser
from dpsql.records import dataclass, field
from dpsql.server.analyst_session import AnalystSession
from dpsql.server.answer_ticks import Ticks
from dpsql.server.databases import Database
from dpsql.server.events import Events

IDLE = 30 * 60.0
"""Seconds without a request after which a visit ends."""
LONGEST = 12 * 60 * 60.0
"""Seconds after which whoever is here signs in anew."""
MOST_OF_ONE = 10
"""Visits of one user at once; one more ends the oldest."""


@dataclass(eq=False)
class BrowserSession:
    """One browser that has signed in.

    ``results`` are those of the last script, which may be saved. ``busy`` counts what it waits for,
    ``asked`` what it has asked; ``number`` is what an operator calls it by.
    """

    who: SignedInUser
    caller: AnalystSession
    begun: float
    seen: float
    results: tuple[Result, ...] = ()
    forecasting: Cancellation | None = None
    running: Cancellation | None = None
    busy: int = 0
    number: int = 0
    asked: int = 0
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="visit")
    )

    @property
    def user(self) -> str:
        """The name of who has signed in."""
        return self.who.user

    @property
    def whose(self) -> tuple[Database, str]:
        """The database that it is to, and the name of who has signed in."""
        return self.who.database, self.who.user

    def describe(self) -> dict[str, object]:
        """Facts for an operator; neither SQL nor numbers."""
        return {
            "number": self.number,
            "user": self.user,
            "address": str(self.caller.events.facts.get("address", "")),
            "application": "page",
            "since": self.began,
            "statements": self.asked,
            "state": "active" if self.busy else "idle",
            "idle": 0.0 if self.busy else round(time.monotonic() - self.seen, 1),
        }

    def close(self) -> None:
        """End what it asks; what was charged is stored first, and its thread closes the rest."""
        self.results = ()
        for wish in (self.forecasting, self.running):
            if wish is not None:
                self.caller.end(wish)
        self.pool.submit(self.caller.close)
        self.pool.shutdown(wait=False)


@dataclass
class BrowserSessions:
    """The visits of a server, by the hash of their tokens.

    The event loop begins them; who ends one in another thread takes it out first.
    """

    most: int
    ticks: Ticks = field(default_factory=Ticks)
    clock: Callable[[], float] = time.monotonic
    events: Events = field(default_factory=Events)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    _here: dict[bytes, BrowserSession] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._here)

    def begin(self, who: SignedInUser, events: Events | None = None) -> str | None:
        """The token of a new visit, whose ``events`` are noted; None where there are too many."""
        here = list(self._here.items())
        self._end([key for key, visit in here if self._is_over(visit)], "idle")
        mine = who.database, who.user
        own = [key for key, visit in here if visit.whose == mine and key in self._here]
        self._end(own[: max(0, len(own) + 1 - MOST_OF_ONE)], "others of the user")
        if len(self._here) >= self.most:
            return None
        token, now = secrets.token_urlsafe(32), self.clock()
        site = who.database.site
        caller = AnalystSession(site, who.analyst, self.ticks, events=events or self.events)
        visit = BrowserSession(who, caller, now, now, number=next(self.numbers))
        self._here[_key(token)] = visit
        return token

    def find(self, token: str, database: Database | None) -> BrowserSession | None:
        """The visit of a token to a database, which goes on by being asked for."""
        visit = self._here.get(_key(token))
        if visit is None or visit.who.database is not database:
            return None
        if self._is_over(visit):
            self.end(token, "idle")
            return None
        visit.seen = self.clock()
        return visit

    def present(self, database: Database | None = None) -> list[BrowserSession]:
        """The visits that are here, or are to one database, as an operator sees them."""
        here = [each for each in list(self._here.values()) if not self._is_over(each)]
        return [each for each in here if database in (None, each.who.database)]

    def dismiss(self, visit: BrowserSession) -> None:
        """End a visit for an operator, from any thread."""
        here = list(self._here.items())
        self._end([key for key, each in here if each is visit], "operator")

    def end(self, token: str, why: str = "left") -> None:
        """End a visit for a reason; an unknown token does nothing."""
        self._end([_key(token)], why)

    def _end(self, keys: Iterable[bytes], why: str) -> None:
        for key in list(keys):
            visit = self._here.pop(key, None)
            if visit is not None:
                visit.caller.events.note("end", outcome=why)
                visit.close()

    def _is_over(self, visit: BrowserSession) -> bool:
        now = self.clock()
        return now - visit.begun > LONGEST or (not visit.busy and now - visit.seen > IDLE)

    def close(self) -> None:
        """End all of them, and wait until what was charged is stored."""
        visits = list(self._here.values())
        self._end(list(self._here), "stop")
        for visit in visits:
            visit.pool.shutdown(wait=True)


def _key(token: str) -> bytes:
    """Return the key that a token is kept by: finding it takes as long whatever is right in it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
