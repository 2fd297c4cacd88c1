"""Footers of Parquet files: how columns are stored; no row is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import duckdb

INSTANTS = "instants"
"""Instants in milliseconds, which DuckDB converts while it reads, so that one out of range stops
all others."""
OLD = "old"
"""The older ones of 96 bits, of which some versions of DuckDB do so; they say nothing of a zone."""
TIMES = "times"
"""Times of day, of which DuckDB refuses what is out of range, and all others with it."""
BESIDES = (INSTANTS, OLD, TIMES)
"""Types that pyarrow reads beside DuckDB."""
MICROS = "micros"
"""Instants that pyarrow and DuckDB read alike."""
UNREADABLE = "unreadable"
"""A type of which one value can stop all others, whoever reads it."""
PLAIN = ""

IN_MILLIS = "converted_type = 'TIMESTAMP_MILLIS' OR contains(logical_type, 'MILLIS=M')"
CLOCK = "duckdb_type LIKE 'TIMESTAMP%'"
# Nobody fetches decimals of any length, and times of day in other types, as they are stored.
RISKY = (
    f"{IN_MILLIS} OR duckdb_type LIKE 'TIME%' AND NOT {CLOCK} "
    "OR converted_type = 'DECIMAL' AND type = 'BYTE_ARRAY'"
)
SCHEMAS = f"""
SELECT file_name, name, field_id, COALESCE(num_children, 0),
    CASE WHEN {CLOCK} AND type = 'INT96' THEN '{OLD}'
        WHEN {CLOCK} AND type = 'INT64' AND ({IN_MILLIS}) THEN '{INSTANTS}'
        WHEN type IN ('INT32', 'INT64') AND duckdb_type IN ('TIME', 'TIME_NS') THEN '{TIMES}'
        WHEN {RISKY} THEN '{UNREADABLE}'
        WHEN type = 'INT64' AND duckdb_type IN ('TIMESTAMP', 'TIMESTAMP WITH TIME ZONE')
            THEN '{MICROS}'
        ELSE '{PLAIN}' END,
    * EXCLUDE (file_name, name, field_id)
FROM parquet_schema(?)"""

Footer = tuple[tuple[object, ...], ...]
"""The schema of a file: name, id, number of children, how stored, and all that there is."""


def read_footers(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> dict[str, Footer]:
    """Read the schemas of Parquet files, each below its path; equal ones have one description.

    One query for all: of thousands of files each would take a millisecond more by itself.
    """
    found: dict[str, list[tuple[object, ...]]] = {path: [] for path in paths}
    for path, *facts in connection.execute(SCHEMAS, [list(paths)]).fetchall():
        found[path].append(tuple(facts))
    return {path: tuple(rows) for path, rows in found.items()}


def stored_as(footers: Iterable[Footer], columns: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return how each column of Parquet files is stored: OLD, INSTANTS, TIMES, UNREADABLE or PLAIN.

    ``columns`` are their names and types, as DuckDB describes them.
    """
    fields = [[(name, how) for name, _, how in top_fields(each)] for each in set(footers)]
    return tuple(
        _together([(each, i) for each in fields], name) for i, (name, _) in enumerate(columns)
    )


def _together(places: Sequence[tuple[list[tuple[str, str]], int]], name: str) -> str:
    """Return how a column is stored in all files; ``places`` are their fields and its position."""
    found = {fields[i][1] for fields, i in places}
    if UNREADABLE in found or not found - {PLAIN, MICROS}:
        return UNREADABLE if UNREADABLE in found else PLAIN
    if TIMES in found and len(found) > 1:
        return UNREADABLE
    is_named = all(_is_alone(fields, i, name) for fields, i in places)
    if not is_named or PLAIN in found:
        return UNREADABLE
    return next(each for each in (TIMES, OLD, INSTANTS) if each in found)


def _is_alone(fields: list[tuple[str, str]], place: int, name: str) -> bool:
    """Say whether a column has its own name, and no path that pyarrow takes for that of another."""
    others = [other for i, (other, _) in enumerate(fields) if i != place]
    paths = [(f"{other}.", f"{name}.") for other in others]
    return fields[place][0] == name and not any(
        one.startswith(two) or two.startswith(one) for one, two in paths
    )


def top_fields(footer: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, int | None, str]]:
    """Name the columns of a schema, which lists the fields of each below it; first comes its root.

    >>> rows = ("root", None, 2, ""), ("s", 7, 1, ""), ("x", None, 0, "instants"), ("x", 8, 0, "")
    >>> list(top_fields(rows))
    [('s', 7, ''), ('x', 8, '')]
    """
    below = 0
    for name, number, children, stored, *_ in footer[1:]:
        if not below:
            yield name, number, stored
        below += children - bool(below)
