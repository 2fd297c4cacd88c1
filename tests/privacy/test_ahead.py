"""Batches that are read ahead are all of them in their order, and a reader that ends ends all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.privacy.vault.ahead import read_ahead


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_batches_stay_in_order(count: int) -> None:
    assert [*read_ahead(iter(range(count)), lambda: None)] == [*range(count)]


def test_a_fault_comes_after_what_was_read_before_it() -> None:
    def batches() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError

    found = read_ahead(batches(), lambda: None)
    assert (next(found), next(found)) == (1, 2)
    with pytest.raises(OSError):
        next(found)


def test_who_goes_away_early_stops_what_is_read() -> None:
    stopped = threading.Event()

    def batches() -> Iterator[int]:
        yield 1
        assert stopped.wait(60)
        yield 2

    before = threading.active_count()
    reader = read_ahead(batches(), stopped.set)
    assert next(reader) == 1
    del reader
    assert stopped.is_set()
    assert threading.active_count() == before


CATALOG = """
[budget]
epsilon = 1e6
[table.t]
source = "t.*"
privacy_unit = {unit}
[table.t.column]
a = {{ type = "integer", domain = [0, 9] }}
"""


@pytest.mark.parametrize("unit", ['"row"', '{ column = "p", max_rows = 3 }'])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_many_batches_are_counted_as_duckdb_counts(tmp_path: Path, unit: str, form: str) -> None:
    rows = "SELECT i % 10 AS a, i // 3 AS p FROM range(500000) r(i)"
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path}/t.{form}'")
    (tmp_path / "c.toml").write_text(CATALOG.format(unit=unit))
    with dpsql.connect(tmp_path / "c.toml", epsilon=100) as connection:
        found = connection.execute("SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY a").fetchall()
    assert [(a, round(n)) for a, n in found] == [(a, 50_000) for a in range(10)]
