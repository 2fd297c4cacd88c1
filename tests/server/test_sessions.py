"""What a session keeps by itself, compared with a session of PostgreSQL: random statements.

Transactions, savepoints, cursors, prepared statements and settings: each statement must come back
with PostgreSQL's tag, rows, SQLSTATE and state of the transaction.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterator

import asyncpg
import psycopg
import psycopg2
import pytest
from psycopg.pq import DiagnosticField
from psycopg.pq.abc import PGconn, PGresult

from dpsql.server.catalog_twin import open_twin
from dpsql.server.cursors import CursorRows
from dpsql.server.server import Server
from tests.support.served import PASSWORD, Client, kinds, rows, served, told, write_served

COUNT = "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind"
SESSIONS = 60
NAMES = ["a", "A", "B", '"b"', '"C d"', '"x""y"']
ROWS = "SELECT * FROM (VALUES (1, 'x'), (2, NULL), (3, 'z')) v(i, t)"
FIXED = [
    *["BEGIN", "BEGIN", "START TRANSACTION", "COMMIT", "END", "ROLLBACK", "ABORT", "SELECT 1"],
    *["COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT AND NO CHAIN", "CLOSE ALL", "RESET ALL"],
    *["DEALLOCATE ALL", "DISCARD ALL", "DISCARD PLANS", "SELECT 1/0", "SELECT nope", ""],
    *["SHOW statement_timeout", "RESET statement_timeout", "SET statement_timeout TO DEFAULT"],
    *["SELECT 1; SELECT 2", "BEGIN; SELECT 1; COMMIT", "SELECT 1; SELECT 1/0; SELECT 2"],
]
Outcome = tuple[str, list[list[bytes | None]], int]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name))
        with served(write_served(folder), open_twin("auto", "clinic")) as found:
            yield found


@pytest.fixture
def dsn(server: Server) -> str:
    port = server.port
    settings = "options='-c epsilon=0.001'"
    return f"host=127.0.0.1 port={port} user=ana password='{PASSWORD}' dbname=clinic {settings}"


def draw(chosen: random.Random, is_open: bool) -> str:
    """A statement; what dpsql takes outside a transaction and PostgreSQL does not is left out."""
    name, far = chosen.choice(NAMES), chosen.randint(-4, 5)
    ways = ["", "NEXT", "PRIOR", "FIRST", "LAST", "ALL", f"{far}", "FORWARD", "BACKWARD"]
    ways += ["FORWARD ALL", "BACKWARD ALL"]
    ways += [f"{way} {far}" for way in ("ABSOLUTE", "RELATIVE", "FORWARD", "BACKWARD")]
    hold = chosen.choice(["", "WITH HOLD ", "WITHOUT HOLD "]) if is_open else "WITH HOLD "
    declared = f"DECLARE {name} SCROLL CURSOR {hold}FOR {ROWS}"
    moved = f"{chosen.choice(ways)} {chosen.choice(['FROM', 'IN', ''])} {name}"
    local = "SET LOCAL statement_timeout = 2000" if is_open else "SET statement_timeout = 90000"
    of_names = ["SAVEPOINT", "SAVEPOINT", "RELEASE", "RELEASE SAVEPOINT", "CLOSE", "DEALLOCATE"]
    of_names += ["ROLLBACK TO", "ROLLBACK TO SAVEPOINT", "ROLLBACK WORK TO"]
    return chosen.choice(
        [*FIXED, local, *[declared] * 4, *[f"FETCH {moved}"] * 8, *[f"MOVE {moved}"] * 4]
        + [f"{each} {name}" for each in of_names]
    )


def ask(connection: PGconn, sql: str, form: int) -> Outcome:
    """Ask by the simple protocol, or by the extended one for texts or for binary."""
    extended = form and ";" not in sql
    found: PGresult = (
        connection.exec_params(sql.encode(), [], result_format=form - 1)
        if extended
        else connection.exec_(sql.encode())
    )
    status = connection.transaction_status
    if found.error_message:
        return (found.error_field(DiagnosticField.SQLSTATE) or b"").decode(), [], status
    width = range(found.nfields)
    listed = [[found.get_value(i, j) for j in width] for i in range(found.ntuples)]
    return (found.command_status or b"").decode(), listed, status


def differences(seed: int, server: Server, dsn: str) -> list[object]:
    """Ask the same of both until they differ; returns the statements and the two outcomes then."""
    twin = server.databases.first.twin
    assert twin is not None
    chosen, said = random.Random(seed), []
    with psycopg.connect(twin.server.admin) as real, psycopg.connect(dsn) as ours:
        for each in (real, ours):
            each.pgconn.notice_handler = None
        for _ in range(40):
            sql = draw(chosen, real.pgconn.transaction_status != 0)
            form = chosen.choice((0, 0, 1, 2))
            said.append(sql)
            found, expected = ask(ours.pgconn, sql, form), ask(real.pgconn, sql, form)
            if found != expected:
                return [said, form, found, expected]
    return []


@pytest.mark.parametrize("start", range(0, SESSIONS, 10))
def test_sessions_are_as_those_of_postgresql(start: int, server: Server, dsn: str) -> None:
    for seed in range(start, start + 10):
        assert differences(seed, server, dsn) == []


def test_a_planted_fault_is_found(
    server: Server, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CursorRows, "step", lambda self, step: range(min(1, len(self.table))))
    assert any(differences(seed, server, dsn) for seed in range(10))


def value(dsn: str, *sqls: str) -> object:
    """What the last of some statements tells."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for sql in sqls:
            cursor = connection.execute(sql.encode())
        row = cursor.fetchone()
        return None if row is None else row[0]


@pytest.mark.parametrize("name", ["epsilon", "show_stddev", "reuse", "per_round"])
def test_settings_are_what_they_were_when_they_are_reset(name: str, dsn: str) -> None:
    given = {"epsilon": "0.5", "show_stddev": "on", "reuse": "always", "per_round": "7"}
    first, other, show = value(dsn, f"SHOW {name}"), f"SET {name} = '{given[name]}'", f"SHOW {name}"
    assert value(dsn, other, show) == given[name]
    for reset in (f"RESET {name}", "RESET ALL", "DISCARD ALL", f"SET {name} TO DEFAULT"):
        assert value(dsn, other, reset, show) == first, reset
    assert value(dsn, other, "RESET application_name", show) == given[name]
    session = f"SET SESSION {name} = '{given[name]}'"
    assert value(dsn, "BEGIN", session, "COMMIT", show) == given[name]
    local = f"SET LOCAL {name} = '{given[name]}'"
    for end in ("COMMIT", "ROLLBACK"):
        assert value(dsn, "BEGIN", local, show) == given[name]
        assert value(dsn, "BEGIN", local, end, show) == first
    with pytest.raises(psycopg.Error) as refused:
        value(dsn, local)
    assert refused.value.sqlstate == "25P01"


def test_statements_of_a_script_have_the_terms_of_their_place(server: Server) -> None:
    asked = [f"SELECT COUNT(*) FROM t WHERE size = {k} AND kind = 'x'" for k in range(6)]
    scripts = {
        "BEGIN; SET LOCAL epsilon = 0.002; {0}; COMMIT; {1}": ["0.002", "0.001"],
        "SET epsilon = 0.003; {2}; RESET ALL; {3}": ["0.003", "0.001"],
        "{4}; {5}": ["0.001"],
    }
    with Client(server.port) as client:
        client.start(options="-c epsilon=0.001")
        for script, epsilons in scripts.items():
            heard = told(client.ask(script.format(*asked)), b"N")
            charged = [each["M"].split()[2] for each in heard if each["M"].startswith("charged")]
            assert charged == epsilons
        found = client.ask(f"{COUNT}; SET show_stddev = on; {COUNT}")
        assert [len(row) for row in rows(found)] == [2, 2, 2, 3, 3, 3]


def test_a_pool_hands_on_no_setting(server: Server) -> None:
    async def work() -> None:
        address = {"host": "127.0.0.1", "port": server.port, "database": "clinic"}
        pool = await asyncpg.create_pool(
            **address, user="ana", password=PASSWORD, min_size=1, max_size=1
        )
        async with pool.acquire() as connection:
            await connection.execute("SET epsilon = 0.7")
        async with pool.acquire() as connection:
            assert await connection.fetchval("SHOW epsilon") == "not set"
        await pool.close()

    asyncio.run(work())


def test_nested_transactions_of_clients(server: Server, dsn: str) -> None:
    with psycopg.connect(dsn) as connection, connection.transaction():
        before = connection.execute(COUNT).fetchall()
        with pytest.raises(psycopg.errors.UndefinedColumn), connection.transaction():
            connection.execute("SELECT nope FROM t")
        assert connection.execute(COUNT).fetchall() == before

    async def work() -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=server.port, user="ana", password=PASSWORD, database="clinic"
        )
        await connection.execute("SET epsilon = 0.001")
        async with connection.transaction():
            with pytest.raises(asyncpg.UndefinedColumnError):
                async with connection.transaction():
                    await connection.fetch("SELECT nope FROM t")
            assert [row["kind"] async for row in connection.cursor(COUNT)] == ["x", "y", "it's"]
        await connection.close()

    asyncio.run(work())


def test_cursors_of_clients_outlive_transactions_and_go_both_ways(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        cursor = connection.cursor('An "odd" name', withhold=True, scrollable=True)
        cursor.execute("SELECT size, COUNT(*) FROM t WHERE size > %s GROUP BY size", (3,))
        connection.commit()
        all_of = cursor.fetchall()
        assert len(all_of) == 6
        cursor.scroll(2, mode="absolute")
        assert cursor.fetchone() == all_of[2]
        cursor.close()
        for sql in (COUNT, ROWS):
            with connection.cursor("b", binary=True) as binary:
                assert binary.execute(sql).fetchall() == connection.execute(sql).fetchall()
    old = psycopg2.connect(dsn)
    named = old.cursor("n", withhold=True, scrollable=True)
    named.execute(COUNT)
    old.commit()
    first = named.fetchmany(1)
    named.scroll(-1)
    assert named.fetchall()[:1] == first
    named.close()
    old.close()


def bind(client: Client, formats: list[int], portal: str = "", name: str = "") -> None:
    """Bind without parameters, each column in its format."""
    body = struct.pack(f"!HHH{len(formats)}h", 0, 0, len(formats), *formats)
    client.send(b"B", f"{portal}\0{name}\0".encode() + body)


@pytest.mark.parametrize("formats", [[], [0], [1], [0, 1], [1, 0], [1, 1]])
def test_columns_of_the_twin_come_each_in_its_format(server: Server, formats: list[int]) -> None:
    ways = [*(formats or [0])] * (1 if len(formats) == 2 else 2)
    with Client(server.port) as client:
        client.start()
        client.parse("SELECT 258::int4 AS a, 7::int2 AS b")
        bind(client, formats)
        client.describe(b"P")
        client.execute()
        found = client.sync()
        assert rows(found) == [
            [[b"258", struct.pack("!i", 258)][ways[0]], [b"7", struct.pack("!h", 7)][ways[1]]]
        ]
        (heads,) = (body for kind, body in found if kind == b"T")
        assert [heads[at] for at in (21, 41)] == ways


def test_portals_end_with_their_transaction(server: Server) -> None:
    with Client(server.port) as client:
        client.start(options="-c epsilon=0.001")
        client.parse(COUNT, "s")
        for _ in range(3):
            bind(client, [], "p", "s")
            client.execute(1, "p")
            assert kinds(client.sync()).replace("N", "").lstrip("1") == "2DsZ"
        client.ask("BEGIN")
        bind(client, [], name="s")
        client.execute(1)
        client.sync()
        client.execute(1)
        assert kinds(client.sync()) == "DsZ"
        client.ask("ROLLBACK")
        client.execute(1)
        assert told(client.sync())[0]["C"] == "34000"


def test_types_of_some_parameters_may_be_left_out(server: Server) -> None:
    with Client(server.port) as client:
        client.start(options="-c epsilon=0.001")
        asked = "FROM t WHERE size > $1 AND size < $2"
        for sql in ("SELECT $1::int4 + $2::int4", f"SELECT COUNT(*) {asked}"):
            client.parse(sql, oids=(23,))
            client.bind(b"1", b"2")
            client.execute()
            assert len(rows(client.sync())) == 1
        client.ask("BEGIN")
        client.parse(f"DECLARE c CURSOR FOR SELECT COUNT(*) {asked}")
        client.describe()
        client.bind(b"1", b"2")
        client.execute()
        (types,) = (body for kind, body in client.sync() if kind == b"t")
        assert struct.unpack("!HII", types) == (2, 20, 20)
        assert len(rows(client.ask("FETCH ALL FROM c"))) == 1


def test_types_that_a_client_asks_for_are_found(server: Server) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=server.port, user="ana", password=PASSWORD, database="clinic"
        )
        found = await connection.fetch("SELECT oid, typacl, typinput FROM pg_type LIMIT 2")
        assert [row["typinput"] for row in found] == ["boolin", "byteain"]
        await connection.close()

    asyncio.run(work())
