"""The dialogue with one client: message after message, and what is told of what goes wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator

from dpsql.errors import Error, Interrupted
from dpsql.server.analyst_session import SessionExpired
from dpsql.server.client_socket import ClientSocket
from dpsql.server.events import Events, note_refusal
from dpsql.server.idle_clients import IdleClients
from dpsql.server.messages import (
    EMPTY_QUERY,
    Fields,
    Hangup,
    Message,
    Notice,
    ProtocolError,
    read_message,
    ready,
)
from dpsql.server.pipelined import (
    LONGEST_TOLD,
    CachedReply,
    ReplyCache,
    SimpleRequest,
    first_request,
)
from dpsql.server.portals import Portals
from dpsql.server.route import SessionCommand
from dpsql.server.session_worker import SessionWorker
from dpsql.server.signed_in import OUTLIVED, SessionInfo, ended
from dpsql.server.sqlstates import DEFECT, error_message, tell_cancelled
from dpsql.server.statements import Reply, StatementRunner
from dpsql.server.twin_connection import TwinError
from dpsql.server.values import BadValue
from dpsql.sql.text.lexemes import split_statements

MOST_BYTES = 4 << 20
"""Bytes of one message: the longest script, and its parameters."""
LAST = len(ready(b"I"))
"""Bytes of the last message of an answer, which tells the state of the session."""


class ClientConnection:
    """Serves one client until it leaves."""

    def __init__(
        self,
        wire: ClientSocket,
        asker: StatementRunner,
        events: Events | None = None,
        idle: IdleClients | None = None,
        remembered: ReplyCache | None = None,
        signed_in: SessionInfo | None = None,
    ) -> None:
        self._signed_in = signed_in
        self._events = events or Events()
        self._wire = wire
        self._asker = asker
        self._idle = idle
        self._remembered = remembered or ReplyCache()
        self._worker = SessionWorker(wire, asker)
        self._portals = Portals(wire, self._worker)
        self._skipping = False
        self._failed = False
        self._only: SessionCommand | None = None

    def run(self) -> None:
        """Answer message after message, until the client leaves or is ended. Raises: Hangup."""
        try:
            self._run()
        except SessionExpired:
            self._worker.tell(ended(OUTLIVED))
        except Hangup:
            if not self._is_ended:
                raise
        if self._signed_in is not None and self._signed_in.told is not None:
            self._worker.tell(self._signed_in.told)

    @property
    def _is_ended(self) -> bool:
        return self._signed_in is not None and self._signed_in.told is not None

    def _run(self) -> None:
        self._wire.write(ready(self._worker.state))
        while not self._is_ended:
            self._wire.flush()
            if self._idle is not None:
                self._idle.wait(self._wire, self._repeat)
            told = self._repeat()
            if told is not None:
                self._wire.write(told)
                continue
            burst = first_request(self._wire.come)
            try:
                if burst is not None:
                    self._serve_burst(burst)
                elif not self._serve_next():
                    return
            except ProtocolError as error:  # where the next message begins is not known
                self._worker.tell(Notice("FATAL", error.state, str(error)))
                return

    def _serve_next(self) -> bool:
        """Serve one message; say whether the client stays."""
        found = read_message(self._wire, MOST_BYTES)
        if found.kind != b"X":
            self._serve(found)
        return found.kind != b"X"

    # Bursts: what was told for the same bytes before is told again.

    def _key(self, burst: SimpleRequest) -> Hashable | None:
        """Return the facts that the answer to a burst follows from, beside the stamp."""
        if self._skipping or self._worker.state == b"E" or self._portals.is_full:
            return None
        bound = None if b"P" in burst.form else self._portals.prepared(burst.bound)
        if bound is None and burst.form in (b"BDES", b"BES"):
            return None
        asked = None if bound is None else (bound.text, bound.oids)
        return burst.data, asked, self._asker.manner

    def _repeat(self) -> bytes | None:
        """Repeat the answer to the first burst that has come, if it is known; waits for nobody."""
        burst, stamp = first_request(self._wire.come), self._asker.stamp()
        key = None if burst is None or stamp is None else self._key(burst)
        echo = None if key is None else self._remembered.find(key)
        if burst is None or echo is None or echo.stamp != stamp or self._is_ended:
            return None
        del self._wire.come[: len(burst.data)]
        self._events.count("message")
        self._events.count("free")  # the line was that of the answer which is told again
        if self._signed_in is not None:
            self._signed_in.work()
            self._signed_in.rest()
        self._asker.last_charge = echo.charge
        if burst.form != b"Q":
            self._portals.repeat(echo.parsed)
        return echo.told + ready(self._worker.state)

    def _serve_burst(self, burst: SimpleRequest) -> None:
        """Serve the messages of a burst, and remember what was told if it was free before."""
        self._failed, self._only = False, None
        self._asker.forget_repeated()
        with self._wire.copied() as told:
            for _ in burst.form:
                self._serve_next()
        repeated = self._asker.repeated
        if repeated is None or self._failed or len(told) >= LONGEST_TOLD:
            return
        prepared = None if burst.form == b"Q" else self._portals.prepared(burst.bound)
        command, key = self._only if prepared is None else prepared.command, self._key(burst)
        if command is not None and command.tag == "SELECT" and key is not None:
            parsed = prepared if b"P" in burst.form else None
            facts = repeated.stamp, self._asker.last_charge, parsed
            self._remembered.keep(key, CachedReply(bytes(told[:-LAST]), *facts))

    def _serve(self, found: Message) -> None:
        """Serve one message, by the catalog in force. Raises: SessionExpired."""
        if self._is_ended:  # whatever has come since: nothing more is asked in this name
            raise Hangup
        if self._signed_in is None:
            return self._answer(found)
        self._signed_in.work()
        try:
            self._answer(found)
        finally:
            self._signed_in.rest()

    def _answer(self, found: Message) -> None:
        self._guarded(self._asker.follow)
        if found.kind == b"S":
            self._skipping = False
            self._portals.synchronise()
            self._wire.write(ready(self._worker.state))
        elif found.kind == b"Q":
            self._events.count("message")
            self._skipping = False
            self._guarded(lambda: self._simple(found))
            self._wire.write(ready(self._worker.state))
        elif not self._skipping and found.kind not in (b"H", b"d", b"c", b"f"):
            if found.kind == b"E":
                self._events.count("message")
            self._skipping = not self._guarded(lambda: self._portals.serve(found))

    def _guarded(self, work: Callable[[], None]) -> bool:
        """Do something; whatever goes wrong is told. Says whether nothing did."""
        try:
            work()
            return True
        except Interrupted as error:
            told = tell_cancelled(error, self._asker.is_late)
        except KeyboardInterrupt:
            told = tell_cancelled(Interrupted(), self._asker.is_late)
        except Error as error:
            told = error_message(error, self._portals.text)
        except TwinError as error:
            told = Notice(
                "ERROR", error.state, error.text, error.detail, error.hint, error.position
            )
        except (BadValue, ProtocolError) as error:
            told = Notice("ERROR", error.state, str(error))
        except (
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ):
            told = Notice("ERROR", DEFECT, "a defect of the server; nothing more is known")
        self._failed = True
        self._worker.tell(told)
        note_refusal(self._events, told.state, self._asker.is_late)
        self._worker.transaction.fail()
        return False

    # The simple protocol: a script, of which all SELECTs are one workload.

    def _simple(self, found: Message) -> None:
        fields = Fields(found.body)
        text = fields.text()
        fields.end()
        self._portals.text = text
        self._portals.forget()
        commands = [self._asker.route(fragment) for fragment in split_statements(text)]
        self._only = commands[0] if len(commands) == 1 else None
        if not commands:
            self._wire.write(EMPTY_QUERY)
        changes = self._asker.changes_terms(commands)
        replies: Iterator[Reply] = iter(())
        left = 0
        for at, command in enumerate(commands):
            self._worker.transaction.check(command)
            if command.kind != "ask":
                if command in changes:
                    self._send_all(replies)
                    left = 0
                self._worker.send(self._worker.carry_out(command, command.fragment.text), [])
                continue
            if not left:
                same = itertools.takewhile(lambda each: each not in changes, commands[at:])
                asked = [each for each in same if each.kind == "ask"]
                replies, left = iter(self._asker.ask(text, asked)), len(asked)
            left -= 1
            self._send_all(itertools.islice(replies, 1))
        self._send_all(replies)

    def _send_all(self, replies: Iterator[Reply]) -> None:
        for reply in replies:
            self._worker.send(self._asker.as_shown(reply), [])
