"""Conditions that are added up and averaged, at random: answers are DuckDB's own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.oracle.test_ordinary import differ, opened
from tests.support.effort import effort, first_seed
from tests.support.oracle import VALUES, declare_view, mentioned, settle

STATEMENTS = effort(40)
ONE = ["a > 3", "e IS NULL", "b = 'x'", "c", "b LIKE '%t%'", "month(d) = 1", "e BETWEEN 0 AND 2"]
SEVERAL = ["a > e", "c = (a > 2)", "a = length(b)", "a + e > 4", "e IS DISTINCT FROM a"]
UNKNOWN = ["w IS NULL", "w IS NOT NULL", "b IS NULL", "NOT w IS NULL"]
FORMS = [
    *("SUM({})", "SUM(({})::INT)", "AVG(CAST(({}) AS INTEGER))", "AVG(({})::DOUBLE)"),
    *("SUM(IF({}, 1, 0))", "AVG(IF({}, 1, 0))", "SUM(NOT ({}))", "COUNT_IF({})"),
    "SUM(({})::INT) FILTER (WHERE a > 2)",
]


def condition(rng: random.Random) -> str:
    """A condition over one column or several, or whether something is known."""
    first = rng.choice([*ONE, *SEVERAL, *UNKNOWN])
    if first in UNKNOWN or rng.random() < 0.5:
        return first
    return f"{first} {rng.choice(['AND', 'OR'])} {rng.choice(ONE)}"


@pytest.mark.slow
def test_conditions_are_added_up_as_by_duckdb(tmp_path: Path) -> None:
    rng = random.Random(first_seed(6))
    rows = [tuple(map(rng.choice, VALUES)) for _ in range(300)]
    with opened(tmp_path, rows) as (database, connection):
        for _ in range(STATEMENTS):
            of = rng.choice(FORMS).format(condition(rng))
            key = rng.choice(["", "b", "a // 3", "c"])
            shown = f"{key} AS k, " if key else ""
            group = " GROUP BY k HAVING COUNT(*) > 0.5" if key else ""
            sql = f"SELECT {shown}{of} AS x, COUNT(*) AS n FROM t{group}"
            declare_view(database, mentioned(connection, sql))
            expected = [tuple(map(settle, row)) for row in database.execute(sql).fetchall()]
            found = [tuple(map(settle, row)) for row in connection.execute(sql).fetchall()]
            assert not differ(found, expected), f"{sql}\n{found[:9]}\n{expected[:9]}"
