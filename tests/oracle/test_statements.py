"""Differential oracle: with noise set to zero, answers equal DuckDB's own on the declared view."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.answer.result import Result
from tests.support.effort import IS_LARGE
from tests.support.oracle import INSIDE, VALUES, compare, declare_view, write_world
from tests.support.seam import zero_noise
from tests.support.statements import Measured, Statement
from tests.support.tables import statements_of

STATEMENTS = statements_of(Path(__file__).with_name("statements.sql"))
SEARCHED = 1 if IS_LARGE else 4
"""One statement in so many is planned by a search; ``make fuzz`` searches for all, and for all
of them together, which takes a minute."""


def hostile_rows(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Rows with out-of-domain values, NULLs, NaN, infinities, empty strings and duplicates."""
    return [tuple(map(rng.choice, VALUES)) for _ in range(count)]


@pytest.mark.parametrize(("seed", "count"), [(1, 0), (2, 1), (3, 40), (4, 400)])
@pytest.mark.slow
def test_answers_equal_the_databases_own(tmp_path: Path, seed: int, count: int) -> None:
    rows = hostile_rows(random.Random(seed), count)
    with (
        write_world(tmp_path, rows) as database,
        zero_noise(),
        dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection,
    ):
        # All are asked of the most rows, some of fewer: of no row others than of one.
        asked = STATEMENTS if count == 400 or SEARCHED == 1 else STATEMENTS[count % 3 :: 3]
        for i, sql in enumerate(asked):
            # Plans depend on no row: they are searched for with the most, for some statements.
            searched = count == 400 and i % SEARCHED == 0
            connection.set("mechanism", "auto" if searched else "identity")
            result = connection.execute(sql).result
            declare_view(database, mentioned(sql))
            check(sql, result, database)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "asked"),
    [("identity", STATEMENTS), ("auto", STATEMENTS if SEARCHED == 1 else STATEMENTS[::10])],
)
def test_a_joint_workload_gives_the_same_answers(
    tmp_path: Path, mechanism: str, asked: list[str]
) -> None:
    with (
        write_world(tmp_path, hostile_rows(random.Random(5), 200)) as database,
        zero_noise(),
        dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection,
    ):
        connection.set("mechanism", mechanism)
        cursor = connection.executescript(";\n".join(asked))
        declare_view(database, mentioned(" ".join(asked)))
        for sql in asked:
            check(sql, cursor.result, database)
            cursor.nextset()


def mentioned(sql: str) -> list[str]:
    """The columns whose names stand in a statement, whatever dpsql makes of it."""
    text = re.sub(r"'[^']*'", "", sql).lower()
    return [name for name in INSIDE if re.search(rf"\b{name}\b", text)]


def check(sql: str, result: Result, database: duckdb.DuckDBPyConnection) -> None:
    """Compare a result with DuckDB's; which groups without rows a LIMIT keeps is dpsql's own."""
    if "LIMIT" in sql and "HAVING" not in sql:
        return
    keys = sum(errors is None for errors in result.stddev)
    measured = (Measured(""),) * (len(result.columns) - keys)
    compare(Statement(sql, keys, measured, "HAVING" in sql), result, database, 0)
