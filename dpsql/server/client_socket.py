"""The socket of one client: exact reads with a deadline, and writes that are sent together."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

from dpsql.server.messages import Hangup

PIECE = 1 << 16
"""Bytes that are kept back before they are sent."""
MOST_STUCK = 60.0
"""Seconds that a client may leave what it is sent unread."""


class ClientSocket:
    """Bytes from and to one client, who comes from an ``address``."""

    def __init__(self, connection: socket.socket, address: str = "") -> None:
        self._socket = connection
        self.address = address
        self._in = bytearray()
        self._out = bytearray()
        self._copy: bytearray | None = None
        self._is_over = False

    def expect(self, seconds: float | None) -> None:
        """Wait for what is read next at most so long; None for as long as it takes."""
        self._socket.settimeout(seconds)

    def read(self, count: int) -> bytes:
        """Exactly ``count`` bytes. Raises: Hangup, also when it takes too long."""
        while len(self._in) < count:
            try:
                found = self._socket.recv(max(PIECE, count - len(self._in)))
            except OSError:
                raise Hangup from None
            if not found:
                raise Hangup
            self._in += found
        taken = bytes(self._in[:count])
        del self._in[:count]
        return taken

    @property
    def is_waiting(self) -> bool:
        """True if bytes have come that nobody has read: none may, before TLS begins."""
        return bool(self._in)

    @property
    def is_secure(self) -> bool:
        """True if the connection is under TLS."""
        return isinstance(self._socket, ssl.SSLSocket)

    @property
    def come(self) -> bytearray:
        """The bytes that have come and that nobody has read."""
        return self._in

    @property
    def is_stuck(self) -> bool:
        """True if bytes wait to be sent."""
        return bool(self._out)

    def fileno(self) -> int:
        """The number of the socket, by which it is waited for."""
        return self._socket.fileno()

    def gather(self) -> None:
        """Take what has come by now. Raises: Hangup."""
        try:
            while found := self._socket.recv(PIECE):
                self._in += found
                if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                    return
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            raise Hangup from None
        raise Hangup

    def offer(self, data: bytes) -> None:
        """Send what can be sent by now; a flush sends the rest. Raises: Hangup."""
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except OSError:
            raise Hangup from None
        self._out += data[sent:]

    @contextlib.contextmanager
    def copied(self) -> Iterator[bytearray]:
        """A copy of what is written meanwhile."""
        self._copy = found = bytearray()
        try:
            yield found
        finally:
            self._copy = None

    def write(self, data: bytes) -> None:
        """Send bytes, with the next flush at the latest. Raises: Hangup."""
        self._out += data
        if self._copy is not None and len(self._copy) < PIECE:
            self._copy += data
        if len(self._out) >= PIECE:
            self.flush()

    def flush(self) -> None:
        """Send what was written. Raises: Hangup."""
        data, self._out = self._out, bytearray()
        if data:
            before = self._socket.gettimeout()
            try:
                self._socket.settimeout(MOST_STUCK)
                self._socket.sendall(data)
                self._socket.settimeout(before)
            except OSError:
                raise Hangup from None

    def secure(self, context: ssl.SSLContext) -> None:
        """Go on under TLS. Raises: Hangup."""
        try:
            self._socket = context.wrap_socket(
                self._socket, server_side=True, do_handshake_on_connect=False
            )
            if self._is_over:  # meanwhile: the socket that was hung up is no longer the one
                raise Hangup
            self._socket.do_handshake()
        except (OSError, ValueError):
            raise Hangup from None

    def hang_up(self) -> None:
        """End it from another thread: whoever reads or writes it is told that it has ended."""
        self._is_over = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def stop_reading(self) -> None:
        """Have whoever waits for bytes from another thread be told that none will come any more."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RD)

    def close(self) -> None:
        """Say goodbye and hang up."""
        with contextlib.suppress(Hangup):
            self.flush()
        with contextlib.suppress(OSError, ValueError):
            self._socket.settimeout(1.0)
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.unwrap().close()  # libpq waits for the goodbye of TLS
        with contextlib.suppress(OSError):
            self._socket.close()
