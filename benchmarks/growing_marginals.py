"""Parts of ``benchmarks.growth``: three-way tables, the same asked again, cells of one block."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import duckdb

from benchmarks import large
from benchmarks.growing import BUDGET, Growing
from dpsql.dbapi.connection import Connection

SIZES = (15, 10, 5, 8, 9, 16, 7, 15, 6, 5, 2, 42, 2)
"""Values of every column: those of Adult in the codes of ``benchmarks.peers``."""

ROWS = 100_000
COLUMNS = {20: 6, 84: 9, 286: 13}
"""How many columns have so many three-way tables."""


def _prepare(folder: Path, _: int) -> None:
    declared = "".join(
        f'c{j} = {{ type = "integer", domain = [0, {size - 1}] }}\n' for j, size in enumerate(SIZES)
    )
    (folder / "c.toml").write_text(
        f'{BUDGET}\n[table.t]\nsource = "t.parquet"\nprivacy_unit = "row"\n\n'
        f"[table.t.column]\n{declared}"
    )
    drawn = ", ".join(f"(hash(i + {j}) % {size})::INT AS c{j}" for j, size in enumerate(SIZES))
    with duckdb.connect() as scribe:
        scribe.execute(f"COPY (SELECT {drawn} FROM range({ROWS}) r(i)) TO '{folder}/t.parquet'")


def _ask(connection: Connection, tables: int) -> None:
    names = [f"c{j}" for j in range(COLUMNS[tables])]
    asked = [", ".join(keys) for keys in combinations(names, 3)]
    script = ";\n".join(f"SELECT {keys}, COUNT(*) FROM t GROUP BY {keys}" for keys in asked)
    cursor = connection.executescript(script)
    for _ in asked:
        cursor.fetchall()
        cursor.nextset()


def _ask_gaussian(connection: Connection, tables: int) -> None:
    connection.set("noise", "gaussian")
    connection.set("delta", "1e-9")
    _ask(connection, tables)


def _release(folder: Path) -> None:
    """Release all tables in a process of its own, so that they are there to be asked again."""
    command = [sys.executable, "-m", "benchmarks.growth", "--one", "marginals", "286", str(folder)]
    subprocess.run(command, capture_output=True, check=True)


def _ask_again(connection: Connection, times: int) -> None:
    for _ in range(times):
        _ask(connection, 286)


def _one_block(_: Connection, cells: int) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        large.run(round(cells**0.25))


SEARCHED = "sets of columns grow faster than the tables over them"
PARTS = {
    "marginals": Growing((20, 84), (286,), _prepare, _ask, SEARCHED),
    "gaussian": Growing((20, 84), (286,), _prepare, _ask_gaussian, SEARCHED),
    "repeats": Growing((1,), (11,), _prepare, _ask_again, before=_release),
    "block": Growing((16**4, 32**4), (100**4,), _prepare, _one_block),
}
"""By name: all three-way tables of some columns in one script, with Laplace and with Gaussian
noise; 286 of them asked again so many times in a new connection, where they are free; cells that
one strategy of four columns resolves, measured and reconstructed (``benchmarks.large``)."""
