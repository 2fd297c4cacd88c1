"""Who comes in: passwords, analysts, TLS, and what others hear."""

from __future__ import annotations

import hashlib
import logging
import random
import socket
import ssl
import struct
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.errors import CatalogError, UsageError
from dpsql.server.address import Address
from dpsql.server.binding import end_point
from dpsql.server.client_socket import ClientSocket
from dpsql.server.databases import Databases
from dpsql.server.handshake import (
    FREE_TRIES,
    LONGEST_DELAY,
    MOST_NOTED,
    TRIES_OF_NAME,
    Failures,
)
from dpsql.server.messages import Hangup
from dpsql.server.metrics import lines, metrics
from dpsql.server.server import Server, read_tls
from dpsql.server.users import Users
from dpsql.ui.cli import run_command_line
from tests.support.served import (
    PASSWORD,
    Client,
    database,
    rows,
    salt_of,
    served,
    told,
    write_certificate,
)


def test_a_wrong_password_and_an_unknown_name_hear_the_same(site: Server) -> None:
    with Client(site.port, "ana", "wrong") as one, Client(site.port, "zoe", "wrong") as two:
        (first,), (second,) = told(one.start()), told(two.start())
    assert first["C"] == second["C"] == "28P01"
    assert first["S"] == "FATAL"
    assert first["M"].replace("ana", "zoe") == second["M"]


def test_failures_delay_and_lock_nobody_out(catalog: Path) -> None:
    with served(catalog, first_delay=0.001) as server:
        for turn in range(10):
            with Client(server.port, ("ana", "nobody")[turn % 2], "wrong") as client:
                assert told(client.start())[0]["C"] == "28P01"
        assert server.failures.delay("zoe", "127.0.0.1") >= 0.001 * 2**6
        assert server.failures.delay("zoe", "192.0.2.1") == 0
        with Client(server.port, "ana") as client:
            assert client.start()[-1][0] == b"Z"


@pytest.mark.parametrize("seed", range(20))
def test_delays_grow_with_failures_are_bounded_and_end(seed: int) -> None:
    chosen, now = random.Random(seed), [0.0]
    failures = Failures(lambda: now[0])
    noted: list[tuple[float, str, str]] = []
    for _ in range(200):
        now[0] += chosen.choice([0.0, 0.1, 1.0, 5.0])
        name, address = chosen.choice("abc"), chosen.choice(["::1", "192.0.2.1", "192.0.2.2"])
        recent = [each for each in noted if each[0] > now[0] - 60]
        here = sum(each[2] == address for each in recent)
        named = sum(each[1] == name for each in recent)
        delay = failures.delay(name, address)
        assert 0 <= delay <= LONGEST_DELAY
        assert (delay > 0) == (here >= FREE_TRIES or named >= TRIES_OF_NAME)
        assert here < FREE_TRIES or delay >= min(LONGEST_DELAY, 0.5 * 2 ** (here - FREE_TRIES))
        assert failures.delay("else", "elsewhere") == 0
        if chosen.random() < 0.7:
            failures.note(name, address)
            noted.append((now[0], name, address))
            assert failures.delay(name, address) >= delay
    now[0] += 61
    assert failures.delay("a", "::1") == 0


def test_a_flood_of_names_has_nothing_forgotten_and_fills_no_memory() -> None:
    failures = Failures(lambda: 5.0)
    for _ in range(5):
        failures.note("ana", "192.0.2.1")
    before = failures.delay("zoe", "192.0.2.1")
    for number in range(25_000):
        failures.note(f"nobody{number}", f"192.0.2.{number % 200 + 2}")
    assert failures.delay("zoe", "192.0.2.1") == before > 0
    assert len(failures._times) <= MOST_NOTED + 2


def test_salts_last_whether_a_name_exists_or_not(catalog: Path) -> None:
    names = ("ana", "bo", "zoe", "nobody")
    found = []
    for _ in range(2):
        with served(catalog) as server:
            found.append([salt_of(server.port, name) for name in names])
    assert found[0] == found[1]
    assert len(set(found[0])) == len(names)
    assert {len(each) for each in found[0]} == {24}


def test_sign_ins_are_logged_and_counted_with_their_address(
    catalog: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hostile = "\u202eeve\nuser=bo address=::1 method=wire in"
    with caplog.at_level(logging.INFO), served(catalog) as server:
        for name, password in (("ana", PASSWORD), ("ana", "wrong"), ("eve", PASSWORD)):
            with Client(server.port, name, password) as client:
                client.start()
        with Client(server.port, hostile, "wrong") as client:
            client.start()
        counted = "\n".join(lines(metrics(server)))
    said = [r.getMessage() for r in caplog.records if r.name == "dpsql.server"]
    where = "address=127.0.0.1 method=wire database=clinic"
    assert any(f"event=sign-in user=ana {where} outcome=in number=" in each for each in said)
    assert f"event=sign-in user=ana {where} outcome=failed state=28P01" in said
    assert f"event=sign-in user=eve {where} outcome=failed state=28000" in said
    (last,) = [each for each in said if 'user="\\\\u202eeve' in each]
    assert last.endswith(f"{where} outcome=failed state=28P01")
    assert not any("\n" in each or PASSWORD in each for each in said)
    assert 'dpsql_sign_ins_total{method="wire",outcome="failed",database="clinic"} 3' in counted
    assert 'dpsql_sign_ins_total{method="wire",outcome="in",database="clinic"} 1' in counted


def test_who_is_no_analyst_of_the_catalog_stays_out(site: Server) -> None:
    with Client(site.port, "eve") as client:
        (error,) = told(client.start())
    assert error["C"] == "28000"


def test_names_are_of_any_case_and_the_database_is_the_catalog(site: Server) -> None:
    with Client(site.port, "ANA") as client:
        assert client.start(database="CLINIC")[-1][0] == b"Z"
    with Client(site.port) as client:
        (error,) = told(client.start(database="other"))
        assert error["C"] == "3D000"


def test_what_a_session_is_told_of_itself(client: Client) -> None:
    assert client.parameters["server_version"].startswith("16.0 (dpsql ")
    assert client.parameters["standard_conforming_strings"] == "on"
    assert client.parameters["TimeZone"] == "UTC"


def test_a_session_begins_with_the_settings_of_its_options(site: Server) -> None:
    """What drivers send for ``options`` in a URL, and for parameters of the server."""
    with Client(site.port) as client:
        begun = client.start(options="-c epsilon=0.25 --show-stddev=on -csearch_path=a\\ b")
        assert begun[-1][0] == b"Z"
        assert any(b"0.25" in body for kind, body in client.ask("SHOW epsilon") if kind == b"D")
        asked = client.ask("SELECT kind, COUNT(*) AS n FROM t GROUP BY kind")
        assert any(b"n__stddev" in body for kind, body in asked if kind == b"T")
    with Client(site.port) as client:
        client.start(epsilon="0.5", application_name="tool")
        assert any(b"0.5" in body for kind, body in client.ask("SHOW epsilon") if kind == b"D")
    with Client(site.port) as client:
        (error,) = told(client.start(options="-c epsilon=frog"))
        assert error["M"].startswith("epsilon")


@pytest.mark.parametrize(
    ("options", "state"),
    [({"client_encoding": "LATIN1"}, "22023"), ({"replication": "database"}, "0A000")],
)
def test_what_cannot_be_served_is_refused(
    site: Server, options: dict[str, str], state: str
) -> None:
    with Client(site.port) as client:
        (error,) = told(client.start(**options))
    assert error["C"] == state


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!ii", 8, 131072),
        struct.pack("!ii", 4, 0),
        struct.pack("!ii", 1 << 30, 196608),
        struct.pack("!ii", 9, 196608) + b"\0",
        struct.pack("!ii", 20, 196608) + b"user\0ana\0\xff\xff\0",
    ],
)
def test_what_is_no_startup_message_is_refused(site: Server, first: bytes) -> None:
    with socket.create_connection(("127.0.0.1", site.port), 30) as raw:
        raw.sendall(first)
        raw.shutdown(socket.SHUT_WR)
        found = b""
        while piece := raw.recv(4096):
            found += piece
    assert found == b"" or found.startswith(b"E")


def test_one_client_more_than_there_may_be_is_told_so(catalog: Path) -> None:
    with served(catalog, most=1) as server, Client(server.port) as one:
        one.start()
        with Client(server.port) as two:
            (error,) = told(two.start())
            assert error["C"] == "53300"


def test_sessions_under_tls(catalog: Path) -> None:
    with (
        served(catalog, tls=write_certificate(catalog.parent)) as server,
        Client(server.port) as client,
    ):
        client.socket.sendall(struct.pack("!ii", 8, 80877103))
        assert client.read(1) == b"S"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client.socket = context.wrap_socket(client.socket)
        client.start()
        assert rows(client.ask("SHOW show_stddev")) == [[b"off"]]
        client.send(b"X")
        assert client.socket.recv(1) == b""


def test_sign_ins_are_bound_to_the_certificate(catalog: Path) -> None:
    cert, key = write_certificate(catalog.parent)
    with served(catalog, tls=(cert, key)) as server:
        dsn = f"host=127.0.0.1 port={server.port} user=ana password='{PASSWORD}' dbname=clinic"
        for wanted in ("require", "prefer", "disable"):
            with psycopg.connect(f"{dsn} sslmode=require channel_binding={wanted}") as found:
                assert found.execute("SHOW show_stddev").fetchone() == ("off",)
        with pytest.raises(psycopg.OperationalError, match="channel binding"):
            psycopg.connect(f"{dsn} sslmode=disable channel_binding=require")


def test_what_is_no_certificate_binds_nothing(tmp_path: Path) -> None:
    cert, _ = write_certificate(tmp_path)
    text = cert.read_text()
    for broken in ("", "no certificate", text[:200]):
        cert.write_text(broken)
        assert end_point(cert) is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("rsa:2048 -sha384", "sha384"),
        ("ec -pkeyopt ec_paramgen_curve:P-256 -sha256", "sha256"),
        ("ec -pkeyopt ec_paramgen_curve:P-384 -sha512", "sha512"),
        ("ed25519", None),
    ],
)
def test_the_hash_is_that_of_the_signature(tmp_path: Path, kind: str, name: str | None) -> None:
    cert = tmp_path / "cert.pem"
    command = f"openssl req -x509 -newkey {kind} -nodes -keyout {tmp_path}/key.pem -out {cert}"
    subprocess.run([*command.split(), "-subj", "/CN=x"], check=True, capture_output=True)
    der = ssl.PEM_cert_to_DER_cert(cert.read_text())
    assert end_point(cert) == (hashlib.new(name, der).digest() if name else None)


def test_beyond_this_machine_tls_is_needed(tmp_path: Path) -> None:
    for text in ("0.0.0.0", "192.0.2.7:5432", "[::]:5432", "example.org"):
        with pytest.raises(UsageError, match="TLS"):
            read_tls(None, None, Address.parse(text))
    assert read_tls(None, None, Address.parse("localhost:1")) is None
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path, why in ((broken, "no certificate"), (tmp_path / "gone.pem", "no such file")):
        with pytest.raises(UsageError, match=f"cannot be used: {why}"):
            read_tls(path, None, Address.parse("0.0.0.0"))


@pytest.mark.parametrize("text", ["host:port", "1.2.3.4:70000", "a:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        Address.parse(text)


@pytest.mark.parametrize("option", ["--listen", "--http", "--metrics"])
def test_every_address_is_looked_at_before_anything_starts(
    catalog: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["serve", str(catalog), option, "host:port", "--check"]) == 2
    assert "host:port is no address [E_LISTEN]" in capsys.readouterr().err


def test_a_port_in_use_is_refused(catalog: Path, site: Server) -> None:
    with pytest.raises(UsageError, match="cannot listen"):
        Server(Databases(database(catalog)), Address("127.0.0.1", site.port))


def test_users_are_added_changed_and_removed(tmp_path: Path) -> None:
    users = Users(tmp_path / "c.users")
    users.put("Ana", "one", new=True)
    first = users.find("ana")
    assert first is not None
    assert first.matches("one")
    with pytest.raises(UsageError, match="already"):
        users.put("ana", "two", new=True)
    users.put("ANA", "two", new=False)
    second = users.find("Ana")
    assert second is not None
    assert second.matches("two")
    assert users.path.stat().st_mode & 0o777 == 0o600
    assert "two" not in users.path.read_text()
    with pytest.raises(UsageError, match="not a user"):
        users.put("bo", "x", new=False)
    for name in ("", "a b", "a:b", "-x", "9", "x" * 64):
        with pytest.raises(UsageError):
            users.put(name, "x", new=True)
    with pytest.raises(UsageError, match="empty"):
        users.put("bo", "", new=True)
    users.remove("ana")
    assert users.find("ana") is None
    with pytest.raises(UsageError):
        users.remove("ana")
    users.path.write_text("ana:md5123\n")
    with pytest.raises(CatalogError, match="line 1"):
        users.find("ana")


def test_who_is_hung_up_while_tls_begins_is_let_go() -> None:
    """Under TLS the socket is another object, which a flood could outlive where it is made."""
    ours, theirs = socket.socketpair()
    wire = ClientSocket(ours)

    class Context:
        def wrap_socket(self, plain: socket.socket, **_: object) -> socket.socket:
            inner = socket.socket(fileno=plain.detach())
            wire.hang_up()
            return inner

    context: Any = Context()
    with theirs, pytest.raises(Hangup):
        wire.secure(context)
    wire.close()
