"""Times of numbering and counting privacy units: ids that are near, far, and in no order.

CPU seconds of this process, the least of some: how much longer a row takes to load where units have
ids than where rows are units, and counting different units in 1,000 cells. All ids take the same
steps (``tests/privacy/test_traces.py``); where they are in no order, each is looked up elsewhere in
memory.
Run: ``OMP_NUM_THREADS=1 python -m benchmarks.units [ROWS]``, by default 1,000,000.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np

from dpsql.catalog.read import read_catalog
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import Cells

RUNS, CELLS = 3, 1000
IDS = {
    "rows are units": "0",
    "near": "i // 4",
    "near, one far": "CASE WHEN i = 9 THEN 1000000000000000 ELSE i // 4 END",
    "near, shuffled": "i // 4 * 7919 % ({rows} // 4)",
    "far, shuffled": "(hash(i // 4) >> 1)::BIGINT",
}
CATALOG = """
[budget]
epsilon = 1
[unit.person]
[table.t]
source = "t.parquet"
privacy_unit = {unit}
[table.t.column]
c = {{ type = "integer", domain = [0, {last}] }}
"""


def measure(folder: Path, rows: int, name: str) -> tuple[float, float]:
    """Return CPU seconds of loading and of counting units, the least of some."""
    unit = '"row"' if name == "rows are units" else '{ column = "p", max_rows = 4 }'
    (folder / "c.toml").write_text(CATALOG.format(unit=unit, last=CELLS - 1), encoding="utf-8")
    ids = IDS[name].format(rows=rows)
    with duckdb.connect() as scribe:
        selected = f"SELECT hash(i) % {CELLS} AS c, {ids} AS p FROM range({rows}) r(i)"
        scribe.execute(f"COPY ({selected}) TO '{folder / 't.parquet'}'")
    table, found = read_catalog(folder / "c.toml").tables["t"], []
    for _ in range(RUNS):
        vault, start = TableVault(table, bytes(32)), time.process_time()
        vault.load()
        loaded = time.process_time()
        vault.tally([Cells(("c",), (np.arange(CELLS),))], True)
        found.append((loaded - start, time.process_time() - loaded))
    loading, counting = zip(*found, strict=True)
    return min(loading), min(counting)


def main(rows: int) -> None:
    """Print a line for every kind of ids."""
    print(f"{rows:,} rows         load s   ns a row for units   count units s   against near")
    bare = near = 0.0
    for name in IDS:
        with tempfile.TemporaryDirectory() as folder:
            loading, counting = measure(Path(folder), rows, name)
        bare, near = bare or loading, near or (loading if name == "near" else 0.0)
        more = f"{(loading - bare) / rows * 1e9:>18.0f}"
        ratio = loading / near if near else 1.0
        print(f"{name:<18} {loading:>8.3f} {more} {counting:>16.3f} {ratio:>14.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
