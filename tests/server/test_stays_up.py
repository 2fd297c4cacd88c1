"""A server that stays: whatever fails while it lets clients in, the next one is let in."""

from __future__ import annotations

import errno
import itertools
import random
import socket
import ssl
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

from dpsql.errors import OperationalError, UsageError
from dpsql.page.serving import open_page
from dpsql.server import arrivals
from dpsql.server.address import Address
from dpsql.server.arrivals import ENDED
from dpsql.server.metrics import open_metrics
from dpsql.server.places import (
    EACH,
    EACH_OF_PAGE,
    EACH_OF_PLANNING,
    LEAST,
    RESERVE,
    WATCHING,
    ClientPlaces,
    Division,
)
from dpsql.server.server import Server
from tests.support.effort import effort, first_seed
from tests.support.paged import Knocker
from tests.support.served import Client, rows, served, write_certificate

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
        assert len(server._arriving) == 0
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
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
server = Server(Databases(database(path)), Address("127.0.0.1", 0))
ports = [server.division.sessions, server.port]
if len(sys.argv) > 2:
    page = open_page(server, Address("127.0.0.1", 0), *map(Path, sys.argv[3:]))
    http = open_metrics("127.0.0.1", 0, server)
    ports += [page.port, http.server_address[1]]
print(*ports, flush=True)
server.serve()
"""


@pytest.mark.slow
@pytest.mark.parametrize("doors", ["all", "all under TLS"])
def test_clients_that_take_all_descriptors_make_room(
    doors: str, catalog: Path, tmp_path: Path
) -> None:
    """They stand at all doors at once, and each of the three answers, and as many as it says it
    has room for; no descriptor is ever missed, and the log is one of events.
    """
    secure = write_certificate(tmp_path) if "TLS" in doors else ()
    told = () if doors == "wire" else ("all", *map(str, secure))
    command = [sys.executable, "-c", SCRIPT, str(catalog), *told]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None
            room, *ports = map(int, process.stdout.readline().split())
            begun = time.monotonic()
            with ExitStack() as stack:
                for port in ports:
                    stack.enter_context(idle(port, 90))
                for _ in range(room):
                    client = stack.enter_context(Client(ports[0]))
                    found = client.start()
                    assert found[-1][0] == b"Z", found
                    assert rows(client.ask("SHOW show_stddev")) == [[b"off"]]
                with Client(ports[0]) as client:
                    assert b"53300" in client.start()[-1][1]
                if doors != "wire":
                    live = f"http://127.0.0.1:{ports[2]}/health/live"
                    _again(lambda: urllib.request.urlopen(live, timeout=60).read())
                    knocker = Knocker(
                        ports[1], tls=ssl._create_unverified_context() if secure else None
                    )
                    _again(lambda: knocker.enter().body and b"ok\n")
            assert process.poll() is None
            taken = time.monotonic() - begun
        finally:
            process.kill()
    said = (tmp_path / "log").read_text().splitlines()
    assert [each for each in said if not each.startswith("event=")] == []
    assert [each for each in said if "EMFILE" in each] == []
    assert len(said) < 400 + 20 * taken


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
            with idle(port, WATCHING + 10) as left:
                assert [each.recv(1) for each in left[:10]] == [b""] * 10
                # One more: the newest is in while the one who makes room for it still leaves.
                assert threading.active_count() <= before + WATCHING + 1
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


def test_what_is_divided_is_never_more_than_is_there() -> None:
    """Before: each door looked at the number of a descriptor, and three at once took them all."""
    draw = random.Random(first_seed(0))
    for _ in range(effort(2000)):
        most, used = draw.choice([1, 4, 20, 200, 3000]), draw.randrange(200)
        limit = used + draw.choice([draw.randrange(120), draw.randrange(2000), 1 << 20])
        planning = draw.choice([0, 2, 8, 64])
        try:
            found = Division.of(most, limit, used, planning)
        except UsageError as refused:
            limit = int(str(refused.hint).split()[-1])
            found = Division.of(most, limit, used, planning)
        taken = EACH * found.sessions + found.arriving + found.watching
        taken += EACH_OF_PAGE * found.page + EACH_OF_PLANNING * found.planning
        assert used + RESERVE + taken <= limit
        assert min(found.arriving, found.watching) >= min(LEAST, most)
        assert found.page >= min(LEAST, 2 * most)
        assert found.planning >= min(2, planning)
        assert 1 <= found.sessions <= most
        if limit - used >= 12 * most + 1500:
            assert (found.sessions, found.arriving, found.watching) == (most, most, WATCHING)


def test_nobody_is_let_in_until_there_is_a_place() -> None:
    """Whoever is asked to leave may take long: the door waits, however long that is."""
    left: list[int] = []
    places = ClientPlaces(2, left.append, lambda one: one != 1)
    assert [places.take(each) for each in (1, 2, 3, 4)] == [False, False, True, True]
    assert left == [2, 3]  # 1 is at work
    waited = threading.Thread(target=places.wait, args=(lambda: False,))
    waited.start()
    places.give(2)
    waited.join(0.05)
    assert waited.is_alive()
    places.give(3)
    waited.join(60)
    assert len(places) == 2
    places.bear("EACCES")
    places.bear("EMFILE")
    assert left == [2, 3, 4]
    places.make_room()
    places.take(5)
    assert left == [2, 3, 4, 5]  # nobody else idles
    places.wait(lambda: True)
