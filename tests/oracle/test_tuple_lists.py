"""Several columns IN a sub-query, over rows of one person, answers and public rows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import dpsql
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 100000
[unit.person]
[table.visits]
source = "visits.parquet"
privacy_unit = { column = "person", max_rows = 9 }
[table.visits.column]
ward = { type = "text", domain = ["x", "y", "z"] }
day = { type = "integer", domain = [0, 9] }
drug = { type = "text", domain = ["p", "q"], null = true }
[table.bills]
source = "bills.parquet"
privacy_unit = { column = "payer", max_rows = 6 }
[table.bills.column]
place = { type = "text", domain = ["x", "y", "z"] }
sent = { type = "integer", domain = [0, 9] }
what = { type = "text", domain = ["p", "q"], null = true }
[table.rates]
source = "rates.parquet"
public = true
[table.rates.column]
ward = { type = "text" }
day = { type = "integer" }
"""


def drawn() -> Tables:
    draw = random.Random(3)
    visits = [
        (who, draw.choice("xyz"), draw.randrange(10), draw.choice(["p", "q", None]))
        for who in range(30)
        for _ in range(draw.randrange(10))
    ]
    bills = [
        (who, draw.choice("xyz"), draw.randrange(10), draw.choice(["p", "q", None]))
        for who in range(35)
        for _ in range(draw.randrange(7))
    ]
    rates = [(ward, day) for ward in "xyw" for day in range(12) if draw.random() < 0.4]
    return {
        "visits": ("person BIGINT, ward VARCHAR, day BIGINT, drug VARCHAR", visits),
        "bills": ("payer BIGINT, place VARCHAR, sent BIGINT, what VARCHAR", bills),
        "rates": ("ward VARCHAR, day BIGINT", [*rates, *rates[:3]]),
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_tables(tmp_path_factory.mktemp("tuples"), CATALOG, drawn()) as found, zero_noise():
        found[0].set("mechanism", "identity")
        found[0].set("epsilon", "100")  # small groups are above what noise alone makes likely
        yield found


def draw_statement(draw: random.Random) -> str:
    key = draw.choice(["ward", "day", "drug", "ward, day"])
    kept = draw.choice(["", " AND day > 2", " AND drug = 'p'"])
    match draw.randrange(4):
        case 0:
            own, theirs = draw.choice(
                [
                    ("person, ward", "payer, place"),
                    ("person, day, ward", "payer, sent, place"),
                    ("person, drug", "payer, what"),
                    ("person, day % 3", "payer, sent % 3"),
                ]
            )
            word = draw.choice(["IN", "IN", "NOT IN"] if own == "person, ward" else ["IN"])
            test = f"({own}) {word} (SELECT {theirs} FROM bills WHERE sent < {draw.randrange(9)})"
            test = f"({test} OR ward = 'z')" if draw.random() < 0.3 else test
        case 1:
            limit = draw.choice([" HAVING COUNT(*) > 3", " ORDER BY COUNT(*) DESC, 1, 2 LIMIT 5"])
            inner = f"SELECT place, sent FROM bills GROUP BY place, sent{limit}"
            test = f"(ward, day) IN ({inner})"
        case 2:
            inner = "SELECT place AS p, what AS w, rank() OVER (PARTITION BY place ORDER BY "
            inner += "COUNT(*) DESC, what) AS r FROM bills GROUP BY 1, 2"
            test = f"(ward, drug) IN (SELECT p, w FROM ({inner}) t WHERE r <= 2)"
        case _:
            test = "(ward, day) IN (SELECT ward, day FROM rates)"
    return f"SELECT {key}, COUNT(*) AS n FROM visits WHERE {test}{kept} GROUP BY ALL"


def test_random_statements_are_those_of_the_database(world: World) -> None:
    connection, database = world
    draw, several = random.Random(8), 0
    for _ in range(effort(16)):
        sql = draw_statement(draw)
        known = {row for row in database.execute(sql).fetchall() if row[-1]}
        assert {row for row in connection.execute(sql).fetchall() if row[-1]} == known, sql
        several += len(known) > 1
    assert several > 5


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM visits WHERE (ward, day) IN (SELECT place, sent FROM bills)",
        "SELECT COUNT(*) FROM visits WHERE (person, drug) NOT IN (SELECT payer, what FROM bills)",
        "SELECT COUNT(*) FROM visits WHERE (person, ward) IN (SELECT payer FROM bills)",
    ],
)
def test_what_would_compare_other_units_or_unknowns_is_refused(world: World, sql: str) -> None:
    with pytest.raises(dpsql.Error):
        world[0].execute(sql)
