"""The server: it listens, lets clients in, and gives each a thread and a session."""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from dpsql.engine.planning_processes import PlanningProcesses
from dpsql.errors import Error, UsageError
from dpsql.records import dataclass, field
from dpsql.server.address import Address
from dpsql.server.answer_ticks import Ticks
from dpsql.server.arrivals import arrivals, name_of
from dpsql.server.client_connection import ClientConnection
from dpsql.server.client_socket import ClientSocket
from dpsql.server.databases import Database, Databases
from dpsql.server.events import Events
from dpsql.server.handshake import Admission, Failures, Refusal
from dpsql.server.idle_clients import IdleClients
from dpsql.server.messages import Hangup, Notice, ProtocolError
from dpsql.server.places import ClientPlaces, Division
from dpsql.server.reload import Certificate, Reload
from dpsql.server.signed_in import SessionInfo
from dpsql.server.sqlstates import error_message
from dpsql.server.statements import StatementRunner

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings hold SQL
MOST_SESSIONS = 200
"""Clients at once; one more is told so, as in PostgreSQL."""
FAREWELL = 30.0
"""Seconds that sessions have to end what they do when the server is closed."""
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""Seconds of silence, seconds between questions, and how many remain without an answer."""


def read_tls(cert: Path | None, key: Path | None, address: Address) -> ssl.SSLContext | None:
    """Return the TLS context of the server; none is needed where only this machine reaches it.

    Args:
        cert, key: PEM files, None where there are none; the key may be in the certificate's file.
        address: where the server listens; other than a loopback address needs a certificate.

    Raises: UsageError (E_TLS).
    """
    if cert is None:
        if not address.is_loopback:
            hint = "--tls-cert FILE --tls-key FILE, or listen on 127.0.0.1"
            raise UsageError(
                "E_TLS", "passwords and answers beyond this machine need TLS", hint=hint
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except (FileNotFoundError, PermissionError) as error:
        what = f"{cert} and its key cannot be used: {str(error.strerror).lower()}"
        raise UsageError("E_TLS", what) from None
    except (OSError, ssl.SSLError):
        what = f"{cert} and its key cannot be used: no certificate with its key, in PEM"
        raise UsageError("E_TLS", what) from None
    return context


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel ask clients that are silent whether they are there. Raises: OSError."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # not all of them on macOS
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class PageSessions(Protocol):
    """The visits of a server's page, which opens after the server."""

    def present(self, database: Database | None = None) -> Sequence[Any]:
        """The visits that are here, or are in one database."""

    def dismiss(self, visit: Any) -> None:
        """End a visit, from any thread."""


@dataclass
class Server:
    """Listens at an address, until it is closed.

    ``shows_errors`` says that sessions begin with columns of standard errors; ``idle`` and
    ``lifetime`` are the seconds after which one ends that asks nothing, and any, 0 without a limit.
    """

    databases: Databases
    address: Address
    tls: ssl.SSLContext | None = None
    most: int = MOST_SESSIONS
    ticks: Ticks = field(default_factory=Ticks)
    binding: bytes | None = None
    shows_errors: bool = False
    events: Events = field(default_factory=Events)
    failures: Failures = field(default_factory=Failures)
    idle: float = 0.0
    lifetime: float = 0.0
    certificate: Certificate | None = None
    planning: PlanningProcesses | None = None
    _here: dict[tuple[int, int], SessionInfo] = field(default_factory=dict)
    _open: dict[ClientSocket, None] = field(default_factory=dict)
    _threads: set[threading.Thread] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False

    def __post_init__(self) -> None:
        processes = 0 if self.planning is None else self.planning.most
        self.division = Division.here(self.most, processes)
        if self.planning is not None:
            self.planning.most = self.division.planning
        self._arriving = ClientPlaces(self.division.arriving, ClientSocket.hang_up)
        self.numbers = itertools.count(1 + secrets.randbelow(1 << 20))
        self.visits: PageSessions | None = None
        self._door = Admission(
            self.databases,
            self.tls,
            not self.address.is_loopback,
            self._cancel,
            lambda: next(self.numbers),
            self.failures,
            self.binding,
            self.events,
        )
        for each in self.databases:
            if self.planning is not None:
                each.site.engine.planning = self.planning
            if each.twin is not None:
                each.twin.server.events = self.events
        self._socket = self.address.listen()
        self._idle = IdleClients()
        self.watch = Reload(self)

    @property
    def port(self) -> int:
        """The port, which the kernel has chosen where 0 was asked for."""
        found: int = self._socket.getsockname()[1]
        return found

    def is_well(self) -> bool:
        """True where the lock that all sessions take is free again within a moment."""
        if not self._lock.acquire(timeout=FAREWELL):
            return False
        self._lock.release()
        return True

    def present(self, database: Database | None = None) -> list[SessionInfo]:
        """The clients that have signed in and are here, or are in one database."""
        with self._lock:
            here = list(self._here.values())
        return [each for each in here if database in (None, each.guest.database)]

    def count(self, database: Database | None = None) -> int:
        """The number of sessions, of visits to the page too."""
        visits = () if self.visits is None else self.visits.present(database)
        return len(self.present(database)) + len(visits)

    def bind(self, binding: bytes | None) -> None:
        """Bind sign-ins under TLS to another certificate from now on."""
        self._door.binding = binding

    def serve(self) -> None:
        """Accept clients until the server is closed; what fails for a while is waited for.

        Raises: OperationalError (E_LISTEN) where the socket will take nobody any more.
        """
        self.watch.start()
        for connection, peer in arrivals(lambda: self._socket, lambda: self._is_closed, self._bear):
            self._take(connection, peer[0])
            self._arriving.wait(lambda: self._is_closed)

    def _bear(self, name: str) -> None:
        """Note that a client could not be let in, and make room: who idles at the door leaves."""
        self.events.note("missed", why=name)
        self._arriving.bear(name)

    def _take(self, connection: socket.socket, address: str) -> None:
        """Give a client a thread; one that cannot have any is hung up on."""
        wire = ClientSocket(connection, address)
        thread = threading.Thread(target=self._attend, args=(wire,), daemon=True)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
            with self._lock:
                self._open[wire] = None
                self._threads.add(thread)
            self._arriving.take(wire)
            thread.start()
        except (OSError, MemoryError, RuntimeError) as error:  # gone already, or no more threads
            connection.close()
            self._forget(wire, thread)
            if not isinstance(error, OSError):
                self._bear(name_of(error))

    def _forget(self, wire: ClientSocket, thread: threading.Thread) -> None:
        with self._lock:
            self._open.pop(wire, None)
            self._threads.discard(thread)
        self._arriving.give(wire)

    def _attend(self, wire: ClientSocket) -> None:
        told: Notice | None = None
        try:
            self._receive(wire)
        except Hangup:
            pass
        except Refusal as refusal:
            told = refusal.told
        except ProtocolError as error:
            told = Notice("FATAL", error.state, str(error))
        except Error as error:
            told = error_message(error, "")
        except Exception as error:  # of memory or of a defect; others go on
            self.events.note("defect", why=type(error).__name__, where="session")
        finally:
            with contextlib.suppress(Hangup):
                if told is not None:
                    wire.write(told.encode())
                wire.close()
            self._forget(wire, threading.current_thread())

    def _receive(self, wire: ClientSocket) -> None:
        guest = self._door.welcome(wire)
        if guest is None:
            return
        key = (guest.process, guest.secret)
        database = guest.database
        facts = {"user": guest.user, "address": wire.address, "method": "wire"}
        events = self.events.bound(**facts, database=database.name)
        enters = partial(self.databases.admitting, guest.user.casefold())
        asker = StatementRunner(
            database.site,
            database.twin,
            guest.analyst,
            self.ticks,
            self.shows_errors,
            events,
            enters,
        )
        signed_in = SessionInfo(guest, asker, wire)
        with self._lock:
            is_full = len(self._here) >= self.division.sessions
            if not is_full:
                self._here[key] = signed_in
        if is_full:
            events.note("missed", why="53300")
            raise Refusal("53300", "sorry, too many clients already")
        self._arriving.give(wire)
        try:
            asker.begin(guest.settings)
            remembered = database.remembered
            ClientConnection(wire, asker, events, self._idle, remembered, signed_in).run()
        finally:
            with self._lock:
                del self._here[key]
            asker.close()
            events.note("end", outcome=signed_in.why, statements=signed_in.asked)

    def _cancel(self, process: int, secret: int) -> None:
        """End what a session asks; a wrong key does nothing, and nobody is told."""
        with self._lock:
            signed_in = self._here.get((process, secret))
        if signed_in is not None:
            signed_in.asker.cancel()

    def close(self) -> None:
        """Stop listening, hang up, and let go of the data; what was charged is stored first."""
        self._is_closed = True
        self.watch.close()
        self.failures.close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            here, wires = list(self._here.values()), list(self._open)
            threads = list(self._threads)
        for signed_in in here:
            signed_in.why = "stop"
            signed_in.asker.cancel()
        for wire in wires:
            wire.hang_up()
        end = time.monotonic() + FAREWELL
        for thread in threads:  # what they have open is closed while Python still runs
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))
        self._idle.close()
        if self.planning is not None:
            self.planning.close()
        self.databases.close()
