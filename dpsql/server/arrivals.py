"""Arrivals at a listening socket, one by one; no failure to take one in ends the listening."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from dpsql.errors import OperationalError

PAUSES = (0.02, 1.0)
"""Seconds, at first and at most, until clients are accepted again after that failed."""
ENDED = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP})
"""Errors of a socket that will never take anybody any more."""


def name_of(error: Exception) -> str:
    """Name why a client cannot be let in, in the words of the operating system.

    >>> name_of(OSError(errno.EMFILE, "too many")), name_of(MemoryError()), name_of(OSError())
    ('EMFILE', 'ENOMEM', '?')
    """
    number = error.errno if isinstance(error, OSError) else errno.ENOMEM
    return errno.errorcode.get(number or 0, "?")


def arrivals(
    listening: Callable[[], socket.socket],
    is_over: Callable[[], bool],
    bear: Callable[[str], None],
) -> Iterator[tuple[socket.socket, Any]]:
    """Clients and their addresses until it is over; what fails for a while is waited for.

    Args:
        listening: The socket, asked for before every client.
        is_over: Whether it was closed on purpose.
        bear: Takes note of the name of each failure, and may make room.

    Raises: OperationalError (E_LISTEN) where the socket will take nobody any more.
    """
    pause, longest = PAUSES
    while not is_over():
        try:
            found = listening().accept()
        except (OSError, MemoryError) as error:
            if is_over():
                return
            name = name_of(error)
            if isinstance(error, OSError) and error.errno in ENDED:
                what = f"the listening socket has failed: {name}"
                raise OperationalError("E_LISTEN", what) from None
            bear(name)
            time.sleep(pause)
            pause = min(2 * pause, longest)
        else:
            pause = PAUSES[0]
            yield found
