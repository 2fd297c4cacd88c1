"""CSV by our own rule: the lines of a file are its rows, and no line can reach another.

Bytes are split at newlines before anything else is looked at, so a quoted newline is not possible.
A line is a row if it is UTF-8, its quotes are closed, it has as many fields as the header, and no
carriage return but at its end. Any other line is no row. An empty field is missing.

Guarantee: the rows of a file are the rows of its lines, one by one.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Fields = npt.NDArray[np.object_]
BLOCK = 1 << 22
"""Bytes that are split at once."""
MAX_HEADER = 1 << 20


def read_header(path: str) -> list[str]:
    """Read the first line of a CSV file; nothing of the rows after it is decoded.

    Raises: OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error.
    """
    with _open(path) as file:
        line = file.readline(MAX_HEADER).decode("utf-8-sig")
    header = next(csv.reader([line], delimiter=_delimiter(path), strict=True), [])
    if not header or len(set(header)) != len(header):
        raise csv.Error("no usable header line")
    return header


def other_delimiter(header: str) -> str | None:
    """Name what a header of one field seems to be separated by.

    >>> other_delimiter("age;sex"), other_delimiter("age")
    ("';'", None)
    """
    found = next((each for each in ";\t|," if each in header), None)
    return {None: None, "\t": "a tab", ",": "a comma"}.get(found, f"'{found}'")


def read_fields(path: str, columns: int, wanted: Sequence[int]) -> Iterator[list[Fields]]:
    """Yield the wanted fields of all rows, block by block: one array of texts per column.

    Raises: OSError, EOFError, zlib.error.
    """
    delimiter = _delimiter(path)
    for lines in _blocks(path):
        rows = [split_line(line, delimiter, columns) for line in lines]
        kept = [row for row in rows if row is not None]
        yield [np.array([row[i] for row in kept], dtype=object) for i in wanted]


def split_line(line: str | None, delimiter: str, columns: int) -> list[str] | None:
    """Return the fields of a line, or None if it is no row.

    >>> split_line('1,"a,b"', ",", 2), split_line('1,"a', ",", 2), split_line("1", ",", 2)
    (['1', 'a,b'], None, None)
    """
    if line is None or (not line and columns > 1):
        return None
    if '"' not in line and "\r" not in line:
        row = line.split(delimiter)
    else:
        try:
            row = next(csv.reader([line], delimiter=delimiter, strict=True))
        except (csv.Error, StopIteration):
            return None
    return row if len(row) == columns and "\r" not in line else None


def _blocks(path: str) -> Iterator[list[str | None]]:
    """Yield the lines after the header, without their ends, a few at a time."""
    with _open(path) as file:
        file.readline(MAX_HEADER)
        rest = b""
        while block := file.read(BLOCK):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                yield _decode(whole)
        yield _decode(rest) if rest else []


def _decode(lines: bytes) -> list[str | None]:
    """Decode lines; a line that is not UTF-8 is None."""
    try:
        return [line.removesuffix("\r") for line in lines.decode().split("\n")]
    except UnicodeDecodeError:
        return [_decode_line(line.removesuffix(b"\r")) for line in lines.split(b"\n")]


def _decode_line(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _open(path: str) -> io.BufferedIOBase:
    return gzip.open(path) if path.lower().endswith(".gz") else Path(path).open("rb")


def _delimiter(path: str) -> str:
    return "\t" if path.lower().endswith((".tsv", ".tsv.gz")) else ","
