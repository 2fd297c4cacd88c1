"""Idle clients: they wait between statements, and are told at once what was told before.

One thread waits for all of them, so that a client is served in the order in which it asks, and by
one thread where that knows the answer. Whatever it does not know is for the client's own thread.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

from dpsql.records import dataclass, field
from dpsql.server.client_socket import ClientSocket
from dpsql.server.messages import Hangup

SWITCHING = 0.001
"""Seconds that a thread computes before another may, in a process that serves.

With Python's own 5 ms the waiting thread, which comes back from the kernel twice for each client,
waited 10 for each while anybody was planning.
"""

Telling = Callable[[], bytes | None]


@dataclass(eq=False)
class IdleClient:
    """A client that waits; ``answer`` is what is told at once for what it asks first, or None."""

    wire: ClientSocket
    answer: Telling
    called: threading.Event = field(default_factory=threading.Event)

    def serve(self) -> bool:
        """Answer what has come; say whether nothing is left to the client's own thread."""
        try:
            self.wire.gather()
            while self.wire.is_waiting and not self.wire.is_stuck:
                told = self.answer()
                if told is None:
                    return False
                self.wire.offer(told)
        except Hangup:
            return False
        return not self.wire.is_stuck


class IdleClients:
    """Clients that wait, and the thread that waits for them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._coming: deque[IdleClient] = deque()
        self._bell, self._ringer = socket.socketpair()
        self._ringer.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name="idle-clients", daemon=True)
        self._thread.start()

    def wait(self, wire: ClientSocket, answer: Telling) -> None:
        """Wait until a client sends what its own thread has to answer, or hangs up."""
        if wire.is_waiting or not self._is_open:
            return
        seat = IdleClient(wire, answer)
        wire.expect(0.0)
        self._coming.append(seat)
        self._ring()
        if not self._is_open:  # it was closed meanwhile, and may not have seen the seat
            seat.called.set()
        seat.called.wait()
        wire.expect(None)

    def close(self) -> None:
        """Call everybody, and wait for nobody any more."""
        self._is_open = False
        self._ring()
        self._thread.join()
        self._ringer.close()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it has rung often, or nobody waits any more
            self._ringer.send(b"\0")

    def _run(self) -> None:
        try:
            while self._is_open:
                for key, _ in self._selector.select():
                    if key.data is None:
                        self._bell.recv(4096)
                    elif not self._serves(key.data):
                        self._selector.unregister(key.data.wire)
                        key.data.called.set()
                self._seat()
        finally:
            self._is_open = False
            self._call_all()
            self._bell.close()
            self._selector.close()

    def _seat(self) -> None:
        while self._coming:
            seat = self._coming.popleft()
            try:
                self._selector.register(seat.wire, selectors.EVENT_READ, seat)
            except (OSError, ValueError, KeyError):  # it has hung up
                seat.called.set()

    @staticmethod
    def _serves(seat: IdleClient) -> bool:
        try:
            return seat.serve()
        except Exception:  # its own thread will see it too, and tell the client alone
            return False

    def _call_all(self) -> None:
        with contextlib.suppress(RuntimeError, AttributeError):  # it is closed already
            for key in list((self._selector.get_map() or {}).values()):
                if key.data is not None:
                    key.data.called.set()
        while self._coming:
            self._coming.popleft().called.set()
