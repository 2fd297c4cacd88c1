"""Catalog, rows and public tables are edited between statements: no answer outlives its world.

Two connections ask over one pool of statements. Whatever is answered, free or not, is DuckDB's own
answer in the world that the connection has seen since it was opened, never that of another one.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.catalog import Catalog
from dpsql.dbapi.connection import Connection, migrate_ledger
from tests.suites.suite import compared
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import insert, scribe

pytestmark = pytest.mark.slow

WORLDS = effort(3)
STEPS = 14
CATALOG = """
[budget]
epsilon = 100000

[table.t]
source = "t-*.parquet"
privacy_unit = "row"

[table.t.column]
a = {{ type = "integer", domain = [0, {high}] }}
b = {{ type = "text", domain = {texts}, other = "rest" }}
m = {{ type = "number", bounds = [0, {bound}] }}

[table.bands]
source = "bands.csv"
public = true

[table.bands.column]
lo = {{ type = "integer" }}
name = {{ type = "text" }}
"""
FACTS = {"high": (3, 5), "texts": ('["x", "y"]', '["y", "x"]', '["x"]'), "bound": (10, 20, 5)}
BANDS = ("0,p\n2,q\n3,q\n", "0,q\n2,p\n3,q\n", "1,p\n", "0,p\n2,q\n3,r\n")
STATEMENTS = (
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
    "SELECT b, SUM(m) AS s, AVG(m) AS v FROM t WHERE a < 3 GROUP BY b",
    "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE b = 'x') AS x FROM t WHERE a < 3",
    "SELECT name, COUNT(*) AS n, SUM(m) AS s FROM t JOIN bands ON a = lo GROUP BY name",
    "SELECT name, COUNT(*) AS n FROM t JOIN bands ON a >= lo GROUP BY name",
    "SELECT b, COUNT(*) AS n FROM t WHERE a IN (SELECT lo FROM bands) GROUP BY b",
    "SELECT SUM(m) AS s FROM t WHERE a < (SELECT MAX(lo) FROM bands)",
)
SETTINGS = ("reuse = always", "reuse = always", "reuse = auto", "mechanism = identity")
REFUSED = ("E_DATA", "E_POLICY_CHANGED", "E_LEDGER_MISMATCH")
Row = tuple[int, str, float]


class World:
    """A folder that is edited, two connections to it, and the worlds that each may know."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng, self.folder = random.Random(seed), folder
        self.facts: dict[str, Any] = {name: values[0] for name, values in FACTS.items()}
        self.files: list[list[Row]] = []
        self.bands, self.clock = BANDS[0], 10**18
        self.connections: list[Connection | None] = [None, None]
        self.declared: list[dict[str, Any]] = [{}, {}]
        self.known: list[list[tuple[list[list[Row]], str]]] = [[], []]
        self.seen: Counter[str] = Counter()
        self.rewrite(0)
        self.write()

    def write(self) -> None:
        (self.folder / "t.toml").write_text(CATALOG.format(**self.facts), "utf-8")
        (self.folder / "bands.csv").write_text("lo,name\n" + self.bands, "utf-8")
        for known in self.known:
            known.append(([list(rows) for rows in self.files], self.bands))

    def rewrite(self, place: int) -> None:
        rng = self.rng
        values = (range(7), ("x", "y", "z"), (0.0, 1.0, 4.0, 9.0, 15.0, 30.0))
        rows: list[Row] = [
            (rng.choice(values[0]), rng.choice(values[1]), rng.choice(values[2]))
            for _ in range(rng.choice([0, 40, 80]))
        ]
        self.files[place : place + 1] = [rows]
        path = self.folder / f"t-{place}.parquet"
        with scribe() as database:
            database.execute("CREATE OR REPLACE TEMP TABLE t (a INT, b VARCHAR, m DOUBLE)")
            insert(database, "t", rows)
            database.execute(f"COPY t TO '{path}' (FORMAT parquet)")
        self.clock += 10**9
        os.utime(path, ns=(self.clock, self.clock))

    def connect(self, who: int) -> Connection:
        self.close(who)
        connection = dpsql.connect(self.folder / "t.toml", epsilon=1)
        connection.set("mechanism", "identity")
        self.connections[who], self.declared[who] = connection, dict(self.facts)
        self.known[who] = [([list(rows) for rows in self.files], self.bands)]
        return connection

    def close(self, who: int) -> None:
        connection, self.connections[who] = self.connections[who], None
        if connection is not None:
            connection.close()

    def step(self) -> None:
        rng, who = self.rng, self.rng.randrange(2)
        kind = rng.choice(
            ["ask"] * 7 + ["rows", "rows", "bands", "catalog", "again", "again", "set"]
        )
        if kind == "rows":
            self.rewrite(rng.randrange(len(self.files) + 1))
        elif kind == "bands":
            self.bands = rng.choice(BANDS)
        elif kind == "catalog":
            name = rng.choice(list(FACTS))
            self.facts[name] = rng.choice(FACTS[name])
        self.write()
        if kind == "catalog":
            migrate_ledger(self.folder / "t.toml")
        connection = self.connections[who]
        if connection is None or kind == "again":
            connection = self.connect(who)
        if kind == "set":
            connection.execute(f"SET {rng.choice(SETTINGS)}")
        if kind == "ask":
            self.ask(who, connection, rng.choice(STATEMENTS))

    def ask(self, who: int, connection: Connection, sql: str) -> None:
        try:
            result = connection.execute(sql).result
        except dpsql.Error as error:
            if error.code not in REFUSED:
                raise AssertionError(str(error)) from error
            self.seen["refused"] += 1
            self.connect(who)
            return
        assert result.cost is not None
        self.seen["free" if result.cost.free else "paid"] += 1
        worlds = [self.expected(who, files, bands, sql) for files, bands in self.known[who]]
        found = [compared(result, rows, 1e-3) for rows in worlds]
        assert None in found, f"{sql}\n{found[-1]}\n{result.notes}"

    def expected(
        self, who: int, files: list[list[Row]], bands: str, sql: str
    ) -> list[tuple[Any, ...]]:
        facts = self.declared[who]
        texts = facts["texts"].replace('"', "'").strip("[]")
        with duckdb.connect() as database:
            database.execute("CREATE TABLE raw (a INT, b VARCHAR, m DOUBLE)")
            insert(database, "raw", [row for rows in files for row in rows])
            database.execute("CREATE TABLE bands (lo INT, name VARCHAR)")
            pairs = [line.split(",") for line in bands.splitlines()]
            insert(database, "bands", [(int(lo), name) for lo, name in pairs])
            database.execute(
                f"CREATE VIEW t AS SELECT a, CASE WHEN b IN ({texts}) THEN b ELSE 'rest' END AS b,"
                f" least(m, {facts['bound']}) AS m FROM raw WHERE a <= {facts['high']}"
            )
            return database.execute(sql).fetchall()


def walk(folder: Path, worlds: Iterable[int]) -> Counter[str]:
    """What came of the statements of some worlds."""
    seen: Counter[str] = Counter()
    for seed in worlds:
        place = folder / str(seed)
        place.mkdir()
        state = {"XDG_STATE_HOME": str(place / "state")}
        with mock.patch.dict(os.environ, state), zero_noise(), ExitStack() as stack:
            world = World(place, seed)
            for who in range(2):
                stack.callback(world.close, who)
                world.connect(who)
            for _ in range(STEPS):
                world.step()
            seen += world.seen
    return seen


def test_no_answer_is_of_another_world(tmp_path: Path) -> None:
    seen = walk(tmp_path, range(WORLDS))
    assert all(seen[each] for each in ("free", "paid", "refused")), seen


@contextmanager
def a_catalog_that_means_nothing() -> Iterator[None]:
    """Releases are found again whatever columns mean by now."""
    with mock.patch.object(Catalog, "meaning_hash", return_value="same"):
        yield


@contextmanager
def rows_that_never_change() -> Iterator[None]:
    """Releases are found again whatever rows there are by now."""
    with mock.patch("dpsql.privacy.doors.vaults.Vaults.versions", return_value="same"):
        yield


@pytest.mark.parametrize(
    ("fault", "first"), [(a_catalog_that_means_nothing, 5), (rows_that_never_change, 1)]
)
def test_a_release_of_another_world_is_found(fault: Any, first: int, tmp_path: Path) -> None:
    """From the first world on in which it is seen today."""
    with fault(), pytest.raises(AssertionError):
        walk(tmp_path, range(first, 30))
