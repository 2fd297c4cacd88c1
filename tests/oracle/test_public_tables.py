"""Public tables of any size, in chains, by USING and by keys that repeat: as DuckDB joins them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

import dpsql
from dpsql.sql.public import public_joins
from dpsql.sql.scope import Scope
from tests.oracle.test_lists import alike
from tests.support.differences import agree, differences
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

STATEMENTS = effort(25)
DAYS = 73_049
TABLES = {"dates": "d_year", "items": "item", "kinds": "kind", "twice": "k"}
CATALOG = (
    '[budget]\nepsilon = 100000\n[table.t]\nsource = "t.parquet"\nprivacy_unit = "row"\n'
    '[table.t.column]\nday = { type = "date", domain = ["1998-01-01", "2002-12-31"] }\n'
    'item = { type = "integer", domain = [0, 199] }\n'
    'k = { type = "integer", domain = [0, 4], null = true }\n'
    + "".join(
        f'[table.{n}]\nsource = "{n}.parquet"\npublic = true\n[table.{n}.column]\n{c} = '
        '{ type = "integer" }\n'
        for n, c in TABLES.items()
    )
)
DATA: Tables = {
    "t": "SELECT DATE '1998-01-01' + (hash(i) % 1826)::INT AS day, (hash(i, 1) % 200)::INT AS item,"
    " nullif((hash(i, 2) % 6)::INT, 5) AS k FROM range(4000) r(i)",
    "dates": "SELECT i AS d_id, DATE '1900-01-02' + i::INT AS d_date, year(DATE '1900-01-02'"
    " + i::INT) AS d_year, i % 7 AS dow, 'text ' || i % 100 AS note"
    f" FROM range({DAYS}) r(i)",
    "items": "SELECT i AS item, i % 13 AS kind, i * 0.5 AS price FROM range(5000) r(i)",
    "kinds": "SELECT i AS kind, 'kind ' || i // 3 AS name, nullif(i % 4, 2) AS shelf"
    " FROM range(11) r(i)",
    "twice": ("k BIGINT, label VARCHAR", [(0, "a"), (0, "b"), (1, "a"), (None, "c"), (3, "d")]),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("public")) as world:
        yield world


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    with zero_noise(), open_tables(folder, CATALOG, DATA) as (connection, database):
        connection.execute("SET mechanism = identity")
        yield connection, database


SOURCES = [
    ("t JOIN dates ON day = d_date", ["d_year", "dow"], ["dow", "d_year"]),
    ("t JOIN items ON t.item = items.item", ["items.kind"], ["price", "kind"]),
    ("t JOIN items USING (item)", ["kind", "item // 50"], ["price"]),
    ("t JOIN items USING (item) JOIN kinds USING (kind)", ["name", "shelf", "kind"], ["price"]),
    ("t JOIN items i ON t.item = i.item JOIN kinds ON kinds.kind = i.kind", ["name"], ["shelf"]),
    ("t LEFT JOIN items i ON t.item = i.item AND i.price < 40 LEFT JOIN kinds n ON n.kind = i.kind",
     ["name", "shelf"], []),
    ("t, items i, kinds n WHERE t.item = i.item AND i.kind = n.kind", ["name"], ["price"]),
    ("t JOIN twice ON t.k = twice.k", ["label"], ["twice.k"]),
    ("t JOIN twice ON t.k <= twice.k", ["label", "twice.k"], ["twice.k"]),
    ("t LEFT JOIN twice ON t.k = twice.k", ["label"], []),
    ("t JOIN twice ON t.k = twice.k JOIN items ON t.item = items.item", ["label"], ["price"]),
    ("t JOIN twice a ON t.k = a.k JOIN twice b ON t.k = b.k", ["a.label", "b.label"], ["a.k"]),
    ("t JOIN kinds ON t.k = shelf JOIN items ON items.kind = kinds.kind AND items.item < 90",
     ["name"], ["price"]),
]  # fmt: skip


def statement(rng: random.Random) -> str:
    source, keys, numbers = rng.choice(SOURCES)
    chosen = rng.sample(keys, rng.choice(range(len(keys) + 1)))
    cells = ["COUNT(*)", "COUNT(*) FILTER (WHERE t.k > 1)", "COUNT(t.k)"]
    cells += [f"SUM({n})" for n in numbers] + [f"COUNT(*) FILTER (WHERE {n} > 1)" for n in numbers]
    where = rng.choice(["", "", "t.k IN (0, 3)", *(f"{n} BETWEEN 1 AND 6" for n in numbers)])
    if where:
        where = (" AND " if "WHERE" in source else " WHERE ") + where
    group = f" GROUP BY {', '.join(chosen)} HAVING COUNT(*) > 0" if chosen else ""
    return f"SELECT {', '.join([*chosen, *rng.sample(cells, 2)])} FROM {source}{where}{group}"


def statements(count: int) -> Iterator[str]:
    rng = random.Random(23)
    return (statement(rng) for _ in range(count))


def test_answers_are_those_of_the_database(world: World) -> None:
    agree(world, statements(STATEMENTS), alike)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT d_year, COUNT(*) AS n FROM t JOIN dates ON day = d_date GROUP BY d_year ORDER BY n",
        "SELECT COUNT(*) FROM t WHERE item IN (SELECT item FROM items WHERE kind = 3)",
        "SELECT name, SUM(n) FROM (SELECT item, COUNT(*) AS n FROM t GROUP BY item) AS q"
        " JOIN kinds ON q.item = kinds.kind GROUP BY name",
        "SELECT COUNT(*) FROM t JOIN twice ON t.k = twice.k WHERE t.k > t.item % 4",
        "SELECT label, COUNT(*), SUM(t.k) FROM t JOIN twice ON t.k = twice.k"
        " WHERE twice.k + t.item % 3 > 1 GROUP BY label ORDER BY label",
        "SELECT COUNT(*) FROM t JOIN twice a ON t.k = a.k JOIN twice b ON t.k = b.k"
        " WHERE a.k < t.item % 5 AND a.label = 'b'",
    ],
)
def test_other_forms(world: World, sql: str) -> None:
    connection, database = world
    assert alike(connection.execute(sql).fetchall(), database.execute(sql).fetchall())


def test_conditions_over_public_rows_are_planned_by_any_mechanism(world: World) -> None:
    sql = "SELECT COUNT(*) FROM t JOIN twice ON t.k = twice.k WHERE t.k > t.item % 7"
    connection, database = world
    connection.execute("SET mechanism = auto")
    assert not connection.explain(sql).free
    found = connection.execute(sql).fetchall()
    connection.execute("SET mechanism = identity")
    assert alike(found, database.execute(sql).fetchall())


def test_results_that_are_too_large_are_refused_in_place(world: World) -> None:
    connection, _ = world
    before, started = connection.budget, time.process_time()
    with pytest.raises(dpsql.ProgrammingError) as caught:
        connection.execute("SELECT dow, COUNT(*) FROM t JOIN dates ON day < d_date GROUP BY dow")
    error = caught.value
    assert error.code == "E_TOO_LARGE"
    assert error.span is not None
    assert error.span.text[error.span.start :].startswith("dates")
    assert connection.budget == before
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("SELECT COUNT(*) FROM t JOIN items USING (nothing)", "nothing"),
        ("SELECT COUNT(*) FROM t JOIN kinds USING (kind)", "kind)"),
    ],
)
def test_what_joins_nothing_is_refused_in_place(world: World, sql: str, place: str) -> None:
    with pytest.raises(dpsql.Error) as caught:
        world[0].execute(sql)
    error = caught.value
    assert error.code in ("E_JOIN", "E_UNKNOWN_COLUMN")
    assert error.span is not None
    assert place in error.span.text[error.span.start :]


def _unlinked(scope: Scope, *given: object) -> object:
    link = REAL(scope, *given)  # type: ignore[arg-type]
    return type(link)(link.name, link.columns, link.types, link.rows[:-1], link.on, link.keep)


REAL = public_joins._link


def test_a_planted_fault_is_found(tmp_path: Path) -> None:
    with mock.patch.object(public_joins, "_link", _unlinked), opened(tmp_path) as world:
        assert any(differences(world, statements(30), alike))
