"""Serving the page: a socket, uvicorn in a thread, and patience with slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dpsql.page.application import Application
from dpsql.page.browser_sessions import BrowserSessions
from dpsql.page.sign_in import SignIn
from dpsql.page.site_guard import SiteGuard
from dpsql.page.workers import PageWorkers
from dpsql.records import dataclass
from dpsql.server.address import BACKLOG, Address
from dpsql.server.arrivals import name_of
from dpsql.server.events import Events
from dpsql.server.server import Server, read_tls

SILENT = 20.0
"""Seconds in which a client that has connected must have sent the head of a request."""
FAREWELL_PAGE = 5
"""Seconds that answers on their way have when the page is closed."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that hangs up on clients which connect and say nothing, or too little.

    In a flood whoever has been here longest without a request under way makes room, so that idle
    connections take no more descriptors than ``most``.
    """

    most: int
    missed: Callable[[], None]
    are_few: Callable[[int], bool]
    here: dict[PatientProtocol, None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.access_log = False  # whoever configures logging of all of a process does not mean this
        asyncio.get_running_loop().call_later(SILENT, self._hang_up)
        self.here[self] = None
        number = transport.get_extra_info("socket").fileno()
        if len(self.here) > self.most or self.are_few(number):
            self.missed()
            self.make_room(self)

    @classmethod
    def make_room(cls, last: PatientProtocol | None = None) -> None:
        """Hang up on who has been here longest without a request under way, or on the last."""
        idle = next((each for each in cls.here if each.is_idle), last)
        if idle is not None:
            cls.here.pop(idle)
            idle.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another connection."""
        self.here.pop(self, None)
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """True if no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _hang_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()


def protocol_of(server: Server) -> type[PatientProtocol]:
    """The protocol of one page: at most twice as many connections as there may be sessions."""
    missed = partial(server.events.note, "missed", method="page", why="page")
    facts = {"most": 2 * server.most, "missed": staticmethod(missed), "here": {}}
    facts["are_few"] = staticmethod(server.are_few)
    return type("PageProtocol", (PatientProtocol,), facts)


@dataclass
class Page:
    """A page that is served, until it is closed."""

    visits: BrowserSessions
    port: int
    tls: ssl.SSLContext | None
    _server: uvicorn.Server
    _thread: threading.Thread

    def close(self) -> None:
        """End the visits, and stop; what was charged is stored first."""
        self._server.should_exit = True
        self.visits.close()
        self._thread.join()


def open_page(
    server: Server, address: Address, cert: Path | None = None, key: Path | None = None
) -> Page:
    """Serve the page of a server in a thread. Raises: UsageError (E_LISTEN, E_TLS)."""
    secure = read_tls(cert, key, address) is not None
    listening = address.listen()
    port: int = listening.getsockname()[1]
    visits = BrowserSessions(
        server.most, server.ticks, events=server.events, numbers=server.numbers
    )
    server.visits = visits
    entrance = SignIn(server.databases, server.failures)
    app = Application(entrance, visits, PageWorkers(), secure, server.events).build()
    guarded = SiteGuard(app, "https" if secure else "http", () if secure else _names(address, port))
    protocol = protocol_of(server)
    config = uvicorn.Config(
        guarded,
        http=protocol,
        backlog=1,
        ws="none",
        lifespan="off",
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=4 * server.most,
        timeout_graceful_shutdown=FAREWELL_PAGE,
        ssl_certfile=cert if secure else None,
        ssl_keyfile=key if secure else None,
    )
    served = uvicorn.Server(config)
    work = partial(asyncio.run, _serve(served, listening, protocol, server.events))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while not served.started and thread.is_alive():
        time.sleep(0.01)
    with contextlib.suppress(OSError):
        listening.listen(BACKLOG)
    tls = config.ssl if isinstance(config.ssl, ssl.SSLContext) else None
    return Page(visits, port, tls, served, thread)


async def _serve(
    served: uvicorn.Server,
    listening: socket.socket,
    protocol: type[PatientProtocol],
    events: Events,
) -> None:
    """Serve; what the event loop would tell a log is an event, and who idles makes room.

    Where no more can be accepted, the loop tries as often as its backlog is long, each second: once
    by ``uvicorn.Config``, whatever the kernel keeps waiting.
    """

    def bear(_: object, told: dict[str, Any]) -> None:
        error = told.get("exception")
        if isinstance(error, OSError):
            events.note("missed", method="page", why=name_of(error))
            protocol.make_room()
        else:
            events.note("defect", why=type(error).__name__, where="page")

    asyncio.get_running_loop().set_exception_handler(bear)
    await served.serve(sockets=[listening])


def _names(address: Address, port: int) -> frozenset[str]:
    """Return the names that the server may be called by where only this machine reaches it.

    Without TLS nothing else keeps a foreign name from being pointed here.
    """
    hosts = {"localhost", "127.0.0.1", "[::1]", address.host}
    return frozenset(f"{host}:{port}" for host in hosts) | (hosts if port == 80 else frozenset())
