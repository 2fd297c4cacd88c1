"""The operator's door of a server: a socket in the catalog's folder, for the server's own user.

One JSON object a line comes in, and one goes out. It says who is here and ends sessions; it knows
neither SQL nor data.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpsql.errors import OperationalError, UsageError
from dpsql.records import dataclass
from dpsql.server.arrivals import arrivals
from dpsql.server.databases import Database
from dpsql.server.server import Server
from dpsql.server.signed_in import ended

SUFFIX = ".control"
LONGEST = 10_000
"""Bytes of what is asked."""
SHORT, DESCRIPTORS = 100, "/proc/self/fd"
"""Bytes of an address that every system takes, and where an open folder has a short one."""
PATIENT = 10.0
"""Seconds that either side waits for the other."""


@dataclass(eq=False)
class OperatorSocket:
    """The door of one database, which is open until it is closed."""

    server: Server
    database: Database
    path: Path
    listening: socket.socket
    is_closed: bool = False

    def run(self) -> None:
        """Answer one after another, until it is closed or its socket is gone."""
        note = self.server.events.bound(method="control").note
        with contextlib.suppress(OperationalError):
            for connection, _ in arrivals(
                lambda: self.listening,
                lambda: self.is_closed,
                lambda why: note("missed", why=why),
            ):
                try:
                    with connection:
                        self._serve(connection)
                except (OSError, ValueError, LookupError, TypeError, AttributeError, MemoryError):
                    note("missed", why="control")  # who asks what is no question, or has gone

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENT)
        if _is_own(connection):
            asked = json.loads(_line(connection))
            connection.sendall(json.dumps(self.answer(asked)).encode() + b"\n")

    def answer(self, asked: dict[str, Any]) -> list[dict[str, object]]:
        """The sessions that are listed, or that were ended."""
        server = self.server
        found = sorted(server.present(self.database), key=lambda each: each.begun)
        page = server.visits
        visits = [] if page is None else list(page.present(self.database))
        if asked["act"] == "end":
            found = [
                each for each in found if _is_meant(each.guest.process, each.guest.user, asked)
            ]
            visits = [each for each in visits if _is_meant(each.number, each.user, asked)]
            for each in found:
                each.end(ended(), "operator")
            if page is not None:
                for visit in visits:
                    page.dismiss(visit)
            here = len(found) + len(visits)
            told = {"database": self.database.name, "sessions": here}
            server.events.note("act", outcome="sessions ended", **told)
        return [each.describe() for each in (*found, *visits)]

    def close(self) -> None:
        """Close the socket, and remove its file."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.path.unlink(missing_ok=True)


def _is_meant(number: int, user: str, asked: dict[str, Any]) -> bool:
    wanted = str(asked.get("user") or "").casefold()
    return number in asked.get("numbers", ()) or user.casefold() == wanted


def _is_own(connection: socket.socket) -> bool:
    """True if the other side is this user or root, where the kernel says who it is."""
    if not hasattr(socket, "SO_PEERCRED"):  # the file's mode keeps others out as well
        return True
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", found)[1] in (0, os.getuid())


def _line(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n") and len(found) < LONGEST:
        piece = connection.recv(LONGEST)
        if not piece:
            break
        found += piece
    return found


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """A short address of a socket: the system takes few bytes, however long its path is."""
    if len(os.fsencode(path)) <= SHORT or not os.path.isdir(DESCRIPTORS):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{DESCRIPTORS}/{folder}/{path.name}"
    finally:
        os.close(folder)


def open_control(server: Server, database: Database) -> OperatorSocket | None:
    """Open the door of a database in a thread; None, and a line of the log, where it cannot be."""
    catalog = database.site.catalog.path
    path = catalog.with_name(f"{catalog.stem}.{server.port}{SUFFIX}")
    listening = None
    try:
        path.unlink(missing_ok=True)  # of a server that was killed: the port is ours by now
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.fchmod(listening.fileno(), 0o600)
        with _address(path) as address:
            listening.bind(address)
        path.chmod(0o600)
        listening.listen()
    except (OSError, AttributeError) as error:  # a path that is too long; no such sockets
        server.events.note("missed", method="control", why="control", error=error)
        if listening is not None:
            listening.close()
        return None
    found = OperatorSocket(server, database, path, listening)
    threading.Thread(target=found.run, name="control", daemon=True).start()
    return found


def ask_servers(catalog: Path, **asked: object) -> list[dict[str, Any]]:
    """The answers of all servers of a catalog on this machine. Raises: UsageError (E_LISTEN)."""
    found: list[dict[str, Any]] = []
    answered = False
    for path in sorted(catalog.absolute().parent.glob(f"{catalog.stem}.*{SUFFIX}")):
        with contextlib.suppress(OSError, ValueError):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(PATIENT)
                with _address(path) as address:
                    connection.connect(address)
                connection.sendall(json.dumps(asked).encode() + b"\n")
                told = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            found += json.loads(told)
            answered = True
    if not answered:
        what = f"no server of {catalog.name} answers beside it"
        raise UsageError("E_LISTEN", what, hint="run it as the user that runs dpsql serve")
    return found
