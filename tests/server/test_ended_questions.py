"""Questions to the twin end as all else does: by a cancel, and by ``statement_timeout``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dpsql.interrupts import retry_until
from dpsql.server.server import Server
from tests.support.served import Client, served, told


class Stuck:
    """A twin that never answers."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.declare = self.is_alive = lambda *_: None
        self.reader = lambda *_: self
        self.close = lambda: None
        self.release = "16.0"

    def run(self, *_: Any, **__: Any) -> Any:
        self.asked.set()
        retry_until(lambda: False)

    describe = run


@contextmanager
def asked(catalog: Path, is_prepared: bool, *before: str) -> Iterator[tuple[Server, Client, Stuck]]:
    with served(catalog) as server, Client(server.port) as client:
        twin: Any = Stuck()
        server.databases.first.twin = twin
        client.start()
        for sql in before:
            client.ask(sql)
        if is_prepared:
            client.parse("SELECT version()")
            client.describe()
            client.send(b"S")
        else:
            client.send(b"Q", b"SELECT version()\0")
        yield server, client, twin


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_question_ends_by_a_cancel(catalog: Path, is_prepared: bool) -> None:
    with asked(catalog, is_prepared) as (server, client, twin):
        assert twin.asked.wait(30)
        (presence,) = server.present()
        presence.asker.cancel()
        found = client.until_ready()
        assert told(found)[0]["C"] == "57014"
        assert server.events.total("cancel", "wire", "asked") == 1


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_question_ends_by_its_time(catalog: Path, is_prepared: bool) -> None:
    with asked(catalog, is_prepared, "SET statement_timeout = 200") as (server, client, _):
        assert told(client.until_ready())[0]["C"] == "57014"
        assert server.events.total("cancel", "wire", "timeout") == 1
