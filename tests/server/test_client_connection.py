"""Sessions, message by message."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path

import pytest

from dpsql.server.server import Server
from dpsql.sql.text.lexemes import split_statements
from tests.support.served import Client, kinds, names, rows, served, told

KINDS = ("x", "y", "it''s")
COUNT = "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind"


def entries(server: Server) -> int:
    return sum(entry.kind == "debit" for entry in server.databases.first.site.engine.entries())


def test_a_query_has_columns_rows_a_tag_and_says_what_it_cost(client: Client) -> None:
    found = client.ask(COUNT)
    assert kinds(found) == "NNNTDDDCZ"
    assert names(found) == [("kind", 25), ("n", 20)]
    assert [row[0] for row in rows(found)] == [b"x", b"y", b"it's"]
    assert found[-2][1] == b"SELECT 3\0"
    charged = told(found, b"N")[0]
    assert charged["M"].startswith("charged: epsilon 0.01")
    assert charged["D"].startswith("ledger entry ")
    assert told(found, b"N")[1]["M"].startswith("standard error: n ")
    again = client.ask(COUNT)
    assert told(again, b"N")[0]["M"] == "free"
    assert rows(again) == rows(found)


def test_the_selects_of_a_script_are_one_workload(client: Client, site: Server) -> None:
    before = entries(site)
    script = "BEGIN; SELECT COUNT(*) FROM t WHERE size = 1; SHOW noise; SELECT COUNT(*) FROM t; END"
    found = client.ask(script)
    assert entries(site) == before + 1
    assert [body for kind, body in found if kind == b"C"] == [
        b"BEGIN\0",
        b"SELECT 1\0",
        b"SHOW\0",
        b"SELECT 1\0",
        b"COMMIT\0",
    ]


def test_a_workload_is_collected_over_several_queries(client: Client, site: Server) -> None:
    before = entries(site)
    client.ask("BEGIN WORKLOAD")
    client.ask("SELECT COUNT(*) FROM t WHERE size = 2")
    client.ask("SELECT COUNT(*) FROM t WHERE size = 3")
    assert entries(site) == before
    assert len(rows(client.ask("RUN WORKLOAD"))) == 2
    assert entries(site) == before + 1


def test_scripts_of_every_order_answer_every_statement(client: Client, site: Server) -> None:
    """Workloads that begin or end in a script, settings of the session among its statements."""
    one, two = (f"SELECT COUNT(*) FROM t WHERE size = {k} AND kind = 'y'" for k in (4, 5))
    for scripts, answers in (
        (["BEGIN WORKLOAD; " + one, two + "; RUN WORKLOAD"], [0, 2]),
        (["BEGIN WORKLOAD", f"{one}; {two}", "RUN WORKLOAD; SHOW show_stddev"], [0, 0, 3]),
        ([f"BEGIN WORKLOAD; {one}; {two}; RUN WORKLOAD"], [2]),
        ([f"SHOW last_charge; {one}; SET show_stddev = off; {two}; SHOW statement_timeout"], [4]),
        ([f"{one}; SELECT COUNT(*) FROM nobody"], [0]),
    ):
        before = entries(site)
        assert [len(rows(client.ask(script))) for script in scripts] == answers
        assert entries(site) <= before + 1
        client.ask("RESET ALL; SET epsilon = 0.01")


def test_errors_have_a_state_a_place_and_a_hint(client: Client) -> None:
    (error,) = told(client.ask("SHOW noise; SELECT COUNT(nope) FROM t"))
    assert (error["S"], error["C"], error["P"]) == ("ERROR", "42703", "26")
    assert error["H"].startswith("columns: ")
    states = {
        "SELECT COUNT(* FROM t": "42601",
        "SELECT COUNT(*) FROM nobody": "42P01",
        "SELECT kind FROM t": "42803",
        "SELECT MAX(cost) FROM t": "42803",
        "INSERT INTO t VALUES (1)": "0A000",
        "SET epsilon = 'much'": "22023",
        "SELECT COUNT(*) FROM t WHERE kind = 'zz'": "22023",
    }
    found = {sql: told(client.ask(sql))[0]["C"] for sql in states}
    assert found == states


def test_a_budget_that_does_not_suffice_charges_nothing(site: Server) -> None:
    with Client(site.port, "bo") as client:
        client.start()
        before = entries(site)
        client.ask("SET epsilon = 2")
        (error,) = told(client.ask("SELECT COUNT(*) FROM t WHERE size = 9"))
        assert error["C"] == "53400"
        assert entries(site) == before


def test_after_an_error_all_is_skipped_until_sync(client: Client) -> None:
    client.parse("SELECT nope FROM t")
    client.describe()
    client.bind()
    client.execute()
    assert kinds(client.sync()) == "1EZ"
    client.parse(COUNT)
    client.bind()
    client.execute()
    assert kinds(client.sync()).replace("N", "") == "12DDDCZ"


def test_nothing_is_charged_until_execute(client: Client, site: Server) -> None:
    """Parse, Describe, Bind, Describe and Sync leave the ledger alone, for every kind of SELECT."""
    grammar = Path(__file__).parent.parent.parent / "grammar" / "accepted.sql"
    before = entries(site)
    sqls = [COUNT, "SELECT AVG(cost) FROM t WHERE size > 3", f"EXPLAIN {COUNT}", "SHOW budget"]
    sqls += [
        "SELECT n, COUNT(*) FROM (SELECT kind, COUNT(*) AS n FROM t GROUP BY kind) GROUP BY n",
        "CREATE DOMAIN d FROM t (kind)",
        "WITH a AS (SELECT size, COUNT(*) AS n FROM t GROUP BY size) SELECT SUM(n) FROM a",
    ]
    sqls += [f.body for f in split_statements(grammar.read_text())][::40]
    for sql in sqls:
        client.parse(sql)
        client.describe()
        client.bind()
        client.describe(b"P")
        client.sync()
    assert entries(site) == before


def test_columns_are_known_before_a_statement_is_asked(client: Client) -> None:
    for sql in (COUNT, "SELECT day, size, AVG(cost), COUNT(*) > 5 AS many FROM t GROUP BY ALL"):
        client.parse(sql)
        client.describe()
        client.bind()
        client.execute()
        found = client.sync()
        assert names(found) == names(client.ask(sql))


def test_parameters_in_text_and_in_binary(client: Client) -> None:
    sql = "SELECT COUNT(*) FROM t WHERE kind = $2 AND size < $1 AND day >= $3"
    client.parse(sql)
    client.describe()
    assert kinds(found := client.sync()) == "1tTZ"
    assert struct.unpack("!H3I", found[1][1]) == (3, 20, 25, 1082)
    client.parse(sql, oids=(23, 0, 1082))
    client.bind(b"5", b"it's", b"2024-02-01")
    client.execute()
    text = rows(client.sync())
    plain = "SELECT COUNT(*) FROM t WHERE kind = 'it''s' AND size < 5 AND day >= DATE '2024-02-01'"
    assert rows(client.ask(plain)) == text
    client.parse(sql, oids=(23, 25, 1082))
    body = b"\0\0" + struct.pack("!hh", 1, 1) + struct.pack("!h", 3)
    for value in (struct.pack("!i", 5), b"it's", struct.pack("!i", 366 * 6 + 365 * 18 + 31)):
        body += struct.pack("!i", len(value)) + value
    client.send(b"B", body + struct.pack("!hh", 1, 1))
    client.execute()
    (binary,) = rows(client.sync())[0]
    assert binary is not None
    assert struct.unpack("!q", binary)[0] == int(text[0][0] or b"")


@pytest.mark.parametrize(
    ("oid", "value", "state"),
    [(23, b"five", "22P02"), (20, b"1\x00", "22021"), (1082, b"2024-99-99", "22P02")],
)
def test_a_parameter_that_does_not_fit_is_refused(
    client: Client, oid: int, value: bytes, state: str
) -> None:
    client.parse("SELECT COUNT(*) FROM t WHERE size = $1", oids=(oid,))
    client.bind(value)
    client.execute()
    (error,) = told(client.sync())
    assert error["C"] == state


def test_a_portal_is_read_in_parts(client: Client) -> None:
    client.parse("SELECT size, COUNT(*) FROM t GROUP BY size")
    client.bind()
    client.execute(4)
    client.execute(4)
    client.execute(4)
    found = client.sync()
    assert kinds(found).replace("N", "") == "12DDDDsDDDDsDDCZ"
    assert found[-2][1] == b"SELECT 2\0"


def test_cursors_and_copy(client: Client) -> None:
    client.ask(f'BEGIN; DECLARE "c" CURSOR FOR {COUNT}')
    assert [row[0] for row in rows(client.ask("FETCH 2 FROM c"))] == [b"x", b"y"]
    found = client.ask("FETCH FORWARD ALL FROM c")
    assert [row[0] for row in rows(found)] == [b"it's"]
    assert found[-2][1] == b"FETCH 1\0"
    client.ask("COMMIT")
    assert told(client.ask("FETCH 1 FROM c"))[0]["C"] == "34000"
    found = client.ask(f"COPY ({COUNT}) TO STDOUT (FORMAT csv, HEADER)")
    lines = [body for kind, body in found if kind == b"d"]
    assert lines[0] == b"kind,n\n"
    assert lines[3].startswith(b"it's,")
    assert found[-2][1] == b"COPY 3\0"


def test_a_transaction_that_failed_takes_nothing_but_its_end(client: Client) -> None:
    assert client.ask("BEGIN")[-1][1] == b"T"
    assert client.ask("SELECT nope FROM t")[-1][1] == b"E"
    assert told(client.ask(COUNT))[0]["C"] == "25P02"
    found = client.ask("COMMIT")
    assert found[0][1] == b"ROLLBACK\0"
    assert found[-1][1] == b"I"


def test_standard_errors_are_columns_where_that_is_set(client: Client) -> None:
    client.ask("SET show_stddev = on")
    found = client.ask(COUNT)
    assert [name for name, _ in names(found)] == ["kind", "n", "n__stddev"]
    assert float(rows(found)[0][2] or b"") > 1
    client.parse(COUNT)
    client.describe()
    assert names(client.sync()) == names(found)
    assert rows(client.ask("SHOW last_charge"))[0][0].startswith(b"free, ledger entry")  # type: ignore[union-attr]


def test_settings_of_clients_are_taken(client: Client) -> None:
    for sql in (
        "SET client_encoding TO 'UTF8'",
        "SET application_name = 'x'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "SET extra_float_digits = 3",
        "RESET ALL",
        "DISCARD ALL",
        "DEALLOCATE ALL",
        "UNLISTEN *",
    ):
        assert kinds(client.ask(sql)).replace("S", "") == "CZ", sql
    assert told(client.ask("SET client_encoding TO 'latin1'"))[0]["C"] == "22023"


def test_sessions_do_not_see_settings_of_others(site: Server) -> None:
    with Client(site.port) as one, Client(site.port, "bo") as two:
        one.start()
        two.start()
        one.ask("SET epsilon = 0.02; SET show_stddev = on")
        assert told(two.ask(COUNT))[0]["C"] == "22023"
        assert rows(two.ask("SHOW show_stddev")) == [[b"off"]]


def test_a_session_sees_only_its_own_budget(site: Server) -> None:
    with Client(site.port, "bo") as client:
        client.start()
        listed = b"".join(row[0] or b"" for row in rows(client.ask("SHOW budget")))
        assert b"bo" in listed
        assert b"analyst ana" not in listed


def test_many_at_once_are_each_charged_once(catalog: Path) -> None:
    with served(catalog) as server:

        def work(number: int) -> None:
            with Client(server.port) as client:
                client.start()
                client.ask("SET epsilon = 0.01")
                for k in range(3):
                    found = client.ask(
                        f"SELECT COUNT(*) FROM t WHERE size = {number} AND kind <> '{KINDS[k]}'"
                    )
                    assert rows(found)
                    assert rows(client.ask(f"SELECT COUNT(*) FROM t WHERE size = {number % 4 + k}"))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = [
            entry for entry in server.databases.first.site.engine.entries() if entry.kind == "debit"
        ]
        assert len(spent) == len({entry.plan_hash for entry in spent})
        assert len(spent) == 8 * 3 + 6


def test_a_statement_is_cancelled_before_it_is_charged(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpsql import interrupts
    from dpsql.engine import planner

    begun = threading.Event()

    def slow(request: object) -> None:
        begun.set()
        for _ in range(6000):
            time.sleep(0.01)
            interrupts.check()

    with served(catalog) as server, Client(server.port) as client:
        client.start()
        client.ask("SET epsilon = 0.01")
        monkeypatch.setattr(planner, "make_plan", slow)
        client.send(b"Q", COUNT.encode() + b"\0")
        begun.wait(60)
        with Client(server.port) as other:
            process, secret = client.key
            other.socket.sendall(struct.pack("!iiiI", 16, 80877102, process, secret ^ 1))
        with Client(server.port) as other:
            other.socket.sendall(struct.pack("!iiiI", 16, 80877102, process, secret))
        (error,) = told(client.until_ready())
        assert error["C"] == "57014"
        assert error["M"] == "canceling statement due to user request"
        assert "nothing was charged" in error["D"]
        client.ask("SET statement_timeout = 100")
        (error,) = told(client.ask(COUNT))
        assert error["C"] == "57014"
        assert error["M"] == "canceling statement due to statement timeout"
        assert entries(server) == 0


def test_data_that_changed_are_read_anew_by_the_next_statement(catalog: Path) -> None:
    with served(catalog) as server, Client(server.port) as client:
        client.start()
        client.ask("SET epsilon = 0.01")
        client.ask(COUNT)
        data = catalog.with_name("t.parquet")
        data.write_bytes(data.read_bytes())
        assert told(client.ask("SELECT COUNT(*) FROM t"))[0]["C"] == "58030"
        found = client.ask(COUNT)
        assert told(found, b"N")[0]["M"].startswith("charged")


def test_planning_is_cancelled(client: Client, site: Server) -> None:
    """A real plan, which takes seconds at this effort, ends where its search looks."""
    before = entries(site)
    client.ask("SET effort = 100")
    sql = "SELECT size, day, COUNT(*), AVG(cost), STDDEV(cost) FROM t GROUP BY CUBE(size, day)"
    client.send(b"Q", sql.encode() + b"\0")
    time.sleep(0.3)
    with Client(site.port) as other:
        other.socket.sendall(struct.pack("!iiiI", 16, 80877102, *client.key))
    (error,) = told(client.until_ready())
    assert error["C"] == "57014"
    assert entries(site) == before
    client.ask("RESET ALL")
