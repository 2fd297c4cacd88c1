"""Times of numbering and counting privacy units: ids that are near, far, and in no order.

CPU seconds of this process, the least of some: how much longer a row takes to load where units have
ids than where rows are units, and counting different units in 1,000 cells. All ids take the same
steps (``tests/privacy/test_traces.py``); where they are in no order, each is looked up elsewhere in
memory. Then what one unit more costs at powers of two of them, with units of one row each: loads of
N and of N + 1 units take turns.
Run: ``OMP_NUM_THREADS=1 python -m benchmarks.units [ROWS]``, by default 1,000,000.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np

from dpsql.catalog.catalog import Table
from dpsql.catalog.read import read_catalog
from dpsql.privacy.vault.codes.spill import share_room
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
ONE_MORE = {"whole numbers": "i * 7919", "texts": "'person ' || i"}
EDGES, TURNS = range(13, 19), 40
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


def write(folder: Path, rows: int, unit: str, ids: str) -> Table:
    """Write rows with a cell and a unit each, and return their table."""
    (folder / "c.toml").write_text(CATALOG.format(unit=unit, last=CELLS - 1), encoding="utf-8")
    with duckdb.connect() as scribe:
        selected = f"SELECT hash(i) % {CELLS} AS c, {ids} AS p FROM range({rows}) r(i)"
        scribe.execute(f"COPY ({selected}) TO '{folder / 't.parquet'}'")
    return share_room(read_catalog(folder / "c.toml").tables)["t"]


def load_and_count(table: Table) -> tuple[float, float]:
    """Return CPU seconds of loading and of counting units."""
    vault, start = TableVault(table, bytes(32)), time.process_time()
    vault.load()
    loaded = time.process_time()
    vault.tally([Cells(("c",), (np.arange(CELLS),))], True)
    return loaded - start, time.process_time() - loaded


def measure(folder: Path, rows: int, name: str) -> tuple[float, float]:
    """Return CPU seconds of loading and of counting units, the least of some."""
    unit = '"row"' if name == "rows are units" else '{ column = "p", max_rows = 4 }'
    table = write(folder, rows, unit, IDS[name].format(rows=rows))
    loading, counting = zip(*(load_and_count(table) for _ in range(RUNS)), strict=True)
    return min(loading), min(counting)


def compare(folder: Path, units: int, ids: str) -> tuple[float, float]:
    """Return CPU seconds for so many units and for one more, the least of loads in turn."""
    tables, found = [], []
    for i in range(2):
        (part := folder / str(i)).mkdir()
        tables.append(write(part, units + i, '{ column = "p", max_rows = 4 }', ids))
    for _ in range(TURNS):
        found.append([sum(load_and_count(each)) for each in tables])
    one, two = np.min(found, axis=0).tolist()
    return one, two


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
    print("one unit more           units      ms   of one more   against")
    for name, ids in ONE_MORE.items():
        for bits in EDGES:
            with tempfile.TemporaryDirectory() as folder:
                one, two = compare(Path(folder), 1 << bits, ids)
            shown = f"{one * 1e3:>8.2f} {two * 1e3:>13.2f} {two / one:>9.3f}"
            print(f"{name:<18} {1 << bits:>10,} {shown}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
