"""Keys and bounds of columns, to be found and released because nobody can list them."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Iterable
from typing import Literal

from dpsql.records import dataclass, field

Key = str | int | dt.date
SEPARATOR = "\x1f"
"""Between the parts of a key of several columns: a control character, which no key has."""
LONGEST_KEY = 1000
"""Bytes of a text that can be a key."""
KEYS = {
    "text": f"one line without controls, of at most {LONGEST_KEY:,} bytes",
    "integer": "a whole number of at most 2^53",
    "date": "a day of the years 1 to 9998",
}
"""Values that can be keys, by the type of their column."""


@dataclass(frozen=True, slots=True)
class Sought:
    """The facts that a column is declared to lack: its keys, or its bounds.

    At most ``max_keys`` different keys of a privacy unit count; ``by`` is the period of a date.
    ``parts`` are the columns that keys are found of together, each with its type and its name,
    case-folded; none for one column.
    """

    what: Literal["keys", "bounds"]
    max_keys: int = 1
    by: str = "day"
    parts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that keys are found of together."""
        return tuple(name for _, name in self.parts)

    @property
    def statement(self) -> str:
        """The first words of the statement that finds it."""
        return "CREATE DOMAIN" if self.what == "keys" else "CREATE BOUNDS"


def distinct_keys(keys: Iterable[Key], label: object, room: int) -> tuple[Key, ...]:
    """Return the first keys that differ from each other, and from a label, beyond doubt.

    Texts that differ in nothing but spaces around them or their Unicode form are one.

    Args:
        keys: sorted by whoever calls; of keys that are alike the first is kept.
        label: value of the cell for all other keys, which no key may read as.
        room: most keys that are returned.

    >>> distinct_keys(["caf\\u00e9", "cafe\\u0301", "other", "tea", "tea "], "other", 9)
    ('caf\u00e9', 'tea')
    >>> distinct_keys([1, 2, 3], 2, 1)
    (1,)
    """
    kept: dict[object, Key] = {_fold(label): ""}
    for key in keys:
        kept.setdefault(_fold(key), key)
    return tuple(kept.values())[1 : room + 1]


def _fold(key: object) -> object:
    if not isinstance(key, str):
        return key
    parts = unicodedata.normalize("NFC", key).split(SEPARATOR)
    return SEPARATOR.join(part.strip() for part in parts)
