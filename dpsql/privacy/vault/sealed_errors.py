"""Failures to read and to count rows, as errors that carry no trace of these."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeVar

import duckdb

from dpsql.errors import DataUnavailable, InternalError, is_interrupt
from dpsql.privacy.vault.codes.spill import why_not
from dpsql.privacy.vault.data_engine import unavailable

T = TypeVar("T")
DAMAGED = (
    "its rows cannot be read: a file is damaged or cut off, is stored in a way that DuckDB cannot "
    "read, such as decimals by BYTE_STREAM_SPLIT, or outgrows the memory",
    "write the file again, whole, not encrypted, and in plain or dictionary encoding",
)
"""The message on files that open and cannot be read, and its hint; one text for all of them."""
CHANGED = ("the data have changed since they were opened", "connect again")


class UnreadableRows(Exception):
    """Rows of a table that cannot be read: its name and source, a constant reason, and a hint."""

    def __init__(self, table: str, source: str, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.told = table, source, problem, hint


FAILED = (duckdb.Error, OSError, EOFError, zlib.error, DataUnavailable)
"""Errors of reads of files that opened before."""


def unread(table: str, source: str, error: Exception) -> Exception:
    """Return what is told of an error of reading files: one reason, whatever they hold.

    An error that is about room for codes, or an interrupt, stays as it is.
    """
    if isinstance(error, DataUnavailable):
        return UnreadableRows(table, source, *CHANGED)
    known = why_not(error) is not None or is_interrupt(error)
    return error if known else UnreadableRows(table, source, *DAMAGED)


def seal_errors(work: Callable[[], T]) -> T:
    """Run ``work``; whatever it raises becomes one of few constant errors without a trace of it.

    Guarantee: text, cause and context of the error are independent of the data. Ctrl-C stays one.
    Raises: DataUnavailable (E_DATA) for rows of files that cannot be read; InternalError.
    """
    told, interrupted = None, False
    try:
        return work()
    except UnreadableRows as error:
        told = error.told
    except Exception as error:
        interrupted = is_interrupt(error)
    if told is not None:
        unavailable(*told)
    if interrupted:
        raise KeyboardInterrupt
    raise InternalError("E_INTERNAL", "the table could not be counted; details are withheld")
