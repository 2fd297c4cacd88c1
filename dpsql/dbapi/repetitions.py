"""Repetitions: what a site has answered for free already is not worked out again."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.answer.result import Result
from dpsql.catalog.catalog import SERVERS, is_stored
from dpsql.errors import DataUnavailable
from dpsql.sql.text.current_date import today

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection

MOST_KEPT_ANSWERS, MOST_NUMBERS_KEPT = 1000, 1_000_000
"""Answers that are kept, and the numbers of all of them: some 100 bytes for each."""
SETTLED = 100_000_000
"""Nanoseconds after which a file is not touched again at the time that it already tells."""
MOST_VALUES_KEPT = 20_000
"""Numbers of one answer that is kept: larger ones are asked for less often, and fill the memory."""


class FreeAnswers:
    """Free answers to single statements, by all that they follow from.

    That is the text, the day, the terms of the session, what is stored, and the version of the
    data: an answer that is found here is the one that would be worked out.
    ``ledger`` are the files of the ledger, which has to be there and sound for every answer.
    Guarantee: only what was free is kept, so that nothing is released by it.
    """

    def __init__(self, ledger: tuple[Path, ...]) -> None:
        self._ledger = ledger
        self._mark = object()
        self._sound: list[tuple[int, ...] | None] = []
        self._kept: OrderedDict[Hashable, Result] = OrderedDict()
        self._numbers = 0
        # Sessions of all analysts of a site share the cache.
        self._lock = threading.Lock()

    def key(self, connection: Connection, text: str) -> Hashable | None:
        """Return the facts that decide on an answer; None where others may, too."""
        engine = connection.engine
        tables = engine.declared.tables
        elsewhere = any(
            t.public or t.engine in SERVERS or is_stored(t.source) for t in tables.values()
        )
        if connection.collected is not None or elsewhere:
            return None
        try:
            versions = engine.versions(tables)
        except DataUnavailable:
            return None
        if engine.unread:  # an answer says so, for as long as that is true
            return None
        asked = (text, today(), repr(connection.terms), connection.analyst)
        return *asked, engine.store.state(), versions

    def stamp(self, connection: Connection) -> Hashable | None:
        """Return a token that stays as long as nothing is stored, charged or read anew.

        It is looked at without waiting for anybody. None where that cannot be said: while rows are
        of a past period, and just after a file was touched.
        """
        found: list[tuple[int, ...] | None] = []
        settled = time.time_ns() - SETTLED
        for path in (*self._ledger, *connection.engine.store.paths):
            touched = _touched(path)
            if touched is not None and max(touched[2:]) > settled:
                return None
            found.append(touched)
        standing = connection.engine.standing
        return (
            None
            if standing is None or None in found[:2]
            else (self._mark, standing, today(), *found)
        )

    def find(self, connection: Connection, key: Hashable | None) -> Result | None:
        """An answer that was free before. Raises: LedgerError, as without it."""
        if key is None:
            return None
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        if found is not None:
            self._check(connection)
        return found

    def _check(self, connection: Connection) -> None:
        """Refuse where the ledger is missing or damaged; it is read if its files were touched.

        Raises: LedgerError.
        """
        now = [_touched(path) for path in self._ledger]
        if None in now or now != self._sound:
            connection.engine.status()
            self._sound = now

    def keep(self, key: Hashable | None, result: Result) -> None:
        """Keep an answer if it was free."""
        is_answer = result.kind == "answer" and result.receipt is not None
        is_free = is_answer and result.cost is not None and result.cost.free
        if key is None or not is_free or _numbers(result) > MOST_VALUES_KEPT:
            return
        with self._lock:
            self._numbers += _numbers(result) - _numbers(self._kept.pop(key, None))
            self._kept[key] = result
            while len(self._kept) > MOST_KEPT_ANSWERS or self._numbers > MOST_NUMBERS_KEPT:
                self._numbers -= _numbers(self._kept.popitem(last=False)[1])


def _numbers(result: Result | None) -> int:
    """Count the values of an answer."""
    return 0 if result is None else result.count * len(result.columns)


def _touched(path: Path) -> tuple[int, ...] | None:
    """Identity of a file and the times of its last changes; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
