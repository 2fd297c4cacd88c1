"""The server beside the library, in one run: ``python -m benchmarks.server [QUERIES]``.

Prints the median time of a warm query that is paid for and of one that is free, over the wire and
in the library; the free queries per second of one library, and of 1, 8 and 50 clients at once,
which are threads of a process of their own, or pgbench; what pgbench has of PostgreSQL itself, in
the same minute, over a table of the answers; the CPU time of this process, which serves, per
query; and what idle connections hold.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import duckdb
import pgserver
import psycopg
from pgserver.postgres_server import get_server

from dpsql.dbapi.site import open_site
from dpsql.server.address import Address
from dpsql.server.databases import Database, Databases
from dpsql.server.idle_clients import SWITCHING
from dpsql.server.server import Server
from dpsql.server.users import Users

CATALOG = """
[budget]
epsilon = 100000

[ledger]
anchor = "anchors"

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
kind = { type = "text", domain = ["a", "b", "c", "d"] }
size = { type = "integer", domain = [0, 99] }
"""
ROWS = 100_000
IDLE = 190
PGBENCH = 5
"""Seconds of pgbench."""
FIRST = "\\if :new\nSET epsilon = 0.1;\n\\set new 0\n\\endif\n"
"""What every client of pgbench does once."""
PGINSTALL = Path(pgserver.__file__).parent / "pginstall"
TABLE = (
    "CREATE TABLE t AS SELECT kind, size, 250 AS n "
    "FROM unnest('{a,b,c,d}'::text[]) kind, generate_series(0, 99) size"
)
KEPT: list[object] = []
"""Connections that are left open."""


def main(queries: int = 40) -> None:
    """Print one table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.toml").write_text(CATALOG)
        database = duckdb.connect()
        database.execute(
            f"COPY (SELECT substr('abcd', 1 + CAST(i % 4 AS INTEGER), 1) AS kind, i % 100 AS size "
            f"FROM range({ROWS}) v(i)) TO '{folder}/t.parquet' (FORMAT parquet)"
        )
        database.close()
        users = Users(folder / "t.users")
        users.put("ana", "secret", new=True)
        sys.setswitchinterval(SWITCHING)
        served = Database("t", open_site(folder / "t.toml"), users)
        server = Server(Databases(served), Address("127.0.0.1", 0))
        threading.Thread(target=server.serve, daemon=True).start()
        try:
            _compare(server, queries)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as others:
                _load(server, queries, others)
                _idle(server, others)
        finally:
            server.close()


def _sql(number: int) -> str:
    return f"SELECT kind, COUNT(*) FROM t WHERE size < {1 + number % 99} GROUP BY kind"


def _dsn(server: Server) -> str:
    return f"host=127.0.0.1 port={server.port} user=ana password=secret dbname=t"


def _compare(server: Server, queries: int) -> None:
    library = server.databases.first.site.connect()
    library.set("epsilon", "0.1")
    with psycopg.connect(_dsn(server), autocommit=True) as wire:
        wire.execute("SET epsilon = 0.1")
        wire.execute(_sql(98))
        library.execute(_sql(97))
        print(f"{'a query, ms':24}{'library':>10}{'wire':>10}{'more':>10}")
        for name, again in (("paid", False), ("free, asked before", True)):
            here, there = range(queries), range(queries, 2 * queries)
            for _ in range(again):  # each session has compiled what it asks
                here = there = range(2 * queries)
                _median(lambda k: library.execute(_sql(k)), here)
                _median(lambda k: wire.execute(_sql(k)), there)
            one = _median(lambda k: library.execute(_sql(k)), here)
            two = _median(lambda k: wire.execute(_sql(k)), there)
            print(f"{name:24}{one * 1e3:10.1f}{two * 1e3:10.1f}{(two - one) * 1e3:10.1f}")
        shown = _median(lambda _: wire.execute("SHOW noise"), range(queries))
        print(f"{'SHOW, no table':24}{'':10}{shown * 1e3:10.1f}")
    library.close()


def _load(server: Server, queries: int, others: ProcessPoolExecutor) -> None:
    print(f"\n{'clients at once':24}{'free/s':>10}{'median ms':>12}{'99 % ms':>10}{'CPU ms':>10}")
    with_library = server.databases.first.site.connect()
    with_library.set("epsilon", "0.1")
    start = time.process_time()
    times = [_timed(partial(with_library.execute, _sql(k % queries))) for k in range(queries * 9)]
    _told("one library", len(times) / sum(times), times, time.process_time() - start)
    with_library.close()
    for clients in (1, 8, 50):
        seconds, times = others.submit(ask, _dsn(server), clients, queries).result()
        _told(str(clients), len(times) / seconds, times)
    _load_in_c(server, queries)


def _load_in_c(server: Server, queries: int) -> None:
    """The same with clients that are no Python: pgbench, of dpsql and of PostgreSQL itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = _sql(0).replace("size < 1", "size < :k")
        script = f"{FIRST}\\set k random(1, {queries})\n{asked};\n"
        (folder / "dpsql.sql").write_text(script)
        start = time.process_time()
        times = pgbench(folder / "dpsql.sql", _dsn(server))
        _told("50 of pgbench", len(times) / PGBENCH, times, time.process_time() - start)
        postgres = get_server(folder / "postgres")
        try:
            postgres.psql(TABLE)
            script = script.replace("COUNT(*)", "SUM(n)").replace("epsilon", "dpsql.epsilon")
            (folder / "postgres.sql").write_text(script)
            times = pgbench(folder / "postgres.sql", postgres.get_uri())
            _told("  of PostgreSQL", len(times) / PGBENCH, times)
        finally:
            postgres.cleanup()


def pgbench(script: Path, dsn: str) -> list[float]:
    """The seconds of every transaction of 50 clients."""
    log = script.with_suffix(".log")
    command = [
        PGINSTALL / "bin" / "pgbench",
        "-n",
        "-c",
        "50",
        "-D",
        "new=1",
        "-T",
        str(PGBENCH),
        "-f",
        script,
    ]
    subprocess.run(
        [*map(str, command), "-l", "--log-prefix", str(log), dsn], check=True, capture_output=True
    )
    lines = itertools.chain(*(each.open() for each in log.parent.glob(f"{log.name}.*")))
    return [int(line.split()[2]) / 1e6 for line in lines]


def _told(name: str, rate: float, times: list[float], cpu: float | None = None) -> None:
    ordered = sorted(times)
    last = ordered[int(len(ordered) * 0.99) - 1]
    middle = statistics.median(times)
    each = "" if cpu is None else f"{cpu / len(times) * 1e3:10.2f}"
    print(f"{name:<24}{rate:10.1f}{middle * 1e3:12.1f}{last * 1e3:10.1f}{each}")


def ask(dsn: str, clients: int, queries: int) -> tuple[float, list[float]]:
    """Ask as many clients at once; return the seconds that all took, and those of every query."""
    times: list[float] = []
    begun: list[float] = []
    together = threading.Barrier(clients + 1, action=lambda: begun.append(time.perf_counter()))

    def work() -> None:
        with psycopg.connect(dsn, autocommit=True) as wire:
            wire.execute("SET epsilon = 0.1")
            together.wait()
            for number in range(queries * max(1, 50 // clients)):
                times.append(_timed(partial(wire.execute, _sql(number % queries))))

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    together.wait()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun[0], times


def _idle(server: Server, others: ProcessPoolExecutor) -> None:
    before = _held()
    others.submit(connect, _dsn(server), IDLE).result()
    print(f"\n{IDLE} idle connections hold {(_held() - before) / 2**20:.0f} MiB")


def connect(dsn: str, count: int) -> None:
    """Open connections, and leave them open as long as the process goes on."""
    KEPT.extend(psycopg.connect(dsn) for _ in range(count))


def _held() -> int:
    """The bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _median(work: Callable[[int], object], numbers: range) -> float:
    return statistics.median(_timed(partial(work, number)) for number in numbers)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
