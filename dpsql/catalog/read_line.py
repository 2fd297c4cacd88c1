"""On which line of a catalog an entry begins that a complaint is about.

What the text before a line declares is read as TOML, so that quoted and dotted names, inline
tables and values of several lines are where TOML has them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dpsql.files import read_regular

Keys = tuple[str, ...]
"""The names that lead to an entry, from the outermost on."""

_INNER = {
    False: ("budget", "noise", "ledger", "scratch"),
    True: ("privacy_unit", "references", "budget"),
}
"""Sections without a name of their own, of a catalog and of a table."""

MOST_BYTES = 1 << 20
"""Longer catalogs are not searched: it is a help, and reads the text some twenty times."""

_NAMED = re.compile(r"(?:unknown key |\[|)'?(\w+)\b")
_SECTION = re.compile(r"(table|view|analyst) '([^']*)'")
_IN_SECTION = re.compile(r"\[(\w+)(?:\.([^\]]*))?\](?: (\w+))?")


def find_line(path: Path, table: str | None, column: str | None, problem: str) -> int | None:
    """Return the line, from 1, of what a complaint is about; None where it names no entry.

    The key is the first word of the complaint, if there is such a key where it stands.

    Args:
        path: the catalog, in UTF-8; a file that cannot be read has no lines.
        table, column: entry that is complained of; None where it stands further out.
        problem: text of the complaint.
    """
    ways = list(_ways(table, column, problem))
    if not ways:
        return None
    try:
        text = read_regular(path.expanduser(), MOST_BYTES, through_links=True).decode("utf-8-sig")
        whole = tomllib.loads(text)
    except (OSError, ValueError, RuntimeError, RecursionError):
        return None
    keys = next((each for each in ways if _has(whole, each)), None)
    return None if keys is None else _line(text.split("\n"), keys)


def _ways(table: str | None, column: str | None, problem: str) -> Iterator[Keys]:
    """The entries that a complaint may be about, the most precise first."""
    sections: list[Keys] = [("table", table), ("view", table)] if table is not None else []
    if column is not None:
        sections = [(*each, "column", column) for each in sections]
    found, inner = _SECTION.match(problem), _IN_SECTION.match(problem)
    if table is None and found is not None:
        sections = [(found[1], found[2])]
        problem = problem[found.end() :].lstrip(": ")
    elif table is None and inner is not None:
        keys = tuple(part for part in inner.groups() if part)
        sections = [keys, keys[:1]]
        problem = ""
    named = _NAMED.match(problem)
    word = None if named is None else named[1]
    for each in sections or [()]:
        if word is not None:
            yield (*each, word)
            yield from ((*each, inner_name, word) for inner_name in _INNER[bool(each)])
    yield from sections


def _has(raw: Any, keys: Sequence[str]) -> bool:
    """True if an entry is there."""
    for key in keys:
        if not isinstance(raw, dict) or key not in raw:
            return False
        raw = raw[key]
    return True


def _line(lines: Sequence[str], keys: Keys) -> int:
    """The line where an entry of a valid catalog begins."""

    @cache
    def readable(end: int) -> tuple[int, bool]:
        """The last line up to which the text is TOML, and whether the entry is there by then."""
        for last in range(end, -1, -1):
            try:
                return last, _has(tomllib.loads("\n".join(lines[:last])), keys)
            except ValueError:
                continue
        return 0, False

    low, high = 0, len(lines)  # up to low it is not there, up to high it is
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if readable(middle)[1] else (middle, high)
    before = readable(high - 1)[0]
    blank = (k for k in range(before, high) if lines[k].strip() and lines[k].strip()[0] != "#")
    return next(blank, high - 1) + 1
