"""A session: the messages of one client, simple and extended, in the order of the protocol."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dpsql.errors import Error, Interrupted, NotSupportedError, ProgrammingError
from dpsql.server.asking import Asker, Reply
from dpsql.server.messages import (
    BIND_COMPLETE,
    CLOSE_COMPLETE,
    COPY_DONE,
    EMPTY_QUERY,
    NO_DATA,
    PARSE_COMPLETE,
    SUSPENDED,
    Column,
    Fields,
    Message,
    ProtocolError,
    Told,
    complete,
    copy_out,
    data_row,
    message,
    parameter_description,
    parameter_status,
    read_message,
    ready,
    row_description,
)
from dpsql.server.parameters import bind, sample, types_of
from dpsql.server.route import Order, blank_but
from dpsql.server.sqlstates import DEFECT, tell, tell_cancelled
from dpsql.server.table import Table, spread
from dpsql.server.twin import TwinError
from dpsql.server.values import (
    COPY_SIGNATURE,
    COPY_TRAILER,
    BadValue,
    copy_binary,
    copy_csv,
    copy_text,
    decode,
)
from dpsql.server.wire import Wire
from dpsql.sql.lexemes import Fragment, split_statements

MOST_BYTES = 4 << 20
"""Bytes of one message: the longest script, and its parameters."""
MOST_KEPT = 1000
"""Prepared statements, portals and cursors of one session, each."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that was parsed, None for an empty one, and the types of its parameters."""

    text: str
    order: Order | None
    oids: tuple[int, ...]


@dataclass(slots=True)
class Portal:
    """A statement with its parameters; ``reply`` is there once it was asked."""

    order: Order | None
    text: str
    formats: list[int] = field(default_factory=list)
    twin: tuple[Sequence[bytes | None], Sequence[int], Sequence[int]] = ((), (), ())
    reply: Reply | None = None
    rows: Iterator[list[bytes | None]] | None = None
    sent: int = 0


@dataclass(slots=True)
class Cursor:
    """What DECLARE has asked, and how far FETCH has come."""

    table: Table
    at: int = 0


class Session:
    """Serves one client until it leaves."""

    def __init__(self, wire: Wire, asker: Asker) -> None:
        self._wire = wire
        self._asker = asker
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._cursors: dict[str, Cursor] = {}
        self._state = b"I"
        self._skipping = False
        self._text = ""

    def run(self) -> None:
        """Answer message after message. Raises: Hangup."""
        self._wire.write(ready(self._state))
        while True:
            self._wire.flush()
            try:
                found = read_message(self._wire, MOST_BYTES)
            except ProtocolError as error:  # where the next message begins is not known
                self._tell(Told("FATAL", error.state, str(error)))
                return
            if found.kind == b"X":
                return
            self._serve(found)

    def _serve(self, found: Message) -> None:
        if found.kind == b"S":
            self._skipping = False
            self._portals.pop("", None)
            self._wire.write(ready(self._state))
        elif found.kind == b"Q":
            self._skipping = False
            self._guarded(lambda: self._simple(found))
            self._wire.write(ready(self._state))
        elif not self._skipping and found.kind not in (b"H", b"d", b"c", b"f"):
            self._skipping = not self._guarded(lambda: self._extended(found))

    def _guarded(self, work: Callable[[], None]) -> bool:
        """Do something; whatever goes wrong is told. Says whether nothing did."""
        try:
            work()
            return True
        except Interrupted as error:
            told = tell_cancelled(error)
        except KeyboardInterrupt:
            told = tell_cancelled(Interrupted())
        except Error as error:
            told = tell(error, self._text)
        except TwinError as error:
            told = Told("ERROR", error.state, error.text, error.detail, error.hint, error.position)
        except (BadValue, ProtocolError) as error:
            told = Told("ERROR", error.state, str(error))
        except (
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ):
            told = Told("ERROR", DEFECT, "a defect of the server; nothing more is known")
        self._tell(told)
        if self._state == b"T":
            self._state = b"E"
        return False

    def _tell(self, told: Told) -> None:
        self._wire.write(told.encode())

    # The simple protocol: a script, of which all SELECTs are one workload.

    def _simple(self, found: Message) -> None:
        fields = Fields(found.body)
        text = fields.text()
        fields.end()
        self._text = text
        orders = [self._route(fragment) for fragment in split_statements(text)]
        if not orders:
            self._wire.write(EMPTY_QUERY)
        asked = [order for order in orders if order.kind == "ask"]
        replies: Iterator[Reply] | None = None
        for order in orders:
            self._check_state(order)
            if order.kind != "ask":
                self._send(self._carry_out(order, order.fragment.text), [])
                continue
            if replies is None:
                replies = iter(self._asker.ask(text, asked))
            for reply in itertools.islice(replies, 1):
                self._send(reply, [])
        for reply in replies or ():
            self._send(reply, [])

    def _route(self, fragment: Fragment) -> Order:
        return self._asker.route(fragment)

    def _check_state(self, order: Order) -> None:
        if self._state == b"E" and order.kind not in ("commit", "rollback"):
            text = "current transaction is aborted, commands ignored until end of transaction block"
            raise ProtocolError(text, "25P02")

    def _carry_out(self, order: Order, text: str, formats: Sequence[int] = ()) -> Reply:
        """The reply to an order of any kind but COPY. Raises: Error and others."""
        match order.kind:
            case "ask":
                (reply,) = self._asker.ask(text, [order])
                return reply
            case "twin":
                table, tag = self._asker.twin.run(blank_but(text, [order.fragment]), wanted=formats)
                return Reply(tag, table)
            case "set":
                return self._set(order)
            case "begin":
                self._state = b"T"
            case "commit" | "rollback":
                failed, self._state = self._state == b"E", b"I"
                self._cursors.clear()
                return Reply("ROLLBACK" if failed else order.tag)
            case "declare":
                self._declare(order)
            case "fetch":
                return self._fetch(order)
            case "close":
                self._close_cursor(order.name)
            case "copy":
                self._copy(order)
                return Reply("")
        return Reply(order.tag)

    def _set(self, order: Order) -> Reply:
        if order.name == "client_encoding" and order.words:
            if order.words[0].lower().replace("-", "") not in ("utf8", "unicode", "sql_ascii"):
                what = f'invalid value for parameter "client_encoding": "{order.words[0]}"'
                raise BadValue(what, "22023")
        elif order.name == "application_name":
            self._wire.write(parameter_status("application_name", " ".join(order.words)[:63]))
        return self._asker.set(order)

    def _send(self, reply: Reply, formats: Sequence[int], described: bool = False) -> None:
        """Send all of a reply."""
        for notice in reply.notices:
            self._tell(notice)
        table = reply.table
        if table is not None:
            if not described:
                self._wire.write(row_description(_formatted(table.heads, formats)))
            for row in table.rows(formats):
                self._wire.write(data_row(row))
        if reply.tag:
            self._wire.write(complete(reply.said(0 if table is None else len(table))))

    # Cursors of SQL, and COPY.

    def _declare(self, order: Order) -> None:
        if order.name in self._cursors:
            raise BadValue(f'cursor "{order.name}" already exists', "42P03")
        if len(self._cursors) >= MOST_KEPT:
            raise BadValue("too many cursors", "53000")
        (fragment,) = split_statements(order.inner)
        inner = self._route(fragment)
        reply = self._carry_out(inner, order.inner)
        for notice in reply.notices:
            self._tell(notice)
        if reply.table is None:
            raise BadValue("a cursor is of a SELECT", "42601")
        self._cursors[order.name] = Cursor(reply.table)

    def _fetch(self, order: Order) -> Reply:
        cursor = self._cursor(order.name)
        left = len(cursor.table) - cursor.at
        taken = left if order.number is None else min(order.number, left)
        start, cursor.at = cursor.at, cursor.at + taken
        if order.tag == "MOVE":
            return Reply(f"MOVE {taken}")
        return Reply("FETCH", _Part(cursor.table, start, taken), counted=True)

    def _cursor(self, name: str) -> Cursor:
        if name not in self._cursors:
            raise BadValue(f'cursor "{name}" does not exist', "34000")
        return self._cursors[name]

    def _close_cursor(self, name: str) -> None:
        if name.lower() == "all":
            self._cursors.clear()
        else:
            self._cursor(name)
            del self._cursors[name]

    def _copy(self, order: Order) -> None:
        """COPY (SELECT ...) TO STDOUT, as text, CSV or binary."""
        (fragment,) = split_statements(order.inner)
        options = order.name.replace("format", "").replace(",", " ").split()
        kind = next((each for each in ("binary", "csv") if each in options), "text")
        if set(options) - {"binary", "csv", "text", "header", "true", "on"}:
            what = f"COPY with {order.name}"
            raise NotSupportedError("E_STATEMENT", what, hint="FORMAT text, csv (HEADER) or binary")
        formats = [int(kind == "binary")]
        reply = self._carry_out(self._route(fragment), order.inner, formats)
        table = reply.table
        if table is None:
            raise ProgrammingError("E_STATEMENT", "only a SELECT can be copied")
        for notice in reply.notices:
            self._tell(notice)
        self._wire.write(copy_out(formats * len(table.heads)))
        lines = _copied(table, kind, "header" in options)
        for line in lines:
            self._wire.write(message(b"d", line))
        self._wire.write(COPY_DONE)
        self._wire.write(complete(f"COPY {len(table)}"))

    # The extended protocol: parse, bind, describe, execute.

    def _extended(self, found: Message) -> None:
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
                (self._prepared if kind == b"S" else self._portals).pop(name, None)
                self._wire.write(CLOSE_COMPLETE)
            case b"F":
                raise ProtocolError("function calls are not supported", "0A000")
            case _:
                raise ProtocolError(f"invalid frontend message type {found.kind[0]}")

    def _parse(self, fields: Fields) -> None:
        name, text = fields.text(), fields.text()
        self._text = text
        oids = [fields.long() & 0xFFFFFFFF for _ in range(fields.count())]
        fields.end()
        if name in self._prepared and name:
            raise BadValue(f'prepared statement "{name}" already exists', "42P05")
        if len(self._prepared) >= MOST_KEPT:
            raise BadValue("too many prepared statements", "53000")
        fragments = split_statements(text)
        if len(fragments) > 1:
            what = "cannot insert multiple commands into a prepared statement"
            raise BadValue(what, "42601")
        order = self._route(fragments[0]) if fragments else None
        if order is not None and order.kind == "ask":
            oids = types_of(text, oids, self._asker.connection.known)
        self._prepared[name] = Prepared(text, order, tuple(oids))
        self._wire.write(PARSE_COMPLETE)

    def _bind(self, fields: Fields) -> None:
        portal, name = fields.text(), fields.text()
        codes = [fields.short() for _ in range(fields.count())]
        values = [_value(fields) for _ in range(fields.count())]
        wanted = [fields.short() for _ in range(fields.count())]
        fields.end()
        statement = self._find(name)
        self._text = statement.text
        if portal in self._portals and portal:
            raise BadValue(f'cursor "{portal}" already exists', "42P03")
        if len(self._portals) >= MOST_KEPT:
            raise BadValue("too many portals", "53000")
        order = statement.order
        formats = spread(codes, len(values))
        found = Portal(order, statement.text, wanted, (values, statement.oids, formats))
        if order is not None and order.kind != "twin":
            if len(values) != len(statement.oids):
                what = f"{len(values)} parameters for a statement of {len(statement.oids)}"
                raise ProtocolError(f"bind message supplies {what}")
            decoded = map(decode, values, statement.oids, formats)
            found.text = bind(statement.text, list(decoded))
            if values:
                (fragment,) = split_statements(found.text)
                found.order = self._route(fragment)
        self._portals[portal] = found
        self._wire.write(BIND_COMPLETE)

    def _find(self, name: str) -> Prepared:
        if name not in self._prepared:
            raise BadValue(f'prepared statement "{name}" does not exist', "26000")
        return self._prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise BadValue(f'portal "{name}" does not exist', "34000")
        return self._portals[name]

    def _describe(self, fields: Fields) -> None:
        kind, name = fields.byte(), fields.text()
        fields.end()
        if kind == b"S":
            self._describe_statement(self._find(name))
            return
        if name in self._cursors:  # cursors of SQL and portals share their names
            self._write_heads(self._cursors[name].table.heads, [])
            return
        portal = self._portal(name)
        heads = self._columns(portal)
        self._write_heads(heads, portal.formats)

    def _describe_statement(self, statement: Prepared) -> None:
        order, oids = statement.order, list(statement.oids)
        heads: tuple[Column, ...] | None = None
        if order is not None and order.kind == "twin":
            oids, found = self._asker.twin.describe(statement.text, oids)
            heads = found or None
        elif order is not None:
            text = sample(statement.text, len(oids)) if oids else statement.text
            (fragment,) = split_statements(text)
            heads = self._columns(Portal(self._route(fragment), text))
        self._wire.write(parameter_description(oids))
        self._write_heads(heads, [])

    def _write_heads(self, heads: tuple[Column, ...] | None, formats: Sequence[int]) -> None:
        self._wire.write(NO_DATA if heads is None else row_description(_formatted(heads, formats)))

    def _columns(self, portal: Portal) -> tuple[Column, ...] | None:
        """The columns of a portal that need not have been asked."""
        order = portal.order
        if order is None:
            return None
        if order.kind == "ask":
            heads, portal.reply = self._asker.columns(order, portal.text)
            return heads
        if order.kind == "fetch" and order.tag == "FETCH":
            return self._cursor(order.name).table.heads
        if order.kind == "twin":
            self._run_twin(portal)
            return (
                None
                if portal.reply is None or portal.reply.table is None
                else portal.reply.table.heads
            )
        return None

    def _run_twin(self, portal: Portal) -> None:
        values, oids, formats = portal.twin
        table, tag = self._asker.twin.run(portal.text, values, oids, formats, portal.formats)
        portal.reply = Reply(tag, table)

    def _execute(self, fields: Fields) -> None:
        portal, most = self._portal(fields.text()), fields.long()
        fields.end()
        if portal.order is None:
            self._wire.write(EMPTY_QUERY)
            return
        self._check_state(portal.order)
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
        assert portal.order is not None
        if portal.reply is None:
            if portal.order.kind == "twin":
                self._run_twin(portal)
            else:
                portal.reply = self._carry_out(portal.order, portal.text, portal.formats)
        reply = portal.reply
        assert reply is not None
        for notice in reply.notices:
            self._tell(notice)
        portal.rows = iter(()) if reply.table is None else reply.table.rows(portal.formats)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows of a table."""

    table: Table
    start: int
    count: int

    @property
    def heads(self) -> tuple[Column, ...]:
        return self.table.heads

    def __len__(self) -> int:
        return self.count

    def rows(self, formats: Sequence[int]) -> Iterator[list[bytes | None]]:
        return itertools.islice(self.table.rows(formats), self.start, self.start + self.count)


def _value(fields: Fields) -> bytes | None:
    length = fields.long()
    return None if length == -1 else fields.take(length)


def _formatted(heads: Sequence[Column], formats: Sequence[int]) -> list[Column]:
    wanted = spread(formats, len(heads))
    return [
        Column(head.name, head.oid, head.size, each)
        for head, each in zip(heads, wanted, strict=True)
    ]


def _copied(table: Table, kind: str, header: bool) -> Iterator[bytes]:
    """The rows of a table as COPY sends them; a binary header goes with the first row."""
    if kind == "binary":
        begin = COPY_SIGNATURE
        for row in table.rows([1]):
            yield begin + copy_binary(row)
            begin = b""
        yield begin + COPY_TRAILER
        return
    write, mark = (copy_csv, b",") if kind == "csv" else (copy_text, b"\t")
    if header:
        yield mark.join(write(head.name.encode()) for head in table.heads) + b"\n"
    for row in table.rows([]):
        yield mark.join(map(write, row)) + b"\n"
