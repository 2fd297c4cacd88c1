"""The clerk of a session: carries out errands one by one, and sends what they come back with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.records import dataclass
from dpsql.server.asking import Asker, Reply
from dpsql.server.copying import copied
from dpsql.server.messages import (
    COPY_DONE,
    Head,
    ProtocolError,
    Told,
    complete,
    copy_out,
    data_row,
    message,
    parameter_status,
    row_description,
)
from dpsql.server.returned import Returned, formatted
from dpsql.server.route import Errand, blank_but
from dpsql.server.values import BadValue
from dpsql.server.wire import Wire
from dpsql.sql.lexemes import split_statements

MOST_KEPT = 1000
"""Prepared statements, portals and cursors of one session, each."""


@dataclass(slots=True)
class Fetched:
    """What DECLARE has asked, and how far FETCH has come."""

    table: Returned
    at: int = 0


class Clerk:
    """Carries out errands; ``state`` is idle ``I``, in a transaction ``T``, in a failed one ``E``.

    Transactions change nothing but that: every answer is final.
    """

    def __init__(self, wire: Wire, asker: Asker) -> None:
        self._wire = wire
        self.asker = asker
        self.cursors: dict[str, Fetched] = {}
        self.state = b"I"

    def tell(self, told: Told) -> None:
        """Send an error or a notice."""
        self._wire.write(told.encode())

    def check(self, errand: Errand) -> None:
        """Refuse what a failed transaction does not take. Raises: ProtocolError."""
        if self.state == b"E" and errand.kind not in ("commit", "rollback"):
            text = "current transaction is aborted, commands ignored until end of transaction block"
            raise ProtocolError(text, "25P02")

    def carry_out(self, errand: Errand, text: str, formats: Sequence[int] = ()) -> Reply:
        """The reply to an errand of any kind but COPY. Raises: Error and others."""
        match errand.kind:
            case "ask":
                (reply,) = self.asker.ask(text, [errand])
                return reply
            case "twin":
                table, tag = self.asker.twin.run(blank_but(text, [errand.fragment]), wanted=formats)
                return Reply(tag, table)
            case "set":
                return self._set(errand)
            case "show":
                return self.asker.show(errand)
            case "begin":
                self.state = b"T"
            case "commit" | "rollback":
                failed, self.state = self.state == b"E", b"I"
                self.cursors.clear()
                if failed or errand.kind == "rollback":
                    self.asker.forget_workload()
                return Reply("ROLLBACK" if failed else errand.tag)
            case "declare":
                self._declare(errand)
            case "fetch":
                return self._fetch(errand)
            case "close":
                self._close_cursor(errand.name)
            case "copy":
                self._copy(errand)
                return Reply("")
        return Reply(errand.tag)

    def _set(self, errand: Errand) -> Reply:
        if errand.name == "client_encoding" and errand.words:
            if errand.words[0].lower().replace("-", "") not in ("utf8", "unicode", "sql_ascii"):
                what = f'invalid value for parameter "client_encoding": "{errand.words[0]}"'
                raise BadValue(what, "22023")
        elif errand.name == "application_name":
            self._wire.write(parameter_status("application_name", " ".join(errand.words)[:63]))
        return self.asker.set(errand)

    def send(self, reply: Reply, formats: Sequence[int], described: bool = False) -> None:
        """Send all of a reply."""
        for notice in reply.notices:
            self.tell(notice)
        table = reply.table
        if table is not None:
            if not described:
                self._wire.write(row_description(formatted(table.heads, formats)))
            for row in table.rows(formats):
                self._wire.write(data_row(row))
        if reply.tag:
            self._wire.write(complete(reply.said(0 if table is None else len(table))))

    def _declare(self, errand: Errand) -> None:
        if errand.name in self.cursors:
            raise BadValue(f'cursor "{errand.name}" already exists', "42P03")
        if len(self.cursors) >= MOST_KEPT:
            raise BadValue("too many cursors", "53000")
        (fragment,) = split_statements(errand.inner)
        inner = self.asker.route(fragment)
        reply = self.carry_out(inner, errand.inner)
        for notice in reply.notices:
            self.tell(notice)
        if reply.table is None:
            raise BadValue("a cursor is of a SELECT", "42601")
        self.cursors[errand.name] = Fetched(reply.table)

    def _fetch(self, errand: Errand) -> Reply:
        cursor = self.cursor(errand.name)
        left = len(cursor.table) - cursor.at
        taken = left if errand.number is None else min(errand.number, left)
        start, cursor.at = cursor.at, cursor.at + taken
        if errand.tag == "MOVE":
            return Reply(f"MOVE {taken}")
        return Reply("FETCH", _Part(cursor.table, start, taken), counted=True)

    def cursor(self, name: str) -> Fetched:
        """What a cursor was declared for. Raises: BadValue."""
        if name not in self.cursors:
            raise BadValue(f'cursor "{name}" does not exist', "34000")
        return self.cursors[name]

    def _close_cursor(self, name: str) -> None:
        if name.lower() == "all":
            self.cursors.clear()
        else:
            self.cursor(name)
            del self.cursors[name]

    def _copy(self, errand: Errand) -> None:
        """COPY (SELECT ...) TO STDOUT, as text, CSV or binary."""
        (fragment,) = split_statements(errand.inner)
        options = errand.name.replace("format", "").replace(",", " ").split()
        kind = next((each for each in ("binary", "csv") if each in options), "text")
        if set(options) - {"binary", "csv", "text", "header", "true", "on"}:
            what = f"COPY with {errand.name}"
            raise NotSupportedError("E_STATEMENT", what, hint="FORMAT text, csv (HEADER) or binary")
        formats = [int(kind == "binary")]
        reply = self.carry_out(self.asker.route(fragment), errand.inner, formats)
        table = reply.table
        if table is None:
            raise ProgrammingError("E_STATEMENT", "only a SELECT can be copied")
        for notice in reply.notices:
            self.tell(notice)
        self._wire.write(copy_out(formats * len(table.heads)))
        lines = copied(table, kind, "header" in options)
        for line in lines:
            self._wire.write(message(b"d", line))
        self._wire.write(COPY_DONE)
        self._wire.write(complete(f"COPY {len(table)}"))


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows of a table."""

    table: Returned
    start: int
    count: int

    @property
    def heads(self) -> tuple[Head, ...]:
        return self.table.heads

    def __len__(self) -> int:
        return self.count

    def rows(self, formats: Sequence[int]) -> Iterator[list[bytes | None]]:
        return itertools.islice(self.table.rows(formats), self.start, self.start + self.count)
