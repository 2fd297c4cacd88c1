"""Times of reading a column where all values are declared, where some are, and where none is.

CPU seconds of loading one column, the least of some, for every kind of column and file. No ratio
may be above 2, else time tells how many rows are outside the declared view.
Run: ``OMP_NUM_THREADS=1 python -m benchmarks.declared [ROWS]``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import duckdb

from dpsql.catalog.read import read_catalog
from dpsql.privacy.vault.vault import TableVault

MOST, RUNS = 2.0, 3
CATALOG = """[budget]
epsilon = 1
[table.t]
source = "t.{}"
privacy_unit = "row"
[table.t.column]
x = {{ {} }}
"""


def listed(size: int) -> str:
    return f'type = "text", domain = [{", ".join(f"{chr(34)}v{i}{chr(34)}" for i in range(size))}]'


WHOLE = 'type = "integer", domain = [0, 99]'
DAYS = 'type = "date", domain = ["2020-01-01", "2020-12-31"], by = "month"'
HOURS = 'type = "timestamp", domain = ["2020-01-01", "2020-01-31"], by = "hour"'
KINDS = {
    "10 texts": (listed(10), "'v' || h % 10", "'x' || h % 10", "'x' || h % 10"),
    "10000 texts": (listed(10_000), "'v' || h % 10000", "'x' || h % 10000", "'x' || h % 10000"),
    "quoted texts": (listed(10), "'v' || h % 10", "'x, ' || h % 10", "'x, \"' || h % 10"),
    "other quotes": (listed(10), "'v' || h % 10", "'\"x' || h % 10", "'\"x\"' || h % 10"),
    "integer": (WHOLE, "(h % 100)::INT", "(1000 + h % 100)::INT", "'1-' || h % 10"),
    "huge": (WHOLE, "(h % 100)::HUGEINT", "h::HUGEINT * 10::HUGEINT**18", "'NA'"),
    "measure": ('type = "number", bounds = [0, 100]', "h % 100 / 8", "1e300 + h % 9", "'1-5'"),
    "flag": ('type = "boolean", domain = [false, true]', "h % 2 = 0", "NULL::BOOLEAN", "'ja'"),
    "date": (DAYS, "DATE '2020-01-01' + (h % 366)::INT", "DATE 'infinity'", "'2020-02-31'"),
    "clock": (HOURS, "TIMESTAMP '2020-01-01' + to_hours((h % 700)::INT)",
              "TIMESTAMP 'infinity'", "'31.12.20 10:00'"),
}  # fmt: skip
"""Declarations; what is declared, and what is not, in Parquet and in CSV."""


def take(declared: str, suffix: str, selected: str, rows: int, raw: bool = False) -> float:
    """CPU seconds to load a column, of CSV whose quotes are none where it is ``raw``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "c.toml").write_text(CATALOG.format(suffix, declared), encoding="utf-8")
        with duckdb.connect() as scribe:
            scribe.execute("SET enable_progress_bar = false")
            drawn = f"(SELECT i, hash(i) AS h FROM range({rows}) r(i))"
            target = f"'{folder}/t.{suffix}'" + (" (QUOTE '')" if suffix == "csv" and raw else "")
            scribe.execute(f"COPY (SELECT {selected} AS x FROM {drawn}) TO {target}")
        table = next(iter(read_catalog(folder / "c.toml").tables.values()))
        taken = []
        for _ in range(RUNS):
            vault, start = TableVault(table, bytes(32)), time.process_time()
            vault.load()
            taken.append(time.process_time() - start)
        return min(taken)


def main(rows: int) -> int:
    """Print a line for every kind of column and file; return 1 where a ratio is above MOST."""
    print(f"{'':<20} {'all':>7} {'some':>7} {'none':>7} {'ratio':>6}")
    worst = 0.0
    for name, (declared, inside, *outside) in KINDS.items():
        for suffix, other in zip(("parquet", "csv"), outside, strict=True):
            good, bad = (f"({each})" for each in (inside, other))
            if suffix == "csv":
                good, bad = f"{good}::VARCHAR", f"{bad}::VARCHAR"
            some = f"CASE WHEN i % 1000 = 0 THEN {bad} ELSE {good} END"
            raw = name == "other quotes"
            taken = [take(declared, suffix, each, rows, raw) for each in (good, some, bad)]
            worst = max(worst, ratio := max(taken) / taken[0])
            times = " ".join(f"{each:7.3f}" for each in taken)
            print(f"{name + ' ' + suffix:<20} {times} {ratio:6.2f}", flush=True)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000))
