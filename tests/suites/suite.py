"""Suites of statements that others wrote: tables, catalogs, and answers beside DuckDB's."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb

import dpsql
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise
from tests.support.tables import World

HERE = Path(__file__).parent
REFUSED = "refused:"
BEYOND = "beyond:"
TABLES = dict.fromkeys(("analysts", "reports", "weekly"), "strangers")
"""Suites over the tables and the catalog of another."""
EXACT = "exact:"
WITHIN = "within:"
_PRIVATELY = re.compile(
    r"WITH DIFFERENTIAL_PRIVACY OPTIONS \([^)]*\)|, contribution_bounds_per_\w+ => \([^)]*\)"
)
_SCALE = re.compile(r"scale\(\) AS [0-9.]+;")
_LIST = re.compile(r"\$\{(.*?)\}")


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement of a suite and its name.

    ``refused`` is the error that it is known to meet, ``exact`` what DuckDB is asked in its place,
    ``within`` how far its numbers may be off, in proportion: measures are rounded to a grid.
    ``beyond`` says why no system with differential privacy can answer it, where that is so.
    """

    name: str
    sql: str
    refused: str | None = None
    exact: str | None = None
    within: float = 1e-4
    beyond: str | None = None


def read_suite(path: Path) -> list[Asked]:
    """The statements of a file: blocks between empty lines, comments first, the name before all.

    ``-- refused: CODE why`` says that a statement is refused, ``-- exact: SELECT ...`` what DuckDB
    is asked in its place, ``-- within: 0.01`` how far numbers may be off. ``-- beyond: CODE why``
    is refused, and no system with differential privacy can answer it: it asks for rows themselves.
    """
    found = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        lines = block.strip().splitlines()
        notes = [line[2:].strip() for line in lines if line.startswith("--")]
        sql = "\n".join(line for line in lines if not line.startswith("--"))
        if not sql:
            continue
        said = {
            key: next((note[len(key) :].strip() for note in notes if note.startswith(key)), None)
            for key in (REFUSED, EXACT, WITHIN, BEYOND)
        }
        sql = sql.strip().rstrip(";")
        within = float(said[WITHIN] or 1e-4)
        beyond = said[BEYOND]
        found.append(Asked(notes[0], sql, said[REFUSED] or beyond, said[EXACT], within, beyond))
    assert len({each.name for each in found}) == len(found)
    return found


@contextmanager
def open_suite(folder: Path, name: str, scale: str = "") -> Iterator[World]:
    """A connection to the tables of a suite, with a state of its own, and DuckDB with the same.

    ``${SELECT ...}`` in the catalog is a list that the specification writes out. ``scale`` is
    another one than the tables say.
    """
    name = TABLES.get(name, name)
    with duckdb.connect() as database:
        tables = (HERE / f"{name}_tables.sql").read_text("utf-8")
        if scale:
            tables = _SCALE.sub(f"scale() AS {scale};", tables)
        database.execute(tables.replace("demo_data/", f"{HERE.parents[1]}/demo_data/"))
        catalog = (HERE / f"{name}.toml").read_text("utf-8")
        catalog = _LIST.sub(lambda found: _listed(database, found[1]), catalog)
        (folder / "t.toml").write_text(catalog, encoding="utf-8")
        for (table,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            database.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
        with (
            mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "state")}),
            dpsql.connect(folder / "t.toml", epsilon=1) as connection,
        ):
            yield connection, database


def _listed(database: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The values of one column as a list of TOML, which writes texts as JSON does."""
    return json.dumps([value for (value,) in database.execute(sql).fetchall()], ensure_ascii=False)


def difference(
    connection: Connection, database: duckdb.DuckDBPyConnection, asked: Asked
) -> str | None:
    """How the answer differs from DuckDB's; None where it does not.

    Raises: dpsql.Error where the statement is refused.
    """
    result = connection.execute(asked.sql).result
    rows = database.execute(_PRIVATELY.sub("", asked.exact or asked.sql)).fetchall()
    return compared(result, rows, asked.within)


def compared(result: Result, expected: Sequence[Sequence[Any]], within: float) -> str | None:
    """The first row of either that the other lacks; groups that the data lack count nothing."""
    keys = [place for place, errors in enumerate(result.stddev) if errors is None]
    numbers = [place for place, errors in enumerate(result.stddev) if errors is not None]
    waiting: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in result.rows:
        waiting.setdefault(_picked(row, keys), []).append(_picked(row, numbers))
    for line in expected:
        key, found = _picked(line, keys), _picked(line, numbers)
        near = [each for each in waiting.get(key, ()) if _alike(each, found, within)]
        if not near:
            return f"{tuple(line)} is not there, but {waiting.get(key, [])[:3]}"
        waiting[key].remove(near[0])
    rest = ((key, each) for key, left in waiting.items() for each in left)
    extra = [
        row for row in rest if not numbers or any(value not in (None, 0.0) for value in row[1])
    ]
    return f"{extra[0]} is there" if extra else None


def _picked(row: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(_plain(row[place]) for place in places)


def _plain(value: Any) -> Any:
    """Numbers as doubles, days as their midnight."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, int | float | Decimal):
        return float(value) + 0.0
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time.min)
    return value


def _alike(one: Sequence[Any], other: Sequence[Any], within: float) -> bool:
    return all(_near(a, b, within) for a, b in zip(one, other, strict=True))


def _near(one: Any, other: Any, within: float) -> bool:
    """Whether two numbers agree; the sum of nothing may be 0 or NULL."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=within, abs_tol=1e-5)
    return one == other or (one in (None, 0.0) and other in (None, 0.0))


def outcomes(world: World, suite: Sequence[Asked]) -> Iterator[tuple[Asked, str, str]]:
    """Every statement with its outcome, equal, wrong or the code of its refusal, and details."""
    for asked in suite:
        try:
            found = difference(*world, asked)
        except dpsql.Error as error:
            yield asked, error.code, str(error)
        except duckdb.Error as error:
            yield asked, "no SQL of DuckDB", str(error)
        else:
            yield asked, "equal" if found is None else "wrong", found or ""


def counted(found: Sequence[tuple[Asked, str, str]]) -> Counter[str]:
    """How many statements have each outcome."""
    return Counter(outcome for _, outcome, _ in found)


def check_suite(folder: Path, name: str, style: str = "", every: int = 1) -> Counter[str]:
    """Run a suite without noise: no answer is wrong, and only what is noted so is refused.

    ``style`` is what the names of some of its statements begin with, ``every`` how many there are
    for each that is run.
    """
    suite = [each for each in read_suite(HERE / f"{name}.sql") if each.name.startswith(style)]
    suite = suite[::every]
    with open_suite(folder, name) as world, zero_noise():
        world[0].set("epsilon", "100")  # small groups are above what noise alone makes likely
        # without noise no strategy answers otherwise, and cells themselves need no search
        world[0].set("mechanism", "identity")
        found = list(outcomes(world, suite))
    for asked, outcome, details in found:
        expected = "equal" if asked.refused is None else asked.refused.split()[0]
        assert outcome == expected, f"{asked.name}: {outcome}\n{details}\n{asked.sql}"
    return counted(found)
