"""Events of a server: each is a line of its log and a count, by the kind that it is of.

Who did what from where, and what came of it: names, addresses, states and numbers of entries, never
SQL, answers or amounts of the data.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

from dpsql.errors import printable
from dpsql.records import dataclass, field
from dpsql.server.sqlstates import CANCELLED

log = logging.getLogger("dpsql.server")
MOST_SHOWN = 300
"""Characters of a fact that are logged; none that may sign in has as long a name."""
COUNTED = logging.NOTSET
"""The level of what is counted and is no line."""


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event: the level of its lines, its metric, and the facts that this is told by."""

    level: int
    metric: str
    labels: tuple[str, ...]


KINDS: Mapping[str, EventKind] = {
    "sign-in": EventKind(logging.INFO, "sign_ins", ("method", "outcome", "database")),
    "delay": EventKind(logging.WARNING, "delays", ("method",)),
    "end": EventKind(logging.INFO, "ends", ("method", "outcome", "database")),
    "message": EventKind(COUNTED, "statements", ("database",)),
    "charge": EventKind(logging.INFO, "charged", ("method", "database")),
    "free": EventKind(logging.INFO, "free", ("method", "database")),
    "refusal": EventKind(logging.INFO, "errors", ("state", "database")),
    "cancel": EventKind(logging.INFO, "cancels", ("method", "outcome", "database")),
    "act": EventKind(logging.INFO, "acts", ("outcome", "database")),
    "reload": EventKind(logging.INFO, "reloads", ("what", "outcome", "database")),
    "source": EventKind(logging.WARNING, "sources", ("outcome", "database")),
    "twin": EventKind(logging.WARNING, "twins", ("outcome",)),
    "server": EventKind(logging.ERROR, "servers", ("outcome",)),
    "missed": EventKind(logging.ERROR, "missed_clients", ("why",)),
    "defect": EventKind(logging.ERROR, "defects", ("why",)),
}
"""Everything that a server tells its operator of. A label has few values, so that all are kept;
that of a database is empty where what happens is of none, or of one that there is not."""


Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a server, with its values by their labels."""

    name: str
    kind: Literal["counter", "gauge"]
    values: tuple[tuple[Labels, float], ...]

    @classmethod
    def one(cls, name: str, kind: Literal["counter", "gauge"], value: float) -> Metric:
        """One value without labels.

        Args:
            name: as OpenMetrics wants it, with its unit at the end.
            kind: a counter never falls, but when the server starts anew.
            value: in the unit that the name ends with.
        """
        return cls(name, kind, (((), value),))


@dataclass(frozen=True)
class Events:
    """Takes note of events, in the name of those whose ``facts`` are bound to it.

    Whatever is bound shares the counts with what it was made from. Threads may share it.
    """

    facts: Mapping[str, object] = field(default_factory=dict)
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _last: dict[tuple[str, object], object] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bound(self, **facts: object) -> Events:
        """The same log with facts that every event has from then on."""
        return Events({**self.facts, **facts}, self.counts, self._last, self._lock)

    def count(self, kind: str, **facts: object) -> dict[str, object]:
        """Count an event that needs no line; its facts, and those that are bound."""
        found = {**self.facts, **facts}
        with self._lock:
            self.counts[kind, *(str(found.get(each, "")) for each in KINDS[kind].labels)] += 1
        return found

    def note(self, kind: str, **facts: object) -> None:
        """Count an event, and write its line."""
        told = {"event": kind, **self.count(kind, **facts)}
        if log.isEnabledFor(KINDS[kind].level):
            log.log(KINDS[kind].level, "%s", _line(told), extra={"told": told})

    def turn(self, kind: str, outcome: str, **facts: object) -> None:
        """Note what something of a database has come to, if it was another outcome before.

        Args:
            kind: what it is that changes, such as "source"; each database has its own.
            outcome: noted only if it is another one than before; ``up`` at the beginning.
            **facts: further fields of the log line, none of them private.
        """
        key = kind, self.facts.get("database", "")
        with self._lock:
            before = self._last.get(key, "up")
            self._last[key] = outcome
        if before != outcome:
            self.note(kind, outcome=outcome, **facts)

    def total(self, kind: str, *labels: str) -> int:
        """The number of events of a kind, of those alone that begin with some labels."""
        key = (kind, *labels)
        with self._lock:
            return sum(count for each, count in self.counts.items() if each[: len(key)] == key)

    def metrics(self) -> Iterator[Metric]:
        """The counts, of every kind."""
        with self._lock:
            counts = dict(self.counts)
        for name, kind in KINDS.items():
            found = sorted(key for key in counts if key[0] == name)
            values = ((tuple(zip(kind.labels, k[1:], strict=True)), counts[k]) for k in found)
            yield Metric(f"dpsql_{kind.metric}_total", "counter", tuple(values))


def note_refusal(events: Events, state: str, is_late: bool = False, code: str = "") -> None:
    """Note what was told of a statement that has no answer: it was refused, or it was ended.

    Args:
        events: those of the session.
        state: the five letters that the client was told.
        is_late: True if it was ended by its timeout, not by who asked.
        code: dpsql's code of the refusal, if it has one.
    """
    if state == CANCELLED:
        events.note("cancel", outcome="timeout" if is_late else "asked", state=state)
    else:
        told = {"code": code} if code else {}
        events.note("refusal", state=state, **told)


class JsonLines(logging.Formatter):
    """Lines of a log as JSON objects: the facts of an event, else the message of who logged."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, without its end."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = getattr(record, "told", None)
        if told is None:
            told = {"event": "log", "logger": record.name, "message": record.getMessage()}
        facts = {name: shown(value) for name, value in told.items()}
        return json.dumps({"at": at, "level": record.levelname.lower(), **facts})


def _line(told: Mapping[str, object]) -> str:
    """Write facts in one line, in quotes where they could be taken for others.

    >>> _line({"event": "end", "user": "ana", "outcome": "idle for long", "entry": 3})
    'event=end user=ana outcome="idle for long" entry=3'
    """
    return " ".join(f"{name}={_quoted(shown(value))}" for name, value in told.items())


def shown(value: object) -> int | float | str:
    """A fact as it is told: a number, or a text without controls."""
    return value if isinstance(value, int | float) else printable(str(value)[:MOST_SHOWN])


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or set(text) & set(' "=') else text
