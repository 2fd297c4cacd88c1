"""Free answers beside slow errands: ``python -m benchmarks.heartbeat [SECONDS]``.

One client asks what is free every 10 ms, alone and while others do one kind of errand for so many
seconds: plan large requests, sign in with wrong passwords, send 2 MB of SQL, read rows for the
first time, fetch 100,000 and 1,000,000 rows. Prints the milliseconds of the median and of the 99th
percentile of its answers, the latter as a ratio to the same alone, the longest that it waited, and
how many errands were done; then how long after a cancel an EXPLAIN had ended that no loop looks in.
Errands are run by a process of their own: decoding rows would hold the lock of the one that counts.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired

import duckdb
import numpy as np
import psycopg

from dpsql.server.users import Users

ROWS, READ, PASSWORD = 1_000_000, 30, "heartbeat"
SECONDS = 10.0
FREE = "SELECT COUNT(*) AS n FROM t0"
COLUMNS = "".join(f'c{i} = {{ type = "integer", domain = [0, 9] }}\n' for i in range(6))
TABLE = """
[table.t{number}]
source = "t.parquet"
privacy_unit = "row"

[table.t{number}.column]
{columns}wide = {{ type = "integer", domain = [0, 99999] }}
"""
Errand = Callable[[psycopg.Connection, int], object]


def write_catalog(folder: Path) -> Path:
    """Write tables that share a file, each of which is read when it is first counted."""
    columns = ", ".join(f"hash(i + {i}) % 10 AS c{i}" for i in range(6))
    wanted = f"SELECT {columns}, hash(i) % 100000 AS wide FROM range({ROWS}) r(i)"
    duckdb.sql(f"COPY ({wanted}) TO '{folder / 't.parquet'}'")
    tables = (TABLE.format(number=i, columns=COLUMNS) for i in range(READ))
    catalog = folder / "heart.toml"
    catalog.write_text('[budget]\nepsilon = 1000\n[ledger]\nanchor = "anchors"\n' + "".join(tables))
    for each in (folder / "t.parquet", catalog):
        each.chmod(0o600)
    Users(folder / "heart.users").put("ana", PASSWORD, new=True)
    return catalog


def plan(wire: psycopg.Connection, number: int) -> None:
    """Forecast all three-way tables of six columns under another condition."""
    keys = itertools.combinations([f"c{i}" for i in range(6)], 3)
    sets = ", ".join(f"({', '.join(each)})" for each in keys)
    low = number % 90_000
    sql = f"EXPLAIN SELECT COUNT(*) FROM t0 WHERE wide > {low} GROUP BY GROUPING SETS"
    wire.execute(f"{sql} ({sets})").fetchall()


def send_much(wire: psycopg.Connection, number: int) -> None:
    """Send 2 MB, which are refused for their length."""
    with suppress(psycopg.Error):
        wire.execute("SELECT " + "+".join(["1"] * 1_000_000))


def read_rows(wire: psycopg.Connection, number: int) -> None:
    """Count a table that nobody has counted."""
    wire.execute(f"SELECT c0, COUNT(*) FROM t{1 + number % (READ - 1)} GROUP BY c0").fetchall()


def fetch(wire: psycopg.Connection, number: int) -> None:
    """Fetch a table of counts that has been paid for."""
    wire.execute("SELECT wide, COUNT(*) AS n FROM t0 GROUP BY wide").fetchall()


def fetch_many(wire: psycopg.Connection, number: int) -> None:
    """Fetch a table of 1,000,000 counts that has been paid for."""
    wire.execute("SELECT wide, c0, COUNT(*) AS n FROM t0 GROUP BY wide, c0").fetchall()


def sign_in_wrongly(wire: psycopg.Connection, number: int) -> None:
    """Be refused at the door, ever later."""
    with suppress(psycopg.Error):
        psycopg.connect(wire.info.dsn, password="another", connect_timeout=30)


ERRANDS: dict[str, tuple[int, Errand]] = {
    "four plan large requests": (4, plan),
    "two send 2 MB of SQL": (2, send_much),
    "one reads 1e6 rows, again and again": (1, read_rows),
    "two fetch 100,000 rows": (2, fetch),
    "one fetches 1,000,000 rows": (1, fetch_many),
    "two sign in with wrong passwords": (2, sign_in_wrongly),
}


def connect(port: int) -> psycopg.Connection:
    """Open a session of an analyst."""
    dsn = f"host=127.0.0.1 port={port} user=ana password={PASSWORD} dbname=heart"
    wire = psycopg.connect(dsn, autocommit=True, connect_timeout=60)
    wire.execute("SET epsilon = 0.01")
    return wire


def run_errands(port: int, name: str) -> None:
    """Do an errand again and again, in as many sessions as it has, until the input ends."""
    clients, errand = ERRANDS[name]
    numbers, done, is_over = itertools.count(), itertools.count(), threading.Event()

    def work(wire: psycopg.Connection) -> None:
        with wire:
            while not is_over.is_set():
                errand(wire, next(numbers))
                next(done)

    threads = [threading.Thread(target=work, args=(connect(port),)) for _ in range(clients)]
    for each in threads:
        each.start()
    print(flush=True)
    sys.stdin.read()
    is_over.set()
    for each in threads:
        each.join()
    print(next(done))


class Heartbeat:
    """A server, and a client of it that asks what is free."""

    def __init__(self, catalog: Path) -> None:
        command = [sys.executable, "-m", "dpsql", "serve", str(catalog), "--twin", "off"]
        self.server = Popen([*command, "--listen", "127.0.0.1:0"], stderr=PIPE)
        assert self.server.stderr is not None
        self.port = 0
        for line in self.server.stderr:
            if b"serving heart on " in line:
                self.port = int(line.partition(b"127.0.0.1:")[2].partition(b";")[0])
                break
        threading.Thread(target=self.server.stderr.read, daemon=True).start()
        self.free = self.connect()
        self.free.execute(FREE)

    def connect(self) -> psycopg.Connection:
        """A session of an analyst."""
        return connect(self.port)

    def beat(self, seconds: float) -> list[float]:
        """The seconds that each answer took."""
        found, end = list[float](), time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.monotonic()
            self.free.execute(FREE).fetchall()
            found.append(time.monotonic() - begun)
            time.sleep(0.01)
        return found

    def beside(self, name: str, seconds: float) -> tuple[list[float], int]:
        """The same beside the clients of an errand, and how many errands were done."""
        command = [sys.executable, "-m", "benchmarks.heartbeat", "errand", str(self.port), name]
        others = Popen(command, stdin=PIPE, stdout=PIPE)
        assert others.stdin is not None
        assert others.stdout is not None
        others.stdout.readline()  # they are connected
        found = self.beat(seconds)
        others.stdin.close()
        return found, int(others.stdout.readline())

    def cancel(self) -> float:
        """The seconds from a cancel to the end of an EXPLAIN."""
        with self.connect() as wire:
            asking = threading.Thread(target=self._end, args=(wire,))
            asking.start()
            time.sleep(0.5)
            begun = time.monotonic()
            wire.cancel()
            asking.join()
            return time.monotonic() - begun

    def _end(self, wire: psycopg.Connection) -> None:
        with suppress(psycopg.errors.QueryCanceled):
            wire.execute(
                "EXPLAIN SELECT wide, c0, c1, COUNT(*) FROM t0 GROUP BY CUBE (wide, c0, c1)"
            )

    def close(self) -> None:
        """End the server."""
        self.free.close()
        self.server.terminate()
        try:
            self.server.wait(30)
        except TimeoutExpired:
            self.server.kill()


def main() -> None:
    """Print one line for each errand."""
    if sys.argv[1:2] == ["errand"]:
        run_errands(int(sys.argv[2]), sys.argv[3])
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        heart = Heartbeat(write_catalog(Path(folder)))
        stack.callback(heart.close)
        print(
            f"{'free answers, ms':40}{'median':>9}{'p99':>9}{'ratio':>8}{'longest':>9}{'done':>7}"
        )
        alone = heart.beat(seconds)
        lines = [("alone", alone, 0)]
        lines += [(name, *heart.beside(name, seconds)) for name in ERRANDS]
        base = float(np.quantile(alone, 0.99))
        for name, found, done in lines:
            median, most = (1000 * float(np.quantile(found, each)) for each in (0.5, 0.99))
            ratio = most / base / 1000
            longest = 1000 * max(found)
            print(f"{name:40}{median:9.1f}{most:9.1f}{ratio:8.1f}{longest:9.1f}{done:7}")
        ended = sorted(heart.cancel() for _ in range(9))
        print(f"an EXPLAIN ends after a cancel: median {1000 * ended[4]:.0f} ms", end="")
        print(f", longest {1000 * ended[-1]:.0f} ms")


if __name__ == "__main__":
    main()
