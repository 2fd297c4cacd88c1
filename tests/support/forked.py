"""A process that forks while its threads are in the middle of something; see test_forks.py.

``python -m tests.support.forked FOLDER PERIL [FAULT]`` prints what became of the children.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.effort import effort

LIMIT = 3.0 if any(sys.argv[3:]) else 10.0
"""Seconds of a child, which takes one on a busy machine; with a planted fault it hangs."""

CATALOG = """
[budget]
epsilon = 100000
[table.t]
source = "{name}.parquet"
privacy_unit = {{ column = "who", max_rows = 2 }}
[table.t.column]
age = {{ type = "integer", domain = [0, 9] }}
sex = {{ type = "text", domain = ["f", "m"] }}
"""
BY_SEX = "SELECT sex, COUNT(*) FROM t GROUP BY sex"


def world(folder: Path, name: str) -> Path:
    """A catalog of 400 rows with a ledger of its own."""
    import duckdb

    rows = "SELECT i // 2 AS who, i % 10 AS age, 'fm'[1 + i % 2] AS sex FROM range(400) r(i)"
    with closing(duckdb.connect()) as scribe:
        scribe.execute(f"COPY ({rows}) TO '{folder / name}.parquet' (FORMAT parquet)")
    path = folder / f"{name}.toml"
    path.write_text(CATALOG.format(name=name), encoding="utf-8")
    return path


def told_by_child(work: Callable[[], object], *, exits: bool = False) -> str:
    """Fork, and say what ``work`` returns in the child, or the code of its error.

    Else "hangs", or the signal that ended it. With ``exits`` it ends as programs do, not at once.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = str(work())
        except BaseException as error:
            told = str(getattr(error, "code", repr(error)))
        os.write(write, told.encode())
        if exits:
            sys.exit()
        os._exit(0)
    os.close(write)
    end = time.monotonic() + LIMIT
    while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.002)
    if not done[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(done[1])
    return "hangs" if not done[0] else f"ended by {-code}" if code else told


def ask(catalog: Path, *statements: str) -> str:
    """Connect and ask."""
    import dpsql

    with dpsql.connect(catalog, epsilon=0.01) as connection:
        for sql in statements or (BY_SEX,):
            connection.execute(sql).fetchall()
    return "asked"


def use_none(inherited: object) -> str:
    """What a connection of the parent says to a child, which closes it."""
    try:
        inherited.execute(BY_SEX)  # type: ignore[attr-defined]
    except Exception as error:
        inherited.close()  # type: ignore[attr-defined]
        return str(getattr(error, "code", repr(error)))
    return "answered"


def stress(folder: Path) -> Counter[str]:
    """Children that connect and ask while three threads do."""
    import dpsql

    worlds = [world(folder, f"w{i}") for i in range(3)]
    alone, chance, over = world(folder, "alone"), random.Random(1), threading.Event()
    kept = dpsql.connect(worlds[0], epsilon=0.01)
    kept.execute(BY_SEX)

    def go_on(catalog: Path) -> None:
        number = 0
        while not over.is_set():
            with dpsql.connect(catalog, epsilon=0.01) as connection:
                for _ in range(5):
                    number += 1
                    connection.set("epsilon", f"0.01{number}")
                    connection.execute(f"SELECT COUNT(*) FROM t WHERE age < {number % 9 + 1}")

    def work() -> str:
        told = use_none(kept)
        catalog = chance.choice([*worlds, alone])
        return told if told != "E_FORK" else ask(catalog, BY_SEX, "SELECT AVG(age) FROM t")

    threads = [threading.Thread(target=go_on, args=(each,), daemon=True) for each in worlds]
    for thread in threads:
        thread.start()
    found: Counter[str] = Counter()
    while found["asked"] < CHILDREN and found.total() - found["asked"] < 1:
        time.sleep(chance.random() / 30)
        found[told_by_child(work, exits=found.total() % 2 == 0)] += 1
    over.set()
    for thread in threads:
        thread.join(LIMIT)
    found["asks on"] = ask(worlds[0]) == "asked" and not any(each.is_alive() for each in threads)
    return found


CHILDREN = effort(4)


def in_the_middle(folder: Path, middle: Callable[[Path, threading.Event], object]) -> Counter[str]:
    """One child, of a parent that has a thread in the middle of something."""
    catalog = world(folder, "t")
    ask(catalog)
    begun = threading.Event()
    thread = threading.Thread(target=middle, args=(catalog, begun), daemon=True)
    thread.start()
    begun.wait()
    return Counter([told_by_child(lambda: ask(catalog, "SELECT AVG(age) FROM t"))])


LOCKS: list[Any] = []
"""The locks that are to be new in a child."""


def hold_locks(_: Path, begun: threading.Event) -> None:
    """Hold every lock that is new in a child."""
    assert len(LOCKS) > 10
    for lock in LOCKS:
        lock.acquire()
    begun.set()
    time.sleep(2 * LIMIT)


def store(catalog: Path, begun: threading.Event, seconds: float) -> None:
    """Be in the middle of storing."""
    from dpsql.answer.store import Store

    with Store(catalog).releases.file.opened("BEGIN IMMEDIATE"):
        begun.set()
        time.sleep(seconds)


def work_out(_: Path, begun: threading.Event) -> None:
    """Work out an attribute of one instance, which a child wants of another one."""
    from dpsql import sealed

    me, take = threading.current_thread(), sealed.ahead.take

    def waits() -> Any:
        if threading.current_thread() is me:
            begun.set()
            time.sleep(2 * LIMIT)
        return take()

    with mock.patch.object(sealed.ahead, "take", waits):
        sealed.SealedConnection().run("SELECT 1")


SLEEPS = "import time\ntime.sleep(1)\n"
COMPLETES = (
    "from __future__ import annotations\n"
    + SLEEPS
    + """
from dpsql.records import dataclass
@dataclass
class Pair:
    one: int
Pair(1)
"""
)
"""A module that needs a lock for which a fork waits."""


class Finder:
    """Finds the slow module slowly."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = threading.Event()

    def find_spec(self, name: str, *_: object) -> None:
        """Leave it to others, after some time."""
        if name == "slow_module":
            self.begun.set()
            time.sleep(self.seconds)


def importing(
    folder: Path, text: str = SLEEPS, seconds: float = 0, beside: Callable[[], object] = int
) -> Counter[str]:
    """A child that imports what a thread of the parent is importing."""
    (folder / "slow_module.py").write_text(text + "ready = True\n")
    sys.path.insert(0, str(folder))
    finder, catalog = Finder(seconds), world(folder, "t")
    sys.meta_path.insert(0, finder)
    ask(catalog)

    def work() -> str:
        import slow_module  # type: ignore[import-not-found]

        return ask(catalog) if slow_module.ready else "half"

    threading.Thread(target=__import__, args=("slow_module",), daemon=True).start()
    finder.begun.wait()
    threading.Thread(target=beside, daemon=True).start()
    return Counter([told_by_child(work)])


def open_slowly() -> None:
    """Hold a new lock, as for a DuckDB, from when a fork waits to a second after it need not."""
    from dpsql import forks

    time.sleep(0.3)
    with forks.awaited(threading.Lock()):
        time.sleep(2)


def ends(folder: Path) -> Counter[str]:
    """Children that end as programs do, some after they have closed what their parent opened."""
    import dpsql

    catalog = world(folder, "t")
    connection = dpsql.connect(catalog, epsilon=0.01)
    connection.execute(BY_SEX).fetchall()
    found = Counter(told_by_child(lambda: use_none(connection), exits=True) for _ in range(2))
    found[told_by_child(lambda: 0, exits=True)] += 1
    found[told_by_child(lambda: ask(catalog), exits=True)] += 1
    connection.execute("SELECT AVG(age) FROM t").fetchall()
    return found


PERILS: dict[str, Callable[[Path], Counter[str]]] = {
    "stress": stress,
    "locks": lambda folder: in_the_middle(folder, hold_locks),
    "stores": lambda folder: in_the_middle(folder, functools.partial(store, seconds=1.0)),
    "stores long": lambda folder: in_the_middle(
        folder, functools.partial(store, seconds=2 * LIMIT)
    ),
    "attribute": lambda folder: in_the_middle(folder, work_out),
    "imports": importing,
    "imports and completes": lambda folder: importing(folder, COMPLETES),
    "finds": lambda folder: importing(folder, "", seconds=1),
    "opens meanwhile": lambda folder: importing(folder, beside=open_slowly),
    "ends": ends,
}


def plant(fault: str) -> None:
    """Take one of the precautions away."""
    from dpsql import forks

    fresh = forks.fresh

    def noted(lock: Any) -> Any:
        LOCKS.append(lock)
        return lock if fault == "locks" else fresh(lock)

    mock.patch.object(forks, "fresh", noted).start()
    if fault == "awaited":
        mock.patch.object(forks, "awaited", lambda lock: lock).start()
    if fault == "imports":
        mock.patch.object(forks, "_imported_elsewhere", bool).start()
    if fault == "ends":
        mock.patch.object(forks, "ended_where_opened", lambda connection: connection).start()
    if fault == "attribute":
        from dpsql import records

        mock.patch.object(records, "cached_property", functools.cached_property).start()


def main(folder: Path, peril: str, fault: str = "") -> None:
    """Print what became of the children of one peril."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        os.environ[name] = str(folder / "home")
    plant(fault)
    print(dict(+PERILS[peril](folder)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
