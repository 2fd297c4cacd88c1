"""Whole numbers are integers where the plan says so, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import dpsql
from dpsql.answer import shell
from dpsql.dbapi.connection import Connection
from dpsql.vectors import Vector, rows_of

KEYS = ("sex", "site", "age", "sex, site", "CUBE (sex, site)", "ROLLUP (site, sex)")
COUNTS = ("COUNT(*)", "COUNT(*) FILTER (WHERE age < 4)", "COUNT_IF(site = 'east')", "SUM(age)")
ITEMS = (
    *("{a}", "{a} + {b}", "2 * {a} - {b}", "{a} * 0.5", "{a} / {b}", "ABS({a})", "ROUND({a})"),
    *("GREATEST({a}, {b}, 0)", "CASE WHEN {a} > 9 THEN {a} ELSE 0 END", "{a} // 7", "{a} % 7"),
    *("AVG(age)", "STDDEV(age)", "MEDIAN(age)", "QUANTILE_DISC(age, 0.5)", "DP_STDDEV({a})"),
    *("RANK() OVER (ORDER BY {a})", "MAX({a}) OVER ()", "{a} - LAG({a}) OVER (ORDER BY {b})"),
    *("COALESCE(NULLIF({a}, 0), {b})", "{a} || ''", "CAST({a} AS DOUBLE)", "AVG({a}) OVER ()"),
)
CATALOG = """
[budget]
epsilon = 100.0
delta = 0
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
site = { type = "text", domain = ["north", "east", "south"] }
age = { type = "integer", domain = [0, 7] }
"""
TAILS = ("", " ORDER BY 2 DESC", " HAVING COUNT(*) > 9", " LIMIT 3")
OUTER = (
    "SELECT * FROM ({})",
    "SELECT SUM(c0), MAX(c0), AVG(c0) FROM ({})",
    "SELECT c0 + 1 FROM ({})",
)


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Connection]:
    """A small table: a plan takes milliseconds."""
    lines = [f"{'fm'[i % 2]},{('north', 'east', 'south')[i % 3]},{i % 8}" for i in range(240)]
    (tmp_path / "people.csv").write_text("\n".join(["sex,site,age", *lines, ""]))
    (tmp_path / "people.toml").write_text(CATALOG)
    with dpsql.connect(tmp_path / "people.toml", epsilon=1) as connection:
        yield connection


def statement(draw: random.Random) -> str:
    """An ordinary SELECT with columns that are whole, or are not, or can be."""
    keys, tail = draw.choice(KEYS), draw.choice(TAILS)
    counts = [draw.choice(COUNTS) for _ in range(2)]
    chosen = draw.sample(ITEMS, draw.randrange(1, 4))
    items = [each.format(a=counts[0], b=counts[1]) for each in chosen]
    listed = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
    inner = f"SELECT {listed} FROM people GROUP BY {keys}{tail if len(items) > 1 else ''}"
    return inner if draw.random() < 0.6 else draw.choice(OUTER).format(inner)


def answers(connection: Connection, sql: str) -> tuple[Any, Sequence[tuple[Any, ...]]]:
    """A result, and its rows before what is whole became integers."""
    seen: list[Any] = []
    settle = shell.settled_columns

    def watched(columns: Any, types: Any, whole: Any) -> Any:
        seen.append(list(rows_of(columns)))
        return settle(columns, types, whole)

    with mock.patch.object(shell, "settled_columns", watched):
        return connection.execute(sql).result, seen[-1]


def test_columns_are_integers_only_where_every_draw_of_the_noise_is_one(people: Connection) -> None:
    draw, whole, fractions = random.Random(17), 0, 0
    people.execute("SET epsilon = 0.1")
    people.execute("SET reuse = never")
    for turn in range(30):
        people.execute(f"SET mechanism = '{('identity', 'auto')[turn % 10 == 0]}'")
        sql = statement(draw)
        try:
            result, raw = answers(people, sql)
        except dpsql.NotSupportedError:
            continue
        for j, kind in enumerate(result.value_types):
            values = [(row[j], each[j]) for row, each in zip(result.rows, raw, strict=True)]
            known = [(value, before) for value, before in values if value is not None]
            if kind == "integer":
                assert all(type(value) is int for value, _ in known), sql
                assert all(value == before for value, before in known), sql
                whole += len(known)
            elif kind == "number":
                assert all(type(value) is float for value, _ in known), sql
                fractions += any(value % 1 for value, _ in known)
    assert whole > 40
    assert fractions > 5


def test_what_is_measured_by_itself_is_whole_and_what_is_fitted_is_not(people: Connection) -> None:
    direct = people.execute("SELECT sex, COUNT(*) AS n, SUM(age) AS years FROM people GROUP BY sex")
    assert direct.result.types == ("text", "number", "number")
    apart = people.execute("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex").result
    assert apart.value_types == ("text", "integer")
    fitted = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(reconstruct = 'nonnegative') {}"
    shown = people.execute(fitted.format("site, COUNT(*) AS n FROM people GROUP BY site")).result
    assert shown.value_types == ("text", "number")
    several = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = 'tree') "
        "age, SUM(COUNT(*)) OVER (ORDER BY age) AS t FROM people GROUP BY age"
    )
    assert people.execute(several).result.value_types == ("integer", "number")


def test_the_type_of_a_column_is_that_of_the_statement(people: Connection) -> None:
    sql = "SELECT sex, COUNT(*) AS n, CAST(COUNT(*) AS BIGINT) AS m FROM people GROUP BY sex"
    told = [each.type for each in people.describe(sql)]
    assert told == ["text", "number", "integer"]
    assert list(people.execute(sql).result.types) == told


@pytest.mark.parametrize("value", [2.0**70, -(2.0**63)])
def test_numbers_beyond_64_bits_are_integers_too(value: float) -> None:
    (found,) = shell.settled_columns([Vector.of([value])], ("number",), (True,))
    assert [*found] == [int(value)]


def test_an_earlier_release_gives_whole_numbers_again(people: Connection, tmp_path: Path) -> None:
    sql = "SELECT site, COUNT(*) AS n FROM people GROUP BY site"
    first = people.execute(sql).result
    with dpsql.connect(tmp_path / "people.toml", epsilon=1) as other:
        again = other.execute(sql).result
    assert again.cost is not None
    assert again.cost.free
    assert (again.rows, again.whole) == (first.rows, first.whole)
    assert type(again.rows[0][1]) is int
