"""The extended protocol: statements are parsed, bound to parameters, described, and executed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from dpsql.records import dataclass, field
from dpsql.server.client_socket import ClientSocket
from dpsql.server.cursors import MOST_KEPT
from dpsql.server.messages import (
    BIND_COMPLETE,
    CLOSE_COMPLETE,
    EMPTY_QUERY,
    NO_DATA,
    PARSE_COMPLETE,
    SUSPENDED,
    FieldDescription,
    Fields,
    Message,
    ProtocolError,
    complete,
    data_row,
    parameter_description,
    row_description,
)
from dpsql.server.parameters import bind, sample, types_of
from dpsql.server.prepared import Prepared
from dpsql.server.result_stream import formatted, spread
from dpsql.server.route import SessionCommand
from dpsql.server.session_worker import SessionWorker
from dpsql.server.statements import Reply
from dpsql.server.transaction import IDLE
from dpsql.server.values import BadValue, decode
from dpsql.sql.text.lexemes import split_statements


@dataclass(slots=True)
class Portal:
    """A statement with its parameters; ``reply`` is there once it was asked."""

    command: SessionCommand | None
    text: str
    formats: list[int] = field(default_factory=list)
    twin: tuple[Sequence[bytes | None], Sequence[int], Sequence[int]] = ((), (), ())
    reply: Reply | None = None
    rows: Iterator[Sequence[bytes | None]] | None = None
    sent: int = 0


class Portals:
    """Prepared and bound statements of one session; ``text`` is that of the statement in hand."""

    def __init__(self, wire: ClientSocket, worker: SessionWorker) -> None:
        self._wire = wire
        self._worker = worker
        self._portals: dict[str, Portal] = {}
        self.text = ""

    def prepared(self, name: str) -> Prepared | None:
        """A prepared statement."""
        return self._worker.prepared.get(name)

    def repeat(self, parsed: Prepared | None) -> None:
        """Be as after a statement of the portal without a name, which ``parsed`` was parsed for."""
        if parsed is not None:
            self._worker.prepared[""] = parsed
        self.forget()
        self.synchronise()

    @property
    def is_full(self) -> bool:
        """True if one statement more may be refused."""
        return max(len(self._worker.prepared), len(self._portals)) >= MOST_KEPT

    def forget(self) -> None:
        """Forget the portal without a name."""
        self._portals.pop("", None)

    def synchronise(self) -> None:
        """Forget all portals, unless a transaction goes on in which they may be read further."""
        if self._worker.state == IDLE:
            self._portals.clear()

    def serve(self, found: Message) -> None:
        """Do what a message asks for. Raises: Error and others, whatever goes wrong."""
        fields = Fields(found.body)
        match found.kind:
            case b"P":
                self._parse(fields)
            case b"B":
                self._bind(fields)
            case b"D":
                self._describe(fields)
            case b"E":
                self._execute(fields)
            case b"C":
                kind, name = fields.byte(), fields.text()
                (self._worker.prepared if kind == b"S" else self._portals).pop(name, None)
                self._wire.write(CLOSE_COMPLETE)
            case b"F":
                raise ProtocolError("function calls are not supported", "0A000")
            case _:
                raise ProtocolError(f"invalid frontend message type {found.kind[0]}")

    def _parse(self, fields: Fields) -> None:
        name, text = fields.text(), fields.text()
        self.text = text
        # Numbers of types are unsigned, the integers of the wire signed.
        oids = [fields.long() & 0xFFFFFFFF for _ in range(fields.count())]
        fields.end()
        if name in self._worker.prepared and name:
            raise BadValue(f'prepared statement "{name}" already exists', "42P05")
        if len(self._worker.prepared) >= MOST_KEPT:
            raise BadValue("too many prepared statements", "53000")
        fragments = split_statements(text)
        if len(fragments) > 1:
            what = "cannot insert multiple commands into a prepared statement"
            raise BadValue(what, "42601")
        command = self._worker.asker.route(fragments[0]) if fragments else None
        self._worker.transaction.check(command)
        if command is not None and command.kind in ("ask", "declare"):
            oids = types_of(command.inner or text, oids, self._worker.asker.connection.known)
        self._worker.prepared[name] = Prepared(text, command, tuple(oids))
        self._wire.write(PARSE_COMPLETE)

    def _bind(self, fields: Fields) -> None:
        portal, name = fields.text(), fields.text()
        codes = [fields.short() for _ in range(fields.count())]
        values = [_value(fields) for _ in range(fields.count())]
        wanted = [fields.short() for _ in range(fields.count())]
        fields.end()
        statement = self._worker.prepared.named(name)
        self.text = statement.text
        if portal in self._portals and portal:
            raise BadValue(f'cursor "{portal}" already exists', "42P03")
        if len(self._portals) >= MOST_KEPT:
            raise BadValue("too many portals", "53000")
        command = statement.command
        formats = spread(codes, len(values))
        found = Portal(command, statement.text, wanted, (values, statement.oids, formats))
        if command is not None and command.kind != "twin":
            if len(values) != len(statement.oids):
                what = f"{len(values)} parameters for a statement of {len(statement.oids)}"
                raise ProtocolError(f"bind message supplies {what}")
            decoded = map(decode, values, statement.oids, formats)
            found.text = bind(statement.text, list(decoded))
            if values:
                (fragment,) = split_statements(found.text)
                found.command = self._worker.asker.route(fragment)
        self._portals[portal] = found
        self._wire.write(BIND_COMPLETE)

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise BadValue(f'portal "{name}" does not exist', "34000")
        return self._portals[name]

    def _describe(self, fields: Fields) -> None:
        kind, name = fields.byte(), fields.text()
        fields.end()
        if kind == b"S":
            self._describe_statement(self._worker.prepared.named(name))
            return
        if name in self._worker.cursors:  # cursors of SQL and portals share their names
            self._write_heads(self._worker.cursors[name].table.heads, [])
            return
        portal = self._portal(name)
        self._worker.transaction.check(portal.command)
        heads = self._columns(portal)
        self._write_heads(heads, portal.formats)

    def _describe_statement(self, statement: Prepared) -> None:
        command, oids = statement.command, list(statement.oids)
        self._worker.transaction.check(command)
        heads: tuple[FieldDescription, ...] | None = None
        if command is not None and command.kind == "twin":
            oids, found = self._worker.asker.ask_twin(
                lambda twin: twin.describe(statement.text, oids)
            )
            heads = found or None
        elif command is not None:
            text = sample(statement.text, len(oids)) if oids else statement.text
            (fragment,) = split_statements(text)
            heads = self._columns(Portal(self._worker.asker.route(fragment), text))
        self._wire.write(parameter_description(oids))
        self._write_heads(heads, [])

    def _write_heads(
        self, heads: tuple[FieldDescription, ...] | None, formats: Sequence[int]
    ) -> None:
        self._wire.write(NO_DATA if heads is None else row_description(formatted(heads, formats)))

    def _columns(self, portal: Portal) -> tuple[FieldDescription, ...] | None:
        """The columns of a portal that need not have been asked."""
        command = portal.command
        if command is None:
            return None
        if command.kind == "ask":
            heads, portal.reply = self._worker.asker.columns(command, portal.text)
            return heads
        if command.kind == "show":
            portal.reply = self._worker.asker.show(command)
            return None if portal.reply.table is None else portal.reply.table.heads
        if command.kind == "fetch" and command.tag == "FETCH":
            return self._worker.cursors.named(command.name).table.heads
        if command.kind == "twin":
            self._run_twin(portal)
            return (
                None
                if portal.reply is None or portal.reply.table is None
                else portal.reply.table.heads
            )
        return None

    def _run_twin(self, portal: Portal) -> None:
        values, oids, formats = portal.twin
        table, tag = self._worker.asker.ask_twin(
            lambda twin: twin.run(portal.text, values, oids, formats, portal.formats)
        )
        portal.reply = Reply(tag, table)

    def _execute(self, fields: Fields) -> None:
        portal, most = self._portal(fields.text()), fields.long()
        fields.end()
        if portal.command is None:
            self._wire.write(EMPTY_QUERY)
            return
        self._worker.transaction.check(portal.command)
        if portal.rows is None:
            self._start(portal)
        reply = portal.reply
        assert reply is not None
        if reply.table is None:
            if reply.tag:
                self._wire.write(complete(reply.said(0)))
            return
        assert portal.rows is not None
        count = 0
        for row in itertools.islice(portal.rows, most if most > 0 else None):
            self._wire.write(data_row(row))
            count += 1
        portal.sent += count
        if most > 0 and count == most and portal.sent < len(reply.table):
            self._wire.write(SUSPENDED)
        else:
            self._wire.write(complete(reply.said(count)))

    def _start(self, portal: Portal) -> None:
        assert portal.command is not None
        if portal.reply is None:
            if portal.command.kind == "twin":
                self._run_twin(portal)
            else:
                portal.reply = self._worker.carry_out(portal.command, portal.text, portal.formats)
        reply = portal.reply
        assert reply is not None
        for notice in reply.notices:
            self._worker.tell(notice)
        portal.rows = iter(()) if reply.table is None else reply.table.rows(portal.formats)


def _value(fields: Fields) -> bytes | None:
    length = fields.long()
    return None if length == -1 else fields.take(length)
