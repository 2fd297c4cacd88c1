"""Whatever rows one person brings: results, refusals, notes and costs are the same to the byte.

Tables of one unit in Parquet files as other programs write them, with keys that are found; only
numbers with noise, and the keys that a release chose, may tell worlds apart.
"""

from __future__ import annotations

import datetime as dt
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.privacy.doors import find_keys
from dpsql.privacy.doors.discovery import KeyCounts

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-6
discovery_delta = 5e-7
[ledger]
anchor = "anchors"
[unit.person]
[table.patients]
source = "patients.parquet"
privacy_unit = { column = "person", max_rows = 1 }
[table.patients.column]
sex = { type = "text", domain = ["f", "m"] }
born = { type = "date", domain = ["1950-01-01", "2009-12-31"], by = "year", null = true }
[table.visits]
source = "visits.parquet"
privacy_unit = { column = "person", max_rows = 4 }
references = { patients = "person" }
[table.visits.column]
ward = { type = "text", domain = ["a", "b"], other = true }
drug = { type = "text", domain = "discover", max_keys = 2, null = true }
code = { type = "integer", domain = "discover" }
day = { type = "date", domain = "discover", by = "month" }
cost = { type = "number", bounds = [0, 9007199254740992], null = true }
age = { type = "number", domain = [0, 100], bins = 4 }
paid = { type = "number", bounds = "discover" }
[table.lines]
source = "lines.parquet"
privacy_unit = { through = "visits", on = "visit", max_rows = 6 }
[table.lines.column]
kind = { type = "text", domain = ["x", "y"] }
"""
SCRIPT = (
    "CREATE DOMAIN drugs FROM visits (drug) OPTIONS (epsilon = 1)",
    "CREATE DOMAIN again FROM visits (drug)",
    "DROP DOMAIN drugs",
    "CREATE DOMAIN drugs FROM visits (drug) OPTIONS (epsilon = 1, noise = gaussian, delta = 1e-7)",
    "CREATE DOMAIN codes FROM visits (code)",
    "CREATE DOMAIN days FROM visits (day)",
    "CREATE BOUNDS paids FROM visits (paid)",
    "CREATE DOMAIN kinds FROM lines (kind)",
    "DESCRIBE DOMAIN drugs",
    "EXPLAIN SELECT drug, COUNT(*) FROM visits GROUP BY drug",
    "SELECT drug, COUNT(*) FROM visits GROUP BY drug",
    "SELECT COUNT(*) FROM visits WHERE drug = 'rare'",
    "SELECT p.sex, v.drug, COUNT(*), SUM(v.cost) FROM visits v JOIN patients p USING (person)"
    " GROUP BY ALL",
    "SELECT l.kind, v.ward, COUNT(*) FROM lines l JOIN visits v USING (visit) GROUP BY ALL",
    "SELECT n, COUNT(*) FROM (SELECT person, COUNT(*) AS n FROM visits GROUP BY person) p GROUP BY"
    " n",
    "SELECT SUM(s), SUM(a), COUNT(*) FROM (SELECT person, SUM(cost) AS s, AVG(age) AS a FROM visits"
    " GROUP BY person) p",
    "SELECT COUNT(*) FROM patients WHERE person IN (SELECT person FROM visits WHERE ward = 'a')",
    "SELECT COUNT(DISTINCT person) FROM patients p LEFT JOIN visits v USING (person) WHERE"
    " v.person IS NULL",
    "SELECT ward, SUM(cost, contribution_bounds_per_group => (0, 50)) FROM visits GROUP BY ward",
    "SELECT person, COUNT(*) FROM visits GROUP BY person",
    "SELECT COUNT(*) FROM visits v JOIN patients p ON v.ward = p.sex",
    "SELECT MAX(cost) FROM visits",
    "SELECT COUNT(*) FROM lines JOIN patients USING (person)",
    "SHOW domains",
    "DROP DOMAIN drugs",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (keys = 'private') drug, COUNT(DISTINCT person)"
    " FROM visits GROUP BY drug",
)
"""Statements that are answered, and statements that are refused."""


def typed(kind: str, values: Sequence[int | None]) -> pa.Array:
    """Identities as some program stores them."""
    match kind:
        case "text" | "dictionary":
            found = pa.array([None if v is None else f"p{v}" for v in values], pa.string())
            return found.dictionary_encode() if kind == "dictionary" else found
        case "double":
            odd = {-1: float("nan"), -2: float("inf"), -3: -0.0}
            return pa.array(
                [v if v is None else odd.get(v, float(v)) for v in values], pa.float64()
            )
        case "decimal":
            return pa.array([None if v is None else Decimal(v) for v in values], pa.decimal128(20))
        case "unsigned":
            return pa.array([None if v is None else v % 2**64 for v in values], pa.uint64())
        case "broken":
            return broken([None if v is None else b"p\xff%d" % v for v in values])
    return pa.array(values, {"small": pa.int32(), "whole": pa.int64()}[kind])


def broken(values: Sequence[bytes | None]) -> pa.Array:
    """Texts that are declared UTF-8 and are not."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


@dataclass(frozen=True, slots=True)
class World:
    """Rows of three tables: (person, sex, born), (person, visit, ...) and (visit, kind)."""

    patients: Sequence[tuple[Any, ...]]
    visits: Sequence[tuple[Any, ...]]
    lines: Sequence[tuple[Any, ...]]

    def plus(self, other: World) -> World:
        return World(
            [*self.patients, *other.patients],
            [*self.visits, *other.visits],
            [*self.lines, *other.lines],
        )

    def write(self, folder: Path, kind: str) -> Path:
        folder.mkdir()
        who, sex, born = columns(self.patients, 3)
        pq.write_table(
            pa.table(
                {
                    "person": typed(kind, who),
                    "sex": broken(sex),
                    "born": pa.array(born, pa.date32()),
                }
            ),
            folder / "patients.parquet",
        )
        who, visit, ward, drug, code, day, cost, age, paid = columns(self.visits, 9)
        pq.write_table(
            pa.table(
                {
                    "person": typed(kind, who),
                    "visit": typed(kind, visit),
                    "ward": broken(ward),
                    "drug": broken(drug),
                    "code": pa.array(code, pa.int64()),
                    "day": pa.array(day, pa.date32()),
                    "cost": pa.array(cost, pa.float64()),
                    "age": pa.array(age, pa.float64()),
                    "paid": pa.array(paid, pa.float64()),
                }
            ),
            folder / "visits.parquet",
        )
        visit, kinds = columns(self.lines, 2)
        pq.write_table(
            pa.table({"visit": typed(kind, visit), "kind": broken(kinds)}),
            folder / "lines.parquet",
        )
        (folder / "t.toml").write_text(CATALOG)
        return folder / "t.toml"


def columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    return [[row[i] for row in rows] for i in range(count)]


DAYS = (dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29), None)
NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e308, -0.0, 5e-324, 2.0**53, 2.0**63, None)
TEXTS = (b"a", b"f", b"x", b"", b"\xff\xfe", b"a\x00b", "e\u0301".encode(), b"t" * 5000, None)
CODES = (2**63 - 1, -(2**63), 0, 7, None)


def plain(people: int) -> World:
    """Ordinary rows."""
    return World(
        [(i, b"fm"[i % 2 : i % 2 + 1], dt.date(1980, 1, 1)) for i in range(people)],
        [
            (i, 2 * i + k, b"a", b"tea", 7, dt.date(2024, 1, 1 + k), 5.0 + k, 30.0, 2.0)
            for i in range(people)
            for k in range(2)
        ],
        [(i, b"x") for i in range(2 * people)],
    )


def hostile(draw: random.Random, who: int | None, rows: int) -> World:
    """Everything odd that one person can have, and keys of others."""
    keys = [*range(6), None, who]
    return World(
        [(who, draw.choice(TEXTS), draw.choice(DAYS)) for _ in range(rows)],
        [
            (
                who,
                draw.choice(keys),
                draw.choice(TEXTS),
                draw.choice(TEXTS),
                draw.choice(CODES),
                draw.choice(DAYS),
                draw.choice(NUMBERS),
                draw.choice(NUMBERS),
                draw.choice(NUMBERS),
            )
            for _ in range(rows)
        ],
        [(draw.choice(keys), draw.choice(TEXTS)) for _ in range(rows)],
    )


def shown(connection: Connection, sql: str) -> Any:
    """All that a statement shows but for noisy numbers."""
    try:
        result = connection.execute(sql).result
    except dpsql.Error as error:
        return str(error), error.code, error.hint
    certain = [errors is None for errors in result.stddev]
    rows = [
        [v for v, kept in zip(row, certain, strict=True) if kept and not isinstance(v, float)]
        for row in result.rows
    ]
    return result.columns, result.types, rows, result.stddev, result.notes, str(result.cost)


def released(real: Callable[..., Any]) -> Callable[..., Any]:
    """The same keys in every world, once the real ones were chosen."""
    fixed = {"drug": ("gin", "tea"), "code": (3, 7), "day": (dt.date(2024, 1, 1),)}

    def choose(asked: Any, pairs: Any) -> Any:
        real(asked, pairs)
        return fixed[asked.column]

    return choose


def counted(real: Callable[..., Any]) -> Callable[..., Any]:
    """The same keys and counts in every world, once the real ones were counted."""

    def count(asked: Any, pairs: Any) -> Any:
        real(asked, pairs)
        return KeyCounts(("gin", "tea"), (7, 9), 3, 4)

    return count


def transcript(place: Path, world: World, kind: str) -> list[Any]:
    """What all statements show in a world, and what the ledger says of them."""
    with (
        mock.patch.object(find_keys, "_choose", released(find_keys._choose)),
        mock.patch.object(find_keys, "_count", counted(find_keys._count)),
        mock.patch("dpsql.engine.discover.enclosing", return_value=(0, 8)),
        warnings.catch_warnings(record=True) as told,
        dpsql.connect(world.write(place, kind), epsilon=1) as connection,
    ):
        warnings.simplefilter("always")
        found = [shown(connection, sql) for sql in SCRIPT]
        found += [(entry.epsilon, entry.state) for entry in connection.entries()]
    return [*found, [str(each.message) for each in told]]


def worlds(kind: str) -> Iterator[tuple[str, World]]:
    """Worlds that differ by a person or by all of them; odd rows are read alike in all of them."""
    draw = random.Random(kind)
    who = 2**31 - 2
    yield "plain", plain(8)
    if kind in QUICK:
        yield "empty", World([], [], [])
        yield "alone", hostile(draw, who, 40)
        yield "nobody", hostile(draw, None, 30)
        yield "one more", plain(8).plus(hostile(draw, who, 60))
    else:
        yield "more", plain(8).plus(hostile(draw, None, 30)).plus(hostile(draw, who, 60))
    if kind == "double":
        odd = [hostile(draw, odd, 20) for odd in (-1, -2, -3)]
        yield "odd", plain(8).plus(odd[0]).plus(odd[1]).plus(odd[2])


QUICK = ("text",)
KINDS = ("whole", "double", "decimal", "unsigned", "dictionary", "broken", "small")


@pytest.mark.parametrize(
    "kind", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in KINDS)]
)
def test_nothing_but_numbers_tells_worlds_apart(tmp_path: Path, kind: str) -> None:
    first, *others = [
        (name, transcript(tmp_path / name, world, kind)) for name, world in worlds(kind)
    ]
    assert sum(isinstance(each, tuple) and len(each) == 3 for each in first[1]) < 12, first
    for name, found in others:
        for sql, one, two in zip([*SCRIPT, *found[len(SCRIPT) :]], first[1], found, strict=True):
            assert one == two, (name, sql)
