"""The parent of a server: it holds the sockets, watches the server, and starts it again.

It knows neither the catalog nor the rows, so that next to nothing can end it. Clients that come
while there is no server wait in the queue of its sockets. A server that ends without being asked
to is started again, after ever longer pauses, whatever its status; one that has never been ready
is not, and its status is that of the whole. systemd is told what becomes of it, where it asks.

The two talk over a pair of sockets. The server sends a letter for each thing that it tells; once
its end has no other side, it stops, as it does on SIGTERM.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dpsql.errors import UsageError
from dpsql.records import dataclass, field
from dpsql.server.address import BACKLOG, Address
from dpsql.server.events import Events

SUPERVISED, RESTARTS = "DPSQL_SUPERVISED", "DPSQL_RESTARTS"
"""Names of what a server is told by its parent: descriptors, and how often it was started again."""
BEAT, READY, RELOADED = b".", b"r", b"l"
"""Messages of a server: that it is alive, that it listens, that it has read all anew."""
EVERY = 1.0
"""Seconds between two beats."""
HUNG = 300.0
"""The same by default: no statement holds a server so long."""
PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before it is started again, each time longer unless it was up for a while between."""
A_WHILE = 60.0
PATIENT = 60.0
"""Seconds that a server has to end when it is asked to; what was charged is stored by then."""
STOPPED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Statuses of a server that was asked to stop and did, in the middle of starting too."""
# Of linux/prctl.h; Python has no name for it.
PR_SET_CHILD_SUBREAPER = 36


@dataclass(eq=False)
class Supervisor:
    """Runs a server by a command until it is asked to stop.

    Args:
        command: the server's own, which is told the rest by its environment.
        addresses: where it listens, each with a socket held here.
        events: where it is noted what becomes of it.
        hung: seconds without a beat after which a server is taken for hung.
    """

    command: Sequence[str]
    addresses: Sequence[Address]
    events: Events = field(default_factory=Events)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    hung: float = HUNG
    restarts: int = 0
    was_ready: bool = False
    _is_up: bool = False
    _server: subprocess.Popen[bytes] | None = None
    _line: socket.socket | None = None
    _started: float = 0.0
    _beat: float = 0.0
    _again: float | None = None
    _stopped: float | None = None
    _failures: int = 0

    def run(self) -> int:
        """Return the status of all of it, once it was asked to stop or the server cannot begin."""
        self._sockets = [each.listen() for each in self.addresses]
        self._selector = selectors.DefaultSelector()
        rung, bell = socket.socketpair()
        for each in (rung, bell):
            each.setblocking(False)
        self._selector.register(rung, selectors.EVENT_READ)
        caught = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        before = {each: signal.signal(each, lambda number, frame: None) for each in caught}
        signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
        _adopt_orphans()
        try:
            self._start()
            while True:
                for key, _ in self._selector.select(EVERY):
                    if key.fileobj is rung:
                        for number in rung.recv(4096):
                            self._heed(number)
                    else:
                        self._hear()
                status = self._look()
                if status is not None:
                    return status
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._server is not None and self._server.poll() is None:
                self._server.kill()
                self._server.wait(PATIENT)
            _end_orphans()
            for each in (rung, bell, *self._sockets):
                each.close()

    def _start(self) -> None:
        """Start the server. Its sockets listen, whatever one before it has done to them."""
        for each in self._sockets:
            each.listen(BACKLOG)
        here, there = socket.socketpair()
        here.setblocking(False)
        passed = [each.fileno() for each in (there, *self._sockets)]
        told = {SUPERVISED: ",".join(map(str, passed)), RESTARTS: str(self.restarts)}
        environment = {**self.environment, **told}
        environment.pop("NOTIFY_SOCKET", None)
        self._again, self._is_up = None, False
        self._started = self._beat = time.monotonic()
        try:
            self._server = subprocess.Popen(
                self.command, pass_fds=passed, env=environment, process_group=0
            )
        except OSError as error:  # no room for a process: it is tried again
            here.close()
            self._died(error.strerror or "no process")
            return
        finally:
            there.close()
        self._line = here
        self._selector.register(here, selectors.EVENT_READ)

    def _heed(self, number: int) -> None:
        """Pass a signal on to the server."""
        if number in (signal.SIGTERM, signal.SIGINT):
            if self._stopped is None:
                notify("STOPPING=1")
                self._stopped = time.monotonic()
                self._send(signal.SIGTERM)
        elif number == signal.SIGHUP and self._stopped is None:
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._send(signal.SIGHUP)
            if not self.was_ready or self._server is None:
                notify("READY=1")

    def _send(self, number: int) -> None:
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.send_signal(number)

    def _hear(self) -> None:
        """Take what the server tells."""
        assert self._line is not None
        try:
            told = self._line.recv(4096)
        except OSError:
            told = b""
        if not told:  # it has ended, or is about to
            self._selector.unregister(self._line)
            self._line.close()
            self._line = None
            return
        self._beat = time.monotonic()
        if READY in told or RELOADED in told:
            self.was_ready = self._is_up = True
            notify("READY=1\nSTATUS=serving")

    def _look(self) -> int | None:
        """Do what is due now; return a status where all of it is over."""
        now = time.monotonic()
        ended = None if self._server is None else self._server.poll()
        self._bury()
        if ended is not None:
            self._server = None
            _end_orphans()
            if self._stopped is not None:
                return 0 if ended in STOPPED else _status(ended)
            if not self.was_ready:
                return _status(ended) or 1
            self._died(_told(ended))
        if self._stopped is not None:
            if self._server is None:
                return 0
            if now - self._stopped > PATIENT:
                self.events.note("server", outcome="killed", why="it did not stop")
                self._server.kill()
        elif self._server is None and self._again is not None and now >= self._again:
            self.restarts += 1
            self._start()
        elif self._server is not None and self._is_up and now - self._beat > self.hung:
            self.events.note("server", outcome="killed", why=f"no beat for {self.hung:g} s")
            self._server.kill()
        notify("WATCHDOG=1")
        return None

    def _bury(self) -> None:
        """Take note of orphans that have ended, which would stay in the table of processes else."""
        while True:
            with contextlib.suppress(ChildProcessError):
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is not None and (self._server is None or found.si_pid != self._server.pid):
                    os.waitpid(found.si_pid, 0)
                    continue
            return

    def _died(self, why: str) -> None:
        """Note that there is no server, and when it will be started again."""
        now = time.monotonic()
        self._failures = 0 if now - self._started > A_WHILE else self._failures + 1
        pause = PAUSES[min(self._failures, len(PAUSES)) - 1] if self._failures else PAUSES[0]
        self._again = now + pause
        self.events.note("server", outcome="died", why=why, again=pause)
        notify(f"STATUS=the server has ended ({why}) and is started again")


def notify(state: str) -> None:
    """Tell systemd, if it wants to know. Source: sd_notify(3)."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where[:1] not in ("/", "@"):
        return
    address = "\0" + where[1:] if where[0] == "@" else where
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.setblocking(False)
        line.sendto(state.encode(), address)


def _status(ended: int) -> int:
    """The status of a process that has ended, as a shell tells it."""
    # As a shell tells an end by a signal.
    return ended if ended >= 0 else 128 - ended


def _told(ended: int) -> str:
    if ended >= 0:
        return f"status {ended}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-ended).name
    return f"signal {-ended}"


def _adopt_orphans() -> None:
    """Have processes of a server that died come to this one, where there are such things."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_orphans() -> None:
    """End what a server has started and left behind: the twin, and processes that plan."""
    for _ in range(100):
        with contextlib.suppress(OSError, ValueError):
            mine = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
            left = [int(each) for each in mine.split()]
            for each in left:
                os.kill(each, signal.SIGKILL)
                os.waitpid(each, 0)
            if left:  # theirs come next
                continue
        return


class Supervised:
    """A server's side: it tells its parent how it is, and stops once it has none."""

    def __init__(self, line: socket.socket, held: Sequence[int], restarts: int) -> None:
        self._line = line
        self.held = held
        self.restarts = restarts

    @classmethod
    def find(cls) -> Supervised | None:
        """Find the parent of this process, which nothing that it starts will know of."""
        told = os.environ.pop(SUPERVISED, None)
        if told is None:
            return None
        line, *held = map(int, told.split(","))
        for each in (line, *held):
            os.set_inheritable(each, False)
        return cls(socket.socket(fileno=line), held, int(os.environ.pop(RESTARTS, "0")))

    def ready(self, is_well: Callable[[], bool]) -> None:
        """Tell that clients are answered, and from now on that it is so as long as ``is_well``."""
        self.tell(READY)
        threading.Thread(target=self._beat, args=(is_well,), name="beat", daemon=True).start()
        threading.Thread(target=self._end, name="parent", daemon=True).start()

    def tell(self, what: bytes) -> None:
        """Tell something; a signal's handler may."""
        with contextlib.suppress(OSError):
            self._line.send(what)

    def _beat(self, is_well: Callable[[], bool]) -> None:
        while True:
            time.sleep(EVERY)
            if is_well():
                self.tell(BEAT)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            while self._line.recv(16):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENT)
        os.kill(os.getpid(), signal.SIGKILL)


def supervise(arguments: Sequence[str], addresses: Sequence[Address], events: Events) -> int:
    """Run ``dpsql serve`` with these arguments below this process; return its status.

    Args:
        arguments: of the command line, after ``serve``.
        addresses: opened here once, so that a new process takes them over and no client is refused.
        events: log of the supervisor itself.

    Raises: UsageError (E_LISTEN).
    """
    command = (sys.executable, "-m", "dpsql", "serve", *arguments)
    try:
        return Supervisor(command, addresses, events).run()
    except KeyboardInterrupt:
        raise UsageError("E_LISTEN", "stopped before it began") from None
