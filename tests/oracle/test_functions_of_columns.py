"""Functions of one column side by side in one script, under every noise law."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.errors import ProgrammingError
from dpsql.plan import request
from tests.support.effort import effort
from tests.support.seam import zero_noise

pytestmark = pytest.mark.slow

ROUNDS = effort(6)
ROWS = 2000
CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4
max_epsilon_per_request = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
h = { type = "integer", domain = [0, 23] }
s = { type = "text", domain = ["a", "b", "c"] }
d = { type = "date", domain = ["2020-01-01", "2021-12-31"] }
"""
OF_H = ["h % 24", "h // 24", "h % 6", "h // 6", "h % 5", "h // 12", "h < 12", "h"]
OF_D = ["year(d)", "month(d)", "quarter(d)", "dayofweek(d)", "year(d) % 2"]


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    place = tmp_path_factory.mktemp("functions")
    duckdb.execute(
        "COPY (SELECT i * 7 % 24 AS h, chr((97 + i % 3)::INT) AS s,"
        " DATE '2020-01-01' + (i * 13 % 731)::INT AS d"
        f" FROM range({ROWS}) r(i)) TO '{place / 't.parquet'}' (FORMAT parquet)"
    )
    (place / "c.toml").write_text(CATALOG)
    with dpsql.connect(place / "c.toml") as connection:
        connection.set("epsilon", "1")
        connection.set("delta", "1e-9")
        connection.set("fresh", "on")
        yield connection


def scripts() -> list[list[str]]:
    """Those that were refused, and random ones: each several functions, some with a text."""
    draw = random.Random(20)
    found = [["year(d)", "month(d)"], ["h % 24", "h // 24"], ["h % 6", "h // 6"]]
    found += [["dayofweek(d), s", "quarter(d), s"]]  # a descent went where totals are lost
    while len(found) < ROUNDS:
        keys = draw.sample(draw.choice([OF_H, OF_D]), draw.randint(2, 3))
        found.append([f"{key}, s" if draw.random() < 0.25 else key for key in keys])
    return found


def statement(keys: str) -> str:
    return f"SELECT {keys}, COUNT(*) AS n FROM t GROUP BY {keys}"


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "auto"])
def test_functions_of_one_column_are_answered_together(connection: Connection, noise: str) -> None:
    connection.set("noise", noise)
    path = connection.catalog.tables["t"].source
    every = scripts()
    for keys in every[: len(every) // (2 if noise == "auto" else 1)]:  # both laws are planned then
        asked = [statement(each) for each in keys]
        if len(keys) == 2:
            assert connection.explain("; ".join(asked)).epsilon == 1
        with zero_noise():
            answers = _answers(connection, asked)
        for sql, rows in zip(asked, answers, strict=True):
            exact = duckdb.execute(sql.replace("FROM t", f"FROM '{path}'")).fetchall()
            known = {row[:-1]: row[-1] for row in exact}
            assert known.keys() <= {row[:-1] for row in rows}, sql
            for row in rows:
                assert row[-1] == pytest.approx(known.get(row[:-1], 0), abs=1e-3), (keys, row)


def _answers(connection: Connection, asked: list[str]) -> list[list[tuple[Any, ...]]]:
    connection.execute("BEGIN WORKLOAD")
    for sql in asked:
        connection.execute(sql)
    cursor = connection.execute("RUN WORKLOAD")
    answers = [cursor.fetchall()]
    while cursor.nextset():
        answers.append(cursor.fetchall())
    return answers


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("failure", [ValueError, ProgrammingError])
def test_one_law_without_a_plan_leaves_the_other(
    connection: Connection, law: str, failure: type[Exception]
) -> None:
    connection.set("noise", "auto")
    real = request._plan_with

    def failing(asked: Any, noise: Any) -> Any:
        if noise == law:
            raise failure("E_NOT_MEASURED", "-")
        return real(asked, noise)

    connection.engine._asked.clear()  # what was planned before is planned anew
    with mock.patch.object(request, "_plan_with", failing):
        assert connection.explain(statement("h % 6")).noise != law
