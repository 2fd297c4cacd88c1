"""What the engines cost: rows of a file, streamed from PostgreSQL, counted there, and in Spark.

    python -m benchmarks.engines [ROWS [ENGINE ...]]
    python -m benchmarks.engines growth file|spark ROWS ROWS ...

All figures are of one run on one machine. A server is started for it, or found by
DPSQL_TEST_POSTGRES, as in the tests; Spark reads the file, is started before "load", and is left
out where Java is missing. "growth" is that of one of them alone, over tables of several sizes: of
Spark with all columns, and of a file with six of them. CPU is that of dpsql's process, and in
brackets that of the server's processes on this machine, Java's among them: it is read in /proc.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import psycopg

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Bins, IntegerRange, Periods, Values
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import AnyResolution, Cells, Nodes, cells_of
from tests.support.postgres import Server, server, short_folder

ROWS = 10**6
SALT = bytes(16)
NOBODY = -1
"""The process of a server where there is none."""
MOST = {"spark": 0.5, "file": 3.0}
"""GiB that a client may take: while a cluster counts, and with the codes of 1e8 rows in it."""
SIX = ("ward", "drug", "age", "cost", "day", "outcome")
UNITS = {"row": Unit(), "person": Unit("person", 3), "all rows count": Unit("person", 99)}
"""Rows, persons nearly all of whom have more rows than may count, and such of whom nobody has."""
COLUMNS = {
    "person": "'p' || CAST({hash} % {people} AS varchar)",
    "ward": "'w' || CAST({hash} / 7 % 12 AS varchar)",
    "drug": "'d' || CAST({hash} / 11 % 60 AS varchar)",
    "age": "CAST({hash} / 13 % 100 AS int)",
    "score": "CAST({hash} / 17 % 1000 AS int)",
    "cost": "CAST({hash} / 19 % 100000 AS double precision) / 100",
    "weight": "CAST({hash} / 23 % 2000 AS double precision) / 10",
    "urgent": "{hash} / 29 % 2 = 0",
    "day": "DATE '2024-01-01' + CAST({hash} / 31 % 366 AS int)",
    "outcome": "CAST({hash} / 37 % 5 AS int)",
}


def declared() -> dict[str, Column]:
    """Nine columns of all kinds."""
    edges = tuple(map(Fraction, range(0, 210, 10)))
    return {
        "ward": Column("ward", "text", Values(tuple(f"w{i}" for i in range(12)))),
        "drug": Column("drug", "text", Values(tuple(f"d{i}" for i in range(50))), other="other"),
        "age": Column("age", "integer", IntegerRange(0, 99)),
        "score": Column("score", "integer", IntegerRange(0, 999)),
        "cost": Column("cost", "number", None, (edges[0], edges[-1])),
        "weight": Column("weight", "number", Bins(edges)),
        "urgent": Column("urgent", "boolean", Values((False, True))),
        "day": Column("day", "date", Periods(dt.date(2024, 1, 1), "month", 12)),
        "outcome": Column("outcome", "integer", Values((0, 1, 2, 3, 4))),
    }


def covering_sets() -> dict[str, list[AnyResolution]]:
    """What is counted, one statement each where a server counts."""
    ward, drug, day = (cells_of(name, np.arange(size)) for name, size in SIZES.items())
    halves = cells_of("age", np.arange(100) // 50)
    return {
        "ward x month": [ward, day],
        "drug x age in two": [drug, halves],
        "cost by ward": [ward, Nodes("cost", 1, 1, 1 << 16)],
        "drug and ward together": [Cells(("drug", "ward"), TOGETHER, LABELS)],
    }


SIZES = {"ward": 12, "drug": 51, "day": 12}
TOGETHER = (np.arange(51), np.arange(12))
LABELS = (np.arange(51 * 12) * 7 % 100).reshape(51, 12)


def write(database: Server | None, path: Path, rows: int) -> None:
    """Write the same rows to a file, and to the server if there is one."""
    mixed = "(CAST(i AS bigint) * 2654435761 % 4294967296)"
    listed = ", ".join(
        f"{sql.format(hash=mixed, people=max(1, rows // 4))} AS {name}"
        for name, sql in COLUMNS.items()
    )
    whole = listed.replace(" / ", " // ").replace("double precision) // ", "double precision) / ")
    with duckdb.connect() as scribe:
        scribe.execute("SET enable_progress_bar = false")
        scribe.execute(f"COPY (SELECT {whole} FROM range(0, {rows}) AS t(i)) TO '{path}'")
    if database is None:
        return
    database.run(
        "DROP TABLE IF EXISTS public.visits",
        f"CREATE UNLOGGED TABLE public.visits AS SELECT {listed} "
        f"FROM generate_series(0, {rows - 1}) AS t(i)",
        "ANALYZE public.visits",
    )


def measure(
    table: Table, told: multiprocessing.Queue[dict[str, tuple[float, ...]]], server: int
) -> None:
    """Load a table and count every covering set: wall and CPU seconds, and memory in GiB."""
    found: dict[str, tuple[float, ...]] = {}
    timed = partial(_timed, server)
    opened: list[TableVault] = []
    found["open"] = timed(lambda: opened.append(TableVault(table, SALT)))
    (vault,) = opened
    found["load"] = timed(vault.load)
    sums: list[int] = []
    for name, resolutions in covering_sets().items():
        found[name] = timed(partial(add_up, sums, vault, resolutions))
    if table.unit.column is not None:
        ward = cells_of("ward", np.arange(12))
        found["persons by ward"] = timed(partial(add_up, sums, vault, [ward], True))
    found["peak memory"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,)
    found["sums"] = tuple(sums)
    vault.close()
    told.put(found)


def add_up(
    sums: list[int], vault: TableVault, resolutions: list[AnyResolution], units: bool = False
) -> None:
    """Tally a covering set; a sum of it tells whether engines agree."""
    found = vault.tally(resolutions, units).ravel()
    sums.append(int(found @ np.arange(1, 1 + len(found))))


def _timed(server: int, work: Callable[[], object]) -> tuple[float, float, float]:
    """Wall seconds of some work, CPU seconds of this process, and of the server's processes."""
    wall, own, others = time.perf_counter(), time.process_time(), cpu_of_others(server)
    work()
    spent = time.process_time() - own
    return time.perf_counter() - wall, spent, cpu_of_others(server) - others


def cpu_of_others(server: int) -> float:
    """CPU seconds so far of a server and what it started, and of what this process has started."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            facts = each.read_text().rpartition(")")[2].split()
            process = int(each.parent.name)
            parents[process] = int(facts[1])
            ticks[process] = sum(map(int, facts[11:15]))
    total, waiting = 0, {server, *(p for p, parent in parents.items() if parent == os.getpid())}
    while waiting:
        total += sum(ticks.get(process, 0) for process in waiting)
        waiting = {p for p, parent in parents.items() if parent in waiting}
    return total / os.sysconf("SC_CLK_TCK")


def main(rows: int = ROWS, *engines: str) -> int:
    """Measure engines, or all of them; return 1 where their vectors differ."""
    some = engines or ("file", "stream", "push", *(["spark"] if shutil.which("java") else []))
    folder = Path(tempfile.mkdtemp())
    path, spawn = folder / "visits.parquet", multiprocessing.get_context("spawn")
    worst = 0
    with server(short_folder()) as database:
        os.environ["BENCH_DSN"] = database.address
        started = time.perf_counter()
        write(database, path, rows)
        print(
            f"{rows:,} rows of 9 declared columns, written in {time.perf_counter() - started:.0f} s"
        )
        for name, unit in UNITS.items():
            told: dict[str, dict[str, tuple[float, ...]]] = {}
            for engine in some:
                queue = spawn.Queue()
                given = table(engine, path, unit), queue, postmaster(database)
                process = spawn.Process(target=measure, args=given)
                process.start()
                told[engine] = queue.get()
                process.join()
            show(name, told)
            worst |= len({found.pop("sums") for found in told.values()}) > 1
    path.unlink()
    folder.rmdir()
    return int(worst)


def grow(engine: str, sizes: Sequence[int]) -> int:
    """Measure growing tables: what loading takes of both processes, and the client's memory."""
    folder, spawn = Path(tempfile.mkdtemp()), multiprocessing.get_context("spawn")
    path, spent, peaks = folder / "visits.parquet", [], []
    for rows in sizes:
        write(None, path, rows)
        queue = spawn.Queue()
        asked = table(engine, path, UNITS["row"])
        if engine == "file":
            asked = replace(asked, columns={name: asked.columns[name] for name in SIX})
        given = asked, queue, NOBODY
        process = spawn.Process(target=measure, args=given)
        process.start()
        found = queue.get()
        process.join()
        wall, own, others = found["load"]
        spent.append(own + others)
        peaks.append(found["peak memory"][0])
        later = sum(found["drug x age in two"][1:])
        print(f"{rows:>12,} rows: load {wall:.0f} s cpu {own:.2f} ({others:.1f}), ", end="")
        print(f"a further set {later:.1f} s of cpu, client {peaks[-1]:.2f} GiB", flush=True)
    path.unlink()
    folder.rmdir()
    exponent = np.polyfit(np.log(sizes), np.log(spent), 1)[0]
    print(f"cpu grows as rows to the {exponent:.2f}; the client by {peaks[-1] - peaks[0]:.2f} GiB")
    return int(max(peaks) > MOST[engine])


def postmaster(database: Server) -> int:
    """The process of the server that all others of it were started by."""
    with psycopg.connect(database.address) as connection:
        backend = connection.info.backend_pid
        facts = Path(f"/proc/{backend}/stat").read_text()
    return int(facts.rpartition(")")[2].split()[1])


def table(engine: str, path: Path, unit: Unit) -> Table:
    """The table as a file, or on the server."""
    found = Table("visits", str(path), unit, declared())
    if engine == "file":
        return found
    if engine == "spark":
        options = {"engine": "spark", "master": "local[2]", "path": str(path), "version": "1"}
        return replace(found, source=f"spark://{path}", options=tuple(options.items()))
    options = {"engine": "postgresql", "table": "public.visits", "dsn_env": "BENCH_DSN"}
    options |= {"version": "1", "read": engine}
    return replace(found, source="postgresql://public.visits", options=tuple(options.items()))


def show(unit: str, told: dict[str, dict[str, tuple[float, ...]]]) -> None:
    """Print one table: wall seconds, CPU seconds of dpsql, and those of the server."""
    print(f"\nunit: {unit:<20}{''.join(f'{each:>28}' for each in told)}")
    for step in next(iter(told.values())):
        if step == "sums":
            continue
        line = f"{step:<26}"
        for found in told.values():
            wall, *spent = found[step]
            text = (
                "{:.2f} s cpu {:.2f} ({:.2f})".format(wall, *spent) if spent else f"{wall:.2f} GiB"
            )
            line += f"{text:>28}"
        print(line, flush=True)
    agree = len({found["sums"] for found in told.values()}) == 1
    print("vectors agree" if agree else "vectors DIFFER")


if __name__ == "__main__":
    if sys.argv[1:2] == ["growth"]:
        sys.exit(grow(sys.argv[2], [int(each) for each in sys.argv[3:]]))
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else ROWS, *sys.argv[2:]))
