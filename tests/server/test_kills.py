"""A server that is killed at any moment: every charge is in the ledger, every release is free."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.site import open_site
from tests.support.served import Client, rows, told

KILLS = int(os.environ.get("SERVER_KILLS", "2"))
pytestmark = pytest.mark.slow


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _start(catalog: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dpsql", "serve", str(catalog), "--twin", "off"]
    server = subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        except OSError:
            time.sleep(0.1)
    server.kill()
    raise AssertionError("the server does not start")


def test_a_killed_server_loses_nothing(catalog: Path) -> None:
    for path in catalog.parent.glob("*.parquet"):
        path.chmod(0o600)
    rng = random.Random(5)
    answered: dict[str, list[list[bytes | None]]] = {}
    for turn in range(KILLS):
        port = _free_port()
        server = _start(catalog, port)
        try:
            with Client(port) as client:
                client.start()
                client.ask("SET epsilon = 0.01")
                for number in range(10):
                    kind, month = "xy"[turn % 2], 1 + turn // 2 % 3
                    sql = f"SELECT COUNT(*) FROM t WHERE kind = '{kind}' AND month(day) = {month}"
                    sql += f" AND size = {number}"
                    if number == 4 + rng.randrange(6):
                        client.send(b"Q", sql.encode() + b"\0")
                        time.sleep(rng.random() * 0.05)
                        break
                    answered[sql] = rows(client.ask(sql))
        finally:
            server.kill()
            server.wait()
    spent = [e for e in open_and_list(catalog) if e.kind == "debit"]
    assert len(answered) <= len(spent) <= len(answered) + KILLS
    port = _free_port()
    server = _start(catalog, port)
    try:
        with Client(port) as client:
            client.start()
            client.ask("SET epsilon = 0.01")
            for sql, before in answered.items():
                found = client.ask(sql)
                assert told(found, b"N")[0]["M"] == "free", sql
                assert rows(found) == before
    finally:
        server.terminate()
        assert server.wait(60) == 0
    assert dpsql.dbapi.connection.verify_ledger(catalog).entries == len(spent)


def open_and_list(catalog: Path) -> tuple[dpsql.dbapi.connection.LedgerEntry, ...]:
    site = open_site(catalog)
    try:
        return site.engine.entries()
    finally:
        site.close()
