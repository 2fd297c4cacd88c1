"""The rows of a table as COPY sends them, and as a file of them is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dpsql.answer.rounding import for_spreadsheets
from dpsql.errors import printable_fields
from dpsql.server.result_stream import ResultStream
from dpsql.server.values import (
    COPY_SIGNATURE,
    COPY_TRAILER,
    TEXT_TYPE,
    copy_binary,
    copy_csv,
    copy_text,
)


def copied(table: ResultStream, kind: str, header: bool, formulas: bool = True) -> Iterator[bytes]:
    """The rows, line by line, as text, CSV or binary, whose header goes with the first row.

    Args:
        table: rows with the types of their columns.
        kind: "text", "csv" or "binary", as COPY has them.
        header: True for a line of names, which the binary format has not.
        formulas: True for programs, which get values as they are; False for a file for people, in
            which no text begins like a formula and control characters are seen.
    """
    if kind == "binary":
        begin = COPY_SIGNATURE
        for row in table.rows([1]):
            yield begin + copy_binary(row)
            begin = b""
        yield begin + COPY_TRAILER
        return
    write, mark = (copy_csv, b",") if kind == "csv" else (copy_text, b"\t")
    if header:
        names = (head.name if formulas else for_spreadsheets(head.name) for head in table.heads)
        yield mark.join(write(name.encode()) for name in names) + b"\n"
    if formulas:
        for row in table.rows([], write=write):
            yield mark.join(each or b"" for each in row) + b"\n"
        return
    escapes = [
        for_spreadsheets if head.oid == TEXT_TYPE else printable_fields for head in table.heads
    ]
    for row in table.rows([]):
        cells = (_guarded(*each) for each in zip(row, escapes, strict=True))
        yield mark.join(map(write, cells)) + b"\n"


def _guarded(cell: bytes | None, escape: Callable[[str], str]) -> bytes | None:
    return None if cell is None else escape(cell.decode()).encode()
