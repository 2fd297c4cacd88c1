"""Messages of PostgreSQL's protocol, version 3: frames that come in, and bytes that go out.

Bytes: the PostgreSQL manual, chapter "Frontend/Backend Protocol".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from dpsql.errors import printable_lines
from dpsql.records import dataclass

# 1234 in the upper half, where a version would stand: no version of the protocol is that.
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
MOST_STARTUP = 10_000
"""Bytes of a first message, as in PostgreSQL."""
MOST_SECRET = 10_000
"""Bytes of a message before somebody has signed in."""
TEXT, BINARY = 0, 1


class ProtocolError(Exception):
    """An error of the protocol: no message, or one out of turn; ``state`` is an SQLSTATE."""

    def __init__(self, message: str, state: str = "08P01") -> None:
        super().__init__(message)
        self.state = state


class Hangup(Exception):
    """The other side is gone."""


class ByteSource(Protocol):
    """A source of bytes."""

    def read(self, count: int) -> bytes:
        """Exactly that many bytes. Raises: Hangup."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a client: a letter, and a body that is taken apart from the left."""

    kind: bytes
    body: bytes


def read_startup(source: ByteSource) -> tuple[int, bytes]:
    """The number that a first message begins with, and its rest. Raises: ProtocolError, Hangup."""
    (length,) = struct.unpack("!i", source.read(4))
    if not 8 <= length <= MOST_STARTUP:
        raise ProtocolError("invalid length of startup packet")
    body = source.read(length - 4)
    return struct.unpack("!i", body[:4])[0], body[4:]


def read_message(source: ByteSource, most: int) -> Message:
    """The next message. Raises: ProtocolError for one of more than ``most`` bytes; Hangup."""
    kind = source.read(1)
    (length,) = struct.unpack("!i", source.read(4))
    if length < 4:
        raise ProtocolError("invalid message length")
    if length - 4 > most:
        raise ProtocolError(f"a message of over {most} bytes", "54000")
    return Message(kind, source.read(length - 4))


class Fields:
    """The body of a message, from the left."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next bytes. Raises: ProtocolError."""
        if count < 0 or self._at + count > len(self._body):
            raise ProtocolError("insufficient data left in message")
        self._at += count
        return self._body[self._at - count : self._at]

    def byte(self) -> bytes:
        """The next byte. Raises: ProtocolError."""
        return self.take(1)

    def short(self) -> int:
        """The next signed number of 16 bits. Raises: ProtocolError."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def count(self) -> int:
        """The next number of 16 bits, as a count. Raises: ProtocolError."""
        return int.from_bytes(self.take(2), "big")

    def long(self) -> int:
        """The next signed number of 32 bits. Raises: ProtocolError."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def text(self) -> str:
        """The next text, which a zero byte ends. Raises: ProtocolError."""
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("invalid string in message")
        found = self.take(end - self._at)
        self._at += 1
        return utf8(found)

    def rest(self) -> bytes:
        """Return the bytes that are left."""
        return self.take(len(self._body) - self._at)

    def end(self) -> None:
        """Refuse what is left. Raises: ProtocolError."""
        if self._at != len(self._body):
            raise ProtocolError("invalid message format")


def utf8(data: bytes) -> str:
    """Bytes as text. Raises: ProtocolError (22021)."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtocolError('invalid byte sequence for encoding "UTF8"', "22021") from None


def parse_options(body: bytes) -> dict[str, str]:
    """The parameters of a startup message. Raises: ProtocolError."""
    fields, found = Fields(body), {}
    while name := fields.text():
        found[name] = fields.text()
    return found


def message(kind: bytes, body: bytes = b"") -> bytes:
    """One message of the server."""
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(text: str) -> bytes:
    return text.replace("\0", "").encode() + b"\0"


def authentication(code: int, body: bytes = b"") -> bytes:
    """AuthenticationOk (0), SASL (10), SASLContinue (11), SASLFinal (12)."""
    return message(b"R", struct.pack("!i", code) + body)


def parameter_status(name: str, value: str) -> bytes:
    """The value of a parameter of the session."""
    return message(b"S", _text(name) + _text(value))


def backend_key(process: int, secret: int) -> bytes:
    """Encode the key that a cancel request has to name."""
    return message(b"K", struct.pack("!iI", process, secret))


def ready(in_transaction: bytes) -> bytes:
    """Ready for a query: idle ``I``, in a transaction ``T``, in one that has failed ``E``."""
    return message(b"Z", in_transaction)


@dataclass(frozen=True, slots=True)
class Notice:
    """An error or a notice: severity, SQLSTATE, text, and what may be said beside it."""

    severity: str
    state: str
    text: str
    detail: str = ""
    hint: str = ""
    position: int = 0

    def encode(self) -> bytes:
        """The message: ``E`` for an error, ``N`` for a notice."""
        fields: Mapping[bytes, str] = {
            b"S": self.severity,
            b"V": self.severity,
            b"C": self.state,
            b"M": self.text,
            b"D": self.detail,
            b"H": self.hint,
            b"P": str(self.position) if self.position else "",
        }
        said = {key: printable_lines(text) for key, text in fields.items() if text}
        body = b"".join(key + _text(text) for key, text in said.items())
        kind = b"E" if self.severity in ("ERROR", "FATAL") else b"N"
        return message(kind, body + b"\0")


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """A column of a result: its name, the number of its type, and the size of that in bytes."""

    name: str
    oid: int
    size: int
    format: int = TEXT


def row_description(columns: Sequence[FieldDescription]) -> bytes:
    """Encode the columns of a result."""
    parts = [struct.pack("!H", len(columns))]
    for column in columns:
        facts = struct.pack("!ihihih", 0, 0, column.oid, column.size, -1, column.format)
        parts.append(_text(column.name) + facts)
    return message(b"T", b"".join(parts))


def parameter_description(oids: Sequence[int]) -> bytes:
    """Encode the types of the parameters of a statement."""
    return message(b"t", struct.pack(f"!H{len(oids)}I", len(oids), *oids))


def data_row(values: Iterable[bytes | None]) -> bytes:
    """One row."""
    parts = [b""]
    for value in values:
        parts.append(
            b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value
        )
    parts[0] = struct.pack("!H", len(parts) - 1)
    return message(b"D", b"".join(parts))


def complete(tag: str) -> bytes:
    """A statement is done."""
    return message(b"C", _text(tag))


def copy_out(formats: Sequence[int]) -> bytes:
    """Rows follow as a stream."""
    overall = BINARY if BINARY in formats else TEXT
    return message(b"H", struct.pack(f"!bH{len(formats)}H", overall, len(formats), *formats))


PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
SUSPENDED = message(b"s")
COPY_DONE = message(b"c")
