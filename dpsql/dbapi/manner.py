"""How statements are asked: from which file, and with which largest error."""

from __future__ import annotations

from dpsql.engine.desk import Desk
from dpsql.errors import DataError, printable
from dpsql.settings import SETTINGS

LONGEST_NAME = 200
"""Characters of the name of a file that an entry of the ledger keeps."""


def ask_from(desk: Desk, source: str) -> str:
    """Have the ledger note the name of the file that statements are from; return the last one."""
    charges = desk.charges
    before, charges.source = charges.source, printable(source)[:LONGEST_NAME]
    return before


def demand(desk: Desk, max_stddev: str | None) -> None:
    """Have every statement that does not say otherwise keep to an error (max_stddev).

    Raises: DataError (E_SETTING).
    """
    own = SETTINGS["max_stddev"]
    wanted = None if max_stddev is None else own.read(max_stddev, error=DataError)
    desk.demanded = wanted
