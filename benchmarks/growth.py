"""Time and memory while one thing grows: statements, cells of a column, columns, rows.

Every size runs in a process of its own: CPU seconds after imports, and the most memory it held. The
exponents are those of a power law through the sizes that take long enough to tell; in memory, what
is held above the smallest size counts. One above ``LINEAR`` is flagged, and ends in exit code 1.
Run: ``python -m benchmarks.growth [part ...] [--large]``.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

import dpsql
from benchmarks import floor
from dpsql.dbapi.connection import Connection

LINEAR = 1.1
"""The largest exponent that is not flagged."""

SECONDS, MEBIBYTES = 0.3, 30.0
"""What a size must take, or hold above the smallest, to count for an exponent."""

LIMIT = 1200
"""Seconds after which a size is given up."""

BUDGET = "[budget]\nepsilon = 100000\ndelta = 1e-4\nmax_epsilon_per_request = 1000\n"
TABLE = BUDGET + '\n[table.t]\nsource = "t.parquet"\nprivacy_unit = "row"\n\n[table.t.column]\n'


@dataclass(frozen=True, slots=True)
class Taken:
    """CPU seconds and peak MiB of one size."""

    size: int
    seconds: float
    mebibytes: float


@dataclass(frozen=True, slots=True)
class Growing:
    """What grows: its sizes, those of ``--large``, what is set up, and what is timed."""

    sizes: tuple[int, ...]
    large: tuple[int, ...]
    prepare: Callable[[Path, int], None]
    script: Callable[[int], str]
    is_planned: bool = False


def _write(folder: Path, columns: str, rows: int, selected: str) -> None:
    (folder / "c.toml").write_text(TABLE + columns)
    duckdb.execute(f"COPY (SELECT {selected} FROM range({rows}) r(i)) TO '{folder / 't.parquet'}'")


def _of_adult(folder: Path, _: int) -> None:
    for source, name in (("adult.toml", "c.toml"), ("adult.parquet", "adult.parquet")):
        (folder / name).write_bytes((floor.DEMO / source).read_bytes())


def _with_cells(folder: Path, size: int) -> None:
    _write(
        folder,
        f'k = {{ type = "integer", domain = [0, {size - 1}] }}\n',
        100_000,
        f"(hash(i) % {size})::INT AS k",
    )


def _with_columns(folder: Path, size: int) -> None:
    names = [f"c{j}" for j in range(size)]
    declared = "".join(f'{name} = {{ type = "integer", domain = [0, 9] }}\n' for name in names)
    _write(folder, declared, 10_000, ", ".join(f"(i + {j}) % 10 AS c{j}" for j in range(size)))


def _with_rows(folder: Path, size: int) -> None:
    declared = (
        'k = { type = "integer", domain = [0, 99] }\ng = { type = "integer", domain = [0, 9] }\n'
    )
    _write(folder, declared, size, "(hash(i) % 100)::INT AS k, (i % 10)::INT AS g")


def _with_years(folder: Path, size: int) -> None:
    last = 2000 + size - 1
    declared = (
        f'seen = {{ type = "timestamp", by = "hour", domain = ["2000-01-01", "{last}-12-31"] }}\n'
    )
    _write(folder, declared, 1000, "TIMESTAMP '2000-01-01' + to_hours(i::INT) AS seen")


def _statements(size: int) -> str:
    rng = np.random.default_rng(0)
    pool = list(floor.DOMAINS)
    asked = []
    for _ in range(size):
        names = rng.choice(pool, size=int(rng.integers(1, 4)), replace=False)
        where = " AND ".join(floor.condition(rng, str(name)) for name in names)
        asked.append(f"SELECT COUNT(*) FROM adult WHERE {where}")
    return ";\n".join(asked)


def _one(sql: str) -> Callable[[int], str]:
    return lambda _: sql


TIMES = ";".join(
    f"SELECT {part}(seen) AS x, COUNT(*) FROM t GROUP BY x"
    for part in ("hour", "dayofweek", "month")
)

PARTS = {
    "statements": Growing((10, 100, 1000), (10_000, 20_000), _of_adult, _statements, True),
    "cells": Growing(
        (10, 1000, 100_000, 1_000_000),
        (),
        _with_cells,
        _one("SELECT k, COUNT(*) FROM t GROUP BY k"),
    ),
    "running": Growing(
        (100, 1000, 10_000),
        (100_000, 1_000_000),
        _with_cells,
        _one("SELECT k, SUM(COUNT(*)) OVER (ORDER BY k) FROM t GROUP BY k"),
        True,
    ),
    "columns": Growing(
        (5, 60, 1000),
        (),
        _with_columns,
        _one("SELECT c0, c2, COUNT(*), AVG(c4) FROM t GROUP BY c0, c2"),
    ),
    "rows": Growing(
        (100_000, 1_000_000, 10_000_000),
        (100_000_000,),
        _with_rows,
        _one("SELECT k, g, COUNT(*) FROM t GROUP BY k, g"),
    ),
    "times": Growing((1, 4, 16), (64,), _with_years, _one(TIMES), True),
}
"""What can grow, by name; ``times`` are years of hours, asked by hour, weekday and month."""


def main(arguments: Sequence[str]) -> int:
    """Print a table for every part that is named, all by default; return 1 where one is flagged."""
    if arguments[:1] == ["--one"]:
        print(json.dumps(measure(PARTS[arguments[1]], int(arguments[2]))))
        return 0
    names = [name for name in arguments if name != "--large"] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no part {unknown[0]!r}; parts: {', '.join(PARTS)}")
        return 2
    return max([report(name, "--large" in arguments) for name in names])


def measure(part: Growing, size: int) -> tuple[float, float]:
    """CPU seconds and peak MiB of one size, in this process."""
    with tempfile.TemporaryDirectory() as name:
        for kind in ("STATE", "CACHE", "DATA"):
            os.environ[f"XDG_{kind}_HOME"] = str(Path(name) / kind.lower())
        os.environ["DPSQL_CACHE"] = "off"
        part.prepare(Path(name), size)
        script = part.script(size)
        start = time.process_time()
        with dpsql.connect(Path(name) / "c.toml", epsilon=1) as connection:
            _ask(connection, script, part.is_planned)
        seconds = time.process_time() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _ask(connection: Connection, script: str, is_planned: bool) -> None:
    if is_planned:
        connection.explain(script)
    else:
        connection.executescript(script).close()


def report(name: str, is_large: bool) -> int:
    """Print what one part takes, and its exponents; return 1 where one is above ``LINEAR``."""
    part = PARTS[name]
    print(f"\n{name:<12} {'CPU s':>8} {'MiB':>8}", flush=True)
    found = []
    for size in (*part.sizes, *(part.large if is_large else ())):
        taken = alone(name, size)
        if taken is None:
            print(f"{size:>12,} not done in {LIMIT} s, or killed", flush=True)
            return 1
        found.append(taken)
        print(f"{size:>12,} {taken.seconds:>8.2f} {taken.mebibytes:>8.0f}", flush=True)
    flagged = 0
    for what, power in (("time", of_time(found)), ("memory", of_memory(found))):
        is_steep = power is not None and power > LINEAR
        told = "too little to tell" if power is None else f"{power:.2f}"
        print(f"  exponent of {what}: {told}{'  ABOVE ' + str(LINEAR) if is_steep else ''}")
        flagged |= is_steep
    return int(flagged)


def alone(name: str, size: int) -> Taken | None:
    """What one size takes in a process of its own; None where it does not end well."""
    command = [sys.executable, "-m", "benchmarks.growth", "--one", name, str(size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    seconds, mebibytes = json.loads(done.stdout)
    return Taken(size, seconds, mebibytes)


def of_time(found: Sequence[Taken]) -> float | None:
    """The exponent of time over the sizes that take long enough."""
    return exponent([(each.size, each.seconds) for each in found if each.seconds >= SECONDS])


def of_memory(found: Sequence[Taken]) -> float | None:
    """The exponent of memory above that of the smallest size."""
    above = [(each.size, each.mebibytes - found[0].mebibytes) for each in found]
    return exponent([(size, more) for size, more in above if more >= MEBIBYTES])


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The exponent of a power law through points, None without two.

    >>> round(exponent([(1, 2.0), (10, 20.0), (100, 200.0)]), 6)
    1.0
    """
    if len(points) < 2:
        return None
    logs = np.log(np.array(points))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
