"""The person tables of the census end to end: symmetric rows, exact at zero noise, stored."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.dbapi.connection import Connection, Cursor, Result
from tests.support.seam import zero_noise

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "demo_data"
FIRST, SOME = 600, 4
"""Statements of the tables that are asked; all 4,151 take a while to parse."""


@pytest.fixture
def census(tmp_path: Path) -> Iterator[Connection]:
    shutil.copy(DEMO / "census.parquet", tmp_path)
    text = (DEMO / "census.toml").read_text(encoding="utf-8")
    (tmp_path / "census.toml").write_text(text.replace("1e-9", "1e-6"), encoding="utf-8")
    with dpsql.connect(tmp_path / "census.toml", epsilon=1) as connection:
        yield connection


def truths(script: str) -> list[int]:
    """Some of the exact answers, counted on the distinct rows of the table."""
    database = duckdb.connect()
    source = DEMO / "census.parquet"
    database.execute(f"CREATE TABLE t AS SELECT ALL *, COUNT(*) AS n FROM '{source}' GROUP BY ALL")
    asked = [found or "TRUE" for found in re.findall(r"FROM person(?: WHERE (.*?))?;", script)]
    asked = asked[::SOME]
    counts: list[int] = []
    for start in range(0, len(asked), 1000):
        sums = (f"COALESCE(SUM(n) FILTER ({c}), 0)" for c in asked[start : start + 1000])
        (row,) = database.execute(f"SELECT {', '.join(sums)} FROM t").fetchall()
        counts += row
    return counts


def answers(cursor: Cursor) -> list[Result]:
    """Every answer of a script."""
    found = [cursor.result]
    while cursor.nextset():
        found.append(cursor.result)
    return [result for result in found if result.kind == "answer"]


def test_the_tables_are_exact_without_noise_and_repeated_free(census: Connection) -> None:
    lines = (DEMO / "census_sf1.sql").read_text(encoding="utf-8").splitlines()
    script = "\n".join([line for line in lines if line.startswith("SELECT")][:FIRST])
    census.set("delta", "1e-6")
    census.set("noise", "gaussian")
    forecast = census.explain(script)
    assert forecast.method == "symmetric"
    assert forecast.bound is not None
    assert forecast.bound <= forecast.rmse <= 1.0005 * forecast.bound
    assert "% of the best any strategy of this kind can do" in str(forecast)
    with zero_noise():
        first = answers(census.executescript(script))
    assert len(first) == FIRST
    assert np.abs(np.array([r.rows[0][0] for r in first[::SOME]]) - truths(script)).max() < 1e-3
    latest = census.engine.store.releases.candidates([], [census.engine.scopes(["person"])]).latest
    (release,) = latest.values()
    assert release.plan.parts[0].strategy.method == "symmetric"
    again = answers(census.executescript(script))
    assert [(r.rows, r.stddev) for r in again] == [(r.rows, r.stddev) for r in first]
    assert all(r.cost is not None and r.cost.free for r in again)
    assert [entry.kind for entry in census.entries()] == ["created", "debit"]
    census.set("reuse", "always")
    single = census.execute("SELECT COUNT(*) AS n FROM person WHERE race = 2")
    assert single.result.cost is not None
    assert single.result.cost.free
