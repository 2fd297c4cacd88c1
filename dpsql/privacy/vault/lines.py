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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]
BLOCK = 1 << 22
"""Bytes that are split at once."""
MAX_HEADER = 1 << 20
NOT_UTF8 = "bytes that are not UTF-8"
STRAY = "a carriage return within it"
UNCLOSED = "a quote that is not closed"
FIELDS = "another number of fields than the header"
REMEDIES = {
    NOT_UTF8: "write the file in UTF-8: iconv -f cp1252 -t utf-8 old.csv > new.csv",
    STRAY: "end lines with a newline, and write values that hold line ends as Parquet",
    UNCLOSED: "write values that hold line ends as Parquet; a quote within quotes is doubled",
    FIELDS: "write as many delimiters in every line as in the header",
}
"""Why a line is no row, and what would make it one."""


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


def read_rows(path: str, columns: int) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the rows of a file, block by block, as arrays that :func:`fields_sql` cuts into fields.

    Raises: OSError, EOFError, zlib.error.
    """
    for block in _blocks(path):
        yield split_lines(block, _delimiter(path), columns)
    # A file without rows has columns.
    yield {"line": np.empty(0, dtype=object), "is_apart": np.empty(0, dtype=np.bool_)}


def find_unread(path: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are no rows, but for blank ones: their number, and why.

    It is for the curator, and for files that are public. The header is line 1.
    Raises: as :func:`read_header` and :func:`read_rows`.
    """
    columns, cut, number = len(read_header(path)), _delimiter(path), 2
    for block in _blocks(path):
        lines = block.split(b"\n")
        if len(split_lines(block, cut, columns)["line"]) < len(lines):
            for i, line in enumerate(lines):
                why = _fault(line.removesuffix(b"\r"), cut, columns)
                if why:
                    yield number + i, why
        number += len(lines)


def _fault(line: bytes, delimiter: str, columns: int) -> str:
    """Say why a line is no row; nothing where it is one, or blank."""
    text = _decode_line(line)
    if text is None:
        return NOT_UTF8
    if not text or split_line(text, delimiter, columns) is not None:
        return ""
    if "\r" in text:
        return STRAY
    try:
        next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return UNCLOSED
    return FIELDS


def fields_sql(path: str) -> str:
    """The fields of a row of :func:`read_rows`, in order, as a list in DuckDB's SQL."""
    code = ord(_delimiter(path))
    return f"string_split(line, CASE WHEN is_apart THEN chr(10) ELSE chr({code}) END)"


def split_lines(block: bytes, delimiter: str, columns: int) -> dict[str, npt.NDArray[Any]]:
    """Return those lines that are rows, and which have their fields taken apart already.

    ``line`` has texts, ``is_apart`` flags, both of shape (rows,). Fields that are apart are
    separated by newlines, which no line has. They are what :func:`split_line` says of a line that
    cannot be cut at delimiters as it is; cutting here takes six times as long as in SQL.

    >>> found = split_lines(b'1,"a,b"\\n"2",c\\n3', ",", 2)
    >>> {name: each.tolist() for name, each in found.items()}
    {'line': ['1\\na,b', '2,c'], 'is_apart': [True, False]}
    """
    lines, is_row, is_quoted = _decode(block), *_plain(block, delimiter, columns)
    is_row &= [line is not None for line in lines]
    for place in np.flatnonzero(is_row & is_quoted):
        lines[place] = lines[place].replace('"', "")  # type: ignore[union-attr]
    is_apart = ~is_row
    for place in np.flatnonzero(is_apart):
        row = split_line(lines[place], delimiter, columns)
        if row is not None:
            lines[place], is_row[place] = "\n".join(row), True
    return {"line": np.array(lines, dtype=object)[is_row], "is_apart": is_apart[is_row]}


def _plain(block: bytes, delimiter: str, columns: int) -> tuple[Flags, Flags]:
    """Which lines can be cut at delimiters once their quotes are left out, and which have quotes.

    They have all fields, no NUL, no carriage return but at the end, and a quote only at both ends
    of a field without delimiters and other quotes.
    """
    data, end, cut = np.frombuffer(block + b"\n", dtype=np.uint8), ord("\n"), ord(delimiter)
    ends, cuts = np.flatnonzero(data == end), np.flatnonzero(data == cut)
    is_plain: Flags = np.diff(np.searchsorted(cuts, ends), prepend=0) == columns - 1
    returns = np.flatnonzero(data == ord("\r"))
    within = returns[data[returns + 1] != end]
    quotes = np.flatnonzero(data == ord('"'))
    line = np.searchsorted(ends, quotes)
    opens = (np.arange(len(quotes)) - np.searchsorted(line, line)) % 2 == 0
    before, after = data[quotes - 1], data[quotes + 1]  # before the first byte is the last newline
    fits = np.where(
        opens,
        (before == cut) | (before == end),
        (after == cut) | (after == end) | (after == ord("\r")),
    )
    fits &= opens | (np.diff(np.searchsorted(cuts, quotes), prepend=-1) == 0)
    is_plain &= np.bincount(line, minlength=len(ends)) % 2 == 0
    for places in (within, quotes[~fits], np.flatnonzero(data == 0)):
        is_plain[np.searchsorted(ends, places)] = False
    is_quoted = np.zeros(len(ends), dtype=np.bool_)
    is_quoted[line] = True
    return is_plain, is_quoted


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


def _blocks(path: str) -> Iterator[bytes]:
    """Yield the lines after the header, a few at a time, without the newline of the last."""
    with _open(path) as file:
        file.readline(MAX_HEADER)
        rest = b""
        while block := file.read(BLOCK):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                yield whole
        if rest:
            yield rest


def _decode(lines: bytes) -> list[str | None]:
    """Decode lines; a line that is not UTF-8 is None, and no other is decoded once more for it."""
    found: list[str | None] = []
    start, data = 0, memoryview(lines)
    while start <= len(lines):
        try:
            text, start = str(data[start:], "utf-8"), len(lines) + 1
        except UnicodeDecodeError as error:
            bad = start + error.start
            first, after = lines.rfind(b"\n", start, bad) + 1, lines.find(b"\n", bad)
            before = str(data[start : max(first - 1, start)], "utf-8") if first > start else None
            found += (
                [] if before is None else [each.removesuffix("\r") for each in before.split("\n")]
            )
            found.append(None)
            start = len(lines) + 1 if after < 0 else after + 1
            continue
        found += [each.removesuffix("\r") for each in text.split("\n")]
    return found


def _decode_line(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _open(path: str) -> io.BufferedIOBase:
    return gzip.open(path) if path.lower().endswith(".gz") else Path(path).open("rb")


def _delimiter(path: str) -> str:
    return "\t" if path.lower().endswith((".tsv", ".tsv.gz")) else ","
