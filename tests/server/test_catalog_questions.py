"""Questions for the twin: listed functions alone reach it, and nobody else waits for it."""

from __future__ import annotations

import random
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsql.errors import ProgrammingError, UsageError
from dpsql.server import catalog_questions
from dpsql.server.catalog_questions import LISTED, refusal
from dpsql.server.catalog_twin import Twin, open_twin
from dpsql.server.messages import MOST_SECRET
from dpsql.server.scram import Verifier
from dpsql.server.server import Server
from dpsql.server.twin_connection import TwinError, all_of
from dpsql.server.users import Users
from dpsql.sql.text import lexemes
from tests.server.test_clients import PSQL
from tests.support.effort import effort
from tests.support.paged import Knocker, paged
from tests.support.served import PASSWORD, Client, kinds, served, told, write_served

SLOW = "SELECT count(*) FROM pg_proc a, pg_class b, generate_series(1, 30) c"
HIDDEN = (
    "SELECT {f}(4)",
    "SELECT pg_catalog.{f} (4)",
    'SELECT "{f}"(4)',
    'SELECT pg_catalog . "{f}" (4)',
    "SELECT {f}/* a */(4)",
    "SELECT {f} -- a\n (4)",
    "SELECT 'a\\' || {f}(4) || '",
    "SELECT E'\\'' || {f}(4) || '--'",
    "WITH a AS (SELECT {f}(4)) SELECT * FROM a",
    "SELECT * FROM pg_class, LATERAL {f}(4) b",
    "SELECT * FROM pg_class a ORDER BY {f}(4)",
    "SELECT DISTINCT ON (1) {f}(b) FROM (SELECT 4 b) a",
    "EXPLAIN SELECT {f}(4)",
    "EXPLAIN (ANALYZE) SELECT {f}(4)",
    "VALUES ({f}(4))",
    "SELECT 1 OPERATOR(pg_catalog.+) {f}(4)",
    "SELECT $${f}(4)$$, {f}(4)",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    catalog = write_served(tmp_path_factory.mktemp("served"))
    with served(catalog, open_twin("auto", "clinic")) as found:
        yield found


@pytest.fixture
def twin(server: Server) -> Twin:
    with Client(server.port) as client:
        client.start()
        client.ask("SELECT 1")
    assert server.databases.first.twin is not None
    return server.databases.first.twin


def functions(twin: Twin) -> list[str]:
    found = twin.server.administer(twin.database, "SELECT DISTINCT proname FROM pg_proc ORDER BY 1")
    return [(row[0] or b"").decode() for row in found]


def test_no_function_that_is_not_listed_reaches_the_twin(twin: Twin) -> None:
    """Of all functions that PostgreSQL has, however a call is written."""
    rng = random.Random(5)
    known = functions(twin)
    refused = [name for name in known if name.lower() not in LISTED and name[:4] != "_pg_"]
    assert {"pg_sleep", "repeat", "pg_terminate_backend", "query_to_xml"} < set(refused)
    for name in ["pg_sleep", *rng.choices(refused, k=effort(300))]:
        for form in HIDDEN:
            spelt = "".join(rng.choice((each, each.upper())) for each in name)
            sql = form.format(f=spelt if rng.random() < 0.3 else name)
            assert refusal(sql, twin.refused) is not None, sql
            with pytest.raises(TwinError, match="is not answered here"):
                twin.reader(None).run(sql)
            with pytest.raises(TwinError):
                twin.reader(None).describe(sql, [])


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT U&"pg\\005fsleep"(4)',
        "DO $$ BEGIN PERFORM 1; END $$",
        "/* /* */ SELECT */ DO $$ BEGIN END $$",
        "SELECT set_config('statement_timeout', '0', false)",
        "SELECT set_config('search_' || 'path', '0', false)",
        "SELECT format('%99999999s', '')",
        "SELECT format('%*s', 99999999, '')",
        "SELECT format('%' || '99999999s', '')",
        "SELECT format(E'%\\x39s', '')",
        "SELECT set_config(setting_name => 'role', new_value => 'x', is_local => false)",
    ],
)
def test_what_is_no_question_is_refused(sql: str, twin: Twin) -> None:
    with pytest.raises(TwinError, match=r"is not answered here|are not answered|alone"):
        twin.reader(None).run(sql)


def test_what_is_listed_exists_and_is_answered(twin: Twin) -> None:
    """One that is misspelt in the list would be refused, and nobody would know why."""
    spelt_otherwise = {"current_user", "session_user"}  # PostgreSQL's grammar has them
    assert LISTED - set(functions(twin)) - spelt_otherwise <= set()
    calls = "version(), current_schema(), pg_my_temp_schema(), upper('a'), format('%I', 'a')"
    assert twin.reader(None).run(f"SELECT {calls}, pg_get_userbyid(relowner) FROM pg_class LIMIT 1")


def test_all_commands_of_psql_that_describe_are_answered(server: Server, tmp_path: Path) -> None:
    letters = "d d+ da dA dAc dAf dAo dAp db dc dC dd dD ddp dE dew des det deu df df+ dF dFd dFp"
    more = "dFt di dl dL dm dn dn+ do dO dp dP drds dRp dRs ds dt dt+ dT dT+ du dv dx dX dy l l+ z"
    script = tmp_path / "script.sql"
    names = ["t", "pg_class", "pg_stats", "information_schema.tables", "pg_class_oid_index"]
    commands = [f"\\{each}" for each in f"{letters} {more}".split()]
    script.write_text("\n".join([*commands, *(f"\\d+ {name}" for name in names), ""]))
    found = subprocess.run(
        [PSQL, "-h", "127.0.0.1", "-p", str(server.port), "-U", "ana", "-f", script, "clinic"],
        env={"PGPASSWORD": PASSWORD, "PATH": "/usr/bin:/bin", "PGCLIENTENCODING": "UTF8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "answered" not in found.stderr
    assert "pg_catalog" in found.stdout


def test_nobody_waits_while_the_twin_works(server: Server) -> None:
    """The longest silence of a thread that only counts is a small part of what the twin takes."""
    gaps: list[float] = []
    is_over = threading.Event()

    def count() -> None:
        before = time.perf_counter()
        while not is_over.wait(0.01):
            now = time.perf_counter()
            gaps.append(now - before)
            before = now

    with Client(server.port) as ana:
        assert ana.start()[-1][0] == b"Z"
        ana.ask("SELECT 1")
        beat = threading.Thread(target=count)
        beat.start()
        start = time.perf_counter()
        ana.ask(SLOW)
        taken = time.perf_counter() - start
        is_over.set()
        beat.join()
    assert max(gaps) < taken / 2


def test_the_twin_is_waited_for_by_its_socket_alone(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is busy is asked for no result: libpq would wait for it with Python's lock."""
    from dpsql.server import catalog_twin

    real, early = all_of, []

    class Strict:
        def __init__(self, connection: object) -> None:
            self.connection = connection

        def __getattr__(self, name: str) -> object:
            if name == "get_result":
                early.append(self.connection.is_busy())  # type: ignore[attr-defined]
            return getattr(self.connection, name)

    monkeypatch.setattr(catalog_twin, "all_of", lambda connection: real(Strict(connection)))  # type: ignore[arg-type]
    assert twin.reader(None).run("SELECT relname FROM pg_class")
    assert early
    assert not any(early)


def test_a_long_message_is_refused_by_its_length(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = [0]

    class Counting:
        def finditer(self, text: str) -> Iterator[re.Match[str]]:
            for match in real.finditer(text):
                read[0] = max(read[0], match.end())
                yield match

    real = lexemes._LEXEME
    monkeypatch.setattr(lexemes, "_LEXEME", Counting())
    long = "SELECT 1 " + "+ 1" * 700_000
    with pytest.raises(ProgrammingError, match="E_TOO_LARGE"):
        lexemes.split_statements(long)
    assert read[0] < lexemes.MAX_STATEMENT + 10
    with Client(server.port) as ana:
        assert ana.start()[-1][0] == b"Z"
        for kind in ("simple", "extended"):
            if kind == "simple":
                found = ana.ask(long)
            else:
                ana.parse(long)
                found = ana.sync()
            assert told(found)[0]["C"] == "54000"
            assert kinds(ana.ask("SHOW show_stddev")) == "TDCZ"


def test_a_long_password_is_refused_before_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = write_served(tmp_path)
    with paged(catalog) as page:
        monkeypatch.setattr(Verifier, "matches", lambda *_: pytest.fail("it was worked on"))
        for name in ("ana", "nobody"):
            found = Knocker(page.port).enter(name, "x" * (MOST_SECRET + 1))
            assert found.status == 400
    with pytest.raises(UsageError, match="bytes"):
        Users(tmp_path / "u.users").put("ana", "x" * (MOST_SECRET + 1), new=True)


def test_a_planted_hole_is_found(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_questions, "_CALL", re.compile(r"(\w+)\("))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_no_function_that_is_not_listed_reaches_the_twin(twin)
