"""Bursts: what a client asks in one go, and what it was told for it before.

What comes back for the same bytes is the same bytes, as long as nothing has changed that a free
answer follows from. Nobody plans, encodes or waits for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from dpsql.records import dataclass
from dpsql.server.prepared import Prepared

LONGEST_BURST, LONGEST_TOLD = 1 << 12, 1 << 16
"""Bytes of a burst that is looked for, and what an answer that is kept stays below."""
MOST_BURSTS, MOST_TOLD = 2000, 1 << 24
"""Bursts that are kept, and bytes of what was told for them."""
FORMS = (b"Q", b"PBDES", b"PBES", b"BDES", b"BES")
"""The letters of the messages of one burst."""


@dataclass(frozen=True, slots=True)
class SimpleRequest:
    """A simple query, or one statement that is bound, executed whole, and synchronised.

    ``form`` are its letters; ``bound`` is the name of the statement, empty for one that it parses.
    """

    data: bytes
    form: bytes
    bound: str = ""


def first_request(come: bytes | bytearray) -> SimpleRequest | None:
    """The burst that some bytes begin with; None where they begin with anything else.

    >>> first_request(b"Q" + (6).to_bytes(4, "big") + b"x" + bytes(1) + b"more")
    SimpleRequest(data=b'Q\\x00\\x00\\x00\\x06x\\x00', form=b'Q', bound='')
    >>> first_request(b"X" + (4).to_bytes(4, "big"))
    """
    bodies: dict[int, bytes] = {}
    at = 0
    while at + 5 <= len(come) and len(bodies) < 5:
        kind, length = come[at], int.from_bytes(come[at + 1 : at + 5], "big")
        end = at + 1 + length
        if length < 4 or kind in bodies or end > min(len(come), LONGEST_BURST):
            return None
        bodies[kind] = bytes(come[at + 5 : end])
        at = end
        if kind in b"QS":
            return _checked(bytes(come[:at]), bodies)
    return None


def _checked(data: bytes, bodies: dict[int, bytes]) -> SimpleRequest | None:
    """A burst of the portal that has no name, all of whose rows are wanted."""
    form = bytes(bodies)
    if form not in FORMS:
        return None
    if form == b"Q":
        return SimpleRequest(data, form)
    portal, _, rest = bodies[ord("B")].partition(b"\0")
    bound = rest.partition(b"\0")[0]
    whole = bodies[ord("E")] == bytes(5) and not portal
    described = bodies.get(ord("D"), b"P\0") == b"P\0"
    parsed = ord("P") not in bodies or (bodies[ord("P")][:1] == b"\0" and not bound)
    if not (whole and described and parsed):
        return None
    return SimpleRequest(data, form, bound.decode("utf-8", "surrogateescape"))


@dataclass(frozen=True, slots=True)
class CachedReply:
    """The answer to a burst, but for its last message, and the stamp under which it holds.

    ``charge`` is what it cost, ``parsed`` what it has prepared.
    """

    told: bytes
    stamp: Hashable
    charge: str
    parsed: Prepared | None


class ReplyCache:
    """Cache of answers to bursts, by all that they follow from; several threads may share it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, CachedReply] = OrderedDict()
        self._bytes = 0
        # Several sessions share the cache, each in a thread of its own.
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> CachedReply | None:
        """Find the answer to a burst."""
        return self._kept.get(key)

    def keep(self, key: Hashable, echo: CachedReply) -> None:
        """Keep what was told for a burst; what was kept first is forgotten first."""
        with self._lock:
            self._drop(self._kept.pop(key, None))
            self._kept[key] = echo
            self._bytes += len(echo.told)
            while len(self._kept) > MOST_BURSTS or self._bytes > MOST_TOLD:
                self._drop(self._kept.popitem(last=False)[1])

    def _drop(self, dropped: CachedReply | None) -> None:
        self._bytes -= 0 if dropped is None else len(dropped.told)
