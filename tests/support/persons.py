"""The table of tests/support/oracle.py by persons with several rows each, and statements on them.

A person with more rows than count has the same row many times, so that it does not matter which of
them are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
from hypothesis import strategies as st

from tests.support.oracle import CATALOG, INSIDE, KINDS, VALUES, declare_view, write_world
from tests.support.statements import (
    Measured,
    Statement,
    aggregates,
    columns_of,
    conditions,
    pick,
    statements,
)

UNIT = "who"

_ROW = st.tuples(*map(st.sampled_from, VALUES))


@dataclass(frozen=True, slots=True)
class Persons:
    """Rows by person, None for nobody's, of whom at most ``most`` rows count."""

    most: int
    rows: tuple[tuple[str | None, tuple[Any, ...]], ...]


@st.composite
def persons(draw: st.DrawFn) -> Persons:
    """A table of up to some twenty persons."""
    most = draw(st.integers(1, 4))
    owned = st.lists(_ROW, min_size=1, max_size=most)
    heavy = st.tuples(_ROW, st.integers(most + 1, most + 4)).map(lambda p: [p[0]] * p[1])
    found: list[tuple[str | None, tuple[Any, ...]]] = []
    for number, rows in enumerate(draw(st.lists(st.one_of(owned, owned, heavy), max_size=22))):
        found += [(f"p{number}", row) for row in rows]
    found += [(None, row) for row in draw(st.lists(_ROW, max_size=2))]
    return Persons(most, tuple(draw(st.permutations(found))))


def write_persons(folder: Path, table: Persons) -> duckdb.DuckDBPyConnection:
    """Write the sources and the catalog; return a database with the declared view."""
    unit = f'privacy_unit = {{ column = "{UNIT}", max_rows = {table.most} }}'
    catalog = CATALOG.replace('privacy_unit = "row"', unit)
    rows = [(*row, person) for person, row in table.rows]
    database = write_world(folder, rows, catalog, f"{KINDS}, {UNIT} VARCHAR")
    declare_view(database, INSIDE, UNIT, table.most)
    return database


@st.composite
def unit_counts(draw: st.DrawFn) -> Measured:
    """A number of persons, or a ratio with one."""
    form = draw(
        pick(
            *["COUNT(DISTINCT {u})"] * 3,
            *["COUNT(DISTINCT {u}) FILTER (WHERE {p})"] * 3,
            "COUNT(DISTINCT CASE WHEN {p} THEN {u} END)",
            "COUNT(*) / COUNT(DISTINCT {u})",
            "100.0 * COUNT(DISTINCT {u}) FILTER (WHERE {p}) / COUNT(DISTINCT {u})",
        )
    )
    text = form.format(u=draw(pick(UNIT, UNIT, f"t.{UNIT}", UNIT.upper())), p=draw(conditions()))
    return Measured(text, 0.0, "mean" if "/" in form else "sum")


FORMS = (*["plain"] * 4, "sets", "running", *["public", "values"] * 3, "shell", "window")


@st.composite
def statements_of_persons(draw: st.DrawFn) -> Statement:
    """A statement about persons: over their table, a sub-query or a CTE of its rows."""
    kind = draw(pick(*["plain"] * 5, "ranges", "union", "joined"))
    if kind == "plain":
        found = draw(statements(FORMS, unit_counts()))
    else:
        measured = draw(st.lists(aggregates(unit_counts()), min_size=1, max_size=2))
        found = draw({"ranges": _ranges, "union": _union, "joined": _joined}[kind](measured))
    way = draw(pick("", "", "(SELECT * FROM t) AS t", "(SELECT t.* FROM t WHERE {}) t", "p AS t"))
    inner = way.format(draw(conditions()))
    start = "WITH p AS (SELECT *, a + 1 AS more FROM t) " if inner.startswith("p ") else ""

    def wrapped(sql: str) -> str:
        return start + re.sub(r"\b(FROM|JOIN) t\b", rf"\1 {inner}", sql) if inner and sql else sql

    return replace(found, sql=wrapped(found.sql), exact=wrapped(found.exact))


@st.composite
def _ranges(draw: st.DrawFn, measured: Sequence[Measured]) -> Statement:
    """All ranges of a column, which DuckDB has to be told one by one."""
    column, low, high = draw(st.sampled_from([("a", 0, 7), ("e", -2, 4)]))
    items = columns_of([], measured)
    where = draw(st.one_of(st.just(""), conditions().map(" WHERE {}".format)))
    text = f"SELECT DP_RANGES({column}) AS k0, {items} FROM t{where} GROUP BY 1"
    pairs = f"range({low}, {high + 1}) f(lo), range({low}, {high + 1}) g(hi)"
    exact = (
        f"SELECT '[' || lo || ', ' || hi || ']' AS k0, {items} FROM t JOIN (SELECT lo, hi FROM"
        f" {pairs} WHERE lo <= hi) r ON {column} BETWEEN lo AND hi{where} GROUP BY 1"
    )
    return Statement(text, 1, tuple(measured), exact=exact)


@st.composite
def _union(draw: st.DrawFn, measured: Sequence[Measured]) -> Statement:
    """The same numbers of two sets of rows that may share persons, or rows."""
    keys = draw(st.lists(pick("a", "b", "year(d)"), max_size=1))
    sides = [
        f"SELECT {side} AS side, {columns_of(keys, measured)} FROM t WHERE {draw(conditions())}"
        + (f" GROUP BY {keys[0]}" if keys else "")
        for side in (1, 2)
    ]
    return Statement(" UNION ALL ".join(sides), 1 + len(keys), tuple(measured), whole=False)


@st.composite
def _joined(draw: st.DrawFn, measured: Sequence[Measured]) -> Statement:
    """Two groupings of the same rows, joined: some numbers are asked twice."""
    key = draw(pick("a", "c", "e"))
    test = draw(conditions())
    sides = [
        f"(SELECT {key} AS k, {columns_of([], measured)} FROM t{where} GROUP BY 1"
        f" HAVING COUNT(DISTINCT {UNIT}) > 0.5) {name}"
        for name, where in (("l", ""), ("r", f" WHERE {test}"))
    ]
    items = [f"{name}.x{j}" for name in "lr" for j in range(len(measured))]
    text = f"SELECT l.k, {', '.join(items)} FROM {sides[0]} JOIN {sides[1]} ON l.k = r.k"
    return Statement(text, 1, (*measured, *measured), whole=False)
