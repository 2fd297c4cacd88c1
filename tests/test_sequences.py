"""State that outlives a statement: what was asked before changes no answer but by what it costs."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from tests.support.seam import zero_noise

MEANS = "SELECT AVG(age) AS mean, COUNT(*) AS n FROM adult"
COUNTED = "SELECT COUNT(*) AS n, AVG(age) AS mean FROM adult"
BY_SEX = "COUNT(*) FILTER (WHERE sex = '{}') AS {}"
PAIR = f"SELECT {BY_SEX.format('Male', 'm')}, {BY_SEX.format('Female', 'f')} FROM adult"
SWAPPED = f"SELECT {BY_SEX.format('Female', 'f')}, {BY_SEX.format('Male', 'm')} FROM adult"
MEDIANS = "SELECT MEDIAN(age) AS x, MEDIAN(hours_per_week) AS y FROM adult"
EXCHANGED = "SELECT MEDIAN(hours_per_week) AS x, MEDIAN(age) AS y FROM adult"


@pytest.mark.parametrize(
    ("before", "asked"), [(MEANS, COUNTED), (COUNTED, MEANS), (SWAPPED, PAIR), (MEDIANS, EXCHANGED)]
)
@pytest.mark.parametrize("fresh", ["off", "on"])
@pytest.mark.parametrize("ask", ["explain", "execute"])
def test_the_same_content_in_another_order(
    demo: Path, before: str, asked: str, fresh: str, ask: str
) -> None:
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW adult AS FROM '{demo / 'adult.parquet'}'")
        expected = database.execute(asked).fetchone()
    with zero_noise(), dpsql.connect(demo / "adult.toml", epsilon=0.5) as connection:
        connection.execute(f"SET fresh = {fresh}")
        getattr(connection, ask)(before)
        assert connection.execute(asked).fetchone() == pytest.approx(expected, rel=1e-6)
