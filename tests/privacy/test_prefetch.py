"""Batches that are read ahead are all of them in their order, and a reader that ends ends all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyarrow import parquet

import dpsql
from dpsql.algebra import cores
from dpsql.interrupts import Cancellation
from dpsql.privacy.vault.codes.prefetch import AHEAD, read_ahead, read_in_thread
from dpsql.privacy.vault.files import lines


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
    stopped, reading = threading.Event(), threading.Event()

    def batches() -> Iterator[int]:
        yield 1
        reading.set()
        assert stopped.wait(60)
        yield 2

    before = threading.active_count()
    reader = read_ahead(batches(), stopped.set)
    assert next(reader) == 1
    assert reading.wait(60)
    del reader
    assert stopped.is_set()
    assert threading.active_count() == before


def test_no_more_batches_wait_than_are_to_be_read_ahead() -> None:
    read: list[int] = []
    batches = iter(range(20))

    def noted() -> Iterator[int]:
        for batch in batches:
            read.append(batch)
            yield batch

    for taken, batch in enumerate(read_ahead(noted(), lambda: None), start=1):
        assert batch == taken - 1
        assert len(read) <= taken + AHEAD
    assert read == [*range(20)]


CATALOG = """
[budget]
epsilon = 1e6
[table.t]
source = "t.*"
privacy_unit = {unit}
[table.t.column]
a = {{ type = "integer", domain = [0, 9] }}
b = {{ type = "integer", domain = [0, 3] }}
"""
ROWS = 260_000


def write(folder: Path, form: str) -> None:
    """Write rows of units that have five each, by DuckDB, pyarrow or pandas."""
    rows = duckdb.sql(f"SELECT i % 10 AS a, i % 4 AS b, i // 5 AS p FROM range({ROWS}) r(i)")
    assert rows is not None
    match form:
        case "duckdb":
            rows.write_parquet(str(folder / "t.parquet"))
        case "pyarrow":  # groups of rows of no batch's size, and pages of their own
            path = folder / "t.parquet"
            parquet.write_table(rows.to_arrow_table(), path, row_group_size=7001, version="1.0")
        case _:
            rows.df().to_csv(folder / "t.csv", index=False, lineterminator="\r\n")


@pytest.mark.parametrize("unit", ['"row"', '{ column = "p", max_rows = 3 }'])
@pytest.mark.parametrize("form", ["duckdb", "pyarrow", "pandas"])
def test_many_batches_are_counted_in_one_session(
    tmp_path: Path, unit: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows of a unit stay on any number of cores; of rows that are units all do."""
    write(tmp_path, form)
    monkeypatch.setattr(lines, "BLOCK", 1 << 19)
    (tmp_path / "c.toml").write_text(CATALOG.format(unit=unit))
    found = []
    for count in (1, 3):
        monkeypatch.setattr(cores, "_cores", lambda count=count: count)
        with dpsql.connect(tmp_path / "c.toml", epsilon=100) as connection:
            connection.execute("SET fresh = on")
            asked = [
                connection.execute(f"SELECT {key}, COUNT(*) FROM t GROUP BY {key} ORDER BY {key}")
                for key in ("a", "b", "a")
            ]
            found.append([[round(n) for _, n in each.fetchall()] for each in asked])
    assert found[0] == found[1]
    first, second, again = found[0]
    assert first == again
    whole = ROWS if unit == '"row"' else ROWS * 3 // 5
    assert sum(first) == sum(second) == whole
    if unit == '"row"':
        assert (first, second) == ([ROWS // 10] * 10, [ROWS // 4] * 4)


def test_who_is_asked_to_end_leaves_an_engine_that_is_blocked() -> None:
    """Nothing can end it; whoever asked for its rows goes on, and it closes once it comes back."""
    reading, gate, closed = threading.Event(), threading.Event(), threading.Event()

    def batches() -> Iterator[int]:
        try:
            yield 1
            reading.set()
            assert gate.wait(60)
            yield 2
        finally:
            closed.set()

    asked, seen = Cancellation(), list[int]()

    def ask() -> None:
        assert reading.wait(60)
        asked.ask()

    watch = threading.Thread(target=ask)
    watch.start()
    with asked, pytest.raises(KeyboardInterrupt):
        seen.extend(read_in_thread(batches()))
    watch.join()
    assert not closed.is_set()
    gate.set()
    assert closed.wait(60)


def test_batches_of_an_engine_stay_in_order_and_its_fault_comes_last() -> None:
    def batches() -> Iterator[int]:
        yield from range(2 * AHEAD)
        raise OSError

    found = list[int]()
    with pytest.raises(OSError):
        found.extend(read_in_thread(batches()))
    assert found == [*range(2 * AHEAD)]
    assert [*read_in_thread(iter(range(3 * AHEAD)))] == [*range(3 * AHEAD)]
