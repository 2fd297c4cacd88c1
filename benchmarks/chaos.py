"""A server among everything that goes wrong: ``python -m benchmarks.chaos [SECONDS]``.

Clients ask new and old statements all the time, while the server is killed and started again, its
rows go away and come back, others lock its ledger, strangers take connections and send garbage, and
a curator raises the budget, reloads and ends sessions. Prints what was done, and fails where the
server does not answer afterwards, where the ledger does not verify, or where a charge that a client
was told of is not there once, with its head. The largest gap is that between two free answers
while the server was up.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from fractions import Fraction
from pathlib import Path

import duckdb
import psycopg

from dpsql.dbapi.connection import raise_budget, verify_ledger
from dpsql.dbapi.history import read_past
from dpsql.errors import UsageError
from dpsql.records import dataclass, field
from dpsql.server.operator_socket import ask_servers
from dpsql.server.users import Users

CATALOG = """
[budget]
epsilon = 1000

[ledger]
anchor = "anchors"

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
kind = { type = "integer", domain = [0, 99] }
size = { type = "integer", domain = [0, 99] }
"""
CLIENTS = 4
SECONDS = 300.0
PASSWORD = "chaos"
DESCRIPTORS = 120
"""Descriptors that the server may open, so that a few strangers take them all."""
FREE = "SELECT COUNT(*) AS n FROM t"
ENTRY = re.compile(r"ledger entry (\d+), head ([0-9a-f]{64})")


@dataclass(eq=False)
class Chaos:
    """A server in a folder, the clients that ask it, and what became of them."""

    folder: Path
    draw: random.Random
    port: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    charged: dict[int, str] = field(default_factory=dict)
    twice: int = 0
    gap: float = 0.0
    down: float = 0.0
    is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.catalog = self.folder / "chaos.toml"
        self.catalog.write_text(CATALOG)
        self.rows = self.folder / "t.parquet"
        wanted = "SELECT i % 100 AS kind, i * 7 % 100 AS size FROM range(1000) r(i)"
        duckdb.sql(f"COPY ({wanted}) TO '{self.rows}'")
        for path in (self.rows, self.catalog):
            path.chmod(0o600)
        Users(self.folder / "chaos.users").put("ana", PASSWORD, new=True)
        self.lock = threading.Lock()
        self.server = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server, and wait until it listens."""
        listen = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "dpsql", "serve", str(self.catalog), "--twin", "off"]
        found = subprocess.Popen(
            [*command, "--listen", listen, "--log", "json"],
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS,) * 2),
        )
        assert found.stderr is not None
        for line in found.stderr:
            if b"serving chaos on " in line:
                self.port = int(line.partition(b"127.0.0.1:")[2].partition(b";")[0])
                break
        threading.Thread(target=found.stderr.read, daemon=True).start()
        return found

    def connect(self) -> psycopg.Connection:
        """A session of an analyst."""
        dsn = f"host=127.0.0.1 port={self.port} user=ana password={PASSWORD} dbname=chaos"
        return psycopg.connect(dsn, autocommit=True, connect_timeout=10)

    # Clients.

    def ask(self, seed: int) -> None:
        """Ask one statement after another, most of them new, and note every charge."""
        draw = random.Random(seed)
        while not self.is_over.is_set():
            with suppress(psycopg.Error, OSError), self.connect() as wire:
                wire.add_notice_handler(self._note)
                wire.execute("SET epsilon = 0.001")
                wire.execute("SET statement_timeout = '5s'")
                while not self.is_over.is_set():
                    low = draw.randrange(100)
                    try:
                        wire.execute(f"SELECT COUNT(*) AS n FROM t WHERE size < {low}").fetchall()
                        self.counts["answered"] += 1
                    except psycopg.Error as error:
                        if wire.closed:
                            raise
                        self.counts[f"refused {error.sqlstate}"] += 1
            self.counts["connections lost"] += 1
            self.is_over.wait(0.1)

    def _note(self, told: psycopg.errors.Diagnostic) -> None:
        found = ENTRY.search(told.message_detail or "")
        if found is None or not (told.message_primary or "").startswith("charged"):
            return
        with self.lock:
            self.twice += int(found[1]) in self.charged
            self.charged[int(found[1])] = found[2]

    def beat(self) -> None:
        """Ask what is free every few milliseconds, and note the largest gap while all is up."""
        while not self.is_over.is_set():
            with suppress(psycopg.Error, OSError), self.connect() as wire:
                wire.execute("SET epsilon = 0.001")
                wire.execute(FREE)
                last = time.monotonic()
                while not self.is_over.is_set():
                    wire.execute(FREE)
                    now = time.monotonic()
                    if last > self.down:
                        self.gap = max(self.gap, now - last)
                    last = now
                    self.counts["beats"] += 1
                    time.sleep(0.01)
            self.is_over.wait(0.1)

    # What goes wrong.

    def below(self, process: int) -> list[int]:
        """The processes that one has started, and those that they have, youngest last."""
        found: list[int] = []
        with suppress(OSError):
            mine = Path(f"/proc/{process}/task/{process}/children").read_text()
            for each in map(int, mine.split()):
                found += [each, *self.below(each)]
        return found

    def kill(self) -> None:
        """Kill the server: its parent starts it again, and who comes meanwhile waits."""
        for each in self.below(self.server.pid)[:1]:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        with suppress(psycopg.Error, OSError), self.connect():
            pass
        self.down = time.monotonic() + 1

    def kill_planning(self) -> None:
        """Kill a process that plans."""
        for each in self.below(self.server.pid)[-1:]:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.down = time.monotonic() + 1

    def orphan(self) -> None:
        """Kill the parent: the server stops by itself, and all is started again."""
        left = self.below(self.server.pid)
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        while any(Path(f"/proc/{each}").exists() for each in left):
            time.sleep(0.1)
        self.server = self.start()
        self.down = time.monotonic() + 1

    def stop(self) -> None:
        """Stop the server as systemd does; it ends with success, since it was asked to."""
        self.server.send_signal(signal.SIGTERM)
        assert self.server.wait(60) == 0
        self.server = self.start()
        self.down = time.monotonic() + 1

    def hide(self) -> None:
        """Take the rows away for a moment."""
        away = self.rows.with_suffix(".away")
        self.rows.rename(away)
        time.sleep(0.3)
        away.rename(self.rows)

    def lock_ledger(self) -> None:
        """Hold the ledger's file as a tool of somebody else would."""
        with closing(sqlite3.connect(self.catalog.with_suffix(".ledger"))) as db:
            with suppress(sqlite3.OperationalError):
                db.execute("BEGIN IMMEDIATE")
                time.sleep(0.3)
            self.down = time.monotonic()

    def crowd(self) -> None:
        """Take all the descriptors, and say nothing."""
        with ExitStack() as stack, suppress(OSError):
            for _ in range(DESCRIPTORS + 20):
                address = ("127.0.0.1", self.port)
                stack.enter_context(socket.create_connection(address, 2))
            time.sleep(0.2)

    def babble(self) -> None:
        """Send what is no message."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2) as stranger:
            stranger.sendall(os.urandom(self.draw.randrange(1, 2000)))
            stranger.settimeout(0.1)
            stranger.recv(1000)

    def reload(self) -> None:
        """Ask for a reload, many times at once."""
        for _ in range(5):
            self.server.send_signal(signal.SIGHUP)

    def raise_total(self) -> None:
        """Raise the budget."""
        self.counts["raised"] += 1
        raise_budget(self.catalog, Fraction(1000 + self.counts["raised"]))

    def end(self) -> None:
        """End all sessions."""
        with suppress(UsageError):  # it is being started again
            ask_servers(self.catalog, act="end", numbers=[], user="ana")
        self.down = time.monotonic() + 0.5

    def go_on(self, seconds: float) -> None:
        """Have everything go wrong for so long; the server is up afterwards."""
        acts: list[Callable[[], None]] = [self.kill, self.kill_planning, self.orphan, self.stop]
        acts += [self.hide, self.lock_ledger]
        acts += [self.crowd, self.babble, self.reload, self.raise_total, self.end]
        threads = [threading.Thread(target=self.ask, args=(k,)) for k in range(CLIENTS)]
        threads.append(threading.Thread(target=self.beat))
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        try:
            for act in itertools.cycle(self.draw.sample(acts, len(acts))):
                time.sleep(min(0.3, seconds / 30))
                act()
                self.counts[act.__name__] += 1
                assert self.server.poll() is None, "the server has ended"
                if time.monotonic() > end:
                    break
            with self.connect() as wire:
                wire.execute("SET epsilon = 0.001")
                assert wire.execute(FREE).fetchone() is not None
        finally:
            self.is_over.set()
            for thread in threads:
                thread.join()
            self.server.send_signal(signal.SIGTERM)
            status = self.server.wait(60)
        assert status == 0, status

    def lost(self) -> int:
        """The number of charges that were told and are not in the ledger as they were told."""
        verify_ledger(self.catalog)
        heads = {each.entry.seq: each.entry.hash for each in read_past(self.catalog).moments}
        return sum(heads.get(seq) != head for seq, head in self.charged.items())


def run(seconds: float, seed: int = 0) -> Chaos:
    """Everything that goes wrong for so long; the server has been up afterwards."""
    with tempfile.TemporaryDirectory() as name:
        found = Chaos(Path(name), random.Random(seed))
        found.go_on(seconds)
        found.counts["charges lost"] = found.lost()
    assert found.twice + found.counts["charges lost"] == 0, found.counts
    return found


def main(seconds: float) -> None:
    """Print what was done, and what became of it."""
    found = run(seconds)
    for name, count in sorted(found.counts.items()):
        print(f"{name:24}{count:8}")
    print(f"{'charges told':24}{len(found.charged):8}")
    print(f"{'charges told twice':24}{found.twice:8}")
    print(f"{'largest gap, s':24}{found.gap:8.2f}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
