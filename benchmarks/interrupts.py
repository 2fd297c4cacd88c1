"""Ctrl-C at random moments of every kind of statement: what was charged, told and stored.

``python -m benchmarks.interrupts [COUNT]`` interrupts COUNT statements, each in a fresh catalog:
half after a random time, half at a random call of a Python function, which finds short steps as
easily as long ones. Afterwards another connection reads the ledger and the stores.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb

import dpsql
from dpsql.answer.store import Store
from dpsql.dbapi.connection import Connection
from dpsql.search import strategy_cache

CATALOG = """
[budget]
epsilon = 100
delta = 1e-6
[ledger]
anchor = "anchors"
[table.people]
source = "people.parquet"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
age = { type = "integer", domain = [0, 59] }
ward = { type = "integer", domain = [0, 7] }
pay = { type = "number", bounds = [0, 1000] }
[table.visits]
source = "visits.parquet"
privacy_unit = { column = "id", max_rows = 3 }
[table.visits.column]
ward = { type = "integer", domain = [0, 7] }
month = { type = "integer", domain = [1, 12] }
"""

CUBE = "SELECT sex, age, ward, COUNT(*) FROM people GROUP BY CUBE (sex, age, ward)"
LEARN = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = '{}')" + CUBE.removeprefix("SELECT")
STATEMENTS = {
    "select": CUBE,
    "units": "SELECT ward, month, COUNT(*), COUNT(DISTINCT id) FROM visits GROUP BY ward, month",
    "batch": f"{CUBE}; SELECT ward, SUM(pay), AVG(age) FROM people GROUP BY ward; "
    "SELECT COUNT(*) FROM visits WHERE month BETWEEN 3 AND 5",
    "gaussian": "SET noise = 'gaussian'; SET delta = 1e-9; "
    "SELECT age, COUNT(*) FROM people GROUP BY age; "
    "SELECT ward, MEDIAN(age) FROM people GROUP BY ward",
    "mwem": LEARN.format("mwem"),
    "marginals": LEARN.format("marginals"),
    "synthetic": f"CREATE SYNTHETIC TABLE s FROM people FOR ({CUBE}) "
    "OPTIONS(epsilon = 1, model = 'marginals')",
    "clip": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = 'svt') SUM(pay) FROM people "
    "WHERE sex = 'f'",
    "threshold": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = 'svt') ward, SUM(pay), COUNT(*) "
    "FROM people GROUP BY ward",
}
"""Each is one request of epsilon 1 in a catalog where nothing was asked before."""

ROWS = 20_000
COLUMNS = {
    "people": "['f', 'm'][i % 2 + 1] AS sex, i % 60 AS age, i % 7 AS ward, 1.0 * (i % 900) AS pay",
    "visits": "i // 3 AS id, i % 8 AS ward, i % 12 + 1 AS month",
}
EPSILON = Fraction(1)

LEARNED = ("mwem", "marginals", "synthetic")
"""Runs of many looks: an interrupt before there is a model loses the charge, and that is told."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One interrupted statement: how it ended, what is wrong about that, and how long it took.

    ``seconds`` are those from the signal to the end.
    """

    kind: str
    outcome: str
    wrong: tuple[str, ...]
    seconds: float


class Interrupts:
    """A folder of data, and statements that are interrupted over it."""

    def __init__(self, folder: Path, seed: int | None = None) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.lengths: dict[str, tuple[float, int]] = {}
        self.count = 0
        with duckdb.connect() as database:
            for table, columns in COLUMNS.items():
                rows = f"SELECT {columns} FROM range({ROWS}) t(i)"
                database.execute(f"COPY ({rows}) TO '{folder}/{table}.parquet'")

    @contextmanager
    def catalog(self) -> Iterator[Path]:
        """A catalog in which nothing was asked; nothing planned before is remembered."""
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        for name in ("people", "visits"):
            shutil.copy(self.folder / f"{name}.parquet", place)
        (place / "c.toml").write_text(CATALOG)
        strategy_cache._memory.clear()
        try:
            yield place / "c.toml"
        finally:
            shutil.rmtree(place)

    def measure(self, kind: str) -> tuple[float, int]:
        """How long a statement takes, in seconds and in calls."""
        if kind not in self.lengths:
            with self.catalog() as catalog, dpsql.connect(catalog, epsilon=1) as connection:
                start = time.perf_counter()
                connection.executescript(STATEMENTS[kind])
                seconds = time.perf_counter() - start
            with (
                self.catalog() as catalog,
                dpsql.connect(catalog, epsilon=1) as connection,
                calls(lambda count: None) as counted,
            ):
                connection.executescript(STATEMENTS[kind])
            self.lengths[kind] = seconds, counted[0]
        return self.lengths[kind]

    def interrupt(self, kind: str) -> Attempt | None:
        """Interrupt one statement at a random moment; None where it ended before."""
        seconds, count = self.measure(kind)
        sent: list[float] = []

        def send() -> None:
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

        if self.random.random() < 0.5:
            moment = self.random.uniform(0, 1.05 * seconds)
            return self._interrupt(kind, after(moment, send), sent)
        chosen = self.random.randrange(count)
        return self._interrupt(kind, calls(lambda k: send() if k == chosen else None), sent)

    def _interrupt(self, kind: str, armed: Any, sent: list[float]) -> Attempt | None:
        with self.catalog() as catalog:
            told, done = "", False
            stop: BaseException | None = None
            with dpsql.connect(catalog, epsilon=1) as connection:
                try:
                    with armed:
                        connection.executescript(STATEMENTS[kind])
                        done = True
                except (KeyboardInterrupt, Exception) as error:
                    stop = error
                ended = time.perf_counter()
            if not sent or (done and stop is not None):
                return None
            with dpsql.connect(catalog, epsilon=1) as later:
                wrong = tuple(check(later, stop, kind))
            if isinstance(stop, dpsql.Interrupted):
                told = "lost" if stop.lost else "stored" if stop.charged else "not charged"
            outcome = told or ("answered" if stop is None else type(stop).__name__)
            return Attempt(kind, outcome, wrong, ended - sent[0])


def check(connection: Connection, stop: BaseException | None, kind: str) -> Iterator[str]:
    """What is wrong about the ledger, the stores and what was told, after an interrupt."""
    debits = [entry for entry in connection.entries() if entry.kind == "debit"]
    kept = stored(connection.catalog.path)
    charged = sum((Fraction(e.epsilon) for e in debits), Fraction(0))
    lost = sum((Fraction(e.epsilon) for e in debits if e.seq not in kept), Fraction(0))
    for entry in debits:
        if (entry.state == "released") != (entry.seq in kept) or entry.state == "reserved":
            yield f"entry {entry.seq} is {entry.state}, its release stored: {entry.seq in kept}"
    if isinstance(stop, dpsql.Interrupted):
        if (stop.charged, stop.lost) != (charged, lost):
            yield f"told {stop.charged}, {stop.lost} of charges {charged}, {lost}"
    elif stop is not None and (charged or not isinstance(stop, KeyboardInterrupt)):
        yield f"raised {stop!r}"  # but for an interrupt before the statement has begun
    if lost:
        if stop is None or kind not in LEARNED:
            yield f"lost {lost}"
        return
    again = charged and kind == "synthetic"
    connection.executescript("SELECT COUNT(*) FROM s" if again else STATEMENTS[kind])
    spent = sum(Fraction(e.epsilon) for e in connection.entries() if e.kind == "debit")
    if abs(spent - EPSILON) > Fraction(1, 10**6):
        yield f"asked again, {spent} was charged in all"


def stored(catalog: Path) -> set[int]:
    """The entries of the ledger for which something is stored."""
    store = Store(catalog)
    models = (*store.learned.all().values(), *store.tables.all().values())
    found = {each.seq for each in store.releases.all().values()}
    found |= {each.receipt[1] for each in store.clipped.all().values()}
    return found | {each.receipt[1] for each in models}


@contextmanager
def after(seconds: float, send: Callable[[], None]) -> Iterator[None]:
    """Send the signal after a time, unless what is within ends before."""
    timer = threading.Timer(seconds, send)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def calls(send: Callable[[int], None]) -> Iterator[list[int]]:
    """Count the calls of Python functions within; ``send`` hears of each."""
    counted = [0]

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            send(counted[0])
            counted[0] += 1

    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(None)


def run(count: int, seed: int | None = None) -> Iterator[Attempt]:
    """Interrupt so many statements, of every kind in turn."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_STATE_HOME=f"{folder}/state", DPSQL_CACHE="off")
        if not callable(signal.getsignal(signal.SIGINT)):
            raise RuntimeError("SIGINT is ignored here: nothing would be interrupted")
        interrupts, kinds = Interrupts(Path(folder), seed), itertools.cycle(STATEMENTS)
        done = 0
        while done < count:
            attempt = interrupts.interrupt(next(kinds))
            if attempt is not None:
                done += 1
                yield attempt


def main() -> int:
    """Interrupt, and print what came of it."""
    found = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    for attempt in run(int(sys.argv[1]) if len(sys.argv) > 1 else 200):
        found.append(attempt)
        for what in attempt.wrong:
            print(f"WRONG {attempt.kind}: {what}", flush=True)
        if len(found) % 50 == 0:
            told = Counter(each.outcome for each in found)
            print(f"{len(found)} so far: {dict(told)}", file=sys.stderr, flush=True)
    for kind in STATEMENTS:
        mine = [each for each in found if each.kind == kind]
        waits = sorted(each.seconds for each in mine)
        outcomes = ", ".join(f"{n} {what}" for what, n in Counter(a.outcome for a in mine).items())
        half, most = (waits[len(waits) // 2], waits[-1]) if waits else (0.0, 0.0)
        print(
            f"{kind:<10} {len(mine):>4}: {outcomes}; ended after {half:.3f} s, at most {most:.3f} s"
        )
    wrong = sum(bool(each.wrong) for each in found)
    print(f"{len(found)} interrupts, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
