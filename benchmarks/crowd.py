"""The cost of a paid statement beside others: ``python -m benchmarks.crowd [SESSIONS ...]``.

Sessions of one site ask distinct statements in turns. Prints the milliseconds of CPU of a statement
with one session and with more, over ledgers of the same length, and the ratio to one session.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import duckdb

from dpsql.dbapi.site import open_site

CATALOG = """
[budget]
epsilon = 100000

[ledger]
anchor = "anchors"

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
"""
COLUMNS, CELLS = 20, 20
SESSIONS = (1, 10, 50, 100)
STATEMENTS = 300
"""Statements that are asked, of which the first third is not counted."""


def main(sessions: tuple[int, ...]) -> None:
    """Print one line for each number of sessions."""
    print(f"{'sessions':>10}{'a statement, ms':>18}{'to one':>10}")
    _milliseconds(1)  # what is imported and kept for the whole process
    one = _milliseconds(1)
    for count in sessions:
        found = one if count == 1 else _milliseconds(count)
        print(f"{count:10}{found:18.1f}{found / one:10.2f}", flush=True)


def _milliseconds(sessions: int) -> float:
    """The CPU of a statement, where so many sessions ask in turns."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "t.toml"
        listed = [
            f'c{i} = {{ type = "integer", domain = [0, {CELLS - 1}] }}' for i in range(COLUMNS)
        ]
        path.write_text(CATALOG + "\n".join(listed))
        rows = ", ".join(f"(i * {k + 1}) % {CELLS} AS c{k}" for k in range(COLUMNS))
        duckdb.sql(f"COPY (SELECT {rows} FROM range(1000) r(i)) TO '{name}/t.parquet'")
        site = open_site(path)
        opened = [site.connect() for _ in range(sessions)]
        for session in opened:
            session.set("epsilon", "0.1")
        start = 0.0
        for i in range(STATEMENTS):
            if i == STATEMENTS // 3:
                start = time.process_time()
            key, other = f"c{i % COLUMNS}", f"c{(i + 1 + i // COLUMNS) % COLUMNS}"
            opened[i % sessions].execute(
                f"SELECT {key}, COUNT(*) AS n FROM t WHERE {other} < {i % CELLS} GROUP BY {key}"
            )
        spent = time.process_time() - start
        site.close()
    return spent * 1e3 / (STATEMENTS - STATEMENTS // 3)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SESSIONS)
