"""Every kind of read is asked to end at moments all through it: seconds until it has ended.

A line for each kind of source, unit and size: how long the whole takes, and the longest that an end
was waited for, on the clock and in CPU seconds of all threads. The last line is the worst of all;
above ``MOST`` on the clock the exit code is 1. Other programs on the same cores make it longer.
Run: ``python -m benchmarks.reads [ROWS ...] [KIND ...]``, by default 1,000,000 rows of all kinds,
and 10,000,000 of those that are not CSV.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from dpsql.catalog.read import read_catalog
from dpsql.interrupts import Cancellation
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import Cells

MOST = 0.2
MOMENTS = (0.02, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.98)
"""Parts of the whole after which it is asked to end."""
SIZES = (1_000_000, 10_000_000)
"""Rows, the larger number of them where a source is read column by column."""
CATALOG = """
[budget]
epsilon = 1
[unit.person]
[table.t]
source = {source}
privacy_unit = {unit}
[table.t.column]
a = {{ type = "integer", domain = [0, 9] }}
m = {{ type = "number", bounds = [0, 100] }}
k = {{ type = "text", domain = "discover" }}
d = {{ type = "date", domain = ["2024-01-01", "2024-12-31"], by = "month" }}
"""
ROWS = (
    "SELECT i % 10 AS a, hash(i) % 100 AS m, 'k, ' || i % 999 AS k, hash(i) % {rows} // 4 AS p,"
    " 'p' || p AS q, DATE '2024-01-01' + (i % 366)::INT AS d FROM range({rows}) r(i)"
)
ROW, NUMBER, TEXT = '"row"', '{ column = "p", max_rows = 3 }', '{ column = "q", max_rows = 3 }'


def load(vault: TableVault) -> None:
    """Read the declared columns of every row."""
    vault.load()


def seek(vault: TableVault) -> None:
    """Find keys that nobody listed."""
    sought = vault._table.columns["k"].sought
    assert sought is not None
    vault.find("k", sought)


def count(vault: TableVault) -> None:
    """Count rows and units by cells, of what is read."""
    vault.load()
    cells = Cells(("a",), (np.arange(10),))
    vault.tally([cells])
    vault.tally([cells], True)


@dataclass(frozen=True, slots=True)
class Read:
    """A source, what DuckDB writes it with, whose its rows are, and what is read of it."""

    source: str
    written: str
    unit: str = ROW
    work: Callable[[TableVault], None] = load


CSV, GZIP, PARQUET = "(FORMAT csv)", "(FORMAT csv, COMPRESSION gzip)", "(FORMAT parquet)"
FILE = '{{ source = "t.duckdb", table = "t" }}'
READS = {
    "csv": Read('"t.csv"', CSV),
    "csv, units by number": Read('"t.csv"', CSV, NUMBER),
    "csv, units by text": Read('"t.csv"', CSV, TEXT),
    "csv.gz": Read('"t.csv.gz"', GZIP),
    "keys of csv": Read('"t.csv"', CSV, ROW, seek),
    "parquet": Read('"t.parquet"', PARQUET),
    "parquet, units by number": Read('"t.parquet"', PARQUET, NUMBER),
    "parquet, units by text": Read('"t.parquet"', PARQUET, TEXT),
    "keys of parquet": Read('"t.parquet"', PARQUET, ROW, seek),
    "keys of units": Read('"t.parquet"', PARQUET, TEXT, seek),
    "duckdb": Read('"t.duckdb"', "", NUMBER),
    "counts of units": Read('"t.parquet"', PARQUET, NUMBER, count),
}


def prepare(read: Read, folder: Path, rows: int) -> None:
    """Write the rows and the catalog of a read."""
    name = read.source.strip('"')
    with duckdb.connect(str(folder / name) if not read.written else ":memory:") as scribe:
        scribe.execute("SET enable_progress_bar = false")
        selected = ROWS.format(rows=rows)
        if read.written:
            scribe.execute(f"COPY ({selected}) TO '{folder / name}' {read.written}")
        else:
            scribe.execute(f"CREATE TABLE t AS {selected}")
    text = CATALOG.format(source=read.source, unit=read.unit)
    (folder / "c.toml").write_text(text, encoding="utf-8")


Seconds = tuple[float, float]
"""On the clock, and of CPU."""


def now() -> Seconds:
    return time.perf_counter(), time.process_time()


def wait(read: Read, folder: Path, seconds: float) -> Seconds:
    """Seconds from being asked, so long after its start, to its end, whatever it ended by."""
    table = read_catalog(folder / "c.toml").tables["t"]
    asked, ended = Cancellation(), list[Seconds]()

    def work() -> None:
        with asked, suppress(KeyboardInterrupt):
            read.work(TableVault(table, bytes(32)))
        ended.append(now())

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(seconds)
    begun = now()
    asked.ask()
    thread.join()
    clock, cpu = (last - first for first, last in zip(begun, ended[0], strict=True))
    return max(clock, 0.0), max(cpu, 0.0)


def main(arguments: Sequence[str]) -> int:
    """Print a line for every read of every size, and the worst; return 1 where it is too long."""
    given = [int(each) for each in arguments if each.isdecimal()]
    kinds = [each for each in arguments if not each.isdecimal()] or list(READS)
    print(f"{'':<26} {'rows':>10} {'whole s':>8} {'ended after s':>14} {'CPU s':>7}")
    worst = 0.0
    for name in kinds:
        read = READS[name]
        for rows in given or (SIZES[:1] if read.written in (CSV, GZIP) else SIZES):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                prepare(read, folder, rows)
                table, start = read_catalog(folder / "c.toml").tables["t"], time.perf_counter()
                read.work(TableVault(table, bytes(32)))
                whole = time.perf_counter() - start
                waits = [wait(read, folder, part * whole) for part in MOMENTS]
            clock, cpu = (max(each) for each in zip(*waits, strict=True))
            worst = max(worst, clock)
            print(f"{name:<26} {rows:>10,} {whole:>8.3f} {clock:>14.3f} {cpu:>7.3f}", flush=True)
    print(f"the worst of {len(kinds)} kinds: {worst:.3f} s")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
