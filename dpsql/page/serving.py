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

from dpsql.errors import OperationalError
from dpsql.page.application import Application
from dpsql.page.browser_sessions import BrowserSessions
from dpsql.page.sign_in import SignIn
from dpsql.page.site_guard import SiteGuard
from dpsql.page.workers import PageWorkers
from dpsql.records import dataclass
from dpsql.server.address import Address
from dpsql.server.arrivals import arrivals
from dpsql.server.events import Events
from dpsql.server.places import ClientPlaces, hang_up
from dpsql.server.server import Server, read_tls

SILENT = 20.0
"""Seconds in which a client that has connected must have sent the head of a request."""
FAREWELL_PAGE = 5
"""Seconds that answers on their way have when the page is closed."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that hangs up on clients which connect and say nothing, or too little."""

    gone: Callable[[], None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.access_log = False  # whoever configures logging of all of a process does not mean this
        asyncio.get_running_loop().call_later(SILENT, self._hang_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another connection."""
        self.gone()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """True if no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _hang_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()


@dataclass(eq=False)
class Browser:
    """A connection to the page, from when it is accepted: TLS may not have begun."""

    socket: socket.socket
    protocol: PatientProtocol | None = None

    def is_idle(self) -> bool:
        """True if no request is under way."""
        return self.protocol is None or self.protocol.is_idle

    def leave(self) -> None:
        """End it, from any thread."""
        hang_up(self.socket)


@dataclass(eq=False)
class PageDoor:
    """The door of a page: it lets connections in, as many as there are places."""

    listening: socket.socket
    events: Events
    places: ClientPlaces[Browser]
    served: uvicorn.Server
    loop: asyncio.AbstractEventLoop
    is_over: bool = False

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self.run, name="page-door", daemon=True)

    def run(self) -> None:
        """Let one in after another, until it is closed."""
        with contextlib.suppress(OperationalError):
            for connection, _ in arrivals(lambda: self.listening, lambda: self.is_over, self._bear):
                browser = Browser(connection)
                if self.places.take(browser):
                    self.events.note("missed", method="page", why="page")
                asyncio.run_coroutine_threadsafe(self._receive(browser), self.loop)
                self.places.wait(lambda: self.is_over)

    def _bear(self, why: str) -> None:
        self.events.note("missed", method="page", why=why)
        self.places.bear(why)

    async def _receive(self, browser: Browser) -> None:
        """Speak to one, under TLS where there is a certificate, as uvicorn does."""
        config = self.served.config

        def made() -> PatientProtocol:
            state = self.served.server_state, self.served.lifespan.state
            browser.protocol = PatientProtocol(config, *state)
            browser.protocol.gone = partial(self.places.give, browser)
            return browser.protocol

        secure = {} if config.ssl is None else {"ssl_handshake_timeout": SILENT}
        try:
            browser.socket.setblocking(False)
            connect = asyncio.get_running_loop().connect_accepted_socket
            await connect(made, browser.socket, ssl=config.ssl, **secure)
        except Exception:  # gone before it said anything, or no TLS
            browser.socket.close()
            self.places.give(browser)

    def close(self) -> None:
        """Let nobody in any more."""
        self.is_over = True
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join()


@dataclass
class Page:
    """A page that is served, until it is closed."""

    visits: BrowserSessions
    port: int
    tls: ssl.SSLContext | None
    _door: PageDoor
    _thread: threading.Thread

    def close(self) -> None:
        """End the visits, and stop; what was charged is stored first."""
        self._door.close()
        self._door.served.should_exit = True
        self.visits.close()
        self._thread.join()


def open_page(
    server: Server, address: Address, cert: Path | None = None, key: Path | None = None
) -> Page:
    """Serve the page of a server in a thread.

    Args:
        server: its databases, its limits and its log are those of the page.
        address: where to listen; elsewhere than on this machine it needs a certificate.
        cert, key: PEM files of the certificate and its key; None to serve plain HTTP.

    Raises: UsageError (E_LISTEN, E_TLS).
    """
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
    config = uvicorn.Config(
        guarded,
        http=PatientProtocol,
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
    served, loop = uvicorn.Server(config), asyncio.new_event_loop()
    places = ClientPlaces(server.division.page, Browser.leave, Browser.is_idle)
    door = PageDoor(listening, server.events, places, served, loop)
    thread = threading.Thread(target=_run, args=(door,), daemon=True)
    thread.start()
    while not served.started and thread.is_alive():
        time.sleep(0.01)
    door.thread.start()
    tls = config.ssl if isinstance(config.ssl, ssl.SSLContext) else None
    return Page(visits, port, tls, door, thread)


def _run(door: PageDoor) -> None:
    """Serve; what the event loop would tell a log is an event."""

    def bear(_: object, told: dict[str, Any]) -> None:
        why = type(told.get("exception")).__name__
        door.events.note("defect", why=why, where="page")

    door.loop.set_exception_handler(bear)
    with asyncio.Runner(loop_factory=lambda: door.loop) as runner:
        runner.run(door.served.serve(sockets=[]))


def _names(address: Address, port: int) -> frozenset[str]:
    """Return the names that the server may be called by where only this machine reaches it.

    Without TLS nothing else keeps a foreign name from being pointed here.
    """
    hosts = {"localhost", "127.0.0.1", "[::1]", address.host}
    return frozenset(f"{host}:{port}" for host in hosts) | (hosts if port == 80 else frozenset())
