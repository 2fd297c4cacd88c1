"""Malformed, truncated and disordered messages: no crash, and nothing is charged."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
from pathlib import Path

import pytest

from dpsql.server.client_connection import ClientConnection
from dpsql.server.client_socket import ClientSocket
from dpsql.server.handshake import Refusal
from dpsql.server.idle_clients import IdleClients
from dpsql.server.messages import Hangup, ProtocolError
from dpsql.server.pipelined import ReplyCache
from dpsql.server.server import Server
from dpsql.server.statements import StatementRunner
from dpsql.sql.text.lexemes import split_statements
from tests.support.effort import effort, first_seed
from tests.support.served import Client, served, write_certificate

MESSAGES = effort(1600)
GROWTH = 32 << 20
"""Bytes that a process may hold more after any number of messages than after the first tenth."""
FREE = b"SELECT COUNT(*) FROM t"
"""What was paid for before: it is free, and told at once where nothing else comes with it."""
SQLS = (
    FREE,
    b"SELECT kind, nope FROM t",
    b"EXPLAIN SELECT COUNT(*) FROM t",
    b"SELECT MAX(cost) FROM t",
    b"SHOW noise",
    b"SET x = 1",
    b"BEGIN; ROLLBACK",
    b"",
    b";;",
    b"FETCH 1 FROM c",
    b"COPY (SELECT 1) TO STDOUT (FORMAT x)",
    b"SELECT $1, $99999999999999, '$2",
    b"\xff\xfe",
    b"SELECT " + b"(" * 5000,
)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _valid(rng: random.Random) -> bytes:
    """One message that might be right."""
    sql = rng.choice(SQLS) + b"\0"
    name = rng.choice((b"", b"s", b"p")) + b"\0"
    oids = struct.pack("!HI", 1, rng.choice((0, 23, 1700, 99999)))
    value = rng.choice((struct.pack("!i", -1), struct.pack("!i", 2) + b"ab", b"\x7f\xff\xff\xff"))
    formats = rng.choice((b"\0\0", struct.pack("!hh", 1, rng.choice((0, 1, 7)))))
    bound = name + name + formats + b"\0\1" + value + formats
    return _message(
        *rng.choice(
            (
                (b"Q", sql),
                (b"P", name + sql + rng.choice((b"\0\0", oids))),
                (b"B", bound),
                (b"D", rng.choice((b"S", b"P", b"X")) + name),
                (b"E", name + struct.pack("!i", rng.choice((0, 1, -5)))),
                (b"C", rng.choice((b"S", b"P")) + name),
                (b"S", b""),
                (b"H", b""),
                (b"F", b"\0\0"),
                (b"d", b"data"),
                (rng.randbytes(1), rng.randbytes(rng.randrange(9))),
            )
        )
    )


def _transcript(rng: random.Random) -> tuple[bytes, int]:
    """What a client sends before it hangs up, and how many messages it was made of."""
    count = rng.randrange(1, 8)
    data = bytearray(b"".join(_valid(rng) for _ in range(count)))
    if rng.random() < 0.5:
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    return bytes(data), count


def _held() -> int:
    """The bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _exchange(data: bytes, serve: object) -> bytes:
    """What comes back for some bytes, after which the client hangs up."""
    here, there = socket.socketpair()
    with here, there:
        found = bytearray()

        def listen() -> None:
            while piece := here.recv(1 << 16):
                found.extend(piece)

        thread = threading.Thread(target=listen)
        thread.start()
        here.sendall(data)
        here.shutdown(socket.SHUT_WR)
        wire = ClientSocket(there)
        wire.expect(20)
        try:
            serve(wire)  # type: ignore[operator]
        except (Hangup, ProtocolError, Refusal):
            pass
        finally:
            wire.close()
            thread.join()
    return bytes(found)


def _kinds(data: bytes) -> list[bytes]:
    """The letters of the messages that came back, all of which are whole."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack("!i", data[at + 1 : at + 5])
        found.append(data[at : at + 1])
        at += 1 + length
    assert at == len(data)
    return found


def test_no_message_breaks_a_session(site: Server) -> None:
    rng = random.Random(first_seed(20261122))
    asker, idle, remembered = (
        StatementRunner(site.databases.first.site, None, "ana"),
        IdleClients(),
        ReplyCache(),
    )
    for sql in ("SET epsilon = 0.01", FREE.decode()):
        (fragment,) = split_statements(sql)
        asker.ask(sql, [asker.route(fragment)])
    before = len(site.databases.first.site.engine.entries())
    sent, held = 0, 0
    while sent < MESSAGES:
        held = held or (_held() if sent > MESSAGES / 10 else 0)
        data, count = _transcript(rng)
        sent += count
        back = _exchange(
            data, lambda wire: ClientConnection(wire, asker, None, idle, remembered).run()
        )
        assert set(_kinds(back)) <= set(map(bytes, zip(b"ZECTDNSItn123sVHcd", strict=False))), data
        assert b"Traceback" not in back
        assert b"defect of the server" not in back, data
    asker.close()
    idle.close()
    assert len(site.databases.first.site.engine.entries()) == before
    growth = _held() - held
    print(
        f"{sent} messages; {held / 2**20:.0f} MiB held at first, {growth / 2**20:.1f} more at last"
    )
    assert growth < GROWTH


def test_nobody_comes_in_by_accident(site: Server) -> None:
    rng = random.Random(20261123)
    for _ in range(min(MESSAGES // 16, 5000)):
        options = b"user\0ana\0database\0clinic\0\0"
        start = bytearray(struct.pack("!ii", len(options) + 8, 196608) + options)
        first = b"n,,n=,r=abc"
        start += _message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
        start += _message(b"p", b"c=biws,r=abc,p=AAAA")
        for _ in range(rng.randrange(4)):
            start[rng.randrange(len(start))] = rng.randrange(256)
        back = _exchange(bytes(start), site._door.welcome)
        assert b"R\0\0\0\x08\0\0\0\0" not in back


@pytest.mark.parametrize("secure", [False, True])
def test_who_knows_a_password_comes_in_through_a_flood(catalog: Path, secure: bool) -> None:
    tls = write_certificate(catalog.parent) if secure else None
    with served(catalog, tls=tls, most=4) as server, contextlib.ExitStack() as stack:
        flood = []
        for _ in range(40):
            one = socket.create_connection(("127.0.0.1", server.port), 60)
            flood.append(stack.enter_context(one))
            if secure:  # the handshake of TLS is begun, and left there
                one.sendall(struct.pack("!ii", 8, 80877103))
        client = stack.enter_context(Client(server.port))
        assert client.start()[-1][0] == b"Z"
        for one in flood[:-4]:  # all but the latest have made room
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(2) in (b"", b"S")
                assert one.recv(1) == b""
        assert client.ask("SHOW show_stddev")
