"""CSV by our own rule: the lines of a file are its rows, and no line can reach another.

Bytes are split at newlines before anything else is looked at; lines of a file that declares quoted
newlines are joined where they are one row together, see :mod:`quoted_newlines`.
A line is a row if it is of the declared encoding and no longer than LONGEST, its quotes are closed,
it has as many fields as the header, and no carriage return but at its end. Any other line is no
row. An empty field is missing.

Guarantee: the rows of a file are the rows of its lines, one by one; with quoted newlines only as
far as the quotes of all are written as CSV has them.
"""

from __future__ import annotations

import csv
import io
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.catalog.delimited import PLAIN, Delimited
from dpsql.interrupts import check
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files.quoted_newlines import NEWLINE, join_lines
from dpsql.privacy.vault.files.text_files import LONGEST, open_text, refuse_foreign

Flags = npt.NDArray[np.bool_]
BLOCK = 1 << 22
"""Bytes that are split at once."""
PIECE = 1 << 16
"""Bytes that are decoded at once."""
ESCAPED = 0xDC80 >> 7
"""The upper bits of the code points that stand for bytes that are not UTF-8."""
QUOTE = ord('"')
MAX_HEADER = 1 << 20
"""Most bytes of a header line."""
NOT_UTF8 = "bytes that are not of its encoding"
LONG = "more than 16 MiB"
TOO_LONG = b"\xff: the beginning of a longer line"
"""The line that is read, and is no row, in place of one that is longer than LONGEST."""
STRAY = "a carriage return within it"
UNCLOSED = "a quote that is not closed"
FIELDS = "another number of fields than the header"
NO_OBJECT = "no object of JSON"
REMEDIES = {
    NOT_UTF8: 'declare the encoding, as source = { file = "old.csv", encoding = "cp1252" }',
    LONG: "end lines with newlines; and does a quote that is not closed hide them?",
    STRAY: "end lines with a newline, and write values that hold line ends in quotes",
    UNCLOSED: "a quote within quotes is doubled; quoted_newlines = true reads line ends in quotes",
    FIELDS: "write as many delimiters in every line as in the header",
    NO_OBJECT: "write one object a line, as jq -c does",
}
"""Reasons why a line is no row, and what would make it one."""


def read_header(path: str, written: Delimited = PLAIN) -> list[str]:
    """Read the names of the columns of a CSV file; nothing of the rows after them is decoded.

    Where names are declared nothing is read: the first line is a row.
    Raises: Unreadable, naming line and column; OSError.
    """
    if written.header:
        with open_text(path, written.encoding):
            return [*written.header]
    refuse_foreign(path, written.encoding)
    with open_text(path, written.encoding) as file:
        for _ in range(written.skip):
            _skip_line(file)
        line, number = file.readline(MAX_HEADER), written.skip + 1
    if not line:
        raise Unreadable(f"it has no line {number} for a header", "give a file with a header")
    return _names(line, number, written.cut(path), written.encoding)


def _names(line: bytes, number: int, delimiter: str, encoding: str) -> list[str]:
    """Return the fields of a header line. Raises: Unreadable."""
    line, stray, _ = line.removesuffix(b"\n").removesuffix(b"\r").partition(b"\r")
    if stray or len(line) >= MAX_HEADER - 1:  # what comes after a return may be somebody's row
        what = (
            f", column {len(line) + 1} has a carriage return" if stray else " is longer than 1 MiB"
        )
        hint = "end lines with newlines: tr '\\r' '\\n' < old.csv > new.csv"
        raise Unreadable(f"line {number}{what}", hint)
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = len(line[: error.start].decode("utf-8-sig")) + 1
        problem = f"line {number}, column {place} has bytes that are not {encoding}"
        raise Unreadable(problem, REMEDIES[NOT_UTF8]) from None
    if not text.strip():
        raise Unreadable(f"line {number} is blank", f"skip = {number} begins one line later")
    try:
        found = next(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error:
        place = text.rfind('"') + 1
        problem = f"line {number}, column {place} has {UNCLOSED}, or text after one"
        raise Unreadable(problem, REMEDIES[UNCLOSED]) from None
    for i, name in enumerate(found):
        if name in found[:i]:
            at = f"fields {found.index(name) + 1} and {i + 1} of line {number}"
            problem = f"two columns are called {name!r}, {at}"
            hint = f"name the columns: skip = {number}, header = [...] with {len(found)} names"
            raise Unreadable(problem, hint)
    return found


def _skip_line(file: io.BufferedIOBase) -> None:
    while (part := file.readline(MAX_HEADER)) and not part.endswith(b"\n"):
        check()


def other_delimiter(header: str) -> str | None:
    """Name what a header of one field seems to be separated by.

    >>> other_delimiter("age;sex"), other_delimiter("age")
    ("';'", None)
    """
    found = next((each for each in ";\t|," if each in header), None)
    return {None: None, "\t": "a tab", ",": "a comma"}.get(found, f"'{found}'")


def read_rows(
    path: str, columns: int, written: Delimited = PLAIN
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the rows of a file, block by block, as texts that ``FIELDS_SQL`` cuts into fields.

    Raises: OSError, Unreadable.
    """
    for block in rows_in_lines(path, written, columns):
        yield split_lines(block, written.cut(path), columns)
    # A file without rows has columns.
    yield {"line": np.empty(0, dtype=object)}


def find_unread(path: str, written: Delimited = PLAIN) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a file that are no rows, but for blank ones: number, column, and why.

    It is for the curator, and for files that are public. The first line of the file is line 1.
    Raises: as :func:`read_header` and :func:`read_rows`.
    """
    columns, cut = len(read_header(path, written)), written.cut(path)
    number = 1 + written.skip + (not written.header)
    for block in rows_in_lines(path, written, columns):
        lines = block.split(b"\n")
        is_whole = len(split_lines(block, cut, columns)["line"]) == len(lines)
        for line in lines if not is_whole else ():
            why = _fault(line, cut, columns)
            if why:
                yield number, _place(line, why, cut, columns), why
            number += 1 + _joined_to(line, written)
        number += len(lines) + _joined_to(block, written) if is_whole else 0


def _joined_to(lines: bytes, written: Delimited) -> int:
    """The number of line ends within rows."""
    return lines.count(NEWLINE.encode()) if written.quoted_newlines else 0


def rows_in_lines(path: str, written: Delimited, columns: int) -> Iterator[bytes]:
    """Yield lines as :func:`blocks` does, those of one row joined where this is declared.

    Raises: OSError, Unreadable.
    """
    if not written.quoted_newlines:
        return blocks(path, written)
    cut = written.cut(path)

    def is_row(line: bytes) -> bool:
        return split_line(_decode_line(line), cut, columns) is not None

    return join_lines(blocks(path, written), is_row)


def _fault(line: bytes, delimiter: str, columns: int) -> str:
    """Say why a line is no row; nothing where it is one, or blank."""
    if line == TOO_LONG:
        return LONG
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


def _place(line: bytes, why: str, delimiter: str, columns: int) -> int:
    """Say at which character, from 1 on, a line that is no row goes wrong.

    >>> [_place(b'1,"a,b",3,4', FIELDS, ",", 3), _place(b'1,"a', UNCLOSED, ",", 2)]
    [10, 3]
    """
    text = line.decode(errors="surrogateescape")
    if why == NOT_UTF8:
        return 1 + next((i for i, each in enumerate(text) if "\udc80" <= each <= "\udcff"), 0)
    if why == STRAY:
        return text.removesuffix("\r").find("\r") + 1
    if why == UNCLOSED:
        return text.rfind('"') + 1
    if why == LONG:
        return LONGEST + 1
    cuts = [i for i, n in _outside(text) if n == delimiter]
    return cuts[columns - 1] + 1 if len(cuts) >= columns else len(text.removesuffix("\r")) + 1


def _outside(text: str) -> Iterator[tuple[int, str]]:
    """The characters of a line that are in no quotes, with their places."""
    within = False
    for i, each in enumerate(text):
        within ^= each == '"'
        if not within:
            yield i, each


FIELDS_SQL = "string_split(line, chr(13))"
"""The fields of a row of :func:`read_rows`, in order, as a list in DuckDB's SQL."""


def field_sql(place: int, written: Delimited) -> str:
    """Return a field of such a row in DuckDB's SQL, with its line ends."""
    field = f"list_extract({FIELDS_SQL}, {place + 1})"
    return f"translate({field}, chr({ord(NEWLINE)}), chr(10))" if written.quoted_newlines else field


def split_lines(block: bytes, delimiter: str, columns: int) -> dict[str, npt.NDArray[Any]]:
    """Return the ``line`` of each row (rows,), with returns, which no row has, between fields.

    They are what :func:`split_line` says of each line. Quotes and delimiters of all lines are
    looked at together, by the same steps whatever they are.

    >>> split_lines(b'1,"a,b"\\n"2","c ""d"" "\\n3', ",", 2)["line"].tolist()
    ['1\\ra,b', '2\\rc "d" ']
    """
    data = np.frombuffer(block + b"\n", dtype=np.uint8).copy()
    ends, returns, cuts = (np.flatnonzero(data == ord(each)) for each in ("\n", "\r", delimiter))
    quotes, is_wrong = _quotes(data, ends, ord(delimiter))
    closes = np.arange(len(quotes)) % 2 == 1
    is_double = closes & (data[quotes + 1] == QUOTE)
    outside = np.searchsorted(quotes, cuts) % 2 == 0
    reached = np.append(0, np.cumsum(outside))[np.searchsorted(cuts, ends)]
    is_row: Flags = np.diff(reached, prepend=0) == columns - 1
    is_last = data[returns + 1] == ord("\n")
    is_row[np.searchsorted(ends, returns[~is_last])] = False
    data[cuts[outside]] = ord("\r")
    kept = np.ones(len(data), dtype=np.bool_)
    kept[quotes[~is_double]] = kept[returns[is_last]] = False
    lines, is_text = _decode(data[kept][:-1].tobytes())
    is_row &= ~is_wrong & is_text
    return {"line": np.array(lines, dtype=object)[is_row]}


def _quotes(
    data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], cut: int
) -> tuple[npt.NDArray[np.int64], Flags]:
    """Find the quotes that begin fields and end them, in turns, and lines with any that may not.

    A quote within is doubled: it ends what is quoted and begins it anew. In a field that does not
    begin with one, quotes are part of its text. Of quotes in a row, an even number leaves what is
    quoted as it is; an odd one ends it, begins it, or does what it is not: so what is quoted before
    them follows from the last that did not depend on it, and from how many changed it since.

    Args:
        data: bytes of lines that end with newlines, (bytes,).
        ends: places of the newlines, (lines,).
        cut: the delimiter.

    Returns: the places (quotes,), an even number in every line, and flags (lines,).
    """
    quotes = np.flatnonzero(data == QUOTE)
    is_first = np.diff(quotes, prepend=-2) != 1
    starts = np.flatnonzero(is_first)
    many = np.diff(starts, append=len(quotes))
    is_odd, starts = many % 2 == 1, quotes[starts]
    before, after = (
        data[starts - 1],
        data[starts + many],
    )  # before the first byte is the last newline
    begins = (before == cut) | (before == ord("\n"))
    ending = (after == cut) | (after == ord("\n")) | (after == ord("\r"))
    of_line = np.diff(np.searchsorted(starts, ends), prepend=0)
    line = np.repeat(np.arange(len(ends)), of_line)
    changes, opens = begins & is_odd & ending, begins & is_odd & ~ending
    is_new = np.diff(line, prepend=-1) != 0
    settles = is_new | np.roll(is_odd & ~changes, 1)
    settled = np.roll(opens, 1) & ~is_new
    last = np.maximum.accumulate(np.where(settles, np.arange(len(line)), 0))
    changed = np.logical_xor.accumulate(changes) ^ changes  # by those before
    within = (settled ^ changed)[last] ^ changed
    is_wrong = np.zeros(len(ends), dtype=np.bool_)
    is_wrong[line[~ending & np.where(within, is_odd, begins & ~is_odd)]] = True
    is_within = np.where(is_odd & ~changes, opens, within ^ changes)
    is_wrong[line[is_within & np.roll(is_new, -1)]] = True
    kept = (within | begins) & ~is_wrong[line]
    return quotes[np.repeat(kept, many)], is_wrong


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


def blocks(path: str, written: Delimited) -> Iterator[bytes]:
    """Yield the lines that may be rows, a few at a time, without the newline of the last.

    Raises: OSError, Unreadable.
    """
    with open_text(path, written.encoding) as file:
        for _ in range(written.skip + (not written.header)):
            _skip_line(file)
        rest = b""
        while block := file.read(BLOCK):
            check()
            whole, newline, end = block.rpartition(b"\n")
            if newline:
                yield _shortened(rest + whole)
                rest = end
            else:  # of a line of any length no more is kept than is needed to say that it is long
                rest = (rest + end)[: LONGEST + 1]
        if rest:
            yield _shortened(rest)


def _shortened(lines: bytes) -> bytes:
    """Lines of which the first, if it is too long, is one that is no row.

    A mark of UTF-8 before a line is no part of it: before the first one it is what writers put
    there, and what the first line means is what it means elsewhere.
    """
    end = lines.find(b"\n")
    end = len(lines) if end < 0 else end
    lines = lines if end <= LONGEST else TOO_LONG + lines[end:]
    return lines.removeprefix(BOM_UTF8).replace(b"\n" + BOM_UTF8, b"\n")


def _decode(lines: bytes) -> tuple[list[str], Flags]:
    """Decode lines, and say which are UTF-8, (lines,), by the same steps whatever they are."""
    found: list[str] = []
    valid: list[Flags] = []
    start = 0
    while start <= len(lines):
        check()
        stop = lines.find(b"\n", start + PIECE)
        stop = len(lines) if stop < 0 else stop
        text, start = lines[start:stop].decode(errors="surrogateescape"), stop + 1
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        ends = np.flatnonzero(points == ord("\n"))
        is_text = np.ones(len(ends) + 1, dtype=np.bool_)
        is_text[np.searchsorted(ends, np.flatnonzero(points >> 7 == ESCAPED))] = False
        found += text.split("\n")
        valid.append(is_text)
    return found, np.concatenate(valid)


def _decode_line(line: bytes) -> str | None:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return None
