"""A real server that refuses, dies, changes or hides: one clear error, and no untold charge."""

from __future__ import annotations

import datetime as dt
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dpsql
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.dbapi.drafting import draft_catalog
from dpsql.dbapi.site import open_site
from dpsql.errors import Error, UsageError
from dpsql.privacy.doors.check_figures import Figures
from dpsql.privacy.vault.files.database import quote
from dpsql.privacy.vault.servers import postgresql, postgresql_rows, versions
from tests.support.paused import WAIT, Paused
from tests.support.postgres import Server
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 100

[unit.person]

[table.visits]
source = {{ engine = "postgresql", dsn_env = "CLINIC_DSN", table = "{table}", {more} }}
privacy_unit = {{ column = "who", max_rows = 50 }}

[table.visits.column]
ward = {{ type = "text", domain = ["A", "B"], other = true }}
age = {{ type = "integer", domain = [0, 99] }}
"""
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
UNITS = "SELECT ward, COUNT(DISTINCT who) AS n FROM visits WHERE age >= 40 GROUP BY ward"
SECRET = "Ann Example"
BOTH = pytest.mark.parametrize("read", ["stream", "push"])
KEPT = "SELECT count(*) FROM pg_class WHERE relname LIKE 'dpsql_kept%'"


@pytest.fixture
def clinic(database: Server) -> Iterator[Server]:
    database.run("DROP SCHEMA IF EXISTS clinic CASCADE", "CREATE SCHEMA clinic")
    rows = [(f"p{i % 30}", "ABC"[i % 3], i * 7 % 99) for i in range(300)]
    rows.append((SECRET, SECRET, 1))
    database.store("clinic.visits", {"who": "text", "ward": "text", "age": "int"}, rows)
    yield database
    tries = 0
    while database.ask(KEPT) and tries < 200:  # sessions that were killed take a moment to end
        tries += 1
        time.sleep(0.05)
    assert database.ask(KEPT) == 0


def catalog(
    folder: Path, read: str = "stream", more: str = 'version = "1"', table: str = "clinic.visits"
) -> Path:
    path = folder / "clinic.toml"
    text = CATALOG.format(table=table, more=f'read = "{read}", {more}')
    path.write_text(text, encoding="utf-8")
    return path


def refused(work: Callable[[], object]) -> Error:
    with pytest.raises(Error) as caught:
        work()
    error = caught.value
    assert SECRET not in f"{error}{error.hint}"
    assert "secret" not in f"{error}{error.hint}"
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


@BOTH
def test_answers_are_those_of_the_server(read: str, clinic: Server, tmp_path: Path) -> None:
    with zero_noise(), dpsql.connect(catalog(tmp_path, read), epsilon=1) as connection:
        told = dict(connection.explain(COUNT).rows())["rows"]
        assert told.startswith("visits: ")
        assert "postgresql, clinic.visits" in told
        assert dict(connection.execute(COUNT).result.rows) == {"A": 100, "B": 100, "other": 101}
        distinct = dict(connection.execute(UNITS).result.rows)
        asked = "SELECT count(DISTINCT who) FROM clinic.visits WHERE age >= 40 AND ward = 'A'"
        assert distinct["A"] == clinic.ask(asked)


def test_what_is_counted_there_is_shown_before(clinic: Server, tmp_path: Path) -> None:
    with dpsql.connect(catalog(tmp_path, "push"), epsilon=1) as connection:
        told = "\n".join(connection.explain(COUNT).lines())
        assert "counted in postgresql" in told
        assert "GROUP BY id" in told
        assert """WHEN (CAST(t."ward" AS text) COLLATE "C") = 'A'""" in told
        assert "END AS c0" in told
        assert """AS u, (left(md5(concat_ws('|', CAST('...' AS text), (CAST(t."who" AS""" in told
        assert connection.budget.entries == 0
        connection.execute(COUNT)
        known = "\n".join(connection.explain(UNITS).lines())
        assert 'CAST(t."age" AS bigint) AS v1' in known
    with dpsql.connect(catalog(tmp_path, "stream"), epsilon=1) as connection:
        assert "END AS c0" not in "\n".join(connection.explain(UNITS).lines())


def _down(clinic: Server) -> str:
    return clinic.at(host="127.0.0.1", port="1", connect_timeout="2")


def _role(*grants: str) -> Callable[[Server], str]:
    return lambda clinic: clinic.role("reader", ["GRANT USAGE ON SCHEMA clinic TO %s", *grants])


READER = "GRANT SELECT ON clinic.visits TO %s"
SOME = "GRANT SELECT (who, ward) ON clinic.visits TO %s"
FAILURES: dict[str, tuple[Callable[[Server], str], str, str, str]] = {
    "down": (_down, "", "E_DATA", "cannot be reached"),
    "no role": (lambda c: c.at(user="nobody_at_all"), "", "E_DATA", "refuses the login"),
    "no database": (lambda c: c.at(dbname="nothing"), "", "E_DATA", "no such database"),
    "malformed": (lambda c: "host='secret", "", "E_DATA", "malformed"),
    "no table": (
        lambda c: c.address,
        "ALTER TABLE clinic.visits RENAME TO v",
        "E_DATA",
        "no such table",
    ),
    "no column": (
        lambda c: c.address,
        "ALTER TABLE clinic.visits DROP age",
        "E_DATA",
        "no such column",
    ),
    "other type": (
        lambda c: c.address,
        "ALTER TABLE clinic.visits ALTER age TYPE text",
        "E_POLICY",
        "stored as text",
    ),
    "no schema": (lambda c: c.role("reader"), "", "E_DATA", "permission denied"),
    "no grant": (_role(), "", "E_DATA", "permission denied for column"),
    "some columns": (_role(SOME), "", "E_DATA", "permission denied for column 'age'"),
    "row security": (
        _role(READER),
        "ALTER TABLE clinic.visits ENABLE ROW LEVEL SECURITY",
        "E_DATA",
        "row-level security",
    ),
    "view": (
        lambda c: c.address,
        "ALTER TABLE clinic.visits RENAME TO v; CREATE VIEW clinic.visits AS TABLE clinic.v",
        "E_DATA",
        "view = true",
    ),
    "foreign part": (
        lambda c: c.address,
        "DROP FOREIGN DATA WRAPPER IF EXISTS nowhere CASCADE; "
        "CREATE FOREIGN DATA WRAPPER nowhere; "
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nowhere; "
        "CREATE FOREIGN TABLE clinic.more () INHERITS (clinic.visits) SERVER elsewhere",
        "E_DATA",
        "view = true",
    ),
    "addresses": (
        lambda c: c.address,
        "ALTER TABLE clinic.visits ALTER who TYPE inet USING NULL",
        "E_DATA",
        "'who' is stored as a nested or unknown type",
    ),
    "never filled": (
        lambda c: c.address,
        "ALTER TABLE clinic.visits RENAME TO v; "
        "CREATE MATERIALIZED VIEW clinic.visits AS TABLE clinic.v WITH NO DATA",
        "E_DATA",
        "never filled",
    ),
}


@pytest.mark.parametrize("which", FAILURES)
def test_what_does_not_open_charges_nothing(
    which: str, clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, statement, code, why = FAILURES[which]
    monkeypatch.setenv("CLINIC_DSN", address(clinic))
    if statement:
        clinic.run(*statement.split("; "))
    with dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        assert connection.explain(COUNT).statements
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, why in f"{error}") == (code, True), f"{error}"
        assert connection.budget.entries == 0


def test_a_column_that_is_worked_out_when_it_is_read_is_refused(
    clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row may make its expression fail: stored ones, which cannot, stand for it here."""
    made = "ALTER TABLE clinic.visits ADD age int GENERATED ALWAYS AS (7) STORED"
    clinic.run("ALTER TABLE clinic.visits DROP age", made)
    with zero_noise(), dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows)["A"] == 100
    columns = postgresql.COLUMNS.replace("attgenerated = 'v'", "attgenerated = 's'")
    monkeypatch.setattr(postgresql, "COLUMNS", columns)
    with dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        error = refused(lambda: connection.execute(UNITS))
        assert "stored as a nested or unknown type" in f"{error}"


def test_an_address_that_is_not_set_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLINIC_DSN", raising=False)
    with dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        error = refused(lambda: connection.execute(COUNT))
        assert (error.code, "CLINIC_DSN" in f"{error}") == ("E_DATA", True)


@pytest.mark.parametrize("said", ["password authentication failed for user", "no pg_hba.conf"])
def test_a_login_that_is_refused_is_told_without_its_words(
    said: str, clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: object, **__: object) -> object:
        raise psycopg.OperationalError(f'connection failed: FATAL:  {said} "{SECRET}"')

    with dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        with monkeypatch.context() as patched:
            patched.setattr(psycopg, "connect", connect)
            error = refused(lambda: connection.execute(COUNT))
        assert (error.code, "refuses the login" in f"{error}") == ("E_DATA", True)


@BOTH
def test_a_session_that_dies_before_the_debit_charges_nothing(
    read: str, clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zero_noise(), dpsql.connect(catalog(tmp_path, read), epsilon=1) as connection:
        with monkeypatch.context() as patched:
            if read == "stream":
                see = postgresql_rows._see

                def dying(session: Any, snapshot: str) -> None:
                    see(session, snapshot)
                    clinic.end_sessions()

                patched.setattr(postgresql_rows, "_see", dying)
            else:
                keep = postgresql.PostgresCounter.keep

                def late(self: Any, select: str) -> str | None:
                    clinic.end_sessions()
                    return keep(self, select)

                patched.setattr(postgresql.PostgresCounter, "keep", late)
            error = refused(lambda: connection.execute(COUNT))
            assert (error.code, "withheld" in f"{error}") == ("E_INTERNAL", True)
            assert connection.budget.entries == 0
        assert dict(connection.execute(COUNT).result.rows)["A"] == 100
        assert connection.budget.entries == 1


def test_a_session_that_dies_after_the_debit_says_so(
    clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zero_noise(), dpsql.connect(catalog(tmp_path, "push"), epsilon=1) as connection:
        rows = postgresql.PostgresCounter.rows

        def dying(self: Any, select: str) -> Iterator[tuple[int, ...]]:
            clinic.end_sessions()
            return rows(self, select)

        with monkeypatch.context() as patched:
            patched.setattr(postgresql.PostgresCounter, "rows", dying)
            error = refused(lambda: connection.execute(COUNT))
            assert (error.code, "the charge stays" in f"{error}") == ("E_INTERNAL", True)
        assert connection.budget.entries == 1
        assert dict(connection.execute(COUNT).result.rows)["A"] == 100
        assert connection.budget.entries == 2


def test_a_table_of_another_schema_is_another_version(clinic: Server, tmp_path: Path) -> None:
    with dpsql.connect(catalog(tmp_path), epsilon=1) as connection:
        connection.execute(COUNT)
        clinic.run("ALTER TABLE clinic.visits ADD COLUMN more int")
        error = refused(lambda: connection.execute(UNITS))
        assert (error.code, "changed" in f"{error}") == ("E_DATA", True)
        assert connection.budget.entries == 1


@BOTH
def test_rows_that_come_are_no_new_version(read: str, clinic: Server, tmp_path: Path) -> None:
    with dpsql.connect(catalog(tmp_path, read), epsilon=1) as connection:
        connection.execute(COUNT)
    clinic.run("INSERT INTO clinic.visits VALUES ('new', 'A', 3)")
    with dpsql.connect(catalog(tmp_path, read), epsilon=1) as connection:
        again = connection.execute(COUNT).result
        assert again.cost is not None
        assert again.cost.free
        assert connection.budget.entries == 1
    with dpsql.connect(catalog(tmp_path, read, 'version = "2"'), epsilon=1) as connection:
        connection.execute(COUNT)
        assert connection.budget.entries == 2


def test_a_clock_makes_versions(
    clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = catalog(tmp_path, more='refresh = "day"')
    for when, entries in (((5, 1), 1), ((5, 23), 1), ((6, 0), 2)):
        monkeypatch.setattr(versions, "now", lambda when=when: dt.datetime(2026, 11, *when))
        with dpsql.connect(path, epsilon=1) as connection:
            connection.execute(COUNT)
            assert connection.budget.entries == entries


def test_a_session_goes_on_when_a_period_ends(
    clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sums = catalog(tmp_path, more='refresh = "hour"'), []
    clinic.run("DELETE FROM clinic.visits")
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        for hour, entries in ((1, 1), (1, 1), (2, 2)):
            now = dt.datetime(2026, 11, 5, hour)
            monkeypatch.setattr(versions, "now", lambda now=now: now)
            clinic.run("INSERT INTO clinic.visits VALUES ('p', 'A', 3)")
            sums.append(dict(connection.execute(COUNT).result.rows)["A"])
            assert connection.budget.entries == entries
    assert sums == [1, 1, 3]


@BOTH
def test_settings_of_a_role_change_nothing(
    read: str, clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "TimeZone": "America/New_York",
        "statement_timeout": "500",
        "idle_session_timeout": "9000",
        "transform_null_equals": "on",
        "extra_float_digits": "-15",
        "bytea_output": "escape",
        "standard_conforming_strings": "off",
        "search_path": "clinic, public, pg_catalog",
        "default_transaction_read_only": "on",
        "default_transaction_isolation": "serializable",
        "row_security": "on",
        "DateStyle": "SQL, DMY",
        "enable_seqscan": "off",
    }
    address = _role(READER)(clinic)
    role = address.partition("user=")[2].split()[0]
    for name, value in settings.items():
        clinic.run(f"ALTER ROLE {role} SET {name} = {value}" if "," in value else
                   f"ALTER ROLE {role} SET {name} = '{value}'")  # fmt: skip
    clinic.run(
        "CREATE FUNCTION clinic.md5(text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$",
        "CREATE FUNCTION clinic.round(float8) RETURNS float8 LANGUAGE sql AS $$ SELECT 7.0 $$",
    )
    monkeypatch.setenv("CLINIC_DSN", address)
    with zero_noise(), dpsql.connect(catalog(tmp_path, read), epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows) == {"A": 100, "B": 100, "other": 101}


def test_without_temporary_tables_each_statement_works_out_the_codes(
    clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic.run(f"REVOKE TEMP ON DATABASE {clinic.ask('SELECT current_database()')} FROM PUBLIC")
    monkeypatch.setenv("CLINIC_DSN", _role(READER)(clinic))
    with zero_noise(), dpsql.connect(catalog(tmp_path, "push"), epsilon=1) as connection:
        assert dict(connection.execute(COUNT).result.rows) == {"A": 100, "B": 100, "other": 101}
        assert dict(connection.execute(UNITS).result.rows)["A"] > 0


def test_one_ledger_for_a_table_and_its_partitions(clinic: Server, tmp_path: Path) -> None:
    clinic.run(
        "CREATE TABLE clinic.all (LIKE clinic.visits) PARTITION BY LIST (ward)",
        "CREATE TABLE clinic.some PARTITION OF clinic.all DEFAULT",
        "INSERT INTO clinic.all TABLE clinic.visits",
    )
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with dpsql.connect(catalog(tmp_path / "one", table="clinic.all"), epsilon=1) as connection:
        connection.execute(COUNT)
    with dpsql.connect(catalog(tmp_path / "other", table="clinic.some"), epsilon=1) as connection:
        assert refused(lambda: connection.execute(COUNT)).code == "E_LEDGER_MISMATCH"
        assert connection.budget.entries == 0


JOINED = """
[table.patients]
source = { engine = "postgresql", dsn_env = "CLINIC_DSN", table = "clinic.patients", version = "1" }
privacy_unit = { column = "who", max_rows = 1 }

[table.patients.column]
sex = { type = "text", domain = ["f", "m"] }
"""


def test_tables_of_one_request_are_of_one_snapshot(
    clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic.run(
        "CREATE TABLE clinic.patients AS SELECT DISTINCT who, "
        "CASE WHEN who < 'p2' THEN 'f' ELSE 'm' END AS sex FROM clinic.visits"
    )
    path = catalog(tmp_path)
    path.write_text(path.read_text("utf-8") + JOINED, encoding="utf-8")
    batch = postgresql.SentColumns.batch

    def writing(self: Any, found: Any) -> Any:
        clinic.run("INSERT INTO clinic.visits VALUES ('p1', 'A', 3)", "DELETE FROM clinic.patients")
        return batch(self, found)

    monkeypatch.setattr(postgresql.SentColumns, "batch", writing)
    joined = "SELECT sex, COUNT(*) AS n FROM visits JOIN patients USING (who) GROUP BY sex"
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        found = dict(connection.execute(joined).result.rows)
        assert sum(found.values()) == 301


def test_a_catalog_is_drafted_and_checked(clinic: Server, tmp_path: Path) -> None:
    text = draft_catalog("postgresql:clinic.visits", dsn_env="CLINIC_DSN")
    assert 'engine = "postgresql", dsn_env = "CLINIC_DSN", table = "clinic.visits"' in text
    assert "age  = { type = " in text
    assert SECRET not in text
    (found,) = examine(chosen_tables(catalog(tmp_path), None))
    assert isinstance(found, Figures)
    assert (found.kind, found.rows, found.units) == ("postgresql", 301, 31)
    with pytest.raises(UsageError, match="no such table"):
        draft_catalog("postgresql:clinic.none", dsn_env="CLINIC_DSN")
    clinic.run("CREATE VIEW clinic.few AS SELECT * FROM clinic.visits WHERE age < 9")
    tables = tomllib.loads(draft_catalog("postgresql:clinic.*", dsn_env="CLINIC_DSN"))["table"]
    assert {"few", "visits"} <= tables.keys()
    assert (tables["few"]["source"]["view"], "view" in tables["visits"]["source"]) == (True, False)
    clinic.run("DROP VIEW clinic.few")
    with pytest.raises(UsageError, match="no table"):
        draft_catalog("postgresql:nowhere.*", dsn_env="CLINIC_DSN")


ODD = [("S", "my table"), ("S", "a.b"), ("S", "order"), ("public", "Odd"), ("public", 'x"y')]


def test_tables_with_any_name_are_drafted_and_read(clinic: Server, tmp_path: Path) -> None:
    clinic.run('DROP SCHEMA IF EXISTS "S" CASCADE', 'CREATE SCHEMA "S"')
    for schema, name in ODD:
        clinic.run(
            f"DROP TABLE IF EXISTS {quote(schema)}.{quote(name)}",
            f"CREATE TABLE {quote(schema)}.{quote(name)} AS TABLE clinic.visits",
        )
    drafted = []
    for schema in ('"S"', "PUBLIC"):
        text = draft_catalog(f"postgresql:{schema}.*", dsn_env="CLINIC_DSN")
        drafted += [each["source"]["table"] for each in tomllib.loads(text)["table"].values()]
    named = [f"{quote(schema) if schema == 'S' else schema}.{quote(name)}" for schema, name in ODD]
    assert set(named) <= set(drafted)
    for number, name in enumerate([*named[:3], '"Odd"', 'PUBLIC."x""y"']):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        path = catalog(folder, table=name.replace('"', '\\"'))
        with zero_noise(), dpsql.connect(path, epsilon=1, delta=0) as connection:
            assert dict(connection.execute(COUNT).result.rows)["A"] == 100
    for name in ("public.Odd", "a.b.c", "clinic.public.visits"):
        folder = tmp_path / name
        folder.mkdir()
        with dpsql.connect(catalog(folder, table=name), epsilon=1) as connection:
            error = refused(partial(connection.execute, COUNT))
            assert (error.code, "capitals" in f"{error.hint}") == ("E_DATA", True)
    clinic.run('DROP SCHEMA "S" CASCADE')
    for schema, name in ODD[3:]:
        clinic.run(f"DROP TABLE {schema}.{quote(name)}")


def test_a_session_that_died_between_requests_is_opened_again(
    clinic: Server, tmp_path: Path
) -> None:
    with zero_noise(), dpsql.connect(catalog(tmp_path, "push"), epsilon=1) as connection:
        connection.execute(COUNT)
        clinic.end_sessions()
        assert dict(connection.execute(UNITS).result.rows)["A"] > 0
        assert connection.budget.entries == 2


@BOTH
def test_nobody_waits_for_a_long_run(
    read: str, clinic: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, site = Paused(monkeypatch), open_site(catalog(tmp_path, read))
    options = "OPTIONS (epsilon = 9, model = 'mwem', rounds = 1)"
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with site.connect() as connection:
                connection.execute(f"CREATE SYNTHETIC TABLE s FROM visits {options} FOR ({COUNT})")
        except BaseException as error:
            failed.append(error)

    runner = threading.Thread(target=run)
    runner.start()
    try:
        assert paused.begun.wait(WAIT), failed
        with site.connect() as other:
            other.set("epsilon", "1")
            done = []
            asked = threading.Thread(target=lambda: done.append(other.execute(UNITS).fetchall()))
            asked.start()
            asked.join(WAIT)
            assert len(done) == 1
            site.engine.reopen()  # the rows that it looks at are its own
            paused.go.set()
            runner.join(WAIT)
            assert failed == []
            states = [each.state for each in other.entries() if each.kind == "debit"]
            assert states == ["released", "released"]
            found = dict(other.execute("SELECT ward, COUNT(*) FROM s GROUP BY ward").fetchall())
            assert found.keys() >= {"A", "B"}
    finally:
        paused.go.set()
        runner.join(WAIT)
        site.close()
