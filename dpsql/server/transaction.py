"""A transaction of a session, which changes nothing but what the session itself keeps.

Every answer is final, whatever becomes of the transaction.
"""

from __future__ import annotations

from dpsql.server.cursors import Cursors
from dpsql.server.messages import ProtocolError
from dpsql.server.route import SessionCommand
from dpsql.server.values import BadValue

IDLE, OPEN, FAILED = b"I", b"T", b"E"
_ENDS = ("commit", "rollback", "rollback to")


class Transaction:
    """The transaction of a session, if any, its savepoints, and the cursors that end with it."""

    def __init__(self, cursors: Cursors) -> None:
        self.state = IDLE
        self._cursors = cursors
        self._held: list[str] = []
        self._savepoints: list[tuple[str, list[str]]] = []

    def check(self, command: SessionCommand | None) -> None:
        """Refuse what a failed transaction does not take. Raises: ProtocolError."""
        if self.state == FAILED and (command is None or command.kind not in _ENDS):
            text = "current transaction is aborted, commands ignored until end of transaction block"
            raise ProtocolError(text, "25P02")

    def fail(self) -> None:
        """Mark the transaction as failed."""
        if self.state == OPEN:
            self.state = FAILED

    def begin(self) -> None:
        """Begin a transaction block, unless one has begun."""
        if self.state == IDLE:
            self.state, self._held = OPEN, [*self._cursors]

    def end(self, command: SessionCommand) -> bool:
        """End it, and its cursors; say whether what it did stays. Raises: BadValue."""
        if self.state == IDLE and "chain" in command.words:
            what = f"{command.tag} AND CHAIN can only be used in transaction blocks"
            raise BadValue(what, "25P01")
        stays = self.state != FAILED and command.kind == "commit"
        held = [name for name, each in self._cursors.items() if each.holds]
        if not stays and self.state != IDLE:
            held = [name for name in held if name in self._held]
        self._cursors.keep(held)
        self.state = OPEN if "chain" in command.words else IDLE
        self._held = [*self._cursors]
        self._savepoints.clear()
        return stays

    def savepoint(self, command: SessionCommand) -> None:
        """SAVEPOINT, RELEASE of one, and ROLLBACK TO one. Raises: BadValue."""
        what = command.kind.upper()
        if self.state == IDLE:
            raise BadValue(f"{what} can only be used in transaction blocks", "25P01")
        if command.kind == "savepoint":
            self._savepoints.append((command.name, [*self._cursors]))
            return
        names = [name for name, _ in self._savepoints]
        if command.name not in names:
            raise BadValue(f'savepoint "{command.name}" does not exist', "3B001")
        place = len(names) - 1 - names[::-1].index(command.name)
        if command.kind == "release":
            del self._savepoints[place:]
        else:
            self._cursors.keep(self._savepoints[place][1])
            del self._savepoints[place + 1 :]
            self.state = OPEN
