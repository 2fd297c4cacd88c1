"""Audit of distinct units through the front door: exact numbers on tables that differ by one unit.

What is measured is noted before noise is added, with the scale of that noise; so the loss of every
pair of neighbours is known exactly, and so is what the numbers should be.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
from numpy.typing import NDArray

import dpsql
from dpsql.privacy.budget.accounting import rho_for
from dpsql.privacy.doors import measure
from tests.support.tables import write_tables

Visit = tuple[str, int, str]
Noted = list[tuple[NDArray[Any], Fraction]]
DELTA = Fraction("1e-6")

MOST = 2
"""Rows that one person may have."""

CATALOG = f"""
[budget]
epsilon = 100000
delta = 1e-4

[table.t]
source = "t.parquet"
privacy_unit = {{ column = "who", max_rows = {MOST} }}

[table.t.column]
yr = {{ type = "integer", domain = [1, 5] }}
g = {{ type = "text", domain = ["a", "b", "c"] }}
"""
N = "COUNT(DISTINCT who) AS n"
SIZES = "(VALUES (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (5, 5)) v(lo, wide)"

RANGES = f"SELECT DP_RANGES(yr) AS r, {N} FROM t GROUP BY r"
STATEMENTS = [
    RANGES,
    f"SELECT {N} FROM t WHERE yr BETWEEN 2 AND 4",
    f"SELECT lo, {N} FROM t JOIN {SIZES} ON yr >= lo AND yr < lo + wide GROUP BY lo",
    f"SELECT wide, g, {N} FROM t JOIN {SIZES} ON yr >= lo AND yr < lo + wide GROUP BY wide, g",
    f"SELECT wide, {N} FROM t JOIN {SIZES} ON yr = lo + wide WHERE yr < 5 OR g = 'a' GROUP BY wide",
    f"SELECT g, yr, {N} FROM t GROUP BY CUBE (g, yr)",
    f"SELECT {N} FROM t WHERE yr < 3 OR g = 'b'",
    f"SELECT {N}, COUNT(DISTINCT who) FILTER (WHERE g <> 'c') AS m, COUNT(*) AS k FROM t",
    "SELECT COUNT(DISTINCT who) FILTER (WHERE yr < 3), COUNT(DISTINCT who) FILTER (WHERE yr > 4)"
    " FROM t",
    "SELECT COUNT(DISTINCT g) AS values FROM t WHERE yr <> 3",
    "SELECT yr, COUNT(DISTINCT g) AS values FROM t GROUP BY yr",
    "SELECT yr // 3 AS k, COUNT(DISTINCT yr) AS values FROM t GROUP BY k",
    "SELECT g, SUM(DISTINCT yr) AS values, AVG(DISTINCT yr - 3) AS m FROM t GROUP BY g",
    "SELECT COUNT(DISTINCT yr) FILTER (WHERE g <> 'c') AS k, COUNT(DISTINCT CASE WHEN yr < 3 OR"
    " g = 'b' THEN yr % 3 END) AS values FROM t",
    f"SELECT wide, COUNT(DISTINCT g) AS a, COUNT(DISTINCT yr) AS values FROM t JOIN {SIZES}"
    " ON yr >= lo AND yr < lo + wide GROUP BY wide",
]
PAIRS = "(SELECT lo, hi FROM range(1, 6) a(lo), range(1, 6) b(hi) WHERE lo <= hi)"
NAME = "'[' || lo || ', ' || hi || ']' AS r"
EXACT = {RANGES: f"SELECT {NAME}, {N} FROM {PAIRS} JOIN t ON yr BETWEEN lo AND hi GROUP BY r"}
"""What DuckDB is asked instead."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The exact rows of an answer; the exact integers of every block, and their noise scale."""

    rows: set[tuple[Any, ...]]
    noted: Noted

    def loss(self, other: Wanted, noise: str) -> Fraction:
        """The privacy loss between two tables: epsilon, or rho under Gaussian noise."""
        total = Fraction(0)
        for (one, scale), (two, same) in zip(self.noted, other.noted, strict=True):
            assert scale == same
            change = [int(x) for x in one - two]
            if noise == "laplace":
                total += sum(map(abs, change)) / scale
            else:
                total += sum(x * x for x in change) / (2 * scale)
        return total


def visits(seed: int, persons: int = 7) -> list[Visit]:
    """Rows of persons: up to as many as count, or one that is there far too often."""
    draw = random.Random(seed)
    found: list[Visit] = []
    for number in range(persons):
        own = [(draw.randint(1, 5), draw.choice("abc")) for _ in range(draw.randint(1, MOST))]
        own = own[:1] * 5 if number == 0 else own
        found += [(f"p{number}", yr, g) for yr, g in own]
    draw.shuffle(found)
    return found


def ask(place: Path, rows: Sequence[Visit], noise: str) -> dict[str, Wanted]:
    """The exact answers of all statements, and what was measured for them."""
    write(place, rows).close()
    found = {}
    with (
        mock.patch.object(measure, "_add_noise") as add_noise,
        dpsql.connect(place / "t.toml", epsilon=1) as connection,
    ):
        connection.set("fresh", "on")
        connection.set("delta", "1e-6" if noise == "gaussian" else "0")
        connection.set("noise", noise)
        for sql in STATEMENTS:
            noted: Noted = []

            def note(exact: NDArray[Any], noise: str, scale: Fraction, wide: bool) -> NDArray[Any]:
                noted.append((exact.astype(object), scale))  # noqa: B023
                return exact

            add_noise.side_effect = note
            found[sql] = Wanted(rounded(connection.execute(sql).result.rows), noted)
    return found


def write(place: Path, rows: Sequence[Visit]) -> duckdb.DuckDBPyConnection:
    """Write the table; return a database with the same."""
    return write_tables(place, CATALOG, {"t": ("who VARCHAR, yr INTEGER, g VARCHAR", rows)})


def rounded(rows: Iterable[Sequence[Any]]) -> set[tuple[Any, ...]]:
    """Rows in no order, noise of floating point left out."""
    return {tuple(v if isinstance(v, str | None) else round(float(v), 6) for v in r) for r in rows}


def numbers(place: Path, seed: int = 1) -> None:
    """Every group counts its persons once, as DuckDB does; groups it does not have have none."""
    rows = visits(seed)
    found = ask(place / "numbers", rows, "laplace")
    with write(place / "known", rows) as database:
        kept = f"row_number() OVER (PARTITION BY who) <= {MOST}"
        database.execute(f"CREATE OR REPLACE TABLE t AS FROM t QUALIFY {kept}")
        for sql, asked in found.items():
            known = rounded(database.execute(EXACT.get(sql, sql)).fetchall())
            assert known <= asked.rows, sql
            assert not any(row[-1] for row in asked.rows - known), sql


def losses(place: Path, noise: str, seed: int = 1) -> None:
    """Remove a person: what is measured moves by no more than the noise is there for."""
    rows = visits(seed)
    whole = ask(place / "whole", rows, noise)
    paid = Fraction(1) if noise == "laplace" else rho_for(Fraction(1), DELTA)
    for person in ("p0", "p1", "p2", "p3"):
        rest = ask(place / person, [row for row in rows if row[0] != person], noise)
        for sql, one in whole.items():
            assert one.loss(rest[sql], noise) <= paid, sql
