"""What a connection says where executors of Spark are killed while it counts.

    python -m tests.privacy.executors

A cluster of two executors, processes of this machine, counts rows of persons. Where one is killed
the other works its share out again, and the answer is the same; where all are, as often as they
are started again, there is one error, and the ledger holds what was paid for by then. `make fuzz`
runs it: it starts Java about fifteen times.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
from dpsql.ui.cli import run_command_line
from tests.support.seam import zero_noise
from tests.support.spark import DEFAULTS, small_spark

MASTER = "local-cluster[2,1,1024]"
SETTINGS = {
    "spark.executor.extraJavaOptions": DEFAULTS["spark.driver.extraJavaOptions"],
    "spark.deploy.maxExecutorRetries": "1",
}
CATALOG = """
[budget]
epsilon = 100
[table.visits]
source = {{ engine = "spark", master = "{master}", path = "{path}", version = "{version}" }}
privacy_unit = {{ column = "who", max_rows = 3 }}
[table.visits.column]
ward = {{ type = "integer", domain = [0, 9] }}
"""
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
UNITS = "SELECT ward, COUNT(DISTINCT who) AS n FROM visits GROUP BY ward"
RIGHT = {COUNT: dict.fromkeys(range(10), 3000), UNITS: dict.fromkeys(range(10), 1000)}
ROWS = 40_000


def executors() -> list[int]:
    """The processes of executors that this process has started, by Java."""
    parents: dict[int, int] = {}
    named: set[int] = set()
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in (each / "cmdline").read_bytes():
                named.add(int(each.name))
    return sorted(each for each in named if os.getpid() in _above(each, parents))


def _above(process: int, parents: dict[int, int]) -> Iterator[int]:
    while process in parents:
        process = parents[process]
        yield process


@contextmanager
def killing(method: str, all_of_them: bool) -> Iterator[set[int]]:
    """Kill one executor, or each that there is, as soon as a counter is asked for something."""
    from dpsql.privacy.vault.servers.spark import SparkCounter

    killed: set[int] = set()
    asked, done = threading.Event(), threading.Event()
    original: Any = getattr(SparkCounter, method)

    def asking(self: Any, select: str) -> Any:
        if select != "SELECT 1":
            asked.set()
            time.sleep(0.2)  # until the first has been killed
        return original(self, select)

    def kill() -> None:
        asked.wait()
        while not done.is_set() and (all_of_them or not killed):
            for each in executors()[: None if all_of_them else 1]:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
                killed.add(each)
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(SparkCounter, method, asking)
            yield killed
    finally:
        asked.set()
        done.set()
        thread.join()


def write(folder: Path, version: int) -> Path:
    """Write the rows and the catalog."""
    path, files = folder / "visits.toml", folder / "rows"
    if not files.exists():
        files.mkdir()
        listed = "'p' || i // 4 AS who, i // 4 % 10 AS ward"
        with duckdb.connect() as scribe:
            for part in range(4):
                share = f"range({part * ROWS // 4}, {(part + 1) * ROWS // 4}) AS t(i)"
                scribe.execute(f"COPY (SELECT {listed} FROM {share}) TO '{files}/{part}.parquet'")
    path.write_text(CATALOG.format(master=MASTER, path=files, version=version), encoding="utf-8")
    return path


def check(connection: Connection, statement: str, entries: int) -> None:
    """Assert that a statement is answered, and what the ledger holds."""
    rows = connection.execute(statement).result.rows
    assert {int(str(ward)): n for ward, n in rows} == RIGHT[statement], rows
    assert connection.budget.entries == entries


def check_run(folder: Path, version: int, method: str, paid: int) -> None:
    """Assert what `dpsql run` says where all executors are killed, and that it works again."""
    path, text = write(folder, version), folder / "count.sql"
    text.write_text(f"{COUNT};", encoding="utf-8")
    asked = ["run", str(text), "--catalog", str(path), "--epsilon", "1"]
    with dpsql.connect(path) as connection:
        entries = connection.budget.entries
    told = io.StringIO()
    with killing(method, True) as killed, redirect_stderr(told):
        status = run_command_line(asked)
    (error,) = [line for line in told.getvalue().splitlines() if line.startswith("error:")]
    print(f"{method}: {len(killed)} executors killed under dpsql run: exit {status}, {error}")
    assert (status, "the charge stays" in error) == (3, bool(paid))
    assert run_command_line(asked) == 0
    with dpsql.connect(path) as connection:
        assert connection.budget.entries == entries + paid + 1


def main(folder: Path) -> None:
    """Kill while codes are kept and while they are counted: one executor, then all."""
    os.environ["XDG_STATE_HOME"] = f"{folder}/state"
    with small_spark(folder, SETTINGS), zero_noise():
        for version, (method, statement) in enumerate({"keep": COUNT, "rows": UNITS}.items()):
            with dpsql.connect(write(folder, version), epsilon=1) as connection:
                entries = connection.budget.entries
                if method == "rows":
                    check(connection, COUNT, entries := entries + 1)
                with killing(method, False) as killed:
                    check(connection, statement, entries + 1)
                print(f"{method}: one of two executors killed, equal rows", len(killed))
                assert len(killed) == 1
        for version, (method, paid) in enumerate({"keep": 0, "rows": 1}.items(), 2):
            with dpsql.connect(write(folder, version), epsilon=1) as connection:
                entries = connection.budget.entries
                with killing(method, True) as killed, pytest.raises(Error) as caught:
                    connection.execute(COUNT)
                error = caught.value
                print(f"{method}: {len(killed)} executors killed: {error}")
                assert (error.code, error.__context__) == ("E_INTERNAL", None)
                assert ("the charge stays" in f"{error}") == bool(paid)
                assert connection.budget.entries == entries + paid
                check(connection, COUNT, entries + paid + 1)
        for version, (method, paid) in enumerate({"keep": 0, "rows": 1}.items(), 4):
            check_run(folder, version, method, paid)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
