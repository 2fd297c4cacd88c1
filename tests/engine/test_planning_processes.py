"""Processes that plan: the same is worked out there, they are killed, and they reach no rows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.engine.planning_processes import PlanningProcesses
from dpsql.errors import InternalError, OperationalError
from dpsql.interrupts import Cancellation
from dpsql.server.events import Events
from dpsql.server.metrics import lines, metrics
from tests.support.tables import write_tables

CATALOG = """
[budget]
epsilon = 100
delta = 1e-9
max_epsilon_per_request = 10

[ledger]
anchor = "anchors"

[table.visits]
source = "visits.parquet"
privacy_unit = { column = "person", max_rows = 4 }
row_count_hint = 400

[table.visits.column]
ward = { type = "text", domain = ["a", "b", "it's"] }
size = { type = "integer", domain = [0, 9] }
cost = { type = "number", bounds = [0, 100] }

[table.wards]
source = "wards.parquet"
public = true

[table.wards.column]
ward = { type = "text", domain = ["a", "b"] }
side = { type = "text", domain = ["north", "south"] }
beds = { type = "integer", domain = [0, 20] }
"""
TABLES = {
    "visits": "SELECT i // 3 AS person, CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' ELSE 'it''s' END"
    " AS ward, i % 10 AS size, i % 100 AS cost FROM range(400) r(i)",
    "wards": "SELECT * FROM (VALUES ('a', 'north', 4), ('b', 'south', 9)) w(ward, side, beds)",
}
STATEMENTS = {
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS c FROM visits GROUP BY ward": "duckdb",
    "SELECT ward, AVG(cost) FROM visits WHERE size > 3 GROUP BY 1 ORDER BY 2 DESC": "postgres",
    "SELECT side, COUNT(*) FROM visits JOIN wards USING (ward) GROUP BY side": "duckdb",
    "SELECT n, COUNT(*) FROM (SELECT person, COUNT(*) AS n FROM visits GROUP BY 1)"
    " GROUP BY n": "duckdb",
    "SELECT size, COUNT(*) AS n FROM visits GROUP BY size WITH DIFFERENTIAL_PRIVACY OPTIONS"
    " (max_stddev = 20)": "duckdb",
    "SELECT ward, nothing FROM visits": "duckdb",
    "SELECT COUNT(*) FROM visits WHERE ward = 'c'": "postgres",
}


@pytest.fixture(scope="module")
def planning() -> Iterator[PlanningProcesses]:
    found = PlanningProcesses(most=2, room=1 << 28)
    yield found
    found.close()


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("planned")
    write_tables(folder, CATALOG, TABLES).close()
    with dpsql.connect(folder / "t.toml", epsilon=1) as found:
        yield found


def test_an_operator_sees_how_many_are_at_work(planning: PlanningProcesses) -> None:
    server: Any = SimpleNamespace(databases=(), events=Events(), planning=None)
    assert not [each for each in lines(metrics(server)) if "planning" in each]
    server.planning = planning
    found = list(lines(metrics(server)))
    assert "dpsql_planning_busy 0" in found
    assert f"dpsql_planning_ended_total {planning.ended}" in found


def outcome(connection: Connection, sql: str) -> str:
    """The forecast of a statement, or the whole of what it is refused with."""
    try:
        return str(connection.explain(sql))
    except dpsql.Error as error:
        return repr((type(error), error.code, str(error)))


@pytest.mark.parametrize(("sql", "dialect"), STATEMENTS.items())
def test_a_statement_is_the_same_wherever_it_is_compiled_and_planned(
    connection: Connection, planning: PlanningProcesses, sql: str, dialect: str
) -> None:
    connection.set("dialect", dialect)
    expected = outcome(connection, sql)
    connection.engine._forget(connection.engine.known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.engine, "planning", planning)
        for _ in range(2):
            assert outcome(connection, sql) == expected
            connection.engine._forget(connection.engine.known)
        if expected.startswith("workload"):
            paid = connection.execute(sql).fetchall()
            assert connection.execute(sql).fetchall() == paid


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_who_is_asked_to_end_ends_in_a_loop_that_looks_for_nothing(
    planning: PlanningProcesses,
) -> None:
    at_work, wish, ended = planning(os.getpid), Cancellation(), threading.Event()

    def work() -> None:
        with wish, pytest.raises(KeyboardInterrupt):
            planning(deque, iter(int, 1), 0)  # for ever, in C
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not planning.busy:
        time.sleep(0.01)
    assert is_alive(at_work)
    assert not ended.wait(0.2)
    wish.ask()
    assert ended.wait(20)
    thread.join()
    while is_alive(at_work):
        time.sleep(0.01)
    assert planning.ended == 1
    assert planning(abs, -2) == 2


def test_a_process_has_its_own_memory_and_its_own_end(planning: PlanningProcesses) -> None:
    with pytest.raises(MemoryError):
        planning(bytes, 1 << 29)
    with pytest.raises(OperationalError, match="has ended") as told:
        planning(os._exit, 0)
    assert told.value.code == "E_PLANNING"
    assert planning(abs, -3) == 3


def test_what_is_no_value_is_not_taken_from_a_process(planning: PlanningProcesses) -> None:
    with pytest.raises(InternalError, match="system is no value"):
        planning(eval, "__import__('os').system")
    with pytest.raises(InternalError, match="Popen"):
        planning(eval, "__import__('subprocess').Popen")
    for module, name in (
        ("dpsql.privacy.vault.vault", "TableVault"),  # has rows
        ("dpsql.privacy.budget.ledger", "Ledger"),  # a record that opens files
        ("dpsql.sql.cells.evaluate", "Evaluator"),  # opens an engine
        ("dpsql.files", "exclusive"),
    ):
        with pytest.raises(InternalError, match=f"{name} is no value"):
            planning(eval, f"getattr(__import__({module!r}, fromlist=['_']), {name!r})")
    assert planning(abs, -4) == 4


LOADED = """
import sys
if __name__ == "__main__":  # as in the command, nothing is imported by who imports this again
    from dpsql.dbapi.site import open_site
    from dpsql.engine.planning_processes import PlanningProcesses
    site, planning = open_site(sys.argv[1]), PlanningProcesses(most=1)
    site.engine.planning = planning
    connection = site.connect()
    connection.set("epsilon", "1")
    sql = "SELECT beds, COUNT(*) FROM visits JOIN wards USING (ward) GROUP BY beds"
    assert connection.execute(sql).fetchall()
    print(*planning(eval, "list(__import__('sys').modules)"))
    planning.close()
    site.close()
"""


def test_no_process_reaches_rows(connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "loaded.py").write_text(LOADED)
    command = [sys.executable, str(tmp_path / "loaded.py"), str(connection.catalog.path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(dpsql.__file__).parents[1])}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    loaded = told.stdout.split()
    assert "dpsql.sql.compose" in loaded
    assert not [each for each in loaded if "vault" in each or each == "dpsql.engine.engine"]


def test_who_finds_no_process_free_waits_for_one(planning: PlanningProcesses) -> None:
    found: list[int] = []

    def ask(number: int) -> None:
        found.append(planning(abs, -number))

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == list(range(8))
    assert planning.busy == 0


def test_who_asks_for_much_at_once_leaves_the_last_places_to_others() -> None:
    planning, ended = PlanningProcesses(most=3, room=1 << 28), threading.Semaphore(0)

    def ask() -> None:
        with suppress(OperationalError):
            planning(eval, "__import__('time').sleep(600)", whose="one")
        ended.release()

    try:
        threads = [threading.Thread(target=ask, daemon=True) for _ in range(6)]
        for each in threads:
            each.start()
        deadline = time.monotonic() + 60
        while planning.busy < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        found: list[int] = []
        other = threading.Thread(
            target=lambda: found.append(planning(abs, -7, whose="another")), daemon=True
        )
        other.start()
        other.join(60)
        assert found == [7]
        assert planning.busy == 2
    finally:
        planning.close()
    for _ in threads:
        assert ended.acquire(timeout=60)
