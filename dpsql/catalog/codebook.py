"""Codebooks: what the documentation of data says of its columns, which a draft may declare.

A codebook is public, and no value is read for it. Table Schemas and data packages of Frictionless,
and JSON Schemas of a row, are known.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpsql.errors import UsageError, printable
from dpsql.records import dataclass

KNOWN = "known are Table Schemas and datapackage.json of Frictionless, and JSON Schemas of a row"
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
"""Declared types, by the names and formats of both kinds of schema."""
MOST_WHOLE = 10_000
"""Whole numbers of a domain; of more, bounds are declared."""
LARGEST = 2**53
"""The largest number of a catalog."""
MOST_LISTED = 1000
"""Values of a list that is written into a draft."""


@dataclass(frozen=True, slots=True)
class BookColumn:
    """A column as a codebook describes it: its type, its values or its ends, and NULL."""

    type: str
    values: tuple[Any, ...] = ()
    least: Any = None
    most: Any = None
    null: bool = False

    def facts(self) -> str:
        """Write the column as a catalog declares it, as far as that follows.

        >>> BookColumn("text", ("f", "m")).facts()
        '{ type = "text", domain = ["f", "m"] }'
        >>> BookColumn("integer", least=0, most=120, null=True).facts()
        '{ type = "integer", domain = [0, 120], null = true }'
        """
        said = {"type": self.type, **self._domain(), **({"null": True} if self.null else {})}
        return f"{{ {', '.join(f'{key} = {_toml(value)}' for key, value in said.items())} }}"

    def _domain(self) -> dict[str, Any]:
        known, ends = {"text": str, "integer": int}.get(self.type), [self.least, self.most]
        if self.type == "boolean":
            return {"domain": [False, True]}
        if known is not None and self.values and all(type(each) is known for each in self.values):
            if len(self.values) > MOST_LISTED or len({*self.values}) < len(self.values):
                return {}
            if known is str or len(self.values) > 2:
                return {"domain": list(self.values)}
            ends = [min(self.values), max(self.values)]
        if self.type == "date":
            return {"domain": ends, "by": "month"} if all(map(_is_day, ends)) else {}
        is_number = all(type(each) in (int, float) and abs(each) <= LARGEST for each in ends)
        if self.type not in ("integer", "number") or not is_number or ends[0] >= ends[1]:
            return {}
        if self.type == "integer" and all(type(each) is int for each in ends):
            return {"domain" if ends[1] - ends[0] <= MOST_WHOLE else "bounds": ends}
        return {"bounds": ends}


def _is_day(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(dt.date.fromisoformat(value))
    except ValueError:
        return False


def read_codebook(path: str | Path) -> dict[str, BookColumn]:
    """Read the columns that a codebook describes, by case-folded name.

    Raises: UsageError (E_DATA) for a file that is no codebook.
    """
    name = printable(Path(path).name)
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError("E_DATA", f"there is no codebook {name!r}", hint=KNOWN) from None
    except (OSError, ValueError, RecursionError):
        raise UsageError("E_DATA", f"the codebook {name!r} is no JSON", hint=KNOWN) from None
    found = dict(_columns(raw))
    if not found:
        raise UsageError("E_DATA", f"the codebook {name!r} describes no column", hint=KNOWN)
    return found


def _columns(raw: Any) -> Iterator[tuple[str, BookColumn]]:
    if not isinstance(raw, dict):
        return
    for each in _listed(raw.get("resources")):
        yield from _columns(each.get("schema"))
    for each in _listed(raw.get("fields")):
        said = {"type": "string", **each, **_section(each.get("constraints"))}
        yield from _described(each.get("name"), said)
    row = _section(raw.get("items")) or raw
    for name, each in _section(row.get("properties")).items():
        yield from _described(name, _section(each))


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _section(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _described(name: Any, said: Mapping[str, Any]) -> Iterator[tuple[str, BookColumn]]:
    """Yield a column of either kind of schema; one of an unknown type is left to the draft."""
    kinds = said.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    is_null, named = "null" in kinds, [each for each in kinds if each != "null"]
    kind = said.get("format") if said.get("format") in TYPES else (named or [None])[0]
    if not isinstance(name, str) or not isinstance(kind, str) or kind not in TYPES:
        return
    values = said.get("enum") if isinstance(said.get("enum"), list) else []
    listed = tuple(each for each in values or () if each is not None)
    least, most = said.get("minimum"), said.get("maximum")
    is_null = is_null or len(listed) < len(values or ())
    yield name.casefold(), BookColumn(TYPES[kind], listed, least, most, is_null)


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
