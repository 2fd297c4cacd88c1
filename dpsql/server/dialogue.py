"""The dialogue with one client: message after message, and what is told of what goes wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from dpsql.errors import Error, Interrupted
from dpsql.server.asking import Asker, Reply
from dpsql.server.clerk import Clerk
from dpsql.server.messages import (
    EMPTY_QUERY,
    Fields,
    Message,
    ProtocolError,
    Told,
    read_message,
    ready,
)
from dpsql.server.metrics import Meter
from dpsql.server.portals import Portals
from dpsql.server.sqlstates import DEFECT, tell, tell_cancelled
from dpsql.server.twin import TwinError
from dpsql.server.values import BadValue
from dpsql.server.wire import Wire
from dpsql.sql.lexemes import split_statements

MOST_BYTES = 4 << 20
"""Bytes of one message: the longest script, and its parameters."""


class Dialogue:
    """Serves one client until it leaves."""

    def __init__(self, wire: Wire, asker: Asker, meter: Meter | None = None) -> None:
        self._meter = meter or Meter()
        self._wire = wire
        self._asker = asker
        self._clerk = Clerk(wire, asker)
        self._portals = Portals(wire, self._clerk)
        self._skipping = False

    def run(self) -> None:
        """Answer message after message. Raises: Hangup."""
        self._wire.write(ready(self._clerk.state))
        while True:
            self._wire.flush()
            try:
                found = read_message(self._wire, MOST_BYTES)
            except ProtocolError as error:  # where the next message begins is not known
                self._clerk.tell(Told("FATAL", error.state, str(error)))
                return
            if found.kind == b"X":
                return
            self._serve(found)

    def _serve(self, found: Message) -> None:
        if found.kind == b"S":
            self._skipping = False
            self._portals.synchronise()
            self._wire.write(ready(self._clerk.state))
        elif found.kind == b"Q":
            self._meter.serve()
            self._skipping = False
            self._guarded(lambda: self._simple(found))
            self._wire.write(ready(self._clerk.state))
        elif not self._skipping and found.kind not in (b"H", b"d", b"c", b"f"):
            if found.kind == b"E":
                self._meter.serve()
            self._skipping = not self._guarded(lambda: self._portals.serve(found))

    def _guarded(self, work: Callable[[], None]) -> bool:
        """Do something; whatever goes wrong is told. Says whether nothing did."""
        try:
            work()
            return True
        except Interrupted as error:
            told = tell_cancelled(error)
        except KeyboardInterrupt:
            told = tell_cancelled(Interrupted())
        except Error as error:
            told = tell(error, self._portals.text)
        except TwinError as error:
            told = Told("ERROR", error.state, error.text, error.detail, error.hint, error.position)
        except (BadValue, ProtocolError) as error:
            told = Told("ERROR", error.state, str(error))
        except (
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ):
            told = Told("ERROR", DEFECT, "a defect of the server; nothing more is known")
        self._clerk.tell(told)
        self._meter.refuse(told.state)
        if self._clerk.state == b"T":
            self._clerk.state = b"E"
        return False

    # The simple protocol: a script, of which all SELECTs are one workload.

    def _simple(self, found: Message) -> None:
        fields = Fields(found.body)
        text = fields.text()
        fields.end()
        self._portals.text = text
        errands = [self._asker.route(fragment) for fragment in split_statements(text)]
        if not errands:
            self._wire.write(EMPTY_QUERY)
        asked = [errand for errand in errands if errand.kind == "ask"]
        replies: Iterator[Reply] | None = None
        for errand in errands:
            self._clerk.check(errand)
            if errand.kind != "ask":
                self._clerk.send(self._clerk.carry_out(errand, errand.fragment.text), [])
                continue
            if replies is None:
                replies = iter(self._asker.ask(text, asked))
            for reply in itertools.islice(replies, 1):
                self._clerk.send(reply, [])
        for reply in replies or ():
            self._clerk.send(reply, [])
