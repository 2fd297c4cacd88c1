"""Parts of documents and values in them, as the readers of several formats take them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from dpsql.catalog.codebook import LARGEST

TYPES = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "date": "date",
    "datetime": "timestamp",
    "date-time": "timestamp",
    "time": "time",
    "year": "integer",
}
"""Declared types by the names that most formats have for them."""


def type_of(said: Mapping[str, Any], usual: str = "") -> tuple[str | None, bool]:
    """Return the type that a schema names, None for one that no column has, and if NULL is one.

    >>> type_of({"type": ["null", "integer"]}), type_of({"type": "string", "format": "date"})
    (('integer', True), ('date', False))
    """
    given = said.get("type", usual)
    kinds = given if isinstance(given, list) else [given]
    named = [text(each) for each in kinds if each != "null"]
    kind = TYPES.get(named[0]) if len(named) == 1 else None
    return (TYPES.get(text(said.get("format")), kind) if kind else None), "null" in kinds


def items(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none where it is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def section(value: Any) -> dict[str, Any]:
    """Return an object; an empty one where it is something else."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """Return a text; an empty one where it is something else."""
    return value if isinstance(value, str) else ""


def as_json(value: Any) -> Any:
    """Return a value as JSON would have it: days that YAML knows are texts.

    >>> as_json(dt.date(2024, 1, 2)), as_json(3)
    ('2024-01-02', 3)
    """
    return value.isoformat() if isinstance(value, dt.date | dt.time) else value


def read_values(value: Any) -> list[Any]:
    """Return the values of a list; none where it is no list.

    >>> read_values(["a", None]), read_values("a")
    (['a', None], [])
    """
    return [as_json(each) for each in value] if isinstance(value, list) else []


def nonempty_fields(values: Iterable[Any]) -> tuple[str, ...]:
    """Return fields as they are written in a file: texts that are not empty, and numbers.

    >>> nonempty_fields(["", "NA", -9, -9.0, 0.5, True, None])
    ('NA', '-9', '0.5')
    """
    known = (each for each in values if isinstance(each, str | int | float))
    texts = (
        str(int(each)) if isinstance(each, float) and each.is_integer() else str(each)
        for each in known
        if not isinstance(each, bool)
    )
    return tuple(dict.fromkeys(each for each in texts if each and each.isprintable()))


def end(value: str, kind: str) -> Any:
    """Return the end of a range, as it is written, as a value of a type; None where it is none.

    >>> end("120", "integer"), end("0.5", "number"), end("x", "integer"), end("2024-01-01", "date")
    (120, 0.5, None, '2024-01-01')
    """
    if kind in ("date", "timestamp"):
        return value or None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() and abs(number) <= LARGEST else number


def closed_ends(kind: str, least: Any, most: Any, above: Any, below: Any) -> tuple[Any, Any]:
    """Return the ends of a range whose ends may be excluded; of whole numbers those within.

    Args:
        kind: type of the column; an open end of "integer" moves by one, other types have no next
            value and keep it.
        least, most: closed ends, None where there is none; they win over open ones.
        above, below: open ends, None where there is none.

    >>> closed_ends("integer", None, None, 0, 10), closed_ends("number", 0, None, None, 1.5)
    ((1, 9), (0, 1.5))
    """
    if least is None and above is not None:
        least = above + 1 if kind == "integer" and type(above) is int else above
    if most is None and below is not None:
        most = below - 1 if kind == "integer" and type(below) is int else below
    return least, most
