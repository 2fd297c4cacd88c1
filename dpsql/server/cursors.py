"""Cursors of SQL: what DECLARE has asked, and where FETCH and MOVE have come to.

All rows are there when a cursor is declared, so that it goes both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.records import dataclass
from dpsql.server.messages import FieldDescription
from dpsql.server.result_stream import ResultStream, Write
from dpsql.server.values import BadValue

MOST_KEPT = 1000
"""Prepared statements, portals and cursors of one session, each."""


@dataclass(frozen=True, slots=True)
class CursorStep:
    """The move of a cursor: FORWARD, BACKWARD, ABSOLUTE or RELATIVE; None is to the end."""

    way: str
    rows: int | None = 1


@dataclass(slots=True)
class CursorRows:
    """The rows of a cursor, and the one that it is on: 0 is before the first, from which it starts.

    ``holds`` says that it outlives the transaction in which it was declared.
    """

    table: ResultStream
    holds: bool = False
    at: int = 0

    def step(self, step: CursorStep) -> range:
        """Go on, and return the places of the rows that were passed, as the manual says of FETCH.

        >>> cursor = CursorRows([..., ..., ...])
        >>> [[*cursor.step(CursorStep(*way))] for way in (("forward", 2), ("backward", None))]
        [[0, 1], [0]]
        >>> [[*cursor.step(CursorStep(*way))] for way in (("absolute", -1), ("relative", 0))]
        [[2], [2]]
        """
        last, way, rows = len(self.table), step.way, step.rows
        if way in ("absolute", "relative") or rows == 0:
            to = rows or 0
            if way == "absolute":
                to = to if to >= 0 else last + 1 + to
            else:
                to += self.at
            self.at = min(max(to, 0), last + 1)
            return range(self.at - 1, self.at) if 0 < self.at <= last else range(0)
        is_forward = (way == "forward") == (rows is None or rows > 0)
        count = last + 1 if rows is None else abs(rows)
        start = self.at
        if is_forward:
            self.at = min(start + count, last + 1)
            return range(start, min(self.at, last))
        self.at = max(start - count, 0)
        return range(start - 2, max(self.at, 1) - 2, -1)


class Cursors(dict[str, CursorRows]):
    """The cursors of a session, by name."""

    def named(self, name: str) -> CursorRows:
        """The cursor of a name. Raises: BadValue."""
        if name not in self:
            raise BadValue(f'cursor "{name}" does not exist', "34000")
        return self[name]

    def check(self, name: str) -> None:
        """Refuse to declare one more. Raises: BadValue."""
        if name in self:
            raise BadValue(f'cursor "{name}" already exists', "42P03")
        if len(self) >= MOST_KEPT:
            raise BadValue("too many cursors", "53000")

    def close(self, name: str) -> None:
        """Close one, or all where no name is given. Raises: BadValue."""
        if name:
            self.named(name)
            del self[name]
        else:
            self.clear()

    def keep(self, names: Sequence[str]) -> None:
        """Close all cursors but those of some names."""
        for name in [*self]:
            if name not in names:
                del self[name]


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Some rows of a table."""

    table: ResultStream
    places: range

    @property
    def heads(self) -> tuple[FieldDescription, ...]:
        """The columns, in text format."""
        return self.table.heads

    def __len__(self) -> int:
        return len(self.places)

    def rows(
        self, formats: Sequence[int], places: Sequence[int] | None = None, write: Write = None
    ) -> Iterator[Sequence[bytes | None]]:
        """The rows, each column in its format.

        Args:
            formats: none for text, one for all columns, or each column's own.
            places: among those that were fetched; None for all of them.
            write: what becomes of every value, once it is encoded.
        """
        wanted = self.places if places is None else [self.places[place] for place in places]
        return self.table.rows(formats, wanted, write)
