"""Workbooks of Excel and OpenDocument: read by calamine, one sheet with a row of names.

Cells have types of their own and columns have none: each cell is the text of its value, in the
usual spelling. A formula is the value that was saved with it. A row of empty cells is no row,
whatever stands beside the columns that have names.
"""

from __future__ import annotations

import datetime as dt
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import pyarrow as pa
from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError

from dpsql.catalog.delimited import Delimited
from dpsql.privacy.vault.data_engine import Unreadable
from dpsql.privacy.vault.files.arrow_rows import ROWS
from dpsql.privacy.vault.formats.sheet_sizes import refuse_large
from dpsql.records import dataclass

FAULTS = (
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, ValueError),
    *(struct.error, expat.ExpatError, ElementTree.ParseError),
)
"""Errors of files that are no workbooks."""
DAMAGED = "it is no workbook, or a damaged one", "save it again as .xlsx or .ods"
ENCRYPTED = b"\xd0\xcf\x11\xe0"
"""First bytes of an encrypted workbook, and of old ones."""


@dataclass(frozen=True, slots=True)
class SheetRows:
    """The rows of a sheet; ``first`` is where they begin."""

    sheet: CalamineSheet
    names: tuple[str, ...]
    first: int

    @property
    def schema(self) -> pa.Schema:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        return pa.schema([(name, pa.large_string()) for name in self.names])

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`dpsql.privacy.vault.files.arrow_rows.ArrowRows`."""
        places, schema = [self.names.index(name) for name in names], self.schema
        schema = pa.schema([schema.field(i) for i in places])
        named = len(self.names)
        rows = [row for row in _rows(self.sheet)[self.first :] if any(row[:named])]
        for start in range(0, len(rows), ROWS):
            some = rows[start : start + ROWS]
            arrays = [
                pa.array([row[i] if i < len(row) else None for row in some], pa.large_string())
                for i in places
            ]
            yield pa.record_batch(arrays, schema)


def open_file(path: str, named: str, written: Delimited) -> SheetRows:
    """Open a sheet of a workbook, the only one where none is named.

    Args: as those of :func:`dpsql.privacy.vault.files.arrow_rows.open_rows`.

    Raises: Unreadable, OSError.
    """
    with _opened(path) as book:
        listed = book.sheet_names
        name = named or (listed[0] if len(listed) == 1 else "")
        if name in listed:
            sheet = book.get_sheet_by_name(name)
            if written.header:
                return SheetRows(sheet, written.header, written.skip)
            rows = _rows(sheet, written.skip + 1)
            return SheetRows(sheet, _names(rows, written.skip), written.skip + 1)
    said = ", ".join(map(repr, listed))
    problem = f"the workbook has no sheet {named!r}" if named else "the workbook has sheets"
    raise Unreadable(f"{problem}: {said}", 'source = { file = "book.xlsx", table = "Sheet1" }')


def list_tables(path: str) -> list[str]:
    """Return the names of the sheets of a workbook. Raises: Unreadable, OSError."""
    with _opened(path) as book:
        return list(book.sheet_names)


@contextmanager
def _opened(path: str) -> Iterator[CalamineWorkbook]:
    """Open a workbook; what calamine says is told in words of ours. Raises: Unreadable, OSError."""
    try:
        refuse_large(path)
    except FAULTS:
        raise Unreadable(*DAMAGED) from None
    with Path(path).open("rb") as file:
        is_locked = file.read(4) == ENCRYPTED and Path(path).suffix.lower() != ".xls"
    problem, hint = DAMAGED
    try:
        if is_locked:
            raise PasswordError
        yield CalamineWorkbook.from_path(path)
        return
    except PasswordError:
        problem, hint = "the workbook has a password", "save it without one"
    except (CalamineError, ValueError):
        pass  # what it says names parts of the file
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which has no name to import
            raise
    raise Unreadable(problem, hint)


def _names(rows: Sequence[Sequence[str | None]], skip: int) -> tuple[str, ...]:
    """Return the names of columns from their row, up to the last that has one."""
    found = list(rows[skip]) if len(rows) > skip else []
    while found and found[-1] is None:
        found.pop()
    number = skip + 1
    if not found:
        raise Unreadable(f"row {number} holds no names", "skip = 1 begins one row later")
    for i, name in enumerate(found):
        if name is None:
            problem = f"column {i + 1} has no name in row {number}, as below merged cells"
            raise Unreadable(problem, "name each column in one row: skip = 1, or header = [...]")
    return tuple(map(str, found))


def _rows(sheet: CalamineSheet, most: int | None = None) -> list[list[str | None]]:
    """Return rows as texts, those above and beside the first cell included."""
    found = sheet.to_python(skip_empty_area=False, nrows=most)
    return [[_text(each) for each in row] for row in found]


def _text(value: Any) -> str | None:
    """Return a cell as a text in the usual spelling; None where it is empty.

    >>> [_text(each) for each in (1.0, 0.5, True, dt.date(2024, 1, 2), dt.time(8, 30), "", " a")]
    ['1', '0.5', 'true', '2024-01-02', '08:30:00', None, ' a']
    """
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            # Spreadsheets keep 15 digits: what is larger was not typed as it stands there.
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case dt.timedelta():
            return str(value.total_seconds())
        case dt.datetime():
            return value.isoformat(" ")
        case dt.date() | dt.time():
            return value.isoformat()
    return str(value) or None
