"""A curator's acts while sessions are open: the next use works, or its client connects again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import psycopg
import pytest

from dpsql.dbapi.connection import migrate_ledger, raise_budget
from dpsql.errors import LedgerError, OperationalError
from dpsql.server.address import Address
from dpsql.server.analyst_session import AnalystSession
from dpsql.server.databases import Databases
from dpsql.server.reload import Certificate
from dpsql.server.server import Server
from dpsql.server.users import Users
from tests.support.served import (
    PASSWORD,
    Client,
    database,
    kinds,
    rows,
    served,
    told,
    write_certificate,
)

COUNT = "SELECT COUNT(*) AS n FROM t WHERE size > 3"
OVER = ("57P01", "57P05")


def edit(catalog: Path, old: str, new: str) -> None:
    """Change the catalog's file, and have the ledger go by it."""
    text = catalog.read_text()
    assert old in text
    catalog.write_text(text.replace(old, new))
    migrate_ledger(catalog)


def add_table(catalog: Path) -> None:
    shutil.copy(catalog.parent / "t.parquet", catalog.parent / "u.parquet")
    table = '\n[table.u]\nsource = "u.parquet"\nprivacy_unit = "row"\n[table.u.column]\n'
    size = 'size = { type = "integer", domain = [0, 9] }\n'
    catalog.write_text(catalog.read_text() + table + size)
    migrate_ledger(catalog)


def users(catalog: Path) -> Users:
    return Users(catalog.with_suffix(".users"))


ACTS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "raise": (lambda c: raise_budget(c, Fraction(200)), True),
    "budgets": (lambda c: edit(c, "epsilon = 90", "epsilon = 80"), True),
    "new analyst": (lambda c: edit(c, "[table.t]", "[analyst.cy]\nepsilon = 1\n[table.t]"), True),
    "another analyst leaves": (lambda c: edit(c, "[analyst.bo]\nepsilon = 1\n", ""), True),
    "largest request": (
        lambda c: edit(c, "delta = 1e-9", "delta = 1e-9\nmax_epsilon_per_request = 5"),
        True,
    ),
    "new table": (add_table, True),
    "new user": (lambda c: users(c).put("zoe", PASSWORD, new=True), True),
    "another user leaves": (lambda c: users(c).remove("bo"), True),
    "domain": (lambda c: edit(c, "domain = [0, 9]", "domain = [0, 8]"), False),
    "analyst leaves": (lambda c: edit(c, "[analyst.ana]\nepsilon = 90\n", ""), False),
    "user leaves": (lambda c: users(c).remove("ana"), False),
    "password": (lambda c: users(c).put("ana", "another", new=False), False),
}
"""What a curator does, and whether a session of ana goes on."""


def begin(client: Client, how: str) -> None:
    """Bring a session into a state; what it has paid for is known to the ledger."""
    assert client.start()[-1][0] == b"Z"
    for sql in ("SET epsilon = 0.5", COUNT):
        assert "E" not in kinds(client.ask(sql))
    if how == "in a transaction":
        client.ask("BEGIN")
    elif how == "with a cursor":
        client.ask("BEGIN")
        assert "E" not in kinds(client.ask(f"DECLARE c CURSOR FOR {COUNT}"))
    elif how == "prepared":
        client.parse(COUNT, "s")
        assert "E" not in kinds(client.sync())
    elif how == "in a workload":
        for sql in ("BEGIN WORKLOAD", "SELECT COUNT(*) FROM t WHERE kind = 'x'"):
            assert "E" not in kinds(client.ask(sql))


def go_on(client: Client, how: str, number: int) -> list[tuple[bytes, bytes]]:
    """Use it again: something new that is charged."""
    if how == "with a cursor":
        assert rows(client.ask("FETCH ALL FROM c"))
    if how == "prepared":
        client.bind(name="s")
        client.execute()
        assert rows(client.sync())
    if how == "in a workload":
        return client.ask("RUN WORKLOAD")
    return client.ask(f"SELECT COUNT(*) FROM t WHERE size > {number}")


STATES = ("idle", "in a transaction", "with a cursor", "prepared", "in a workload")


@pytest.mark.parametrize("act", ACTS)
def test_a_session_goes_on_or_is_told_to_connect_again(act: str, catalog: Path) -> None:
    """At once, before anybody has looked; and after the watch has seen it."""
    work, goes_on = ACTS[act]
    with served(catalog) as server:
        opened = [(how, Client(server.port)) for how in STATES]
        for how, client in opened:
            begin(client, how)
        server.watch.close()  # who asks before the next look
        work(catalog)
        is_seen_at_once = "user" not in act and act != "password"
        if is_seen_at_once:
            for how, client in opened[::2]:
                check_use(client, how, goes_on, 4)
        server.watch.look()
        for k, (how, client) in enumerate(opened):
            if goes_on:
                again = "idle" if is_seen_at_once and k % 2 == 0 else how
                check_use(client, again, goes_on, 5)
            elif k % 2 or not is_seen_at_once:
                check_use(client, how, goes_on, 5, asks=False)
            client.socket.close()


def check_use(client: Client, how: str, goes_on: bool, number: int, asks: bool = True) -> None:
    """Use a session again; of one that has ended, read what it was told, asking or not."""
    if goes_on:
        found = go_on(client, how, number)
        assert "E" not in kinds(found), told(found)
        assert rows(found)
        return
    if asks:
        client.send(b"Q", b"SELECT COUNT(*) FROM t WHERE kind = 'y'\0")
    found = [client.message()]
    while found[-1][0] not in b"EZ":
        found.append(client.message())
    assert told(found)[0]["C"] in OVER
    assert told(found)[0]["S"] == "FATAL"
    with pytest.raises((EOFError, ConnectionError)):
        client.message()


def test_what_is_new_can_be_used_without_a_restart(catalog: Path) -> None:
    with served(catalog) as server, Client(server.port) as ana:
        begin(ana, "idle")
        edit(catalog, "[table.t]", "[analyst.cy]\nepsilon = 1\n[table.t]")
        add_table(catalog)
        users(catalog).put("cy", PASSWORD, new=True)
        server.watch.look()
        assert rows(ana.ask("SELECT COUNT(*) FROM u WHERE size = 1"))
        with Client(server.port, "cy") as cy:
            assert cy.start(options="-c epsilon=0.1")[-1][0] == b"Z"
            assert rows(cy.ask("SELECT COUNT(*) FROM u WHERE size = 2"))


def test_a_raise_reads_no_row_again(catalog: Path) -> None:
    with served(catalog) as server, Client(server.port) as ana:
        begin(ana, "idle")
        vaults = server.databases.first.site.engine.vaults
        rows_of = vaults.tables.found["t"]
        raise_budget(catalog, Fraction(200))
        assert rows(ana.ask("SELECT COUNT(*) FROM t WHERE size > 4"))
        assert server.databases.first.site.engine.vaults is vaults
        assert vaults.tables.found["t"] is rows_of


def test_a_price_that_was_shown_holds_over_a_raise(catalog: Path) -> None:
    """What is refused as too dear before a catalog changes is refused after it."""
    with served(catalog) as server:
        caller = AnalystSession(server.databases.first.site, "ana")
        caller.connection.set("epsilon", "0.5")
        with caller.connection.at_most(Fraction(1, 10)):
            raise_budget(catalog, Fraction(200))
            server.databases.first.site.refresh()
            caller.follow()
            with pytest.raises(OperationalError, match="E_PRICE"):
                caller.run(COUNT, False)
        caller.close()


def test_nothing_that_was_charged_for_is_asked_again(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that is refused half way, after a charge, is told so and not repeated."""
    with served(catalog) as server:
        caller = AnalystSession(server.databases.first.site, "ana")
        caller.connection.set("epsilon", "0.5")
        asked: list[str] = []

        def ask(text: str) -> list[object]:
            asked.append(text)
            caller.connection.execute(text)
            if len(asked) == 1:
                raise_budget(catalog, Fraction(200))
            raise LedgerError("E_POLICY_CHANGED", "changed meanwhile")

        with pytest.raises(LedgerError):
            caller._following(ask, COUNT)  # type: ignore[arg-type]
        assert len(asked) == 1
        caller.close()


def test_who_is_taken_out_is_out_within_a_moment(catalog: Path) -> None:
    """Idle, and in the middle of a burst that never ends, without anything being asked."""
    with served(catalog) as server, Client(server.port) as idle, Client(server.port) as half:
        begin(idle, "idle")
        begin(half, "idle")
        half.parse(COUNT)  # and no Sync: its own thread waits for more
        half.send(b"H")
        half.message()
        users(catalog).remove("ana")
        for client in (idle, half):
            client.socket.settimeout(30)
            kind, body = client.message()
            assert (kind, told([(kind, body)])[0]["C"]) == (b"E", "57P01")
        assert wait_for(lambda: server.count() == 0)


def wait_for(what: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()


def test_sessions_end_that_are_idle_or_here_for_too_long(catalog: Path) -> None:
    with served(catalog) as server, Client(server.port) as idle, Client(server.port) as old:
        begin(idle, "idle")
        server.idle = 0.2
        kind, body = idle.message()
        assert (kind, told([(kind, body)])[0]["C"]) == (b"E", "57P05")
        server.idle, server.lifetime = 0.0, 0.3
        begin(old, "idle")
        kind, body = old.message()
        assert (kind, told([(kind, body)])[0]["C"]) == (b"E", "57P01")


@pytest.mark.parametrize("content", ["", "nonsense", "[budget]\nepsilon = "])
def test_what_cannot_be_read_ends_nothing(content: str, catalog: Path) -> None:
    with served(catalog) as server, Client(server.port) as ana:
        begin(ana, "idle")
        catalog.write_text(content)
        catalog.with_suffix(".users").write_text("no line of a user")
        server.watch.reload()
        server.watch.look()
        assert rows(ana.ask("SELECT COUNT(*) FROM t WHERE size > 5"))


def test_a_catalog_that_is_not_in_force_changes_nothing(catalog: Path) -> None:
    with served(catalog) as server, Client(server.port) as ana:
        begin(ana, "idle")
        text = catalog.read_text()
        catalog.write_text(text.replace("domain = [0, 9]", "domain = [0, 8]"))
        server.watch.look()
        assert rows(ana.ask("SELECT COUNT(*) FROM t WHERE size > 5"))
        migrate_ledger(catalog)
        server.watch.look()
        check_use(ana, "idle", False, 5, asks=False)


def dpsql(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dpsql", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_server_is_reloaded_by_a_signal_and_its_sessions_are_listed_and_ended(
    catalog: Path,
) -> None:
    command = [sys.executable, "-m", "dpsql", "serve", str(catalog), "--twin", "off"]
    assert dpsql("sessions", "list", catalog).returncode == 2
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            while b"serving clinic" not in line:
                line = server.stderr.readline()
            port = int(line.partition(b"127.0.0.1:")[2].partition(b";")[0])
            with Client(port) as ana, Client(port, "bo") as bo:
                begin(ana, "idle")
                assert bo.start(application_name="tool")[-1][0] == b"Z"
                edit(catalog, "[table.t]", "[analyst.cy]\nepsilon = 1\n[table.t]")
                for _ in range(3):
                    server.send_signal(signal.SIGHUP)
                while b"event=act outcome=reload" not in line:
                    line = server.stderr.readline()
                assert rows(ana.ask("SELECT COUNT(*) FROM t WHERE size > 5"))
                found = dpsql("sessions", "list", catalog).stdout.splitlines()
                assert [each.split("\t")[1] for each in found] == ["user", "ana", "bo"]
                assert found[2].split("\t")[-1] == "tool"
                assert dpsql("sessions", "end", catalog, "1").returncode == 2
                assert dpsql("sessions", "end", catalog, found[2].split("\t")[0]).returncode == 0
                kind, body = bo.message()
                assert (kind, told([(kind, body)])[0]["C"]) == (b"E", "57P01")
                assert dpsql("sessions", "end", catalog, "--user", "ANA").returncode == 0
                kind, body = ana.message()
                assert (kind, told([(kind, body)])[0]["C"]) == (b"E", "57P01")
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
    assert not list(catalog.parent.glob("*.control"))


def test_certificates_are_renewed_while_sessions_go_on(catalog: Path) -> None:
    folder = catalog.parent
    (folder / "other").mkdir()
    tls, other = write_certificate(folder), write_certificate(folder / "other")
    with served(catalog, tls=tls) as server:
        assert server.tls is not None
        server.certificate = Certificate(*tls, [server.tls])
        server.watch.look()

        dsn = f"host=127.0.0.1 port={server.port} user=ana password='{PASSWORD}' dbname=clinic"
        bound = f"{dsn} sslmode=require channel_binding=require"
        with psycopg.connect(bound, autocommit=True) as first:
            first.execute("SET epsilon = 0.01")
            shutil.copy(other[0], tls[0])
            server.watch.look()  # a certificate without its key is not taken
            with psycopg.connect(bound, autocommit=True) as same:
                same.execute("SHOW epsilon")
            shutil.copy(other[1], tls[1])
            server.watch.look()
            trusting = f"{bound} sslmode=verify-ca sslrootcert={other[0]}"
            with psycopg.connect(trusting, autocommit=True) as second:
                second.execute("SHOW epsilon")
            first.execute(COUNT)


def test_a_watch_may_be_closed_while_it_starts(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = threading.Thread.start
    closing: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if thread.name == "watch":  # somebody closes it before its thread has begun
            closer = threading.Thread(target=server.watch.close)
            closing.append(closer)
            real(closer)
            time.sleep(0.05)
        real(thread)

    wrong: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: wrong.append(told.exc_value))
    server = Server(Databases(database(catalog)), Address("127.0.0.1", 0))
    monkeypatch.setattr(threading.Thread, "start", start)
    server.watch.start()
    closing[0].join()
    monkeypatch.undo()
    server.close()
    assert wrong == []
