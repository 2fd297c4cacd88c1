"""A server that stays: whatever fails while it lets clients in, the next one is let in."""

from __future__ import annotations

import errno
import itertools
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import OperationalError
from dpsql.page.serving import open_page
from dpsql.server import arrivals
from dpsql.server.address import Address
from dpsql.server.arrivals import ENDED
from dpsql.server.metrics import MOST_WATCHING, open_metrics
from dpsql.server.server import Server
from tests.support.paged import Knocker
from tests.support.served import Client, rows, served

TRANSIENT = sorted(set(errno.errorcode) - ENDED - {errno.EINTR})


class Flaky:
    """A listening socket of which so many calls of ``accept`` fail first."""

    def __init__(self, real: socket.socket, failures: list[BaseException]) -> None:
        self.real, self.failures = real, failures

    def accept(self) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return self.real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@contextmanager
def idle(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many clients that connect and say nothing."""
    with ExitStack() as stack:
        address = ("127.0.0.1", port)
        yield [stack.enter_context(socket.create_connection(address, 60)) for _ in range(count)]


def check_served(server: Server) -> None:
    with Client(server.port) as client:
        assert client.start()[-1][0] == b"Z"
        assert rows(client.ask("SHOW show_stddev")) == [[b"off"]]


def test_no_failure_of_accept_ends_the_server(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "PAUSES", (0.0, 0.0))
    failures: list[BaseException] = [OSError(number, "no") for number in TRANSIENT]
    failures += [MemoryError(), OSError("without a number"), BlockingIOError(errno.EAGAIN, "no")]
    with served(catalog) as server:
        server._socket = Flaky(server._socket, failures)  # type: ignore[assignment]
        with idle(server.port, 1):  # accepted by the call that is under way; may make room
            check_served(server)
        assert not failures
        assert all(server.events.total("missed", errno.errorcode[each]) for each in TRANSIENT)


@pytest.mark.parametrize("number", sorted(ENDED))
def test_a_socket_that_is_gone_is_told_and_is_no_success(catalog: Path, number: int) -> None:
    with served(catalog) as server:
        gone = Flaky(server._socket, [OSError(number, "gone")])
        other = Server(server.databases, Address("127.0.0.1", 0))
        other._socket.close()
        other._socket = gone  # type: ignore[assignment]
        with pytest.raises(OperationalError, match=errno.errorcode[number]) as caught:
            other.serve()
        assert caught.value.exit_code != 0


def test_threads_and_sockets_that_cannot_be_had(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "PAUSES", (0.0, 0.0))
    tries = itertools.count()
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        is_client = getattr(thread, "_target", None) is not None
        if is_client and "_attend" in repr(thread._target) and next(tries) < 3:  # type: ignore[attr-defined]
            raise RuntimeError("can't start new thread")
        start(thread)

    with served(catalog) as server:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with idle(server.port, 3) as left:
                assert [each.recv(1) for each in left] == [b""] * 3
            check_served(server)
        assert not server._arriving
        assert server.events.total("missed", "ENOMEM") == 3


SCRIPT = """
import logging, resource, sys
from pathlib import Path
from dpsql.server.preload import import_all
from dpsql.server.address import Address
from dpsql.page.serving import open_page
from dpsql.server.databases import Databases
from dpsql.server.metrics import open_metrics
from dpsql.server.server import Server
from tests.support.served import database
logging.basicConfig(format="%(message)s")
path = Path(sys.argv[1])
import_all()
server = Server(Databases(database(path)), Address("127.0.0.1", 0))
ports = [server.port]
if "all" in sys.argv:
    page = open_page(server, Address("127.0.0.1", 0))
    http = open_metrics("127.0.0.1", 0, server)
    ports += [page.port, http.server_address[1]]
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
print(*ports, flush=True)
server.serve()
"""


@pytest.mark.slow
@pytest.mark.parametrize("flooded", [(0,), (1,), (2,)])
def test_clients_that_take_all_descriptors_make_room(
    flooded: tuple[int, ...], catalog: Path, tmp_path: Path
) -> None:
    """Whichever door they stand at, each of the three answers, and the log is one of events."""
    doors = () if flooded == (0,) else ("all",)
    command = [sys.executable, "-c", SCRIPT, str(catalog), *doors]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None
            ports = tuple(map(int, process.stdout.readline().split()))
            begun = time.monotonic()
            with ExitStack() as stack:
                for door in flooded:
                    stack.enter_context(idle(ports[door], 90))
                with Client(ports[0]) as client:
                    found = client.start()
                    assert found[-1][0] == b"Z", found
                    assert rows(client.ask("SHOW show_stddev")) == [[b"off"]]
                if not doors:
                    return
                live = f"http://127.0.0.1:{ports[2]}/health/live"
                _again(lambda: urllib.request.urlopen(live, timeout=60).read())
                _again(lambda: Knocker(ports[1]).enter().body and b"ok\n")
            assert process.poll() is None
            taken = time.monotonic() - begun
        finally:
            process.kill()
    said = (tmp_path / "log").read_text().splitlines()
    assert [each for each in said if not each.startswith("event=")] == []
    assert len(said) < 300 + 20 * taken


@pytest.mark.parametrize("more", [1, 40])
def test_the_page_has_room_for_who_signs_in(catalog: Path, more: int) -> None:
    with served(catalog, most=4) as server:
        page = open_page(server, Address("127.0.0.1", 0))
        try:
            with idle(page.port, 8 + more):
                assert Knocker(page.port).enter().status == 200
            assert server.events.total("missed", "page") >= more
        finally:
            page.close()


def test_metrics_have_a_limit_and_are_there_again(catalog: Path) -> None:
    with served(catalog) as server:
        http = open_metrics("127.0.0.1", 0, server)
        port = http.server_address[1]
        before = threading.active_count()
        try:
            with idle(port, MOST_WATCHING + 10) as left:
                assert [each.recv(1) for each in left[:10]] == [b""] * 10
                assert threading.active_count() <= before + MOST_WATCHING
            _again(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read())
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            assert 'dpsql_missed_clients_total{why="metrics"}' in text
        finally:
            http.shutdown()
            http.server_close()


def _again(ask: Callable[[], bytes]) -> None:
    """Ask until the places of those who have left are free."""
    for _ in range(1000):
        try:
            assert ask() == b"ok\n"
            return
        except OSError:
            continue
    pytest.fail("the metrics did not come back")


class Idle:
    """A client at the door."""

    is_gone = False

    def hang_up(self) -> None:
        self.is_gone = True


@pytest.mark.parametrize(("here", "left"), [(0, 176), (5, 146), (1000, 100)])
def test_clients_at_the_door_leave_descriptors_for_who_is_here(
    here: int, left: int, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: 24 for all, and five sessions were told that their ledger cannot be opened."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    with served(catalog) as server:
        present: Any = dict.fromkeys((number, 0) for number in range(here))
        with monkeypatch.context() as patch:
            patch.setattr(server, "_here", present)
            stays = []
            for number in range(200):
                idle, other = Idle(), Idle()
                server._admit(idle, 0)  # type: ignore[arg-type]
                server._admit(other, number)  # type: ignore[arg-type]
                stays.append(not idle.is_gone)
                server._open.clear()
                server._arriving.clear()
    assert stays == [number < left for number in range(200)]
