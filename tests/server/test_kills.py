"""Servers and clients that are killed at any moment: every charge is in the ledger, and its answer.

SERVER_KILLS says how many of them. Servers are forked from a process that has imported everything,
so that a kill costs less than a second.
"""

from __future__ import annotations

import multiprocessing
import random
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.site import open_site
from dpsql.server.address import Address
from dpsql.server.databases import Databases
from dpsql.server.server import Server
from tests.support.effort import effort, first_seed
from tests.support.served import Client, database, rows, told

KILLS = effort(6)
LONGEST_TURN = 6
"""Kills of one server: of its clients, and at last of itself."""
PRICE = "0.01"
pytestmark = pytest.mark.slow


def serve(catalog: Path, port: Pipe) -> None:
    """Serve a catalog in a process of its own, until it is killed."""
    server = Server(Databases(database(catalog)), Address("127.0.0.1", 0))
    port.send(server.port)
    server.serve()


def _start(context: ForkServerContext, catalog: Path) -> tuple[ForkServerProcess, int]:
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(catalog, there), daemon=True)
    process.start()
    there.close()
    with here:
        assert here.poll(60), "the server does not start"
        port: int = here.recv()
    return process, port


@dataclass
class Told:
    """What clients were told, what was in flight at a kill, and how long a statement takes."""

    rng: random.Random
    answers: dict[str, list[list[bytes | None]]] = field(default_factory=dict)
    charged: int = 0
    in_flight: list[str] = field(default_factory=list)
    seconds: float = 0.02

    def statement(self) -> str:
        """One that is new, nearly always."""
        sizes = sorted(self.rng.sample(range(10), self.rng.randrange(1, 6)))
        kind, month = self.rng.choice(("x", "y", "it''s")), self.rng.randrange(1, 4)
        return (
            f"SELECT COUNT(*) FROM t WHERE kind = '{kind}' AND month(day) = {month}"
            f" AND size IN ({', '.join(map(str, sizes))})"
        )

    def ask(self, client: Client) -> None:
        """Ask, and note what is told."""
        sql, begun = self.statement(), time.monotonic()
        back = client.ask(sql)
        self.seconds = 0.7 * self.seconds + 0.3 * (time.monotonic() - begun)
        charged = any(each["M"].startswith("charged") for each in told(back, b"N"))
        self.charged += charged
        assert self.answers.setdefault(sql, rows(back)) == rows(back)

    def begin(self, client: Client) -> None:
        """Ask, and wait for no answer."""
        sql = self.statement()
        self.in_flight.append(sql)
        client.send(b"Q", sql.encode() + b"\0")

    def wait(self) -> None:
        """Wait for some moment of a statement."""
        time.sleep(self.rng.random() * 1.3 * self.seconds)


def _sign_in(stack: ExitStack, port: int) -> Client:
    client = stack.enter_context(Client(port))
    assert client.start()[-1][0] == b"Z"
    client.ask(f"SET epsilon = {PRICE}")
    return client


def _kill(client: Client) -> None:
    """End a client as the kernel does for a process that is killed: at once, without goodbye."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


def _turn(context: ForkServerContext, catalog: Path, known: Told, kills: int) -> None:
    """One server: clients of it are killed, and at last it is, all in the middle of statements."""
    server, port = _start(context, catalog)
    try:
        with ExitStack() as stack:
            for _ in range(kills - 1):
                client = _sign_in(stack, port)
                known.ask(client)
                known.begin(client)
                known.wait()
                _kill(client)
            clients = [_sign_in(stack, port) for _ in range(known.rng.randrange(1, 4))]
            known.ask(clients[0])
            for client in clients:
                known.begin(client)
            known.wait()
            server.kill()
            server.join()
    finally:
        server.kill()
        server.join()
        server.close()


def test_who_is_killed_loses_nothing(catalog: Path) -> None:
    for path in catalog.parent.glob("*.parquet"):
        path.chmod(0o600)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "dpsql.engine.engine", "duckdb"])
    known, left = Told(random.Random(first_seed(5))), KILLS
    while left > 0:
        kills = min(left, known.rng.randrange(1, LONGEST_TURN + 1))
        _turn(context, catalog, known, kills)
        left -= kills
        debits = _debits(catalog)
        assert known.charged <= len(debits) <= known.charged + len(known.in_flight)
    assert {each.epsilon for each in debits} == {"1/100"}
    _check(catalog, known, len(debits))


def _check(catalog: Path, known: Told, debits: int) -> None:
    """Whatever was told is told again for nothing, by a server as it is started for people."""
    port = _free_port()
    log = catalog.with_suffix(".log")
    server = _command(catalog, port, log)
    try:
        with Client(port) as client:
            client.start()
            client.ask(f"SET epsilon = {PRICE}")
            for sql, before in known.answers.items():
                back = client.ask(sql)
                assert told(back, b"N")[0]["M"] == "free", sql
                assert rows(back) == before
            paid = [_is_charged(client.ask(sql)) for sql in dict.fromkeys(known.in_flight)]
    finally:
        server.terminate()
        assert server.wait(60) == 0
    assert "stopped" in log.read_text()
    assert "leaked" not in log.read_text()
    found = dpsql.dbapi.connection.verify_ledger(catalog)
    assert found.entries == debits + sum(paid)
    told_of = f"{KILLS} kills, {len(known.in_flight)} statements in flight"
    print(f"{told_of}, of which {len(paid) - sum(paid)} were charged and stored by then")


def _is_charged(back: list[tuple[bytes, bytes]]) -> bool:
    return any(each["M"].startswith("charged") for each in told(back, b"N"))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _command(catalog: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dpsql", "serve", str(catalog), "--twin", "off"]
    places = ["--listen", f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{_free_port()}"]
    with log.open("wb") as told_here:
        server = subprocess.Popen([*command, *places], stdout=told_here, stderr=told_here)
    for _ in range(600):
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        time.sleep(0.1)
    server.kill()
    raise AssertionError("the server does not start")


def _debits(catalog: Path) -> list[dpsql.dbapi.connection.LedgerEntry]:
    site = open_site(catalog)
    try:
        return [each for each in site.engine.entries() if each.kind == "debit"]
    finally:
        site.close()
