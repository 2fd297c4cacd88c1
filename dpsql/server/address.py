"""The address of a server, and the socket there."""

from __future__ import annotations

import ipaddress
import socket

from dpsql.errors import UsageError, printable
from dpsql.records import dataclass, replace

BACKLOG = 128
"""Connections that wait to be accepted."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address on which a server listens; ``held`` is a socket that its parent holds there."""

    host: str
    port: int
    held: int | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``HOST:PORT``, ``HOST`` or ``:PORT``. Raises: UsageError (E_LISTEN).

        >>> Address.parse("127.0.0.1:6543"), Address.parse("[::1]").port
        (Address(host='127.0.0.1', port=6543, held=None), 5432)
        """
        host, mark, port = text.rpartition(":")
        if text.endswith("]") or not mark:
            host, port = text, "5432"
        if not (port.isdigit() and int(port) < 65536):
            raise UsageError("E_LISTEN", f"{printable(text)} is no address", hint="HOST:PORT")
        return cls(host.strip("[]") or "127.0.0.1", int(port))

    def on(self, held: int) -> Address:
        """The same address, with the socket that is held there."""
        return replace(self, held=held)

    def listen(self) -> socket.socket:
        """A listening socket. Raises: UsageError (E_LISTEN)."""
        if self.held is not None:
            return socket.socket(fileno=self.held)
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((self.host, self.port))
            found.listen(BACKLOG)
        except OSError as error:
            found.close()
            what = f"cannot listen on {self.host}:{self.port}"
            raise UsageError("E_LISTEN", f"{what}: {error.strerror}") from None
        return found

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
