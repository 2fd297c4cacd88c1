"""Answers that are given at once: random sequences of sessions, beside a server that has none."""

from __future__ import annotations

import datetime as dt
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import psycopg
import pytest

import dpsql
from dpsql.dbapi.connection import Connection, raise_budget
from dpsql.dbapi.repetitions import FreeAnswers
from dpsql.server.answer_ticks import Ticks
from dpsql.server.pipelined import ReplyCache, first_request
from dpsql.server.server import Server
from dpsql.server.statements import StatementRunner
from tests.support.effort import effort
from tests.support.served import Client, kinds, rows, served, told, write_certificate

SEQUENCES = effort(1)
STEPS, MANY = 40, 8000
SELECTS = (
    "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind",
    "SELECT COUNT(*), COUNT(*) + 1 AS more FROM t",
    "SELECT size, COUNT(*) FROM t WHERE kind = 'it''s' GROUP BY size",
    "SELECT SUM(cost) FROM t WHERE day < CURRENT_DATE",
    "select kind from t group by kind",
)
SHAPED = "SELECT COUNT(*) FROM t WHERE kind = $1 AND size < $2"
SETTINGS = (
    *("SET epsilon = 0.01", "SET epsilon = 0.02", "SET noise = gaussian", "SET noise = laplace"),
    *("SET reuse = always", "SET reuse = exact", "SET show_stddev = on", "SET show_stddev = off"),
    *("BEGIN", "COMMIT", "ROLLBACK", "ROLLBACK", "SELECT nope FROM t"),
    *("BEGIN WORKLOAD", "CANCEL WORKLOAD", "CANCEL WORKLOAD"),
    *("SHOW epsilon", "SELECT COUNT(*) FROM t; SELECT COUNT(*) FROM t", ""),
)
Back = list[tuple[bytes, bytes]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is settled sooner, so that much is answered at once; the kernel's clock has 4 ms."""
    monkeypatch.setattr("dpsql.dbapi.repetitions.SETTLED", 8_000_000)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was found among bursts, which is not yet what was told."""
    kept: list[object] = []
    find = ReplyCache.find

    def watch(self: ReplyCache, key: object) -> object:
        known = find(self, key)
        kept.extend([] if known is None else [known])
        return known

    monkeypatch.setattr(ReplyCache, "find", watch)
    return kept


@dataclass
class Pair:
    """One session of a server that knows what it told, and its like on one that does not."""

    quick: Client
    plain: Client
    name: str
    parsed: set[str] = field(default_factory=set)

    def close(self) -> None:
        for client in (self.quick, self.plain):
            client.socket.close()

    def both(self, ask: Callable[[Client], Back]) -> tuple[Back, Back]:
        return ask(self.quick), ask(self.plain)


def _say(sql: str) -> Callable[[Client], Back]:
    return lambda client: client.ask(sql)


def _bind(values: tuple[bytes, bytes], name: str, parse: bool, wanted: int) -> Callable[..., Back]:
    def ask(client: Client) -> Back:
        if parse:
            client.parse(SHAPED, name)
        client.bind(*values, name=name, wanted=wanted)
        client.describe(b"P")
        client.execute()
        return client.sync()

    return ask


def _any(rng: random.Random, pair: Pair) -> Callable[[Client], Back]:
    """What a session asks next: mostly what was asked before."""
    if rng.random() < 0.25:
        return _say(rng.choice(SETTINGS))
    if rng.random() < 0.6:
        return _say(rng.choice(SELECTS[: 2 + rng.randrange(4)]))
    values = rng.choice((b"x", b"it's")), rng.choice((b"3", b"7"))
    name = rng.choice(("", "s"))
    parse = name not in pair.parsed or not name
    if name:
        pair.parsed.add(name)
    return _bind(values, name, parse, rng.randrange(2))


class World:
    """What may change between two statements."""

    def __init__(
        self, catalog: Path, servers: tuple[Server, Server], patch: pytest.MonkeyPatch
    ) -> None:
        self.catalog, self.servers, self.patch = catalog, servers, patch
        self.budget, self.days = 100, 0
        self.pairs = [self._pair(name) for name in ("ana", "ana", "Bo")]

    def _pair(self, name: str) -> Pair:
        clients = [Client(each.port, name) for each in self.servers]
        for client in clients:
            client.start()
            client.ask("SET epsilon = 0.01")
        return Pair(clients[0], clients[1], name)

    def turn(self, rng: random.Random) -> None:
        """Let something happen."""
        acts = (self._elsewhere, self._data, self._tomorrow, self._again, self._raise)
        rng.choices(acts, (4, 3, 1, 3, 2))[0]()

    def close(self) -> None:
        """End the sessions."""
        for pair in self.pairs:
            pair.close()

    def _again(self) -> None:
        """A session ends, and another begins."""
        self.pairs[0].close()
        self.pairs.append(self._pair(self.pairs.pop(0).name))

    def _raise(self) -> None:
        """The curator raises the budget: whoever is here and pays has to connect again."""
        self.budget += 1
        raise_budget(self.catalog, Fraction(self.budget))
        for pair in self.pairs:
            _compare(pair, _say(SELECTS[0]), "raised")
        for _ in self.pairs:
            self._again()

    def _elsewhere(self) -> None:
        """Another process asks the same at a better price, which may answer later what is asked."""
        with dpsql.connect(self.catalog, analyst="ana", epsilon=0.03) as connection:
            connection.execute(SELECTS[0])

    def _data(self) -> None:
        self.patch.undo()
        os.utime(self.catalog.with_name("t.parquet"))
        for server in self.servers:
            server.databases.first.site.engine.reopen()

    def _tomorrow(self) -> None:
        self.days += 1
        later = dt.date.today() + dt.timedelta(days=self.days)
        for module in ("dbapi.repetitions", "sql.text.current_date"):
            self.patch.setattr(f"dpsql.{module}.today", lambda: later)


def _is_charged(back: Back) -> bool:
    return any(each["M"].startswith("charged") for each in told(back, b"N"))


def _compare(pair: Pair, ask: Callable[[Client], Back], what: str) -> None:
    """The same bytes; where the first has paid, the same rows for nothing."""
    quick, plain = pair.both(ask)
    if _is_charged(quick):
        assert not _is_charged(plain), what
        assert rows(quick) == rows(plain), what
    else:
        assert quick == plain, what


@pytest.fixture
def two(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Server]]:
    """A server, and one over the same catalog that works everything out anew."""
    with ExitStack() as stack:
        quick = stack.enter_context(served(catalog))
        plain = stack.enter_context(served(catalog))
        admit = plain.databases.first.site.admit

        def forgetful(analyst: str | None) -> tuple[Connection, FreeAnswers]:
            connection, repeats = admit(analyst)
            monkeypatch.setattr(repeats, "key", lambda *_: None)
            return connection, repeats

        monkeypatch.setattr(plain.databases.first.site, "admit", forgetful)
        yield quick, plain


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_sequences_are_answered_as_without_it(
    two: tuple[Server, Server], catalog: Path, found: list[object], seed: int
) -> None:
    rng = random.Random(20261123 + seed)
    quick, plain = two
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        world = World(catalog, two, patch)
        stack.callback(world.close)
        for step in range(STEPS):
            pair = rng.choice(world.pairs)
            ask = _any(rng, pair)
            for _ in range(rng.choice((0, 0, 2, 4))):
                _compare(pair, ask, f"seed {seed}, step {step}")
                time.sleep(0.012)
            _compare(pair, ask, f"seed {seed}, step {step}")
            if rng.random() < 0.15:
                world.turn(rng)
        for pair in world.pairs:
            for sql in ("ROLLBACK", "CANCEL WORKLOAD", "SHOW budget"):
                _compare(pair, _say(sql), "the end")
        for _ in range(5):
            _compare(world.pairs[0], _say(SELECTS[0]), "the end")
            time.sleep(0.012)
    assert found
    assert len(quick.databases.first.site.engine.entries()) == len(
        plain.databases.first.site.engine.entries()
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reached the thread of a client."""
    reached: list[str] = []
    ask = StatementRunner.ask

    def watch(self: StatementRunner, text: str, commands: object) -> object:
        reached.append(text)
        return ask(self, text, commands)  # type: ignore[arg-type]

    monkeypatch.setattr(StatementRunner, "ask", watch)
    return reached


def _warm(client: Client, sql: str = SELECTS[0]) -> None:
    """Ask until it is answered at once."""
    for _ in range(4):
        client.ask(sql)
        time.sleep(0.015)


def _reaches(client: Client, asked: list[str], sql: str = SELECTS[0]) -> bool:
    del asked[:]
    client.ask(sql)
    return bool(asked)


def test_whatever_an_answer_follows_from_makes_it_be_looked_for_anew(
    catalog: Path, asked: list[str]
) -> None:
    with served(catalog) as server, Client(server.port) as ana, Client(server.port, "Bo") as bo:
        for client in (ana, bo):
            client.start()
            client.ask("SET epsilon = 0.01")
        _warm(ana)
        assert not _reaches(ana, asked)
        assert _reaches(bo, asked)  # an analyst has what they asked, and nothing of others
        for sql in ("SET show_stddev = on", "SET epsilon = 0.02", "SET reuse = always"):
            ana.ask(sql)
            assert _reaches(ana, asked), sql
        for sql in ("SET show_stddev = off", "SET epsilon = 0.01", "SET reuse = exact"):
            ana.ask(sql)
        _warm(ana)
        assert not _reaches(ana, asked)
        ana.ask("BEGIN WORKLOAD")
        assert _reaches(ana, asked)
        ana.ask("CANCEL WORKLOAD")
        assert not _reaches(ana, asked)
        ana.ask("BEGIN; SELECT nope FROM t")
        assert kinds(ana.ask(SELECTS[0])) == "EZ"
        ana.ask("ROLLBACK")
        assert not _reaches(ana, asked)
        ledger = catalog.with_suffix(".ledger")
        ledger.rename(catalog.with_suffix(".gone"))
        assert kinds(ana.ask(SELECTS[0])) == "EZ"
        catalog.with_suffix(".gone").rename(ledger)
        assert kinds(ana.ask(SELECTS[0])).endswith("CZ")
        raise_budget(catalog, Fraction(101))
        assert _reaches(ana, asked)


def test_answers_at_ticks_are_never_given_at_once(catalog: Path, asked: list[str]) -> None:
    with served(catalog) as server:
        server.ticks = Ticks(0.01)
        with Client(server.port) as client:
            client.start()
            client.ask("SET epsilon = 0.01")
            _warm(client)
            assert _reaches(client, asked)


def test_what_is_told_of_it_is_the_last_charge_and_is_counted(
    catalog: Path, asked: list[str]
) -> None:
    with served(catalog) as server, Client(server.port) as client:
        client.start()
        client.ask("SET epsilon = 0.01")
        _warm(client)
        client.ask("SELECT COUNT(*) FROM t")
        time.sleep(0.02)
        client.ask(SELECTS[0])
        _warm(client)
        before = server.events.total("message")
        assert not _reaches(client, asked)
        assert server.events.total("message") == before + 1
        (row,) = rows(client.ask("SHOW last_charge"))
        assert row == [b"free, ledger entry 1"]


def test_under_tls(catalog: Path, asked: list[str]) -> None:
    tls = write_certificate(catalog.parent)
    with served(catalog, tls=tls) as server:
        dsn = f"host=127.0.0.1 port={server.port} user=ana password='geheim é' dbname=clinic"
        with psycopg.connect(dsn, autocommit=True, sslmode="require") as connection:
            connection.execute("SET epsilon = 0.01")
            expected = connection.execute(SELECTS[0]).fetchall()
            for _ in range(10):  # the driver prepares it after some
                time.sleep(0.015)
                assert connection.execute(SELECTS[0]).fetchall() == expected
            del asked[:]
            for _ in range(50):
                assert connection.execute(SELECTS[0]).fetchall() == expected
            assert not asked
            with connection.pipeline():
                many = [connection.execute(SELECTS[0]) for _ in range(20)]
            assert all(each.fetchall() == expected for each in many)


def test_a_client_that_reads_slowly_gets_all_of_it(catalog: Path) -> None:
    with served(catalog) as server, Client(server.port) as client:
        client.start()
        client.ask("SET epsilon = 0.01")
        _warm(client, SELECTS[2])
        sql = SELECTS[2].encode() + b"\0"
        one = b"Q" + struct.pack("!i", len(sql) + 4) + sql
        client.send(b"Q", sql)
        reply = client.socket.recv(1 << 16)
        sender = threading.Thread(target=client.socket.sendall, args=(one * MANY,))
        sender.start()
        time.sleep(0.3)  # nothing is read meanwhile, and more is told than fits
        assert client.read(len(reply) * MANY) == reply * MANY
        sender.join()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"Q",
        b"Q\0\0\0\x08ab",
        b"Q\0\0\0\3",
        b"Q\x7f\xff\xff\xff",
        b"S\0\0\0\4",
        b"P\0\0\0\x08\0x\0\0S\0\0\0\4",
        b"X\0\0\0\4",
    ],
)
def test_what_is_no_batch_is_left_alone(data: bytes) -> None:
    assert first_request(data) is None
