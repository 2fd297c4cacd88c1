"""What a session holds does not grow with the statements that it was asked."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.answer import store
from dpsql.answer.store import Releases
from dpsql.dbapi.connection import Connection
from dpsql.engine import planner
from dpsql.privacy.doors import vaults
from dpsql.privacy.vault.codes.spill import MOST_DERIVED
from dpsql.strategy import product_forecast
from dpsql.strategy.product_forecast import ProductForecast

CATALOG = """[budget]
epsilon = 100000

[table.v]
source = "v.parquet"
privacy_unit = { column = "pid", max_rows = 3 }
[table.v.column]
age = { type = "integer", domain = [0, 99] }
s = { type = "integer", domain = [0, 1] }

[table.w]
source = "w.parquet"
privacy_unit = "row"
[table.w.column]
age = { type = "integer", domain = [0, 19] }
"""
PER_UNIT = (
    "SELECT n, COUNT(*) AS c FROM (SELECT pid, COUNT(*) AS n FROM v WHERE age > {i} GROUP BY pid) q"
    " GROUP BY n"
)
KINDS = {
    "groups": "SELECT age, COUNT(*) AS n FROM v WHERE s = 1 OR age > {i} GROUP BY age",
    "groups left out": "SELECT age, COUNT(*) AS n FROM v WHERE age <> {i} AND s = 1 GROUP BY age",
    "couples": "SELECT COUNT(*) AS n FROM v WHERE age > {i} OR (s = 1 AND age < 9)",
    "formulas": "SELECT (age * {i}) % 7 AS k, COUNT(*) AS n FROM v GROUP BY k",
    "listed": "SELECT lo, COUNT(*) AS n FROM v JOIN (VALUES (0, {i}), (1, 9)) b(lo, hi)"
    " ON age BETWEEN lo AND hi GROUP BY lo",
    "derived": PER_UNIT,
}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Connection]:
    with duckdb.connect() as scribe:
        scribe.execute(
            "COPY (SELECT i // 3 AS pid, i % 100 AS age, i % 2 AS s FROM range(6000) r(i))"
            f" TO '{tmp_path}/v.parquet'"
        )
        scribe.execute(f"COPY (SELECT i % 20 AS age FROM range(50) r(i)) TO '{tmp_path}/w.parquet'")
    (tmp_path / "c.toml").write_text(CATALOG)
    with dpsql.connect(tmp_path / "c.toml", epsilon=0.01) as connection:
        yield connection


def held_after(ask: Callable[[int], object], count: int) -> int:
    """Bytes that are held more after so many statements, beside what the first few leave."""
    for number in range(1, 4):
        ask(number)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(4, 4 + count):
            ask(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_was_counted(session: Connection, kind: str) -> None:
    """A third of it at least: then a session holds no more than three times of what it may."""
    before = session.engine._held
    found = held_after(lambda i: session.describe(KINDS[kind].format(i=i)), 30)
    assert session.engine._held - before > found / 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_lets_go_of_statements(session: Connection, kind: str) -> None:
    most = 1 << 19
    with mock.patch.object(planner, "HELD", most):
        found = held_after(lambda i: session.describe(KINDS[kind].format(i=i)), 45)
    assert session.engine._held <= most + (1 << 17)
    assert found < 4 * most
    assert len(session.catalog.derived) <= len(session.engine._compiled) + 1


def test_what_is_let_go_of_answers_as_before(session: Connection) -> None:
    texts = [sql.format(i=i) for sql in KINDS.values() for i in range(2)]
    first = [session.execute(sql).fetchall() for sql in texts]
    paid = len(session.entries())
    with mock.patch.object(planner, "HELD", 0), mock.patch.object(vaults, "MOST_DERIVED", 0):
        session.execute("BEGIN WORKLOAD")
        for sql in texts[:4]:
            session.execute(sql)
        session.execute("CANCEL WORKLOAD")
        assert [session.execute(sql).fetchall() for sql in texts] == first
        script = ";\n".join(texts)
        assert len(session.explain(script).statements) == len(texts)
    assert len(session.entries()) == paid


def test_rows_of_derived_tables_are_let_go_of(session: Connection) -> None:
    """Each relation has rows of its own; the same ones are made again of those of the table."""
    for i in range(2 * MOST_DERIVED):
        session.execute(PER_UNIT.format(i=i))
    shared = session.engine.vaults
    opened = shared.tables
    assert len(opened.found) <= MOST_DERIVED + 2
    name = next(iter(opened.derived))
    version, rows = opened.found[name].data_version, opened.found[name].rows()
    with mock.patch.object(vaults, "MOST_DERIVED", 0), shared.lent([], {}):
        assert name not in opened.found
        again = opened.found[name].rows() if shared[name].data_version == version else None
    assert again is not None
    assert again.codes.keys() == rows.codes.keys()
    for key, codes in rows.codes.items():
        assert np.array_equal(codes, again.codes[key])


def test_releases_of_two_tables_are_not_decoded_in_turn(session: Connection) -> None:
    """Those that are looked through for one table do not push out those of the other."""
    for i in range(store.LATEST // 2 + 3):
        for table in "vw":
            name = f"SELECT COUNT(*) AS n FROM {table} WHERE age = {i % 20}"
            session.execute(name, epsilon=0.01 + 0.001 * i)
    with mock.patch.object(Releases, "_decode", create=True) as decode:
        session.engine.store.releases._decode = decode
        for table in "vw":
            session.execute(f"SELECT COUNT(*) AS n FROM {table} WHERE age < 5")
    assert decode.call_count == 0


def test_large_releases_are_not_all_kept_decoded(session: Connection) -> None:
    releases = session.engine.store.releases
    with mock.patch.object(Releases, "remembered", 1 << 14):
        for i in range(12):
            session.execute("SELECT age, COUNT(*) AS n FROM v GROUP BY age", epsilon=0.01 + i / 100)
    assert 0 < len(releases._decoded) < 12
    assert releases._bytes == sum(size for _, size in releases._decoded.values()) <= 1 << 14


def test_a_release_that_answers_many_statements_does_not_grow(session: Connection) -> None:
    """It forgets what it worked out for factors, and answers as before."""
    session.execute("SELECT age, COUNT(*) AS n FROM v GROUP BY age")
    texts = [f"SELECT age, COUNT(*) AS n FROM v WHERE age <> {i} GROUP BY age" for i in range(60)]
    most = 1 << 12
    with mock.patch.object(product_forecast, "REMEMBERED", most):
        first = [session.execute(sql).fetchall() for sql in texts]
    assert len(session.entries()) == 2
    forecasts = [
        part.forecast
        for release, _ in session.engine.store.releases._decoded.values()
        for part in release.plan.parts
    ]
    kept = [each for each in forecasts if isinstance(each, ProductForecast)]
    assert any(each._parts for each in kept)
    for each in kept:
        held = sum(means.size + spread.size for means, spread, _ in each._parts.values())
        assert held <= each._numbers <= most
    assert [session.execute(sql).fetchall() for sql in texts] == first
