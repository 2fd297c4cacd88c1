"""The bound on rows of a unit comes after the conditions of a request, however they are written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.engine.terms import form_request
from dpsql.plan import target
from dpsql.relation.row_view import RowView
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, write_tables

MOST = 3
CATALOG = f"""
[budget]
epsilon = 1000000
delta = 1e-9

[table.visits]
source = "visits.parquet"
privacy_unit = {{ column = "who", max_rows = {MOST} }}

[table.visits.column]
a = {{ type = "integer", domain = [0, 6] }}
b = {{ type = "text", domain = ["x", "y", "z"], null = true }}
m = {{ type = "number", bounds = [0, 10] }}

[table.floors]
source = "floors.parquet"
public = true

[table.floors.column]
a = {{ type = "integer" }}
floor = {{ type = "integer" }}
"""
ROWS = 900
CONDITIONS = effort(12)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Path, duckdb.DuckDBPyConnection]]:
    rng = random.Random(5)
    rows = [
        (int(rng.paretovariate(0.7)) % 90, rng.randrange(7), rng.choice(["x", "y", "z", None]), 1.0)
        for _ in range(ROWS)
    ]
    tables: Tables = {
        "visits": ("who INTEGER, a INTEGER, b VARCHAR, m DOUBLE", rows),
        "floors": ("a INTEGER, floor INTEGER", [(i, i // 2) for i in range(5)]),
    }
    with write_tables(tmp_path, CATALOG, tables) as database:
        yield tmp_path / "t.toml", database


def draw(rng: random.Random) -> str:
    """A condition on single columns: what a row has to meet to be counted."""
    low = rng.randrange(7)
    tests = {
        "a": [
            f"a > {low}",
            f"a = {low}",
            f"NOT a >= {low + 1}",
            "a IN (1, 4)",
            "a % 3 = 1",
        ],
        "b": ["b = 'x'", "b IS NULL", "b <> 'y'", "b LIKE 'z%'", "upper(b) = 'X'"],
    }
    names = rng.sample([*tests], rng.choice([1, 1, 2]))
    return " AND ".join(rng.choice(tests[name]) for name in names)


def spellings(condition: str) -> Iterator[tuple[str, str]]:
    """Ways to count the rows of a condition, each with DuckDB's FROM and WHERE of the same rows."""
    plain = f"visits WHERE {condition}", ""
    yield f"SELECT COUNT(*) FROM visits WHERE {condition}", plain[0]
    yield f"SELECT COUNT(*) FROM (SELECT * FROM visits WHERE {condition}) q", plain[0]
    yield f"WITH q AS (SELECT a, b FROM visits WHERE {condition}) SELECT COUNT(*) FROM q", plain[0]
    yield f"SELECT COUNT(*) FILTER (WHERE {condition}) FROM visits", plain[0]
    yield f"SELECT SUM(CASE WHEN {condition} THEN 1 ELSE 0 END) FROM visits", plain[0]
    yield f"SELECT SUM(m) FROM visits WHERE {condition}", plain[0]
    yield f"SELECT a, b, COUNT(*) FROM visits WHERE {condition} GROUP BY a, b", plain[0]
    numbered = "ROW_NUMBER() OVER (PARTITION BY who ORDER BY a) AS k"
    yield (f"SELECT COUNT(*) FROM (SELECT a, b, {numbered} FROM visits WHERE {condition}) q",
           plain[0])  # fmt: skip
    joined = "visits v JOIN floors f ON v.a = f.a WHERE f.floor < 2 AND " + condition.replace(
        "a ", "v.a ", 1
    ).replace("v.v.", "v.")
    if condition.startswith("a "):
        yield f"SELECT COUNT(*) FROM {joined}", joined


def kept(database: duckdb.DuckDBPyConnection, rows: str) -> float:
    """The rows that stay where each unit keeps its first ones after the conditions."""
    sql = f"SELECT SUM(least(n, {MOST})) FROM (SELECT COUNT(*) AS n FROM {rows} GROUP BY who)"
    found = database.execute(sql).fetchone()
    assert found is not None
    return float(found[0] or 0)


@pytest.mark.parametrize("seed", range(CONDITIONS))
def test_a_row_that_no_condition_admits_takes_nobodys_place(
    world: tuple[Path, duckdb.DuckDBPyConnection], seed: int
) -> None:
    path, database = world
    condition = draw(random.Random(seed))
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        connection.execute("SET reuse = never")
        for sql, rows in spellings(condition):
            found = connection.execute(sql).result.rows
            total = sum(float(row[-1] or 0) for row in found)
            assert total == pytest.approx(kept(database, rows), abs=1e-3), sql


def test_the_conditions_that_were_drawn_lose_rows_to_a_bound_before_them(
    world: tuple[Path, duckdb.DuckDBPyConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "hull_of", lambda terms: {})
    with pytest.raises(AssertionError):
        test_a_row_that_no_condition_admits_takes_nobodys_place(world, 0)


def cells_of(connection: Connection, *statements: str) -> dict[str, list[bool]]:
    """The cells of the view of some statements together."""
    parsed = [parse(split_statements(sql)[0]) for sql in statements]
    view = target.find_views(connection.engine.compile(parsed))["visits"]
    return {name: mask.tolist() for name, mask in view.masks.items()}


def test_statements_of_one_request_share_what_all_of_them_ask(
    world: tuple[Path, duckdb.DuckDBPyConnection],
) -> None:
    one = "SELECT COUNT(*) FROM visits WHERE a < 2 AND b = 'x'"
    other = "SELECT b, COUNT(*) FROM visits WHERE a IN (1, 5) GROUP BY b"
    with dpsql.connect(world[0], epsilon=1) as connection:
        assert cells_of(connection, one) == {
            "a": [True, True, *[False] * 5],
            "b": [True, False, False, False],
        }
        assert cells_of(connection, one, other) == {"a": [True, True, *[False] * 3, True, False]}
        assert cells_of(connection, one, "SELECT SUM(m) FROM visits") == {}
        either = "SELECT COUNT(*) FROM visits WHERE (a = 1 AND b = 'x') OR (a = 2 AND b = 'y')"
        assert cells_of(connection, either) == {
            "a": [False, True, True, *[False] * 4],
            "b": [True, True, False, False],
        }


def test_a_release_of_more_rows_answers_and_says_so(
    world: tuple[Path, duckdb.DuckDBPyConnection],
) -> None:
    """A narrower one does not: a unit may have more rows beyond it."""
    with dpsql.connect(world[0], epsilon=1) as connection:
        wide = connection.execute("SELECT a, b, COUNT(*) FROM visits WHERE a > 1 GROUP BY a, b")
        assert not wide.result.cost.free  # type: ignore[union-attr]
        assert "among those that conditions on a admit" in wide.result.standing[0]
        connection.execute("SET reuse = always")
        inner = connection.execute("SELECT COUNT(*) FROM visits WHERE a > 1 AND b = 'x'").result
        assert inner.cost is not None
        assert inner.cost.free
        before = "visits: their rows were chosen before the conditions on b, for an earlier request"
        assert before in inner.standing
        told = connection.explain("SELECT COUNT(*) FROM visits WHERE a > 1 AND b = 'y'")
        assert ("left out", before) in told.details
        same = connection.execute("SELECT b, COUNT(*) FROM visits WHERE a > 1 GROUP BY b").result
        assert same.cost is not None
        assert same.cost.free
        assert not any("earlier request" in note for note in same.standing)
        outer = connection.execute("SELECT COUNT(*) FROM visits WHERE a > 0").result
        assert outer.cost is not None
        assert not outer.cost.free


def test_views_hold_those_of_fewer_cells() -> None:
    """Against the cells themselves, over random pairs."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        pairs = [
            {name: rng.random(3) < 0.7 for name in "ab" if rng.random() < 0.7} for _ in range(2)
        ]
        one, other = (RowView.of(("a",), masks) for masks in pairs)
        full = [{name: masks.get(name, np.ones(3, bool)) for name in "ab"} for masks in pairs]
        grids = [np.outer(each["a"], each["b"]) for each in full]
        if grids[1].any():
            assert one.holds(other) == (not (grids[1] & ~grids[0]).any())
        assert all((one.masks.get(n, np.ones(3, bool)) == full[0][n]).all() for n in "ab")


def test_forms_of_a_request_are_of_its_view(
    world: tuple[Path, duckdb.DuckDBPyConnection],
) -> None:
    """Targets, and so plans, receipts and stored parts, are about the rows of the request."""
    with dpsql.connect(world[0], epsilon=1) as connection:
        sql = "SELECT COUNT(*), COUNT(DISTINCT who), SUM(m) FROM visits WHERE a = 4"
        compiled = connection.engine.compile([parse(split_statements(sql)[0])])
        request = form_request(compiled, connection.terms, None)
        masks = [each.view.masks["a"].tolist() for each in request.targets if each.view]
        assert len(masks) == len(request.targets) > 1
        assert masks == [[i == 4 for i in range(7)]] * len(masks)
