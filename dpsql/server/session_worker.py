"""The worker of a session: runs its statements one by one, and sends their results."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.server.client_socket import ClientSocket
from dpsql.server.copy_rows import copied
from dpsql.server.cursors import CursorRows, Cursors, FetchedRows
from dpsql.server.messages import (
    BINARY,
    COPY_DONE,
    TEXT,
    Notice,
    complete,
    copy_out,
    data_row,
    message,
    parameter_status,
    row_description,
)
from dpsql.server.prepared import PreparedStatements
from dpsql.server.result_stream import formatted
from dpsql.server.route import SessionCommand, blank_but
from dpsql.server.statements import Reply, StatementRunner
from dpsql.server.transaction import IDLE, Transaction
from dpsql.server.values import BadValue
from dpsql.sql.text.lexemes import split_statements


class SessionWorker:
    """Carries out commands, and keeps what a session has named."""

    def __init__(self, wire: ClientSocket, asker: StatementRunner) -> None:
        self._wire = wire
        self.asker = asker
        self.cursors = Cursors()
        self.prepared = PreparedStatements()
        self.transaction = Transaction(self.cursors)

    @property
    def state(self) -> bytes:
        """Idle ``I``, in a transaction ``T``, in a failed one ``E``."""
        return self.transaction.state

    def tell(self, told: Notice) -> None:
        """Send an error or a notice."""
        self._wire.write(told.encode())

    def carry_out(self, command: SessionCommand, text: str, formats: Sequence[int] = ()) -> Reply:
        """Return the reply to a command of any kind but COPY.

        Args:
            command: as it was read; it carries its place in the text.
            text: whole message that the command is from, which carets and the ledger refer to.
            formats: in which the client wants columns, where a reply is encoded at once.

        Raises: Error and others.
        """
        match command.kind:
            case "ask":
                (reply,) = self.asker.ask(text, [command])
                return reply
            case "twin":
                asked = blank_but(text, [command.fragment])
                table, tag = self.asker.ask_twin(lambda twin: twin.run(asked, wanted=formats))
                return Reply(tag, table)
            case "set":
                return self._set(command)
            case "set local":
                return self._set_local(command)
            case "reset":
                self.asker.reset(command.name)
            case "discard":
                self._discard(command)
            case "deallocate":
                self.prepared.deallocate(command.name)
            case "show":
                return self.asker.show(command)
            case "begin":
                self.transaction.begin()
            case "commit" | "rollback":
                return self._end(command)
            case "savepoint" | "release" | "rollback to":
                self.transaction.savepoint(command)
            case "declare":
                self._declare(command)
            case "fetch":
                return self._fetch(command)
            case "close":
                self.cursors.close(command.name)
            case "copy":
                self._copy(command)
                return Reply("")
        return Reply(command.tag)

    def _end(self, command: SessionCommand) -> Reply:
        stays = self.transaction.end(command)
        self.asker.end_transaction()
        if not stays:
            self.asker.forget_workload()
        return Reply(command.tag if stays else "ROLLBACK")

    def _set_local(self, command: SessionCommand) -> Reply:
        if self.state == IDLE:
            raise BadValue("SET LOCAL can only be used in transaction blocks", "25P01")
        self.asker.keep(command.name)
        inner = self.asker.route(command.fragment)
        return self.carry_out(inner, command.fragment.text)

    def _discard(self, command: SessionCommand) -> None:
        """DISCARD ALL: the session is as it was when it began; other kinds find nothing."""
        if command.name != "all":
            return
        if self.state != IDLE:
            raise BadValue("DISCARD ALL cannot run inside a transaction block", "25001")
        self.cursors.clear()
        self.prepared.clear()
        self.asker.forget_workload()
        self.asker.reset("")

    def _set(self, command: SessionCommand) -> Reply:
        if command.name == "client_encoding" and command.words:
            if command.words[0].lower().replace("-", "") not in ("utf8", "unicode", "sql_ascii"):
                what = f'invalid value for parameter "client_encoding": "{command.words[0]}"'
                raise BadValue(what, "22023")
        elif command.name == "application_name":
            # PostgreSQL cuts names at 63 bytes.
            self._wire.write(parameter_status("application_name", " ".join(command.words)[:63]))
        return self.asker.set(command)

    def send(self, reply: Reply, formats: Sequence[int], described: bool = False) -> None:
        """Send all of a reply.

        Args:
            reply: its notices come first, its tag last.
            formats: none for text, one for all columns, or each column's own.
            described: True where the client has the description of its columns already.
        """
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

    def _declare(self, command: SessionCommand) -> None:
        self.cursors.check(command.name)
        (fragment,) = split_statements(command.inner)
        inner = self.asker.route(fragment)
        if inner.tag != "SELECT":
            raise BadValue("a cursor is of a SELECT", "42601")
        reply = self.carry_out(inner, command.inner, [TEXT, BINARY])  # FETCH says which
        for notice in reply.notices:
            self.tell(notice)
        if reply.table is None:
            raise BadValue("a cursor is of a SELECT", "42601")
        self.cursors[command.name] = CursorRows(reply.table, "hold" in command.words)

    def _fetch(self, command: SessionCommand) -> Reply:
        cursor = self.cursors.named(command.name)
        places = cursor.step(command.step)
        if command.tag == "MOVE":
            return Reply(f"MOVE {len(places)}")
        return Reply("FETCH", FetchedRows(cursor.table, places), counted=True)

    def _copy(self, command: SessionCommand) -> None:
        """COPY (SELECT ...) TO STDOUT, as text, CSV or binary."""
        (fragment,) = split_statements(command.inner)
        kind, has_header = _read_options(command.name)
        formats = [int(kind == "binary")]
        reply = self.carry_out(self.asker.route(fragment), command.inner, formats)
        table = reply.table
        if table is None:
            raise ProgrammingError("E_STATEMENT", "only a SELECT can be copied")
        for notice in reply.notices:
            self.tell(notice)
        self._wire.write(copy_out(formats * len(table.heads)))
        lines = copied(table, kind, has_header)
        for line in lines:
            self._wire.write(message(b"d", line))
        self._wire.write(COPY_DONE)
        self._wire.write(complete(f"COPY {len(table)}"))


def _read_options(text: str) -> tuple[str, bool]:
    """The format of COPY, and whether the names of columns come first.

    Raises: NotSupportedError.

    >>> _read_options("format 'csv', header true"), _read_options("csv header"), _read_options("")
    (('csv', True), ('csv', True), ('text', False))
    """
    words = text.replace("'", " ").replace(",", " , ").split()
    kind, has_header = "text", False
    for word, value in zip(words, [*words, ""][1:], strict=True):
        if word in ("binary", "csv", "text"):
            kind = word
        elif word == "header":
            has_header = value not in ("false", "off", "0")
        elif word not in ("format", ",", "true", "on", "1", "false", "off", "0"):
            hint = "FORMAT text, csv (HEADER) or binary"
            raise NotSupportedError("E_STATEMENT", f"COPY with {text}", hint=hint)
    return kind, has_header
