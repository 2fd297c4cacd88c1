"""Errors as PostgreSQL's clients are told of them: a five-letter state for each code."""

from __future__ import annotations

import re

from dpsql.errors import (
    BudgetExceeded,
    CatalogError,
    Error,
    InternalError,
    Interrupted,
    LedgerError,
    OperationalError,
)
from dpsql.server.messages import Notice

STATES = {
    "E_PARSE": "42601",
    "E_MULTI_STATEMENT": "42601",
    "E_UNKNOWN_TABLE": "42P01",
    "E_UNKNOWN_COLUMN": "42703",
    "E_NO_AGGREGATE": "42803",
    "E_AGGREGATE": "42803",
    "E_GROUP_BY": "42803",
    "E_EXPR_IN_AGG": "42803",
    "E_FUNCTION": "42883",
    "E_WINDOW": "42P20",
    "E_NOT_IN_DOMAIN": "22023",
    "E_LITERAL": "22P02",
    "E_BUDGET": "53400",
    "E_PRICE": "53400",
    "E_EPSILON": "22023",
    "E_DELTA": "22023",
    "E_SETTING": "22023",
    "E_TOO_LARGE": "54000",
    "E_TOO_COMPLEX": "54001",
    "E_DATA": "58030",
    "E_NOISE": "58000",
    "E_BACKEND": "58000",
    "E_CLOSED": "08003",
}
"""By dpsql's code; a form that is refused by name is 0A000 (feature not supported)."""

CANCELLED = "57014"
DEFECT = "XX000"


def state_of(error: Error) -> str:
    """The SQLSTATE of an error."""
    if isinstance(error, InternalError):
        return DEFECT
    if isinstance(error, BudgetExceeded):
        return "53400"
    if error.code in STATES:
        return STATES[error.code]
    return "55000" if isinstance(error, LedgerError) else "0A000"


_QUOTED = re.compile(r"""(['"])/(?:(?!\1).)*/((?:(?!\1|/).)+)\1""")
_PLAIN = re.compile(r"""(?<![\w/'"*])/(?:[^\s/'",;]+/)+(?=[^\s/'",;])""")


def without_folders(text: str) -> str:
    """Name files without the folders that they are in, which are the operator's affair.

    >>> without_folders("source '/srv/a b/t.parquet': no file /srv/x/*.csv, postgresql://a/b")
    "source 't.parquet': no file *.csv, postgresql://a/b"
    """
    return _PLAIN.sub("", _QUOTED.sub(r"\1\2\1", text))


def told_of(error: Error) -> tuple[str, str]:
    """The message of an error and its hint, as a client of a server is told them."""
    message, hint = error.message, error.hint or ""
    if isinstance(error, OperationalError | CatalogError):  # others quote what was asked
        return without_folders(message), without_folders(hint)
    return message, hint


def error_message(error: Error, text: str) -> Notice:
    """Return the message of an error; where it is in the client's own ``text``, with its place.

    Positions are counted in characters, from one. Where parameters stand, the line is shown.
    """
    span = error.span
    same = span is not None and text[span.start : span.end] == span.text[span.start : span.end]
    position = span.start + 1 if span is not None and same else 0
    detail = "" if span is None or same else span.caret()
    message, hint = told_of(error)
    code = f"{message} [{error.code}]"
    return Notice("ERROR", state_of(error), code, detail, hint, position)


def tell_cancelled(error: Interrupted, is_late: bool = False) -> Notice:
    """Return the message on a cancelled statement: what it cost."""
    why = "statement timeout" if is_late else "user request"
    return Notice("ERROR", CANCELLED, f"canceling statement due to {why}", str(error))
