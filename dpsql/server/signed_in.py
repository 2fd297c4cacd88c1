"""A signed-in session: one client as an operator sees it, and how it is ended."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from dpsql.records import dataclass, field
from dpsql.server.client_socket import ClientSocket
from dpsql.server.handshake import Login
from dpsql.server.messages import Notice
from dpsql.server.statements import StatementRunner

ENDED = "terminating connection due to administrator command"
"""In the words of PostgreSQL, which every pool of connections understands."""

OUTLIVED = "the tables or the analysts have changed; connect again"
"""The message to a session that cannot go on with the catalog in force."""


def ended(hint: str = "connect again", state: str = "57P01", text: str = ENDED) -> Notice:
    """The last message to a client whose session is ended.

    Args:
        hint: says what the client can do.
        state: SQLSTATE; 57P01 is that of a server that ends a session.
        text: message.
    """
    return Notice("FATAL", state, text, hint=hint)


@dataclass(eq=False)
class SessionInfo:
    """A session: who, since when, and since when it has asked nothing.

    Its own thread notes what it does; others may look, and end it.
    """

    guest: Login
    asker: StatementRunner
    wire: ClientSocket
    begun: float = field(default_factory=time.monotonic)
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    asked: int = 0
    is_busy: bool = False
    told: Notice | None = None
    why: str = "left"
    _seen: float = field(default_factory=time.monotonic)

    def work(self) -> None:
        """Note that something is asked."""
        self.asked += 1
        self.is_busy = True

    def rest(self) -> None:
        """Note that the session waits for its client."""
        self.is_busy = False
        self._seen = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds since it has asked anything; 0 while it is answered."""
        return 0.0 if self.is_busy else time.monotonic() - self._seen

    @property
    def age(self) -> float:
        """Seconds since it has signed in."""
        return time.monotonic() - self.begun

    def end(self, told: Notice, why: str) -> None:
        """End it for a reason: what it asks is cancelled, and what was charged is stored first."""
        if self.told is None:
            self.told, self.why = told, why
            self.asker.cancel()
            self.wire.stop_reading()

    def describe(self) -> dict[str, object]:
        """Facts for an operator; neither SQL nor numbers."""
        return {
            "number": self.guest.process,
            "user": self.guest.user,
            "address": self.wire.address,
            "application": self.guest.options.get("application_name", ""),
            "since": self.began,
            "statements": self.asked,
            "state": "active" if self.is_busy else "idle",
            "idle": round(self.idle, 1),
        }
