"""Sizes of sheets of workbooks, counted from their files before anything is held in memory.

A sheet is held from its first cell to the last row and the last column that have one, whatever is
between them. So one stray cell, or one that a file says to be repeated, can ask for more memory
than there is. Files are read piece by piece, and no value is looked at.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from xml.etree import ElementTree
from xml.parsers import expat

from dpsql.interrupts import check
from dpsql.privacy.vault.data_engine import Unreadable

MOST = 1 << 31
"""Bytes that a workbook may have when it is unpacked, which is done in memory."""
OF_CELL = 32
"""Bytes of a cell, whether or not it is empty."""
WIDEST = 16_384
"""The most columns of a sheet."""
PIECE = 1 << 20
"""Bytes of a sheet that are looked at once."""
CELL = re.compile(rb"<(?:\w+:)?c[\s/>]")
NAMED = re.compile(rb"<(?:\w+:)?c\s(?:[^>]*\s)?r\s*=")
PLACE = re.compile(rb"\sr\s*=\s*[\"']([A-Z]{0,3})([0-9]{1,7})[\"']")
"""Cells in the text of a sheet, those that say where they are, and the places of rows and cells."""
SPACE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0"
ROW, CELLS = f"{SPACE} table-row", (f"{SPACE} table-cell", f"{SPACE} covered-table-cell")
"""Elements of OpenDocument, by the name of their space."""
ROW_OF_BINARY, LAST_CELL_OF_BINARY = 0, 11
"""Records of rows in binary sheets; those up to the last one are cells."""
OLD_CELLS = frozenset(
    (0x0006, 0x0206, 0x0406, 0x00D6, 0x00FD, 0x0201, 0x0202, 0x0203, 0x0204, 0x0205, 0x027E)
)
OLD_ROWS_OF_CELLS = (0x00BD, 0x00BE)
"""Records of one cell in sheets of old Excel, and of several, which end in their last column."""
END_OF_CHAIN = 0xFFFFFFFA
"""Numbers from here on are no sectors."""
Count = Callable[[IO[bytes]], None]
"""Counts the cells of a file within a workbook, and refuses it."""


class Size:
    """The rows and columns of a sheet that are known by now."""

    def __init__(self) -> None:
        self.rows = self.columns = 1

    def reach(self, rows: int, columns: int) -> None:
        """Count a cell in some row and column, the first being 1. Raises: Unreadable."""
        self.rows, self.columns = max(self.rows, rows), max(self.columns, columns)
        if self.rows * self.columns > MOST // OF_CELL:
            problem = f"a sheet has a cell in row {self.rows:,}, and one in column "
            problem += (
                f"{self.columns:,}: all cells before them would take more than {MOST:,} bytes"
            )
            raise Unreadable(problem, "delete what is far from the table, or write it as CSV")


def refuse_large(path: str) -> None:
    """Refuse a workbook by the sizes of its sheets, as its own file tells them.

    Raises: Unreadable; OSError, ValueError, zipfile.BadZipFile, ElementTree.ParseError,
    expat.ExpatError and others of a damaged file.
    """
    if not zipfile.is_zipfile(path):
        if Path(path).suffix.lower() == ".xls":
            _refuse_bytes(os.path.getsize(path), "")
            _count_old(Path(path).read_bytes())
        return
    with zipfile.ZipFile(path) as archive:
        _refuse_bytes(sum(each.file_size for each in archive.infolist()), " when it is unpacked")
        for name, count in _sheets(archive):
            with archive.open(name) as sheet:
                count(sheet)


def _refuse_bytes(size: int, where: str) -> None:
    if size > MOST:
        problem = f"the workbook has {size:,} bytes{where}, more than {MOST:,}"
        raise Unreadable(problem, "write its rows as CSV or Parquet")


def _sheets(archive: zipfile.ZipFile) -> Iterator[tuple[str, Count]]:
    """Yield the files that hold sheets, with what counts their cells.

    They are those that the workbook names, wherever they are.
    """
    listed = {name.casefold().replace("\\", "/"): name for name in archive.namelist()}
    if "content.xml" in listed:
        yield listed["content.xml"], _count_open_document
    for links, count in (
        ("xl/_rels/workbook.xml.rels", _count_text),
        ("xl/_rels/workbook.bin.rels", _count_binary),
    ):
        if links not in listed:
            continue
        with archive.open(listed[links]) as file:
            targets = [each.get("Target", "") for each in ElementTree.parse(file).iter()]
        for target in dict.fromkeys(targets):
            for name in (target.lstrip("/").casefold(), f"xl/{target}".casefold()):
                if target and name in listed:
                    yield listed[name], count


def _count_text(sheet: IO[bytes]) -> None:
    """Count the cells of a sheet of .xlsx. Raises: Unreadable."""
    size, rest = Size(), b""
    while piece := sheet.read(PIECE):
        check()
        told, _, rest = (rest + piece).rpartition(b">")
        rest = rest[-PIECE:]
        places = {*PLACE.findall(told)}
        if len(CELL.findall(told)) > len(NAMED.findall(told)):
            size.reach(1, WIDEST)  # of cells without a place, as many as there may be
        for letters, row in places:
            size.reach(int(row), _number(letters))


def _number(letters: bytes) -> int:
    """Return the number of a column from its letters, 0 where there are none.

    >>> _number(b"A"), _number(b"XFD"), _number(b"")
    (1, 16384, 0)
    """
    found = 0
    for letter in letters:
        found = 26 * found + letter - 64
    return found


def _count_open_document(content: IO[bytes]) -> None:
    """Count the cells of the sheets of OpenDocument, those that are repeated as often as they are.

    Empty ones at an end are no part of a sheet. Sheets are counted below each other.
    Raises: Unreadable, expat.ExpatError.
    """
    size = Size()
    rows = row_times = column = 0  # rows above, and of this one its times and the cells so far
    open_cell: list[int] = []  # how often a cell is repeated of which it is not known what it holds

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal rows, row_times, column
        if name == ROW:
            rows, column = rows + row_times, 0
            row_times = _times(attributes.get(f"{SPACE} number-rows-repeated"))
        elif name in CELLS:
            times = _times(attributes.get(f"{SPACE} number-columns-repeated"))
            column += times
            open_cell[:] = [times]
            if any(not each.startswith(SPACE) for each in attributes):
                fill()
        elif open_cell:
            fill()

    def fill() -> None:
        size.reach(rows + row_times, column)
        open_cell.clear()

    def end(name: str) -> None:
        if name in CELLS:
            open_cell.clear()

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda text: fill() if open_cell and text.strip() else None
    while piece := content.read(PIECE):
        check()
        parser.Parse(piece)


def _times(said: str | None) -> int:
    return 1 if said is None or not said.strip().isdigit() else int(said)


def _count_binary(sheet: IO[bytes]) -> None:
    """Count the cells of a sheet of .xlsb, a list of records. Raises: Unreadable."""
    size, held, row, skip = Size(), b"", 0, 0
    while piece := sheet.read(PIECE):
        check()
        held += piece
        at = min(skip, len(held))
        skip -= at
        while at + 10 < len(held):  # the longest head, and the place that follows it
            kind, at_length, begin = held[at], at + 1, at
            if kind & 0x80:
                kind, at_length = kind & 0x7F | (held[at + 1] & 0x7F) << 7, at + 2
            length = shift = 0
            while True:
                length |= (held[at_length] & 0x7F) << shift
                shift += 7
                at_length += 1
                if shift == 28 or not held[at_length - 1] & 0x80:
                    break
            if kind <= LAST_CELL_OF_BINARY and length >= 4:
                (place,) = struct.unpack_from("<I", held, at_length)
                row = place + 1 if kind == ROW_OF_BINARY else row
                size.reach(row, 1 if kind == ROW_OF_BINARY else place + 1)
            at = at_length + length
            if at > len(held):
                at, skip = len(held), at - len(held)
            assert at > begin
        held = held[at:]


def _count_old(file: bytes) -> None:
    """Count the cells of all sheets of old Excel together. Raises: Unreadable, struct.error."""
    book, size, at = _stream(file, ("workbook", "book")), Size(), 0
    while at + 4 <= len(book):
        kind, length = struct.unpack_from("<HH", book, at)
        at += 4
        if (kind in OLD_CELLS or kind in OLD_ROWS_OF_CELLS) and at + length <= len(book):
            row, column = struct.unpack_from("<HH", book, at)
            if kind in OLD_ROWS_OF_CELLS:
                (column,) = struct.unpack_from("<H", book, at + length - 2)
            size.reach(row + 1, column + 1)
        at += length


def _stream(file: bytes, names: tuple[str, ...]) -> bytes:
    """Return a stream of a compound file by its name; nothing where there is none.

    Source: [MS-CFB], sections 2.2 to 2.6. Raises: struct.error, ValueError for a damaged one.
    """
    if file[:4] != b"\xd0\xcf\x11\xe0":
        return file  # older than compound files: records alone
    shift, small_shift = struct.unpack_from("<HH", file, 30)
    if shift not in (9, 12) or small_shift != 6:
        raise ValueError("sectors of an unknown size")
    first, _, small = struct.unpack_from("<III", file, 48)
    first_small, _, at_list, _ = struct.unpack_from("<IIII", file, 60)

    def sector(number: int) -> bytes:
        begin = (number + 1) << shift
        return file[begin : begin + (1 << shift)]

    def chain(begin: int, following: list[int]) -> Iterator[int]:
        for _ in range(len(following) + 1):
            if begin >= END_OF_CHAIN:
                return
            yield begin
            begin = following[begin] if begin < len(following) else END_OF_CHAIN
        raise ValueError("a chain of sectors that has no end")

    per, listed = (1 << shift) // 4, list(struct.unpack_from("<109I", file, 76))
    for _ in range(len(file) >> shift):
        if at_list >= END_OF_CHAIN:
            break
        *more, at_list = struct.unpack(f"<{per}I", sector(at_list))
        listed += more
    following = [
        each
        for number in listed
        if number < END_OF_CHAIN
        for each in struct.unpack(f"<{per}I", sector(number))
    ]
    folder = b"".join(map(sector, chain(first, following)))
    entries = [folder[i : i + 128] for i in range(0, len(folder) - 127, 128)]
    small_of = b"".join(map(sector, chain(first_small, following)))
    following_small = list(struct.unpack(f"<{len(small_of) // 4}I", small_of))
    for entry in entries:
        (letters,) = struct.unpack_from("<H", entry, 64)
        name = entry[: max(0, min(letters, 64) - 2)].decode("utf-16-le", "replace")
        if name.casefold() not in names or entry[66] != 2:
            continue
        begin, length = struct.unpack_from("<II", entry, 116)
        if length >= small:
            return b"".join(map(sector, chain(begin, following)))[:length]
        (begin_all,) = struct.unpack_from("<I", entries[0], 116)
        within = b"".join(map(sector, chain(begin_all, following)))
        pieces = (within[n << 6 : (n + 1) << 6] for n in chain(begin, following_small))
        return b"".join(pieces)[:length]
    return b""
