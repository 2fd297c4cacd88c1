"""One column of many values: CPU seconds and peak memory of statements over it, and how they grow.

Every figure is that of a process of its own, from EXPLAIN's plan to the last row. The exponent is
that of the time between the smallest and the largest column; 1 is in proportion.
Run: ``OMP_NUM_THREADS=1 python -m benchmarks.wide [VALUES ...]``.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = (20_000, 200_000, 999_999)
ROWS = 1_000_000
STATEMENTS = {
    "groups": "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
    "groups of ten": "SELECT a // 10 AS k, COUNT(*) AS n FROM t GROUP BY a // 10",
    "groups and total": "SELECT a, COUNT(*) AS n FROM t GROUP BY ROLLUP (a)",
    "median": "SELECT MEDIAN(a) AS m FROM t",
    "running total": "SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) AS n FROM t GROUP BY a",
}
CATALOG = """
[budget]
epsilon = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = {{ type = "integer", domain = [0, {last}] }}
"""


def main() -> None:
    """Print a line for every statement and size."""
    sizes = tuple(map(int, sys.argv[1:])) or SIZES
    print(f"{'statement':18} {'values':>9} {'seconds':>8} {'MiB':>6}")
    for name in STATEMENTS:
        found = []
        for size in sizes:
            command = [sys.executable, "-m", "benchmarks.wide", "one", name, str(size)]
            place = {**os.environ, "DPSQL_CACHE": "off"}
            done = subprocess.run(command, capture_output=True, text=True, env=place, check=True)
            seconds, memory = done.stdout.split()
            found.append((size, float(seconds)))
            print(f"{name:18} {size:9,} {float(seconds):8.2f} {int(memory):6}", flush=True)
        (few, quick), (many, slow) = found[0], found[-1]
        if many > few:
            print(f"{name:18} exponent {math.log(slow / quick) / math.log(many / few):.2f}")


def one(name: str, size: int) -> None:
    """Print the seconds of one statement and the peak memory of the process in MiB."""
    import duckdb

    import dpsql

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        duckdb.execute(
            f"COPY (SELECT (i * 7919 % {size})::INT AS a FROM range({ROWS}) r(i))"
            f" TO '{place / 't.parquet'}' (FORMAT parquet)"
        )
        (place / "c.toml").write_text(CATALOG.format(last=size - 1))
        with dpsql.connect(place / "c.toml", epsilon=1) as connection:
            start = time.process_time()
            connection.execute(STATEMENTS[name]).fetchall()
            seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{seconds:.3f} {memory}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main()
