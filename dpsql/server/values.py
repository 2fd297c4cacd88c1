"""Values on the wire: PostgreSQL's types by number, in text and in binary.

Source: the PostgreSQL manual, ``pg_type``, and the send and receive functions of each type.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from dpsql.records import dataclass
from dpsql.server.messages import BINARY, TEXT, ProtocolError, utf8

# Numbers of types are those of PostgreSQL's pg_type, which clients have built in.
UNKNOWN, TEXT_TYPE = 705, 25
# In binary, PostgreSQL counts days and microseconds from here.
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
    """A double as PostgreSQL writes it: whole numbers without a point, an exponent from 1e15 up.

    >>> number_text(26446.0), number_text(0.1), number_text(1e15), number_text(1e300)
    ('26446', '0.1', '1e+15', '1e+300')
    """
    if not math.isfinite(value):
        return _NOT_FINITE[repr(value)]
    if 1e15 <= abs(value) < 1e16:  # Python writes these without an exponent
        return f"{Decimal(repr(value)).normalize():e}"
    return repr(value).removesuffix(".0")


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
"""Types of PostgreSQL by those of results; any other is text."""


def _integer(oid: int, layout: str) -> WireType:
    def packed(value: Any) -> bytes:
        try:
            return struct.pack(layout, int(value))
        except struct.error:
            raise BadValue("integer out of range", "22003") from None

    return WireType(oid, struct.calcsize(layout), lambda v: str(int(v)), packed)


def _numeric_text(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else number_text(float(value))


def _packed_numeric(value: Any) -> bytes:
    """A NUMERIC in binary: see ``_numeric``."""
    sign, digits, exponent = Decimal(_numeric_text(value)).as_tuple()
    scale = max(0, -int(exponent))
    text = "".join(map(str, digits)) + "0" * max(0, int(exponent))
    text = text.rjust(scale + 1, "0")
    whole, part = text[: len(text) - scale], text[len(text) - scale :]
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    part = part.ljust(-(-len(part) // 4) * 4, "0")
    groups = [int((whole + part)[at : at + 4]) for at in range(0, len(whole + part), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups, weight = groups[1:], weight - 1
    while groups and groups[-1] == 0:
        groups.pop()
    # Groups of four digits, as PostgreSQL sends numeric; 0x4000 is its minus.
    head = (len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale)
    return struct.pack(f"!HhHH{len(groups)}H", *head, *groups)


def _as_timestamp(value: dt.date) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    return dt.datetime.combine(value, dt.time())


def _timestamp_text(value: dt.date) -> str:
    return _as_timestamp(value).replace(tzinfo=None).isoformat(sep=" ")


def _timestamp_type(oid: int, zone: str) -> WireType:
    return WireType(
        oid, 8, lambda v: _timestamp_text(v) + zone, lambda v: _timestamp(_as_timestamp(v))
    )


POSTGRES = {
    "bool": TYPES["boolean"],
    "int2": _integer(21, "!h"),
    "int4": _integer(23, "!i"),
    "int8": TYPES["integer"],
    "float4": WireType(700, 4, TYPES["number"].text, lambda v: struct.pack("!f", float(v))),
    "float8": TYPES["number"],
    "numeric": WireType(1700, -1, _numeric_text, _packed_numeric),
    "text": TYPES["text"],
    "unknown": TYPES["text"],
    "varchar": WireType(1043, -1, TYPES["text"].text, TYPES["text"].binary),
    "interval": TYPES["text"],
    "date": WireType(
        1082,
        4,
        lambda v: _as_timestamp(v).date().isoformat(),
        lambda v: struct.pack("!i", (_as_timestamp(v).date() - _EPOCH).days),
    ),
    "timestamp": _timestamp_type(1114, ""),
    "timestamptz": _timestamp_type(1184, "+00"),
    "time": TYPES["time"],
}
"""Types of PostgreSQL by its own names; the zone of every session is UTC."""
_ARRAYS = {
    "bool": 1000,
    "int2": 1005,
    "int4": 1007,
    "int8": 1016,
    "float4": 1021,
    "float8": 1022,
    "numeric": 1231,
    "text": 1009,
    "varchar": 1015,
    "date": 1182,
    "timestamp": 1115,
    "timestamptz": 1185,
    "time": 1183,
}
ARRAYS = {POSTGRES[of].oid: oid for of, oid in _ARRAYS.items()}
"""Array types by the types of their elements."""
_ELEMENTS = {oid: of for of, oid in ARRAYS.items()}
_BARE = re.compile(r"[^\s{},\"\\]+")


def _array_type(of: str) -> WireType:
    inner = POSTGRES[of]

    def text(values: Any) -> str:
        return (
            "{" + ",".join("NULL" if v is None else _element(inner.text(v)) for v in values) + "}"
        )

    def packed(values: Any) -> bytes:
        listed = list(values)
        has_null = any(each is None for each in listed)
        parts = [struct.pack("!iiI", int(bool(listed)), int(has_null), inner.oid)]
        parts += [struct.pack("!ii", len(listed), 1)] if listed else []
        for each in listed:
            data = b"" if each is None else inner.binary(each)
            parts += [struct.pack("!i", -1 if each is None else len(data)), data]
        return b"".join(parts)

    return WireType(_ARRAYS[of], -1, text, packed)


def _element(text: str) -> str:
    """A value in the text of an array."""
    if _BARE.fullmatch(text) and text.upper() != "NULL":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


POSTGRES |= {f"{of}[]": _array_type(of) for of in _ARRAYS}


def wire_type(kind: str, name: str | None = None) -> WireType:
    """The type of a result's column; PostgreSQL's own of that name, where it is known."""
    found = None if name is None else POSTGRES.get(name)
    return found or TYPES.get(kind, TYPES["text"])


def encode(value: Any, kind: WireType, format_: int) -> bytes | None:
    """A value in text or binary; None for NULL. Raises: BadValue.

    Args:
        value: of a type that the column can have; None for NULL.
        kind: type in PostgreSQL's protocol.
        format_: TEXT or BINARY.
    """
    if value is None:
        return None
    return kind.binary(value) if format_ == BINARY else kind.text(value).encode()


def decode(data: bytes | None, oid: int, format_: int) -> Any:
    """A parameter as a Python value, which has a literal in SQL.

    Args:
        data: bytes of a Bind message, None for NULL.
        oid: declared type; one that is not known is read as text.
        format_: TEXT or BINARY.

    Raises: BadValue for what the type does not have; ProtocolError for text that is none.
    """
    if data is None:
        return None
    if format_ == BINARY:
        return _binary_list(data) if oid in _ELEMENTS else _decode_binary(data, oid)
    text = utf8(data)
    if "\0" in text:
        raise ProtocolError('invalid byte sequence for encoding "UTF8": 0x00', "22021")
    if oid in _ELEMENTS:
        return _list_of(text, _ELEMENTS[oid])
    read = _READERS.get(oid)
    if read is None:
        return text
    try:
        return read(text.strip())
    except (ValueError, InvalidOperation, OverflowError):
        raise BadValue(f"invalid input syntax for a parameter of type {oid}") from None


_PARTS = re.compile(r'\s*(?:"((?:[^"\\]++|\\.)*+)"|([^\s{},"\\]+(?:\s+[^\s{},"\\]+)*))\s*(,|$)')


def _list_of(text: str, oid: int) -> list[Any]:
    """The values of an array of one dimension in text. Raises: BadValue."""
    inner = re.fullmatch(r"\s*\{(.*)\}\s*", text, re.DOTALL)
    if inner is None:
        raise BadValue("malformed array literal in a parameter")
    found: list[Any] = []
    at, more = 0, bool(inner[1].strip())
    while more:
        part = _PARTS.match(inner[1], at)
        if part is None:
            raise BadValue("an array of one dimension is wanted in a parameter")
        quoted, bare, comma = part.groups()
        is_null = bare is not None and bare.upper() == "NULL"
        value = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        found.append(None if is_null else decode(value.encode(), oid, TEXT))
        at, more = part.end(), comma == ","
    return found


def _binary_list(data: bytes) -> list[Any]:
    """The values of an array of one dimension in binary. Raises: BadValue."""
    try:
        dimensions, _, oid = struct.unpack_from("!iiI", data)
        if dimensions == 0:
            return []
        count, _ = struct.unpack_from("!ii", data, 12)
        if dimensions != 1 or not 0 <= count <= len(data):
            raise BadValue("an array of one dimension is wanted in a parameter")
        found: list[Any] = []
        at = 20
        for _ in range(count):
            (size,) = struct.unpack_from("!i", data, at)
            part, at = data[at + 4 : at + 4 + max(0, size)], at + 4 + max(0, size)
            if len(part) != max(0, size):
                raise BadValue("incorrect binary data format in a parameter", "22P03")
            found.append(None if size == -1 else _decode_binary(part, oid))
        return found
    except struct.error:
        raise BadValue("incorrect binary data format in a parameter", "22P03") from None


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


def copy_binary(values: Sequence[bytes | None]) -> bytes:
    """A row of COPY in binary format."""
    parts = [struct.pack("!h", len(values))]
    for value in values:
        parts.append(
            struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
        )
    return b"".join(parts)
