"""INTERSECT, EXCEPT and UNION of keys without their unit: those that have rows, compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 1000000
max_epsilon_per_request = 100000
[unit.person]
[table.people]
source = "people.parquet"
privacy_unit = { column = "person", max_rows = 1 }
[table.people.column]
town = { type = "text", domain = ["a", "b", "c"] }
age = { type = "integer", domain = [0, 99], bins = 5 }
[table.sales]
source = "sales.parquet"
privacy_unit = { column = "buyer", max_rows = 8 }
unit_keys = ["bill"]
[table.sales.column]
item = { type = "integer", domain = [1, 30] }
pieces = { type = "integer", domain = [1, 5] }
day = { type = "date", domain = ["2024-01-01", "2024-01-31"] }
price = { type = "integer", bounds = [0, 100] }
[table.returns]
source = "returns.parquet"
privacy_unit = { column = "person", max_rows = 5 }
[table.returns.column]
item = { type = "integer", domain = [1, 30] }
day = { type = "date", domain = ["2024-01-01", "2024-01-31"] }
[table.items]
source = "items.parquet"
public = true
[table.items.column]
id = { type = "integer" }
brand = { type = "text" }
"""


def drawn(seed: int) -> Tables:
    draw = random.Random(seed)
    day = "DATE '2024-01-01'"
    sales = "buyer BIGINT, bill BIGINT, item BIGINT, pieces BIGINT, day DATE, price BIGINT"
    people = [(k, draw.choice("ab"), draw.randrange(100)) for k in range(9)]
    sold = [
        (k, 100 + k, draw.randrange(1, 31), draw.randrange(1, 6), draw.randrange(31), 7)
        for k in range(9)
        for _ in range(draw.randrange(8))
    ]
    back = [
        (k, draw.randrange(1, 31), draw.randrange(31))
        for k in range(12)
        for _ in range(draw.randrange(5))
    ]
    listed = ", ".join(str((*row[:4], row[4], row[5])) for row in sold)
    returned = ", ".join(map(str, back))
    return {
        "people": ("person BIGINT, town VARCHAR, age BIGINT", people),
        "sales": f"SELECT * REPLACE ({day} + CAST(day AS INT) AS day) FROM (VALUES {listed}) "
        f"v({sales.replace(' BIGINT', '').replace(' DATE', '')})",
        "returns": f"SELECT * REPLACE ({day} + CAST(day AS INT) AS day) FROM (VALUES {returned}) "
        "v(person, item, day)",
        "items": "SELECT i AS id, 'brand' || (i % 7) AS brand FROM range(1, 31) r(i)",
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_tables(tmp_path_factory.mktemp("sides"), CATALOG, drawn(2)) as found, zero_noise():
        found[0].set("mechanism", "identity")
        found[0].set("epsilon", "2000")
        yield found


def draw_side(draw: random.Random, keys: str) -> str:
    """Rows that list an item, a day or a brand, each in some form."""
    where = draw.choice(["", " WHERE item > 9", " WHERE item % 3 = 1 OR item = 5"])
    distinct = draw.choice(["", "DISTINCT "])
    table = draw.choice(["sales", "returns"])
    if keys == "brand":
        return f"SELECT {distinct}brand FROM {table} JOIN items ON item = id{where}"
    if keys == "month":
        return f"SELECT {distinct}day(day) % 5 AS d, item % 2 AS i FROM {table}{where}"
    if draw.random() < 0.3:
        return f"SELECT {distinct}{keys} FROM (SELECT * FROM {table}{where}) t"
    by = f" GROUP BY {keys}" if draw.random() < 0.2 and not distinct else ""
    return f"SELECT {distinct}{keys} FROM {table}{where}{by}"


def draw_sets(draw: random.Random) -> str:
    keys = draw.choice(["item", "day", "brand", "item, day", "month"])
    words = draw.sample(["INTERSECT", "EXCEPT", "EXCEPT"], 2)[: draw.randrange(1, 3)]
    sides = [draw_side(draw, keys) for _ in range(len(words) + 1)]
    text = sides[0] + "".join(f" {w} {side}" for w, side in zip(words, sides[1:], strict=True))
    match draw.randrange(4):
        case 0:
            return text
        case 1:
            return f"SELECT COUNT(*) FROM ({text}) t"
        case 2 if keys == "item":
            return f"SELECT item % 4 AS k, COUNT(*) FROM sales WHERE item IN ({text}) GROUP BY 1"
        case _:
            return f"WITH t AS ({text}) SELECT * FROM t"


def test_random_sets_are_those_of_the_database(world: World) -> None:
    connection, database = world
    draw, several = random.Random(5), 0
    for _ in range(effort(20)):
        sql = draw_sets(draw)
        known = {row for row in database.execute(sql).fetchall() if row[-1] or "COUNT" not in sql}
        rows = connection.execute(sql).fetchall()
        assert {row for row in rows if row[-1] or "COUNT" not in sql} == known, sql
        several += len(known) > 1
    assert several > 5


def test_noise_alone_puts_few_keys_into_a_set(tmp_path: Path) -> None:
    with open_tables(tmp_path, CATALOG, drawn(2)) as (connection, _):
        connection.set("epsilon", "1")
        rows = connection.execute("SELECT day FROM sales EXCEPT SELECT day FROM returns").fetchall()
        assert len(rows) <= 3
        result = connection.execute("SELECT item FROM sales UNION SELECT item FROM returns").result
        assert any("over half a row and 4 standard errors" in each for each in result.notes)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT item FROM sales EXCEPT ALL SELECT item FROM returns",
        "SELECT bill FROM sales INTERSECT SELECT item FROM returns",
        "SELECT price FROM sales INTERSECT SELECT item FROM returns",
        "SELECT age FROM people INTERSECT SELECT item FROM returns",
        "SELECT c FROM (SELECT buyer AS c FROM sales) t UNION SELECT item FROM returns",
        "SELECT 1 FROM sales INTERSECT SELECT 1 FROM returns",
    ],
)
def test_what_lists_no_keys_is_refused(world: World, sql: str) -> None:
    with pytest.raises(dpsql.Error, match="E_SET_OP"):
        world[0].execute(sql)


def test_rows_of_units_stay_rows(world: World) -> None:
    connection, database = world
    for sql in (
        "SELECT COUNT(*) FROM (SELECT c FROM (SELECT buyer AS c FROM sales) t INTERSECT "
        "SELECT person FROM returns) u",
        "WITH a AS (SELECT buyer AS c, item FROM sales) SELECT COUNT(*) FROM "
        "(SELECT c, item FROM a EXCEPT SELECT person, item FROM returns) u",
        "SELECT COUNT(*) FROM (SELECT bill, buyer FROM sales INTERSECT SELECT bill, buyer "
        "FROM sales WHERE item > 9) u",
    ):
        result = connection.execute(sql).result
        assert list(result.rows) == database.execute(sql).fetchall(), sql
        assert not any("standard errors" in each for each in result.notes)
