"""The twin answers whoever needs it, whatever has died; analysts do not see each other in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from dpsql.errors import OperationalError
from dpsql.server import catalog_twin as twins
from dpsql.server.catalog_twin import Twin, TwinError, open_twin

ASKED = "SELECT relname FROM pg_class WHERE relname = 'visits'"
TABLES = (("visits", "privacy unit: row", (("age", "integer", "0 to 9"),)),)


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    found = open_twin("auto", "clinic")
    found.declare(TABLES)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _never_started(twin: Twin) -> None:
    twin._starts.clear()


def end_all(twin: Twin) -> None:
    assert twin.folder is not None
    number = int((twin.folder / "postmaster.pid").read_text().split()[0])
    os.kill(number, signal.SIGKILL)
    while twins.is_running(twin.folder):
        pass


def end_one(twin: Twin) -> None:
    """Kill the process of a connection: PostgreSQL ends all others, and recovers."""
    with twin.lent("ana") as connection:
        number = connection.backend_pid
    os.kill(number, signal.SIGKILL)


ENDS: dict[str, Callable[[Twin], None]] = {"all of it": end_all, "one process": end_one}


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("how", ["run", "describe", "declare", "alive", "in the middle"])
def test_whoever_needs_it_gets_one_that_lives(twin: Twin, what: str, how: str) -> None:
    reader = twin.reader("ana")
    assert len(reader.run(ASKED)[0] or ()) == 1
    if how == "in the middle":

        def ask(connection: object) -> int:
            if not ended:
                ended.append(True)
                ENDS[what](twin)
            connection.send_query(ASKED.encode())  # type: ignore[attr-defined]
            return int(twins._last_of(connection).ntuples)  # type: ignore[arg-type]

        ended: list[bool] = []
        assert reader._asked(ASKED, ask) == 1
        return
    ENDS[what](twin)
    if how == "describe":
        assert reader.describe(ASKED, [])[1][0].name == "relname"
    elif how == "declare":
        twin.declare((*TABLES, ("other", "", (("x", "text", ""),))))
    elif how == "alive":
        assert twin.is_alive()
    assert len(reader.run(ASKED)[0] or ()) == 1


def test_one_that_dies_again_and_again_is_given_up_for_a_while(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twins, "STARTS", 1)
    end_all(twin)
    assert twin.is_alive()
    end_all(twin)
    assert not twin.is_alive()
    with pytest.raises(OperationalError, match="has died 1 times"):
        twin.reader("ana").run(ASKED)
    twin._starts.clear()  # as time does
    assert twin.reader("ana").run(ASKED)[0] is not None


def test_analysts_are_roles_that_neither_see_nor_end_each_other(twin: Twin) -> None:
    seen = "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database()"
    with twin.lent("ana") as ana, twin.lent("bo") as bo:
        for connection, text in ((ana, "SELECT 'of ana'"), (bo, seen)):
            connection.send_query(text.encode())
            found = twins._last_of(connection)
        told = [found.get_value(row, 1) or b"" for row in range(found.ntuples)]
        assert not any(b"of ana" in text for text in told)
        bo.send_query(f"SELECT pg_terminate_backend({ana.backend_pid})".encode())
        with pytest.raises(TwinError) as refused:
            twins._last_of(bo)
        assert refused.value.state == "42501"
    assert twin.role("ana") != twin.role("bo")
    assert "ana" not in twin.role("ana")
