"""Values on the wire: PostgreSQL's types by number, in text and in binary.

Source: the PostgreSQL manual, ``pg_type``, and the send and receive functions of each type.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from dpsql.records import dataclass
from dpsql.server.messages import BINARY, ProtocolError, utf8

UNKNOWN, TEXT_TYPE = 705, 25
_EPOCH = dt.date(2000, 1, 1)
_MIDNIGHT = dt.datetime(2000, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_DAY = 86_400 * 10**6


class BadValue(Exception):
    """A value that its type does not have; ``state`` is an SQLSTATE."""

    def __init__(self, message: str, state: str = "22P02") -> None:
        super().__init__(message)
        self.state = state


@dataclass(frozen=True, slots=True)
class WireType:
    """A type: its number, its size in bytes (-1 where that varies), and how values are written."""

    oid: int
    size: int
    text: Callable[[Any], str]
    binary: Callable[[Any], bytes]


def number_text(value: float) -> str:
    """A double as PostgreSQL writes it: whole numbers without a point.

    >>> number_text(26446.0), number_text(0.1), number_text(1e300)
    ('26446', '0.1', '1e+300')
    """
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value) if math.isfinite(value) else _NOT_FINITE[repr(value)]


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _timestamp(value: dt.datetime) -> bytes:
    return struct.pack("!q", (value.replace(tzinfo=None) - _MIDNIGHT) // _MICROSECOND)


def _whole(value: Any) -> bytes:
    try:
        return struct.pack("!q", int(value))
    except struct.error:
        raise BadValue("bigint out of range", "22003") from None


def _time(value: dt.time) -> bytes:
    since = dt.datetime.combine(dt.date.min, value) - dt.datetime.min
    return struct.pack("!q", since // _MICROSECOND)


TYPES = {
    "boolean": WireType(16, 1, lambda v: "t" if v else "f", lambda v: b"\1" if v else b"\0"),
    "integer": WireType(20, 8, lambda v: str(int(v)), _whole),
    "number": WireType(
        701, 8, lambda v: number_text(float(v)), lambda v: struct.pack("!d", float(v))
    ),
    "text": WireType(TEXT_TYPE, -1, str, lambda v: str(v).encode()),
    "date": WireType(
        1082, 4, lambda v: v.isoformat(), lambda v: struct.pack("!i", (v - _EPOCH).days)
    ),
    "timestamp": WireType(1114, 8, lambda v: v.isoformat(sep=" "), _timestamp),
    "time": WireType(1083, 8, lambda v: v.isoformat(), _time),
}
"""By the names that results have for types; any other is text."""


def wire_type(kind: str) -> WireType:
    """The type of a result's column."""
    return TYPES.get(kind, TYPES["text"])


def encode(value: Any, kind: WireType, format_: int) -> bytes | None:
    """A value in text or binary; None for NULL. Raises: BadValue."""
    if value is None:
        return None
    return kind.binary(value) if format_ == BINARY else kind.text(value).encode()


def decode(data: bytes | None, oid: int, format_: int) -> Any:
    """A parameter as a Python value, which has a literal in SQL.

    Raises: BadValue for what the type does not have; ProtocolError for text that is none.
    """
    if data is None:
        return None
    if format_ == BINARY:
        return _decode_binary(data, oid)
    text = utf8(data)
    if "\0" in text:
        raise ProtocolError('invalid byte sequence for encoding "UTF8": 0x00', "22021")
    read = _READERS.get(oid)
    if read is None:
        return text
    try:
        return read(text.strip())
    except (ValueError, InvalidOperation, OverflowError):
        raise BadValue(f"invalid input syntax for a parameter of type {oid}") from None


def _decode_binary(data: bytes, oid: int) -> Any:
    layout = _LAYOUTS.get(oid)
    try:
        if layout is not None:
            (value,) = struct.unpack(layout, data)
            return value
        if oid == 1082:
            return _EPOCH + dt.timedelta(days=struct.unpack("!i", data)[0])
        if oid == 1083:
            return _time_of(struct.unpack("!q", data)[0])
        if oid in (1114, 1184):
            return _MIDNIGHT + _MICROSECOND * struct.unpack("!q", data)[0]
        if oid == 1700:
            return _numeric(data)
    except (struct.error, OverflowError, ValueError):
        raise BadValue("incorrect binary data format in a parameter", "22P03") from None
    if oid in _TEXTS:
        text = utf8(data)
        if "\0" in text:
            raise ProtocolError('invalid byte sequence for encoding "UTF8": 0x00', "22021")
        return text
    raise BadValue(f"a binary parameter of type {oid} is not supported", "0A000")


def _numeric(data: bytes) -> Decimal:
    """NUMERIC: a count of digits to the base 10,000, the weight of the first, sign, and scale."""
    count, weight, sign, scale = struct.unpack("!HhHH", data[:8])
    digits = struct.unpack(f"!{count}H", data[8:])
    if sign not in (0, 0x4000) or any(d > 9999 for d in digits) or scale > 1000:
        raise ValueError
    whole = 0
    for digit in digits:
        whole = whole * 10_000 + digit
    found = Decimal(whole).scaleb(4 * (weight - count + 1)) if whole else Decimal(0)
    return -found if sign else found


def _time_of(since: int) -> dt.time | str:
    """A time of day by its microseconds; Python has none for the end of a day."""
    if not 0 <= since <= _DAY:
        raise ValueError
    return "24:00:00" if since == _DAY else (_MIDNIGHT + _MICROSECOND * since).time()


def _instant(text: str) -> dt.datetime:
    """A TIMESTAMPTZ on the clock of the session, which is UTC, as it comes in binary."""
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo is None else found.astimezone(dt.UTC).replace(tzinfo=None)


def _clock(text: str) -> dt.datetime:
    """A TIMESTAMP, to which a zone means nothing."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=None)


def _boolean(text: str) -> bool:
    found = text.lower()
    if found in ("t", "true", "y", "yes", "on", "1"):
        return True
    if found in ("f", "false", "n", "no", "off", "0"):
        return False
    raise ValueError


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


_LAYOUTS = {16: "!?", 20: "!q", 21: "!h", 23: "!i", 26: "!I", 700: "!f", 701: "!d"}
_TEXTS = frozenset({0, 18, 19, TEXT_TYPE, UNKNOWN, 1042, 1043})
_READERS: dict[int, Callable[[str], Any]] = {
    16: _boolean,
    20: int,
    21: int,
    23: int,
    26: int,
    700: _finite,
    701: _finite,
    1082: dt.date.fromisoformat,
    1083: lambda text: text if text == "24:00:00" else dt.time.fromisoformat(text),
    1114: _clock,
    1184: _instant,
    1700: Decimal,
}


def copy_text(data: bytes | None) -> bytes:
    """A value of a row of COPY in text format."""
    if data is None:
        return rb"\N"
    for plain, written in ((b"\\", rb"\\"), (b"\t", rb"\t"), (b"\n", rb"\n"), (b"\r", rb"\r")):
        data = data.replace(plain, written)
    return data


def copy_csv(data: bytes | None) -> bytes:
    """A value of a row of COPY in CSV format."""
    if data is None:
        return b""
    if data == b"" or any(mark in data for mark in b',"\n\r'):
        return b'"' + data.replace(b'"', b'""') + b'"'
    return data


COPY_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
COPY_TRAILER = struct.pack("!h", -1)


def copy_binary(values: list[bytes | None]) -> bytes:
    """A row of COPY in binary format."""
    parts = [struct.pack("!h", len(values))]
    for value in values:
        parts.append(
            struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
        )
    return b"".join(parts)
