"""The clerk of a session: carries out errands one by one, and sends what they come back with."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.server.client_socket import ClientSocket
from dpsql.server.copy_rows import copied
from dpsql.server.cursors import Cursors, Fetched, FetchedRows
from dpsql.server.messages import (
    BINARY,
    COPY_DONE,
    TEXT,
    Told,
    complete,
    copy_out,
    data_row,
    message,
    parameter_status,
    row_description,
)
from dpsql.server.prepared import PreparedStatements
from dpsql.server.result_stream import formatted
from dpsql.server.route import Errand, blank_but
from dpsql.server.statements import Reply, StatementRunner
from dpsql.server.transaction import IDLE, Transaction
from dpsql.server.values import BadValue
from dpsql.sql.lexemes import split_statements


class SessionWorker:
    """Carries out errands, and keeps what a session has named."""

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

    def tell(self, told: Told) -> None:
        """Send an error or a notice."""
        self._wire.write(told.encode())

    def carry_out(self, errand: Errand, text: str, formats: Sequence[int] = ()) -> Reply:
        """The reply to an errand of any kind but COPY. Raises: Error and others."""
        match errand.kind:
            case "ask":
                (reply,) = self.asker.ask(text, [errand])
                return reply
            case "twin":
                asked = blank_but(text, [errand.fragment])
                table, tag = self.asker.ask_twin(lambda twin: twin.run(asked, wanted=formats))
                return Reply(tag, table)
            case "set":
                return self._set(errand)
            case "set local":
                return self._set_local(errand)
            case "reset":
                self.asker.reset(errand.name)
            case "discard":
                self._discard(errand)
            case "deallocate":
                self.prepared.deallocate(errand.name)
            case "show":
                return self.asker.show(errand)
            case "begin":
                self.transaction.begin()
            case "commit" | "rollback":
                return self._end(errand)
            case "savepoint" | "release" | "rollback to":
                self.transaction.savepoint(errand)
            case "declare":
                self._declare(errand)
            case "fetch":
                return self._fetch(errand)
            case "close":
                self.cursors.close(errand.name)
            case "copy":
                self._copy(errand)
                return Reply("")
        return Reply(errand.tag)

    def _end(self, errand: Errand) -> Reply:
        stays = self.transaction.end(errand)
        self.asker.end_transaction()
        if not stays:
            self.asker.forget_workload()
        return Reply(errand.tag if stays else "ROLLBACK")

    def _set_local(self, errand: Errand) -> Reply:
        if self.state == IDLE:
            raise BadValue("SET LOCAL can only be used in transaction blocks", "25P01")
        self.asker.keep(errand.name)
        inner = self.asker.route(errand.fragment)
        return self.carry_out(inner, errand.fragment.text)

    def _discard(self, errand: Errand) -> None:
        """DISCARD ALL: the session is as it was when it began; other kinds find nothing."""
        if errand.name != "all":
            return
        if self.state != IDLE:
            raise BadValue("DISCARD ALL cannot run inside a transaction block", "25001")
        self.cursors.clear()
        self.prepared.clear()
        self.asker.forget_workload()
        self.asker.reset("")

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
        self.cursors.check(errand.name)
        (fragment,) = split_statements(errand.inner)
        inner = self.asker.route(fragment)
        if inner.tag != "SELECT":
            raise BadValue("a cursor is of a SELECT", "42601")
        reply = self.carry_out(inner, errand.inner, [TEXT, BINARY])  # FETCH says which
        for notice in reply.notices:
            self.tell(notice)
        if reply.table is None:
            raise BadValue("a cursor is of a SELECT", "42601")
        self.cursors[errand.name] = Fetched(reply.table, "hold" in errand.words)

    def _fetch(self, errand: Errand) -> Reply:
        cursor = self.cursors.named(errand.name)
        places = cursor.step(errand.step)
        if errand.tag == "MOVE":
            return Reply(f"MOVE {len(places)}")
        return Reply("FETCH", FetchedRows(cursor.table, places), counted=True)

    def _copy(self, errand: Errand) -> None:
        """COPY (SELECT ...) TO STDOUT, as text, CSV or binary."""
        (fragment,) = split_statements(errand.inner)
        kind, has_header = _read_options(errand.name)
        formats = [int(kind == "binary")]
        reply = self.carry_out(self.asker.route(fragment), errand.inner, formats)
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
