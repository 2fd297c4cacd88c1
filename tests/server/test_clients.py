"""Clients that people use, each against a server with its twin."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path
from urllib.parse import quote

import adbc_driver_postgresql.dbapi as adbc
import asyncpg
import pandas as pd
import pg8000.native
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa

from dpsql.server.catalog_twin import Twin, open_twin
from dpsql.server.result_stream import STDDEV
from dpsql.server.server import Server
from dpsql.server.twin_connection import TwinError
from tests.support.jdbc import java, read
from tests.support.pages import DOCS, blocks
from tests.support.served import PASSWORD, served, write_served

COUNT = "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind"
PSQL = next(
    str(each.locate()) for each in files("pgserver") or () if str(each).endswith("bin/psql")
)
"""The client that comes with the twin."""
KINDS = ["x", "y", "it's"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    catalog = write_served(tmp_path_factory.mktemp("served"))
    with served(catalog, open_twin("auto", "clinic")) as found:
        yield found


@pytest.fixture
def dsn(server: Server) -> str:
    return f"host=127.0.0.1 port={server.port} user=ana password='{PASSWORD}' dbname=clinic"


@pytest.fixture
def twin(server: Server, dsn: str) -> Twin:
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT 1")
    assert server.databases.first.twin is not None
    return server.databases.first.twin


def test_psycopg(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        heard: list[str | None] = []
        connection.add_notice_handler(lambda told: heard.append(told.message_primary))
        connection.execute("SET epsilon = 0.1")
        found = connection.execute(COUNT).fetchall()
        assert [kind for kind, _ in found] == KINDS
        assert heard[0] == "charged: epsilon 0.1 (laplace)"
        sql = "SELECT COUNT(*) FROM t WHERE kind = %s AND size > %s"
        plain = connection.execute(sql, ("it's", 3)).fetchall()
        assert connection.execute(sql, ("it's", 3), prepare=True, binary=True).fetchall() == plain
        with connection.cursor(name="c") as cursor:
            cursor.execute(COUNT)
            assert cursor.fetchmany(2) + cursor.fetchall() == found
        with connection.cursor().copy(f"COPY ({COUNT}) TO STDOUT") as copy:
            assert b"".join(map(bytes, copy)).startswith(b"x\t")
        with connection.pipeline():
            one, two = connection.execute(COUNT), connection.execute("SELECT 1")
        assert (one.fetchall(), two.fetchall()) == (found, [(1,)])
        with pytest.raises(psycopg.errors.UndefinedColumn) as refused:
            connection.execute("SELECT COUNT(nope) FROM t")
        assert refused.value.diag.statement_position == "14"


@pytest.mark.parametrize("page", ["analyst.md", "howto/tools.md"])
def test_the_address_of_the_guide_is_one(server: Server, page: str) -> None:
    (address,) = re.findall(r"^postgresql.*$", "".join(blocks(DOCS / page, "")), re.MULTILINE)
    place = f"ana:{quote(PASSWORD)}@127.0.0.1:{server.port}"
    assert "ana@clinic.example" in address
    engine = sa.create_engine(address.replace("ana@clinic.example", place))
    with engine.connect() as connection:
        assert [*connection.execute(sa.text(COUNT)).keys()] == ["kind", "n", f"n{STDDEV}"]
    engine.dispose()


def test_the_session_of_the_guide_is_told_what_it_shows(dsn: str) -> None:
    (block,) = [each for each in blocks(DOCS / "server.md", "") if "=> " in each]
    told: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.add_notice_handler(
            lambda each: told.append(
                f"NOTICE:  {each.message_primary}\nDETAIL:  {each.message_detail}"
            )
        )
        for sql in re.findall("^hospital=> (.*)$", block, re.MULTILINE):
            connection.execute(sql.replace("visits", "t").replace("ward", "kind").encode())
    shown = re.escape(block[block.index("NOTICE") :].strip())
    form = re.sub(r"entry\\ \d+", r"entry\\ \\d+", shown).replace(r"41e0\.\.\.", "[0-9a-f]+")
    assert re.fullmatch(form, told[0])


def test_psycopg2(dsn: str) -> None:
    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    cursor.execute("SET epsilon = 0.1")
    cursor.execute("SELECT size, COUNT(*) FROM t WHERE kind = %s GROUP BY size", ("it's",))
    assert len(cursor.fetchall()) == 10
    named = connection.cursor("named")
    named.execute(COUNT)
    assert [kind for kind, _ in named.fetchall()] == KINDS
    connection.commit()
    connection.close()


def test_asyncpg(server: Server) -> None:
    async def ask() -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=server.port, user="ana", password=PASSWORD, database="clinic"
        )
        await connection.execute("SET epsilon = 0.1")
        sql = "SELECT kind, COUNT(*) FROM t WHERE size > $1 AND kind <> $2 GROUP BY kind LIMIT $3"
        found = await connection.fetch(sql, 3, "y", 1)
        assert [row["kind"] for row in found] == ["x"]
        assert await connection.fetchval("SELECT 41 + $1::int", 1) == 42
        await connection.close()

    asyncio.run(ask())


def test_pg8000(server: Server) -> None:
    connection = pg8000.native.Connection(
        "ana", host="127.0.0.1", port=server.port, password=PASSWORD, database="clinic"
    )
    connection.run("SET epsilon = 0.1")
    found = connection.run("SELECT size, COUNT(*) FROM t WHERE kind = :k GROUP BY size", k="it's")
    assert len(found) == 10
    connection.close()


def test_adbc(server: Server) -> None:
    uri = f"postgresql://ana:{quote(PASSWORD)}@127.0.0.1:{server.port}/clinic"
    with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET epsilon = 0.1")
        cursor.execute(COUNT)
        found = cursor.fetch_arrow_table()
        assert found["kind"].to_pylist() == KINDS
        assert [str(each) for each in found.schema.types] == ["string", "int64"]
        sql = "SELECT size, day, COUNT(*) FROM t WHERE kind = $1 AND size < $2 GROUP BY size, day"
        cursor.execute(sql, ("it's", 2))
        found = cursor.fetch_arrow_table()
        assert [str(each) for each in found.schema.types] == ["int64", "date32[day]", "int64"]
        assert found.num_rows == 6
        assert connection.adbc_get_table_schema("t").names == ["kind", "size", "day", "cost"]
        known = connection.adbc_get_objects(depth="tables", table_name_filter="t").read_all()
        tables = [
            table["table_name"]
            for database in known.to_pylist()
            for schema in database["catalog_db_schemas"] or ()
            for table in schema["db_schema_tables"] or ()
        ]
        assert tables == ["t"]
        with pytest.raises(adbc.ProgrammingError) as refused:
            cursor.execute("SELECT nope FROM t")
        assert refused.value.sqlstate == "42703"


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000"])
def test_sqlalchemy_and_pandas(server: Server, driver: str) -> None:
    url = sa.URL.create(f"postgresql+{driver}", "ana", PASSWORD, "127.0.0.1", server.port, "clinic")
    engine = sa.create_engine(url)
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["t"]
    assert [each["name"] for each in inspector.get_columns("t")] == ["kind", "size", "day", "cost"]
    assert inspector.get_columns("t")[1]["comment"] == "0 to 9"
    with engine.connect() as connection:
        connection.execute(sa.text("SET epsilon = 0.1"))
        table = sa.Table("t", sa.MetaData(), autoload_with=engine)
        query = sa.select(table.c.kind, sa.func.count()).where(table.c.size > 3)
        found = connection.execute(query.group_by(table.c.kind)).fetchall()
        assert [kind for kind, _ in found] == KINDS
        frame = pd.read_sql(sa.text(COUNT), connection)
        assert frame["n"].dtype == "int64"
        assert list(frame["kind"]) == KINDS
    engine.dispose()


def test_psql(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        f"SET epsilon = 0.1;\n\\dt\n\\d t\n{COUNT};\nSELECT COUNT(nope) FROM t;\n\\q\n"
    )
    found = subprocess.run(
        [PSQL, "-h", "127.0.0.1", "-p", str(server.port), "-U", "ana", "-f", script, "clinic"],
        env={"PGPASSWORD": PASSWORD, "PATH": "/usr/bin:/bin", "PGCLIENTENCODING": "UTF8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert " public | t    | table" in found.stdout
    assert "double precision" in found.stdout
    assert "(3 rows)" in found.stdout
    assert "there is no column 'nope'" in found.stderr
    assert "LINE 1: SELECT COUNT(nope) FROM t" in found.stderr


WHERE = "SELECT COUNT(*) FROM t WHERE "
TAKES_LONG = {
    "reading": WHERE
    + " AND ".join(f"list_contains({'[' * 40}1{']' * 40}, size)" for _ in range(60)),
    "writing otherwise": WHERE
    + " AND ".join(f"size > (SELECT COUNT(*) FROM t WHERE size = {k % 9})" for k in range(200)),
    "binding": "SELECT "
    + ", ".join(f"SUM(CASE WHEN size = {k % 9} THEN {k} ELSE size END)" for k in range(500))
    + " FROM t",
    "pairs": WHERE + "(size, kind) IN (" + ", ".join(f"({k}, 'x')" for k in range(900)) + ")",
    "answers": f"SELECT {', '.join(f'AVG(size + {k})' for k in range(900))} FROM t",
}
"""Statements that take half a second and more, each in another stage before rows are read."""


@pytest.mark.parametrize("stage", TAKES_LONG)
def test_a_statement_ends_at_its_timeout_wherever_it_is(
    server: Server, dsn: str, stage: str
) -> None:
    """It has not come to its end, which would be an answer, or another error."""
    before = len(server.databases.first.site.engine.entries())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET epsilon = 0.1")
        connection.execute("SET statement_timeout = 60")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout") as ended:
            connection.execute(TAKES_LONG[stage])
        assert "nothing was charged" in str(ended.value.diag.message_detail)
        connection.execute("SET statement_timeout = 0")
        assert connection.execute("SELECT COUNT(*) FROM t").fetchone()
    assert len(server.databases.first.site.engine.entries()) - before <= 1


def test_psql_is_told_of_timeouts(server: Server, tmp_path: Path) -> None:
    before = len(server.databases.first.site.engine.entries())
    script = tmp_path / "script.sql"
    script.write_text("SET statement_timeout = 60;\n" + ";\n".join(TAKES_LONG.values()) + ";\n")
    found = subprocess.run(
        [PSQL, "-h", "127.0.0.1", "-p", str(server.port), "-U", "ana", "-f", script, "clinic"],
        env={"PGPASSWORD": PASSWORD, "PATH": "/usr/bin:/bin", "PGCLIENTENCODING": "UTF8"},
        capture_output=True,
        text=True,
        check=True,
    )
    told = "ERROR:  canceling statement due to statement timeout"
    assert found.stderr.count(told) == len(TAKES_LONG), found.stderr
    assert len(server.databases.first.site.engine.entries()) == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT set_config('session_authorization', 'postgres', false)",
        "SELECT set_config('role', 'postgres', false)",
        "COPY (SELECT 1) TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
        "CREATE TABLE x (a int)",
        "CREATE TEMP TABLE x (a int)",
        "SELECT lo_import('/etc/passwd')",
        "ALTER ROLE CURRENT_USER SUPERUSER",
        "SELECT pg_sleep(60)",
        "SELECT repeat('x', 1000000) FROM generate_series(1, 1000)",
    ],
)
def test_nobody_gets_out_of_the_twin(twin: Twin, sql: str) -> None:
    with pytest.raises(TwinError):
        twin.reader(None).run(sql)


def test_nothing_stays_in_the_twin_for_the_next(twin: Twin) -> None:
    for name, value in (("statement_timeout", "0"), ("default_transaction_read_only", "off")):
        with pytest.raises(TwinError, match="set_config"):
            twin.reader(None).run(f"SELECT set_config('{name}', '{value}', false)")
    assert twin.reader(None).run("SELECT set_config('extra_float_digits', '2', false)")
    for name, wanted in (
        ("statement_timeout", b"5s"),
        ("default_transaction_read_only", b"on"),
        ("extra_float_digits", b"1"),
    ):
        table, _ = twin.reader(None).run(f"SHOW {name}")
        assert table is not None
        assert list(table.rows([])) == [[wanted]]
    table, _ = twin.reader(None).run("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    assert table is not None
    assert list(table.rows([])) == [[b"f"]]


@pytest.mark.slow
def test_jdbc(server: Server) -> None:
    with java() as jvm:
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/clinic?prepareThreshold=1"
        connection = jvm.java.sql.DriverManager.getConnection(url, "ana", PASSWORD)
        known = connection.getMetaData()
        assert known.getDatabaseProductName() == "PostgreSQL"
        assert [row[2] for row in read(known.getTables(None, "public", "%", None))] == ["t"]
        columns = read(known.getColumns(None, "public", "t", "%"))
        assert [(row[3], row[5]) for row in columns] == [
            *(("kind", "text"), ("size", "int8"), ("day", "date"), ("cost", "float8")),
        ]
        assert columns[0][11] == "x, y, it's"
        assert read(known.getPrimaryKeys(None, "public", "t")) == []
        plain = connection.createStatement()
        plain.execute("SET epsilon = 0.1")
        assert [row[0] for row in read(plain.executeQuery(COUNT))] == KINDS
        assert plain.getWarnings().getMessage() in ("charged: epsilon 0.1 (laplace)", "free")
        asked = "SELECT day, COUNT(*) AS n FROM t WHERE kind = ? AND size < ? GROUP BY day"
        prepared = connection.prepareStatement(asked)
        prepared.setString(1, "it's")
        prepared.setInt(2, 5)
        found = [read(prepared.executeQuery()) for _ in range(3)]  # the driver goes binary
        counts = [[float(count) for _, count in rows] for rows in found]
        assert counts[0] == counts[1] == counts[2]
        assert [day for day, _ in found[2]] == ["2024-01-01", "2024-02-01", "2024-03-01"]
        assert prepared.getParameterMetaData().getParameterCount() == 2
        connection.setAutoCommit(False)
        parts = connection.createStatement()
        parts.setFetchSize(2)
        assert len(read(parts.executeQuery("SELECT size, COUNT(*) FROM t GROUP BY size"))) == 10
        connection.commit()
        connection.setAutoCommit(True)
        with pytest.raises(Exception, match="there is no column") as refused:
            plain.executeQuery("SELECT nope FROM t")
        state: str = refused.value.java_exception.getSQLState()  # type: ignore[attr-defined]
        assert state == "42703"
        assert connection.isValid(5)
        connection.close()
