"""Reloading: what a curator changes takes effect in a server while sessions go on.

Users, the catalog, the ledger's terms and certificates are looked at a few times a second, and when
a signal asks for it. Nothing that cannot be read ends anything: it is logged, and what was known
stays in force.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from dpsql.errors import Error, UsageError
from dpsql.records import dataclass, field
from dpsql.server.binding import end_point
from dpsql.server.databases import Database, Databases
from dpsql.server.events import Events
from dpsql.server.permissions import refuse_open_files
from dpsql.server.signed_in import OUTLIVED, SessionInfo, ended

PERIOD = 0.5
"""Seconds between looks: whoever is taken out is out within twice as long."""
IDLE_ENDED = "terminating connection due to idle-session timeout"
"""In the words of PostgreSQL."""


@dataclass(frozen=True)
class Certificate:
    """The certificate of a server and its key, and what of the server goes by it."""

    cert: Path
    key: Path | None
    contexts: list[ssl.SSLContext] = field(default_factory=list)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the certificate and its key."""
        return (self.cert,) if self.key is None else (self.cert, self.key)

    def reload(self) -> bytes | None:
        """Have new connections meet the files as they are; what sign-ins are bound to by then.

        Raises: UsageError (E_TLS) where they do not fit together, and then all stays as it is.
        """
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError):
            what = f"{self.cert} and its key are no certificate with its key: the last ones stay"
            raise UsageError("E_TLS", what) from None
        for context in self.contexts:
            context.load_cert_chain(self.cert, self.key)
        return end_point(self.cert)


class Host(Protocol):
    """The server as it is watched: who may come and who is here, and what its sessions go by."""

    databases: Databases
    certificate: Certificate | None
    idle: float
    lifetime: float
    events: Events

    def present(self, database: Database | None = None) -> list[SessionInfo]:
        """The clients that have signed in and are here, or are in one database."""

    def bind(self, binding: bytes | None) -> None:
        """Bind sign-ins under TLS to another certificate from now on."""


class Reload:
    """Looks at what may have changed, in a thread of its own once it is started."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._seen: dict[tuple[str, ...], list[tuple[int, ...] | None]] = {}
        self._is_over = threading.Event()
        self._is_forced = False
        self.after: Callable[[], None] = lambda: None
        """The consequences of a look at everything."""
        self._thread: threading.Thread | None = None
        for each in server.databases:
            self._seen["users", each.name] = _touched(each.users.path)
            self._seen["catalog", each.name] = _touched(*each.site.paths)
        self._looking, self._starting = threading.Lock(), threading.Lock()

    def start(self) -> None:
        """Look a few times a second from now on, until it is closed."""
        with self._starting:  # whoever closes meanwhile could not wait for one not yet begun
            if self._thread is None and not self._is_over.is_set():
                self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
                self._thread.start()

    def reload(self) -> None:
        """Read everything anew at the next look.

        A signal may call it, within another too: it takes no lock, which the one that is
        interrupted could hold.
        """
        self._is_forced = True

    def close(self) -> None:
        """Look no more."""
        with self._starting:
            self._is_over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(PERIOD):
            try:
                self.look()
            except Exception as error:  # the next look may do
                self._server.events.note("defect", why=type(error).__name__, where="watch")

    def look(self) -> None:
        """See what has changed since the last look, everything after ``reload``."""
        with self._looking:
            is_forced, self._is_forced = self._is_forced, False
            server = self._server
            if is_forced:
                server.events.note("act", outcome="reload")
                self._seen.clear()
            for each in server.databases:
                follow, told = partial(self._follow, each, is_forced), {"database": each.name}
                self._if_changed("catalog", each.site.paths, follow, **told)
                self._end_outlived(each)  # whoever has seen the change first
                strangers = partial(self._end_strangers, each)
                self._if_changed("users", (each.users.path,), strangers, **told)
            if server.certificate is not None:
                self._if_changed("certificate", server.certificate.paths, self._certify)
            self._end_overdue()
            if is_forced:
                self.after()

    def _if_changed(
        self, what: str, paths: tuple[Path, ...], act: Callable[[], None], **told: str
    ) -> None:
        """Do what follows from files that were touched; what cannot be done is logged."""
        key, now = (what, *told.values()), _touched(*paths)
        if self._seen.get(key) == now:
            return
        self._seen[key] = now
        try:
            act()
        except Error as error:
            told |= {"why": error.message, "code": error.code}
            self._server.events.note("reload", what=what, outcome="failed", **told)

    def _follow(self, database: Database, is_forced: bool) -> None:
        events = self._server.events.bound(database=database.name)
        if database.site.refresh(is_forced):
            events.note("reload", what="catalog", outcome="done")
            try:
                refuse_open_files(database.site, database.users)
            except UsageError as error:  # at the start it is refused; now others are at work
                told = {"why": error.message, "hint": error.hint}
                events.note("reload", what="permissions", outcome="failed", **told)

    def _end_outlived(self, database: Database) -> None:
        """End the sessions whose tables or analyst are no more what they were."""
        for each in self._server.present(database):
            if each.asker.is_outlived:
                each.end(ended(OUTLIVED), "catalog")

    def _end_strangers(self, database: Database) -> None:
        """End the sessions of users who were taken out, or have another password by now."""
        known = database.users.all()
        for each in self._server.present(database):
            if known.get(each.guest.user.casefold()) != each.guest.verifier:
                each.end(ended("sign in again"), "user")

    def _certify(self) -> None:
        if self._server.certificate is not None:
            self._server.bind(self._server.certificate.reload())
            self._server.events.note("reload", what="certificate", outcome="done")

    def _end_overdue(self) -> None:
        """End sessions that are idle, or here, for longer than they may be."""
        idle, lifetime = self._server.idle, self._server.lifetime
        for each in self._server.present() if idle or lifetime else ():
            if idle and each.idle > idle:
                each.end(ended(state="57P05", text=IDLE_ENDED), "idle")
            elif lifetime and each.age > lifetime and not each.is_busy:
                each.end(ended(), "lifetime")


def _touched(*paths: Path) -> list[tuple[int, ...] | None]:
    """Identities and times of last change of some files; None for one that does not exist."""
    found: list[tuple[int, ...] | None] = []
    for path in paths:
        try:
            facts = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
    return found
