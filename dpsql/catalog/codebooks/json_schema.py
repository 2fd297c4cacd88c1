"""JSON Schemas of a row, or of a list of rows, as they are written by hand and by pydantic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpsql.catalog.codebook import BookColumn
from dpsql.catalog.codebooks.values import closed_ends, items, read_values, section, text, type_of
from dpsql.records import replace

NAME = "JSON Schemas of a row"
SYNTAX = "tree"
DEEPEST = 20
"""Steps from a reference to what it means."""


def read(parsed: Any) -> Iterator[tuple[str, str, BookColumn]]:
    """Yield the properties of a row."""
    whole = section(parsed)
    row = _resolved(whole, section(whole.get("items")) or whole)
    for name, each in section(row.get("properties")).items():
        found = _property(whole, section(each))
        if isinstance(name, str) and found is not None:
            yield "", name, found


def _resolved(whole: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a schema says with what it refers to in the same document."""
    known = dict(said)
    for _ in range(DEEPEST):
        (only,) = items(known.get("allOf")) if len(items(known.get("allOf"))) == 1 else ({},)
        at = text(known.pop("$ref", "")) or text(only.get("$ref"))
        known.pop("allOf", None)
        if not at.startswith("#/"):
            return {**only, **known}
        found: Any = whole
        for part in at[2:].split("/"):
            found = section(found).get(part.replace("~1", "/").replace("~0", "~"))
        known = {**section(found), **{k: v for k, v in known.items() if k != "$ref"}}
    return {}


def _property(whole: Mapping[str, Any], said: Mapping[str, Any]) -> BookColumn | None:
    """A property; None where its type is none that a column has."""
    known = _resolved(whole, said)
    ways = [_resolved(whole, each) for key in ("anyOf", "oneOf") for each in items(known.get(key))]
    some = [each for each in ways if each.get("type") != "null"]
    null = len(some) < len(ways)
    if len(some) == 1:
        known = {**known, **some[0]}
    kind, is_null = type_of(known)
    consts = [each.get("const") for each in some]
    titles = [text(each.get("title")) or text(each.get("description")) for each in some]
    note = text(known.get("description")) or text(said.get("title"))
    is_listed = len(some) > 1 and all(isinstance(each, str | int) for each in consts)
    if is_listed and all(titles):
        pairs = [(str(code), title) for code, title in zip(consts, titles, strict=True)]
        found = BookColumn.labelled(pairs, null or is_null)
        return replace(found, note=note)
    values = consts if is_listed else read_values(known.get("enum"))
    values = values or [known["const"]] if "const" in known else values
    kept = tuple(each for each in values if each is not None)
    if "type" not in known and kept:
        kind = {str: "text", int: "integer"}.get(type(kept[0]))
    if kind is None:
        return None
    keys = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    ends = (known.get(key) for key in keys)
    least, most = closed_ends(kind, *(None if isinstance(end, bool) else end for end in ends))
    null = null or is_null or len(kept) < len(values)
    return BookColumn(kind, kept, least, most, null, note=note)
