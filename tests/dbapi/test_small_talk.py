"""What clients ask besides data: constants, columns, settings; and workloads that are given up."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from dpsql import Error, ProgrammingError
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.site import open_site
from dpsql.server.session_worker import SessionWorker
from dpsql.server.statements import StatementRunner
from dpsql.sql.text.lexemes import split_statements

CATALOG = """
[budget]
epsilon = 3.0
delta = 0.0
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["Female", "Male"] }
code = { type = "text", domain = ["a", "b", "c", "d", "e", "f", "g", "h"] }
"""
COUNT = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "people.csv").write_text("sex,code\n" + "Male,a\nFemale,b\n" * 50)
    (tmp_path / "people.toml").write_text(CATALOG)
    return tmp_path / "people.toml"


@pytest.fixture
def connection(catalog: Path) -> Iterator[Connection]:
    with dpsql.connect(catalog, epsilon=0.5) as opened:
        yield opened


def test_constants_are_answered_by_themselves(connection: Connection) -> None:
    sql = "SELECT 1, -2.5 AS x, 'it''s' AS \"a b\", TRUE, NULL, DATE '2024-02-01', version()"
    cursor = connection.execute(sql)
    head = [column[:2] for column in cursor.description or ()]
    assert [name for name, _ in head][:3] == ["1", "x", "a b"]
    assert [kind for _, kind in head] == [
        *("integer", "number", "text", "boolean", "text", "date", "text"),
    ]
    version = f"dpsql {dpsql.__version__}"
    assert cursor.fetchall() == [(1, -2.5, "it's", True, None, dt.date(2024, 2, 1), version)]
    assert connection.execute("SELECT ? AS a", [7]).fetchall() == [(7,)]
    assert [each.name for each in connection.describe("SELECT 1 AS a, 'x' AS b")] == ["a", "b"]
    assert connection.budget.entries == 0
    script = connection.executescript(f"SELECT 1; {COUNT}; SELECT 2")
    assert script.fetchall() == [(1,)]
    assert script.nextset()
    assert len(script.fetchall()) == 2
    assert script.nextset()
    assert script.fetchall() == [(2,)]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [("SELECT 1 + 1", [(2,)]), ("SELECT 1 WHERE TRUE", [(1,)]), ("SELECT 1,", [(1,)])],
)
def test_expressions_of_constants_are_answered_free(
    connection: Connection, sql: str, rows: list[tuple[int]]
) -> None:
    assert connection.execute(sql).fetchall() == rows
    assert connection.budget.entries == 0


@pytest.mark.parametrize("sql", ["SELECT", "SELECT ,", "SELECT now()"])
def test_what_is_no_constant_is_refused_as_before(connection: Connection, sql: str) -> None:
    with pytest.raises(Error):
        connection.execute(sql)


def test_settings_columns_and_one_column_are_shown(connection: Connection) -> None:
    rows = connection.execute("SHOW ALL").fetchall()
    assert ("epsilon", "0.5", "what each request costs") in rows
    assert [row[0] for row in rows] == list(connection.settings)
    for sql in (
        "SHOW COLUMNS FROM people",
        'SHOW COLUMNS IN "people"',
        "SHOW COLUMNS FROM main.people",
    ):
        assert (
            connection.execute(sql).fetchall() == connection.execute("DESCRIBE people").fetchall()
        )
    one = connection.execute("DESCRIBE people.code").fetchall()
    assert one == [("code", "text", "a, b, c, d, e, f, g, h", 8)]
    for sql, code in [
        ("DESCRIBE people.nothing", "E_UNKNOWN_COLUMN"),
        ("DESCRIBE nothing.code", "E_UNKNOWN_TABLE"),
        ("SHOW COLUMNS FROM nothing", "E_UNKNOWN_TABLE"),
        ("SHOW COLUMNS", "E_SETTING"),
        ("SHOW ALL people", "E_SETTING"),
    ]:
        with pytest.raises(ProgrammingError) as caught:
            connection.execute(sql)
        assert caught.value.code == code


@pytest.mark.parametrize("words", ["CANCEL WORKLOAD", "ROLLBACK", "rollback work;"])
def test_a_workload_is_foreseen_and_given_up(connection: Connection, words: str) -> None:
    with pytest.raises(ProgrammingError, match="no workload is open"):
        connection.execute("EXPLAIN RUN WORKLOAD")
    connection.execute("BEGIN WORKLOAD")
    with pytest.raises(ProgrammingError, match="it is empty"):
        connection.execute("EXPLAIN RUN WORKLOAD")
    connection.execute(COUNT)
    connection.execute("SELECT COUNT(*) AS all_of_them FROM people")
    lines = [row[0] for row in connection.execute("EXPLAIN RUN WORKLOAD").fetchall()]
    assert lines == list(connection.explain("RUN WORKLOAD").lines())
    assert any("2 statements" in line for line in lines)
    assert connection.workload == 2
    said = connection.execute(words).result.message
    assert said == "workload of 2 statements is forgotten; nothing was charged for it"
    assert connection.workload is None
    assert "no workload is open" in (connection.execute(words).result.message or "")
    assert connection.budget.entries == 0
    assert len(connection.execute(COUNT).fetchall()) == 2


@pytest.mark.parametrize("words", ["CANCEL WORKLOAD", "ROLLBACK", "EXPLAIN RUN WORKLOAD"])
def test_giving_up_stands_alone(connection: Connection, words: str) -> None:
    for script in (f"BEGIN WORKLOAD; {COUNT}; {words}; RUN WORKLOAD", f"{COUNT}; {words}"):
        with pytest.raises(ProgrammingError, match="stand alone"):
            connection.executescript(script)
    assert connection.workload is None
    connection.execute("BEGIN WORKLOAD")
    connection.execute(COUNT)
    assert connection.executescript(words).result
    assert connection.budget.entries == 0


def test_over_the_wire_a_rollback_forgets_the_workload(catalog: Path) -> None:
    site = open_site(catalog)
    asker = StatementRunner(site, None, None)
    worker = SessionWorker(None, asker)  # type: ignore[arg-type]

    def say(sql: str) -> str:
        (fragment,) = split_statements(sql)
        return worker.carry_out(asker.route(fragment), sql).tag

    assert say("SELECT 1") == "SELECT"
    assert say("ROLLBACK") == "ROLLBACK"
    for words in ("ROLLBACK", "CANCEL WORKLOAD"):
        assert say("BEGIN WORKLOAD") == "BEGIN WORKLOAD"
        say("SET epsilon = 0.5")
        say(COUNT)
        assert asker.connection.workload == 1
        assert say("COMMIT") == "COMMIT"
        assert asker.connection.workload == 1
        assert say("EXPLAIN RUN WORKLOAD") == "EXPLAIN"
        assert say(words) == words
        assert asker.connection.workload is None
    asker.close()
    site.close()
