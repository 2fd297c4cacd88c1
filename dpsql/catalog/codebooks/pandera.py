"""Schemas of pandera as ``to_yaml`` and ``to_json`` write them, of all its versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dpsql.catalog.codebook import BookColumn
from dpsql.catalog.codebooks.values import as_json, closed_ends, items, read_values, section, text

NAME = "schemas of pandera (.yaml)"
SYNTAX = "tree"
TYPES = (
    (r"u?int\d*|pl\.u?int\d*", "integer"),
    (r"(float|double|decimal)\d*.*", "number"),
    (r"bool(ean)?", "boolean"),
    (r"datetime.*|timestamp.*", "timestamp"),
    (r"date.*", "date"),
    (r"time", "time"),
    (r"str.*|string.*|object|category|utf8|text", "text"),
)
"""Types of columns by the patterns of their names, the first that fits."""


def read(parsed: Any) -> Iterator[tuple[str, str, BookColumn]]:
    """Yield the columns of a schema of data frames."""
    whole = section(parsed)
    if whole.get("schema_type") == "dataframe":
        for name, each in section(whole.get("columns")).items():
            found = None if section(each).get("regex") else _column(section(each))
            if isinstance(name, str) and found is not None:
                yield "", name, found


def _column(said: Mapping[str, Any]) -> BookColumn | None:
    stored = text(said.get("dtype")).casefold().split(".")[-1]
    kind = next((k for pattern, k in TYPES if re.fullmatch(pattern, stored)), None)
    if kind is None:
        return None
    checks = _checks(said)
    values = [each for each in read_values(_value(checks.get("isin"))) if each is not None]
    if "equal_to" in checks and "isin" not in checks:
        values = [as_json(_value(checks["equal_to"]))]
    if values and type(values[0]) is int and kind == "text":
        kind = "integer"
    between = section(checks.get("in_range") or checks.get("between"))
    ends = [
        _value(checks.get(key)) for key in ("greater_than_or_equal_to", "less_than_or_equal_to")
    ] + [_value(checks.get(key)) for key in ("greater_than", "less_than")]
    for i, end in enumerate(("min", "max")):
        if f"{end}_value" in between:
            place = i if between.get(f"include_{end}", True) else i + 2
            ends[place] = between[f"{end}_value"]
    least, most = closed_ends(kind, *map(as_json, ends))
    note = text(said.get("description")) or text(said.get("title"))
    return BookColumn(kind, tuple(values), least, most, said.get("nullable") is True, note=note)


def _checks(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Checks by name: beside the other facts of a column, within ``checks``, or listed there."""
    given = said.get("checks")
    named = {text(section(each.get("options")).get("check_name")): each for each in items(given)}
    return {**said, **section(given), **named}


def _value(check: Any) -> Any:
    """The value that a check compares with, alone or beside its options."""
    return check.get("value") if isinstance(check, dict) else check
