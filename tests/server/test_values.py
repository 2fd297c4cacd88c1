"""Values on the wire, against what psycopg writes and reads."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import Format

from dpsql.server.values import BadValue, copy_csv, copy_text, decode, encode, wire_type

VALUES: list[tuple[str, Any]] = [
    ("boolean", True),
    ("boolean", False),
    ("integer", -5),
    ("integer", 2**62),
    ("number", 0.1),
    ("number", 26446.0),
    ("number", -1e300),
    ("text", "it's\té"),
    ("text", ""),
    ("date", dt.date(1999, 12, 31)),
    ("date", dt.date(2024, 2, 29)),
    ("timestamp", dt.datetime(1969, 7, 20, 20, 17, 40, 5)),
    ("time", dt.time(23, 59, 59, 1)),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
@pytest.mark.parametrize("binary", [0, 1])
def test_psycopg_reads_what_is_written(kind: str, value: object, binary: int) -> None:
    known = wire_type(kind)
    loader = Transformer().get_loader(known.oid, Format(binary))
    written = encode(value, known, binary)
    assert written is not None
    assert loader.load(written) == value


@pytest.mark.parametrize(
    "value",
    [True, 7, -40_000, 2**40, 0.25, "text", dt.date(2001, 2, 3), dt.datetime(2001, 2, 3, 4, 5, 6)]
    + [dt.time(), dt.time(23, 59, 59, 999_999)]
    + [Decimal(text) for text in ("0", "-12345.678", "1e20", "0.00012", "10000", "99990000.1")],
)
@pytest.mark.parametrize("form", [PyFormat.TEXT, PyFormat.BINARY])
def test_what_psycopg_writes_is_read(value: object, form: PyFormat) -> None:
    dumper = Transformer().get_dumper(value, form)
    data = dumper.dump(value)
    assert data is not None
    assert decode(bytes(data), dumper.oid, int(form == PyFormat.BINARY)) == value


@pytest.mark.parametrize("hours", [-11, 0, 5])
@pytest.mark.parametrize("form", [PyFormat.TEXT, PyFormat.BINARY])
def test_instants_are_on_the_clock_of_the_session(hours: int, form: PyFormat) -> None:
    zone = dt.timezone(dt.timedelta(hours=hours))
    value = dt.datetime(2024, 2, 1, 0, 30, tzinfo=zone)
    dumper = Transformer().get_dumper(value, form)
    found = decode(bytes(dumper.dump(value) or b""), dumper.oid, int(form == PyFormat.BINARY))
    assert found == value.astimezone(dt.UTC).replace(tzinfo=None)


def test_the_end_of_a_day_and_numbers_that_are_not_finite() -> None:
    day = struct.pack("!q", 86_400 * 10**6)
    assert decode(day, 1083, 1) == decode(b"24:00:00", 1083, 0) == "24:00:00"
    for value, text in ((math.nan, b"NaN"), (math.inf, b"Infinity"), (-math.inf, b"-Infinity")):
        assert encode(value, wire_type("number"), 0) == text


@pytest.mark.parametrize(
    ("data", "oid", "form"),
    [
        (b"x", 23, 0),
        (b"nan", 701, 0),
        (b"1", 20, 1),
        (struct.pack("!HhHH", 1, 0, 0xC000, 0) + b"\0\1", 1700, 1),
        (struct.pack("!HhHH", 9, 0, 0, 0), 1700, 1),
        (struct.pack("!i", 2**31 - 1), 1082, 1),
        (b"\0\0", 2950, 1),
        (struct.pack("!q", 86_400 * 10**6 + 1), 1083, 1),
        (b"25:00", 1083, 0),
        (b"maybe", 16, 0),
    ],
)
def test_what_does_not_fit_is_refused(data: bytes, oid: int, form: int) -> None:
    with pytest.raises(BadValue):
        decode(data, oid, form)


def test_null_is_null() -> None:
    assert decode(None, 23, 0) is None
    assert encode(None, wire_type("text"), 1) is None


def test_rows_of_copy_are_escaped() -> None:
    assert copy_text(b"a\tb\\c\nd") == rb"a\tb\\c\nd"
    assert copy_text(None) == rb"\N"
    assert (copy_csv(None), copy_csv(b""), copy_csv(b'a"b')) == (b"", b'""', b'"a""b"')
