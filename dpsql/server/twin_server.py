"""The PostgreSQL that twins are databases of: one for all catalogs of a server.

One of the server's own that has died is started again by who needs it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dpsql.errors import OperationalError
from dpsql.files import ScratchFolder
from dpsql.interrupts import InterruptibleLock, check
from dpsql.records import dataclass, field
from dpsql.server.events import Events
from dpsql.server.own_postgres import OwnPostgres, end_postgres, find_postgres, is_running
from dpsql.server.twin_connection import (
    PATIENCE,
    STEP,
    TwinError,
    Unreachable,
    connect,
    find_driver,
    last_of,
    reached,
)

if TYPE_CHECKING:
    from dpsql.server.twin_connection import PGconn

MOST_IDLE = 8
"""Connections to it that wait for the next statement; each is a process of PostgreSQL."""
STARTS, WITHIN = 5, 600.0
"""Starts of one that has died, at most, within so many seconds: one that dies at once is not
started for ever."""
TRIES = 3
"""Times that a question is asked again of one of the server's own that was lost."""
MAINTENANCE = "postgres"
"""The database that every PostgreSQL has."""
T = TypeVar("T")
Access = tuple[tuple[str, str], ...]


@dataclass
class TwinServer:
    """A PostgreSQL without data; connections to it are lent for one statement each.

    Args:
        admin: its DSN, as somebody who may make databases and roles.
        folder: where it is, if it is the server's own.
        own: what starts and stops it, if it is the server's own.
        events: where it is noted what becomes of it.
    """

    admin: str
    folder: ScratchFolder | None = None
    own: OwnPostgres | None = None
    events: Events = field(default_factory=Events)
    _idle: list[tuple[Access, PGconn]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _starts: list[float] = field(default_factory=list)
    _began: float = 0.0
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def living(self, work: Callable[[], T]) -> T:
        """Do what needs it; where it cannot be reached, it is started again, and asked anew.

        Questions change nothing, so that one may be asked again. One that has just lost a process
        may answer for a moment before it ends. Raises: OperationalError (E_TWIN).
        """
        for _ in range(1 if self.own is None else TRIES):
            began = time.monotonic()
            with contextlib.suppress(Unreachable):
                return work()
            self._start_again(began)
        return work()

    def _start_again(self, began: float) -> None:
        """Start one of the server's own, unless it runs or somebody has done so since.

        Its folder has all that was made in it. Raises: OperationalError (E_TWIN) where it dies
        again and again, and Unreachable where it does not answer.
        """
        with InterruptibleLock(self._starting):
            if self._began > began:
                return
            self._finish_idle()
            if self.folder is not None and self.own is not None:
                self._start(self.own, self.folder.path)
                self._await()
            self._began = time.monotonic()

    def _start(self, own: OwnPostgres, folder: Path) -> None:
        if is_running(folder):  # it recovers by itself from the death of one of its processes
            return
        now = time.monotonic()
        self._starts = [each for each in self._starts if each > now - WITHIN]
        if len(self._starts) >= STARTS:
            what = f"the twin has died {STARTS} times within {WITHIN / 60:.0f} minutes"
            raise OperationalError("E_TWIN", what, hint="it is started again later")
        self._starts.append(now)
        self.events.note("twin", outcome="started again")
        self.admin = own.start(folder)

    def _await(self) -> None:
        """Wait until it answers. Raises: Unreachable after ``PATIENCE`` seconds."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.administer(MAINTENANCE, "SELECT 1")
                return
            except Unreachable:
                if time.monotonic() > end:
                    raise
            check()
            time.sleep(STEP)

    @contextlib.contextmanager
    def lent(self, **access: str) -> Iterator[PGconn]:
        """A connection of a role for one statement; nothing of it is left for the next.

        Raises: Unreachable; OperationalError (E_TWIN); TwinError.
        """
        key = tuple(access.items())
        with self._lock:
            place = next((k for k, (whose, _) in enumerate(self._idle) if whose == key), None)
            connection = None if place is None else self._idle.pop(place)[1]
        if connection is None:
            connection = connect(self.admin, **access)
        try:
            with reached():
                yield connection
                connection.send_query(b"DISCARD ALL")
                last_of(connection)
        except BaseException:
            connection.finish()
            raise
        late = None
        with self._lock:
            self._idle.append((key, connection))
            if len(self._idle) > MOST_IDLE:
                late = self._idle.pop(0)[1]
        if late is not None:
            late.finish()

    def administer(self, database: str, sql: str) -> list[list[bytes | None]]:
        """The rows of the last of some statements. Raises: OperationalError (E_TWIN)."""
        connection = connect(self.admin, dbname=database)
        try:
            with reached():
                connection.send_query(sql.encode())
                found = last_of(connection)
            return [
                [found.get_value(row, k) for k in range(found.nfields)]
                for row in range(found.ntuples)
            ]
        except TwinError as error:
            raise OperationalError("E_TWIN", f"the twin refused: {error.text}") from None
        finally:
            connection.finish()

    def _finish_idle(self) -> None:
        with self._lock:
            for _, connection in self._idle:
                connection.finish()
            self._idle.clear()

    def close(self) -> None:
        """Close the connections; one of the server's own is stopped and its folder removed."""
        self._finish_idle()
        if self.folder is not None:
            self.folder.remove()


def open_twin_server(where: str) -> TwinServer:
    """Open the PostgreSQL of twins: ``auto`` starts an empty one, anything else is a DSN.

    Raises: UsageError (E_TWIN) where there is none.
    """
    find_driver()
    if where != "auto":
        return TwinServer(where)
    own = find_postgres()
    folder = ScratchFolder("dpsql-twin-", remove=end_postgres)  # and a twin that a killed one left
    try:
        return TwinServer(own.start(folder.path), folder, own)
    except OperationalError:
        folder.remove()
        raise
