"""The caller: runs SQL in the name of one analyst, so that another thread may end it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection, Cursor
from dpsql.dbapi.repetitions import FreeAnswers
from dpsql.dbapi.site import Site, keeps_tables
from dpsql.engine.terms import Terms
from dpsql.errors import DataUnavailable, LedgerError
from dpsql.interrupts import Cancellation
from dpsql.records import dataclass
from dpsql.server.answer_ticks import Ticks
from dpsql.server.events import Events

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FreeAnswer:
    """An answer that was free before, and the stamp as long as which it is right."""

    result: Result
    stamp: Hashable


class SessionExpired(Exception):
    """A session whose tables or analyst are no more what they were: its client connects again."""


class AnalystSession:
    """One analyst's connection, opened by the first statement; one thread at a time uses it.

    Where a curator changes the catalog, it goes on with the one in force; one that ``is_strict``
    only where that leaves its tables alone, since its client remembers what they were. It begins
    with statements in a ``dialect``.

    What it comes back with, and what ends it before that, waits for a tick. ``first_terms`` are
    those that the session begins with, None as long as nothing was asked. ``repeated`` is what
    it was asked last, if that was found among repetitions; ``is_late`` says that it was ended since
    it took too long.
    """

    def __init__(
        self,
        site: Site,
        analyst: str | None,
        ticks: Ticks | None = None,
        is_strict: bool = False,
        dialect: str = "duckdb",
        events: Events | None = None,
    ) -> None:
        self.events = events or Events()
        self._is_strict = is_strict
        self._dialect = dialect
        self._ticks = ticks or Ticks()
        self._site = site
        self._analyst = analyst
        self._connection: Connection | None = None
        self._repeats: FreeAnswers
        self.first_terms: Terms | None = None
        self._cancellation: Cancellation | None = None
        self.repeated: FreeAnswer | None = None
        self.is_late = False
        # A cancel comes on a connection of its own, from another thread than the statement's.
        self._lock = threading.Lock()

    @property
    def connection(self) -> Connection:
        """The connection. Raises: LedgerError, DataError."""
        if self._connection is None:
            self._connection, self._repeats = self._site.admit(self._analyst)
            terms = self._connection.terms.having(dialect=self._dialect)
            self._connection.terms = self.first_terms = terms
        return self._connection

    @property
    def is_current(self) -> bool:
        """True if the catalog that it knows is the one in force, as far as the site knows."""
        return self._connection is None or self._repeats is self._site.repeats

    @property
    def is_outlived(self) -> bool:
        """True if what its client remembers is no more as it was."""
        if self._connection is None or self.is_current:
            return False
        after = self._site.catalog
        is_here = self._analyst in after.analysts if after.analysts else self._analyst is None
        return not (is_here and keeps_tables(self._connection.catalog, after))

    def follow(self) -> None:
        """Go on with the catalog in force, between statements.

        Raises: SessionExpired, where it is strict; DataError (E_ANALYST), LedgerError.
        """
        if self.is_current or self._connection is None:
            return
        if self._is_strict and self.is_outlived:
            raise SessionExpired
        before = self._connection
        found, repeats = self._site.admit(self._analyst)
        found.go_on_from(before)
        self._connection, self._repeats = found, repeats
        before.close()

    @property
    def repeats(self) -> FreeAnswers:
        """The repetitions that it has a part in. Raises: as ``connection``."""
        _ = self.connection
        return self._repeats

    @property
    def is_open(self) -> bool:
        """True if anything was asked yet."""
        return self._connection is not None

    def cancel(self) -> None:
        """End what is being asked, from another thread; what was charged is stored first."""
        with self._lock:
            found = self._cancellation
        if found is not None:
            self.end(found)

    def end(self, wish: Cancellation) -> None:
        """End what runs, or will run, under a cancellation."""
        self._ticks.later(wish.ask)

    def within(
        self,
        work: Callable[[], T],
        milliseconds: int = 0,
        wish: Cancellation | None = None,
        is_public: bool = False,
    ) -> T:
        """Do something under a cancellation; 0 is as long as it takes.

        Args:
            work: done in this thread, with its charge and its noise.
            milliseconds: limit; 0 is as long as it takes.
            wish: cancellation that may have been asked for before this begins; None makes a new
                one.
            is_public: True for what has nothing to do with data, and waits for no tick.

        Raises: as ``work``; Interrupted or KeyboardInterrupt when it was asked for.
        """
        with wish or Cancellation() as mine:
            with self._lock:
                self._cancellation = mine
            limit = milliseconds / 1000 if is_public else self._ticks.left(milliseconds / 1000)
            self.is_late = False
            timer = threading.Timer(limit, partial(self._expire, mine)) if milliseconds else None
            try:
                if timer is not None:
                    timer.daemon = True
                    timer.start()
                mine.check()
                return work()
            except DataUnavailable as error:  # the next statement reads the data as they are then
                # With the paths, which clients are not told.
                self.events.turn("source", "down", why=error.message)
                if self._connection is not None:
                    self._connection.engine.reopen()
                raise
            finally:
                if timer is not None:
                    timer.cancel()
                with self._lock:
                    self._cancellation = None
                if not is_public:
                    self._ticks.wait()

    def _expire(self, wish: Cancellation) -> None:
        self.is_late = True
        wish.ask()

    def run(
        self, text: str, many: bool, milliseconds: int = 0, wish: Cancellation | None = None
    ) -> list[Result]:
        """Return the results of a statement, or of many as a script.

        Args:
            text: SQL whose parameters are bound.
            many: True for a script, whose SELECTs are one workload.
            milliseconds: limit; 0 is as long as it takes.
            wish: cancellation that may have been asked for already.

        Raises: Error; Interrupted.
        """
        self.repeated = None
        ask = self._script if many else self._statement
        found = self.within(lambda: self._following(ask, text), milliseconds, wish)
        self._note(found)
        return found

    def _note(self, results: list[Result]) -> None:
        """Note what was charged, and what was given free, once for each entry of the ledger."""
        told = {}
        for each in results:
            if each.cost is not None and each.receipt is not None:
                told[each.receipt.seq, each.cost.free] = f"{each.cost}"
        for (entry, is_free), cost in told.items():
            if is_free:
                self.events.note("free", entry=entry)
            else:
                self.events.note("charge", entry=entry, cost=cost)
                self.events.turn("source", "up")

    def _following(self, ask: Callable[[str], list[Result]], text: str) -> list[Result]:
        """Ask; where that is refused since another catalog is in force, go on with that one.

        Guarantee: what was charged for is not asked again.
        """
        charged = self.connection.charged
        try:
            return ask(text)
        except LedgerError as error:
            if error.code != "E_POLICY_CHANGED" or self.connection.charged != charged:
                raise
            self._site.refresh()
            if self.is_current:
                raise
        self.follow()
        return ask(text)

    def _statement(self, text: str) -> list[Result]:
        repeats, connection = self.repeats, self.connection
        stamp = repeats.stamp(connection)  # before: what changes meanwhile makes it another
        key = repeats.key(connection, text)
        known = repeats.find(connection, key)
        if known is not None:
            self.repeated = None if stamp is None else FreeAnswer(known, stamp)
            return [known]
        found = _all_of(connection.execute(text))
        if len(found) == 1 and key == repeats.key(connection, text):
            repeats.keep(key, found[0])
        return found

    def _script(self, text: str) -> list[Result]:
        return _all_of(self.connection.executescript(text))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _all_of(cursor: Cursor) -> list[Result]:
    found = [cursor.result]
    while cursor.nextset():
        found.append(cursor.result)
    return found
