"""One cursor through random sequences of statements, refusals and ways to fetch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.dbapi.connection import Connection, Cursor

CATALOG = """
[budget]
epsilon = 5000.0
delta = 0
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
site = { type = "text", domain = ["north", "east", "south"], null = true }
age = { type = "integer", domain = [0, 7] }
"""
STATEMENTS = (
    "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
    "SELECT site, AVG(age) AS a, COUNT(*) AS n FROM people GROUP BY site",
    "SELECT COUNT(*) AS c, SUM(age) AS c FROM people",
    "SELECT age, COUNT(*) AS n FROM people GROUP BY age HAVING COUNT(*) > 1000",
    "SELECT MEDIAN(age) AS m FROM people",
    "SELECT * FROM people LIMIT 0",
    "EXPLAIN SELECT COUNT(*) FROM people",
    "SHOW budget",
    "DESCRIBE people",
    "SET epsilon = 0.5",
    "SELECT nope FROM people",
)


@pytest.fixture(params=["off", "on", "text"])
def people(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Connection]:
    lines = [f"{'fm'[i % 2]},{('north', 'east', 'south')[i % 3]},{i % 8}" for i in range(240)]
    (tmp_path / "people.csv").write_text("\n".join(["sex,site,age", *lines, ""]))
    (tmp_path / "people.toml").write_text(CATALOG)
    path = tmp_path / "people.toml"
    with dpsql.connect(path, epsilon=1, show_stddev=request.param) as connection:
        connection.execute("SET mechanism = 'identity'")
        yield connection


def fetched(cursor: Cursor, draw: random.Random) -> list[Any]:
    """All rows of the current result, in pieces, and the place after each."""
    ways: list[Callable[[], list[Any]]] = [
        lambda: [cursor.fetchone()],
        lambda: cursor.fetchmany(draw.randrange(4)),
        lambda: [next(cursor)],
        cursor.fetchmany,
        cursor.fetchall,
    ]
    rows: list[Any] = []
    while len(rows) < cursor.rowcount:
        rows += draw.choice(ways)()
        assert cursor.rownumber == len(rows)
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []
    return rows


def check(cursor: Cursor, draw: random.Random) -> None:
    """Whatever is shown of a result agrees with its description."""
    if cursor.description is None:
        assert cursor.rowcount == -1
        with pytest.raises(dpsql.InterfaceError):
            cursor.fetchone()
        return
    rows, count = fetched(cursor, draw), len(cursor.result.rows)
    assert len(rows) == count
    assert all(len(row) == len(cursor.description) for row in rows)
    for stddev in (False, True):
        assert len(cursor.df(stddev=stddev)) == len(cursor.pl(stddev=stddev)) == count
        assert cursor.arrow(stddev=stddev).num_rows == count
    assert {len(each) for each in cursor.fetchnumpy(stddev=True).values()} == {count}
    assert str(cursor.result).count("\n") >= min(count, 20)
    assert str(cursor._repr_html_()).startswith("<table>")


def test_whatever_is_executed_before(people: Connection) -> None:
    draw, cursor = random.Random(23), people.cursor()
    for _ in range(16):
        text = draw.choice(STATEMENTS)
        several = draw.random() < 0.3
        try:
            if several:
                cursor.executescript(f"{text}; {STATEMENTS[0]}")
            else:
                cursor.execute(text)
        except dpsql.Error:
            assert text == STATEMENTS[-1] or several
            assert cursor.description is None
            continue
        check(cursor, draw)
        while cursor.nextset():
            check(cursor, draw)
