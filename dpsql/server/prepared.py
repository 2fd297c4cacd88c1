"""Statements that a session has prepared, by name."""

from __future__ import annotations

from dpsql.records import dataclass
from dpsql.server.route import SessionCommand
from dpsql.server.values import BadValue


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that was parsed, None for an empty one, and the types of its parameters."""

    text: str
    command: SessionCommand | None
    oids: tuple[int, ...]


class PreparedStatements(dict[str, Prepared]):
    """Prepared statements by name; the unnamed one is replaced by the next."""

    def named(self, name: str) -> Prepared:
        """The prepared statement of a name. Raises: BadValue."""
        if name not in self:
            raise BadValue(f'prepared statement "{name}" does not exist', "26000")
        return self[name]

    def deallocate(self, name: str) -> None:
        """Forget one, or all where no name is given. Raises: BadValue."""
        if name:
            self.named(name)
            del self[name]
        else:
            self.clear()
