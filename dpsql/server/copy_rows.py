"""The rows of a table as COPY sends them, and as a file of them is saved."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.server.result_stream import ResultStream
from dpsql.server.values import COPY_SIGNATURE, COPY_TRAILER, copy_binary, copy_csv, copy_text


def copied(table: ResultStream, kind: str, header: bool) -> Iterator[bytes]:
    """The rows, line by line, as text, CSV or binary, whose header goes with the first row."""
    if kind == "binary":
        begin = COPY_SIGNATURE
        for row in table.rows([1]):
            yield begin + copy_binary(row)
            begin = b""
        yield begin + COPY_TRAILER
        return
    write, mark = (copy_csv, b",") if kind == "csv" else (copy_text, b"\t")
    if header:
        yield mark.join(write(head.name.encode()) for head in table.heads) + b"\n"
    for row in table.rows([], write=write):
        yield mark.join(each or b"" for each in row) + b"\n"
