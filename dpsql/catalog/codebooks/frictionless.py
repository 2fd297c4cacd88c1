"""Table Schemas and data packages of Frictionless, versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpsql.catalog.codebook import BookColumn
from dpsql.catalog.codebooks.values import (
    closed_ends,
    items,
    nonempty_fields,
    read_values,
    section,
    text,
    type_of,
)
from dpsql.records import replace

NAME = "Table Schemas and datapackage.json of Frictionless"
SYNTAX = "tree"


def read(parsed: Any) -> Iterator[tuple[str, str, BookColumn]]:
    """Yield the fields of a schema, or of the schemas of a package."""
    for resource in items(section(parsed).get("resources")):
        for column, said in _fields(section(resource.get("schema"))):
            yield text(resource.get("name")), column, said
    for column, said in _fields(section(parsed)):
        yield "", column, said


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, BookColumn]]:
    lost = _missing(schema.get("missingValues"))
    for each in items(schema.get("fields")):
        own = each.get("missingValues")
        missing = lost if own is None else _missing(own)
        found = _field(each)
        if found is not None and isinstance(each.get("name"), str):
            is_null = missing != () and not section(each.get("constraints")).get("required")
            note = text(each.get("title")) or text(each.get("description"))
            found = replace(found, missing=missing, note=note, null=found.null or is_null)
            yield each["name"], found


def _missing(said: Any) -> tuple[str, ...]:
    """Fields that are missing; version 2 may give each a label."""
    given = said if isinstance(said, list) else []
    return nonempty_fields(each.get("value") if isinstance(each, dict) else each for each in given)


def _field(each: Mapping[str, Any]) -> BookColumn | None:
    """A field as its type, categories and constraints say; None for one of any type."""
    said = section(each.get("constraints"))
    kind, null = type_of(each, "string")
    if kind is None:
        return None
    values = read_values(said.get("enum"))
    kept = tuple(value for value in values if value is not None)
    null = null or len(kept) < len(values)
    categories = each.get("categories")
    labelled = [(x.get("value"), x.get("label")) for x in items(categories)]
    if labelled and all(isinstance(label, str) and label for _, label in labelled):
        pairs = zip(
            nonempty_fields(code for code, _ in labelled),
            (label for _, label in labelled),
            strict=False,
        )
        return BookColumn.labelled([(code, str(each)) for code, each in pairs], null)
    kept = kept or tuple(x for x in read_values(categories) if isinstance(x, str | int))
    kept = kept or tuple(code for code, _ in labelled if code is not None)
    keys = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    least, most = closed_ends(kind, *(said.get(key) for key in keys))
    return BookColumn(kind, kept, least, most, null)
