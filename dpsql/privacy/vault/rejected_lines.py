"""Lines of files that are no rows, for the curator, and for files that are public."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.catalog.delimited import Delimited
from dpsql.privacy.vault.files import lines


def find_rejected_lines(
    path: str, written: Delimited, kind: str | None
) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a file that are no rows, but for blank ones: number, column, and why.

    Args:
        path: the file, whose first line is line 1.
        written: how it is declared to be written.
        kind: its format; None for delimited text.

    Raises: OSError, Unreadable.
    """
    if kind == "json":
        from dpsql.privacy.vault.formats import json_lines  # needs pyarrow, which is optional

        yield from json_lines.find_unread(path, written)
    else:
        yield from lines.find_unread(path, written)
