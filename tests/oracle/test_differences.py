"""Differences of two columns with many cells, without noise, compared with DuckDB's own answers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.suites.suite import compared
from tests.support.seam import zero_noise
from tests.support.tables import World, open_tables

CATALOG = """
[budget]
epsilon = 100000

[table.sales]
source = "sales.parquet"
privacy_unit = { column = "buyer", max_rows = 20 }
[table.sales.column]
sold = { type = "date", domain = ["2023-06-01", "2024-08-31"], null = true }
sent = { type = "date", domain = ["2023-06-01", "2024-12-31"], null = true }
seen = { type = "timestamp", domain = ["2023-06-01", "2024-08-31"], by = "day" }
asked = { type = "integer", domain = [0, 999] }
given = { type = "integer", domain = [-10, 700], null = true }
way = { type = "text", domain = ["road", "rail"] }
"""
TABLES = {
    "sales": "SELECT (hash(i, 1) % 60)::BIGINT AS buyer, CASE WHEN i % 17 > 0 THEN "
    "DATE '2023-07-01' + (hash(i, 2) % 400)::INT END AS sold, "
    "CASE WHEN i % 13 > 0 THEN sold + (hash(i, 3) % 90)::INT - 20 END AS sent, "
    "TIMESTAMP '2023-07-01 06:00:00' + INTERVAL 1 DAY * (hash(i, 8) % 300)::INT AS seen, "
    "(hash(i, 4) % 1000)::INT AS asked, CASE WHEN i % 11 > 0 THEN "
    "(hash(i, 5) % 700)::INT - 9 END AS given, ['road', 'rail'][i % 2 + 1] AS way "
    "FROM range(400) r(i)",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("differences")
    with open_tables(folder, CATALOG, TABLES) as found, zero_noise():
        found[0].set("mechanism", "identity")
        yield found


def agrees(world: World, sql: str) -> None:
    result = world[0].execute(sql).result
    found = compared(result, world[1].execute(sql).fetchall(), 1e-6)
    assert found is None, f"{sql}\n{found}"


def draw_test(draw: random.Random) -> str:
    """A condition on two columns of one row."""
    gap, low = draw.randrange(-15, 60), draw.randrange(-30, 30)
    sign = draw.choice(["<", "<=", ">", ">=", "=", "<>"])
    return draw.choice(
        [
            f"sent - sold BETWEEN {low} AND {gap}",
            f"sent - sold {sign} {gap}",
            f"sent {sign} sold",
            f"sent {sign} sold + {abs(gap)}",
            f"sold + INTERVAL {abs(gap)} DAY {sign} sent",
            f"date_diff('day', sold, sent) {sign} {gap}",
            f"date_diff('day', sold, seen) {sign} {gap * 5}",
            f"date_diff('week', sold, sent) {sign} {gap}",
            f"sent BETWEEN sold + {low} AND sold + {gap}",
            f"sent BETWEEN sold AND DATE '2024-03-0{draw.randrange(1, 9)}'",
            f"asked - given {sign} {gap * 9}",
            f"asked {sign} given * 2",
            f"asked // 2 BETWEEN given AND given + {gap + 40}",
            f"NOT (sent - sold > {gap} OR asked < given)",
        ]
    )


FORMS = (
    "SELECT COUNT(*) FROM sales WHERE {0}",
    "SELECT way, COUNT(*), SUM(asked) FROM sales WHERE {0} GROUP BY way",
    "SELECT way, SUM(CASE WHEN {0} THEN 1 ELSE 0 END) FROM sales GROUP BY 1",
    "SELECT COUNT(*) FILTER (WHERE {0}), COUNT(*) FROM sales WHERE sold IS NOT NULL",
    "SELECT CASE WHEN {0} THEN 'yes' ELSE 'no' END AS k, COUNT(*) FROM sales GROUP BY k",
    "SELECT n, COUNT(*) FROM (SELECT buyer, COUNT(*) AS n FROM sales WHERE {0} GROUP BY buyer) "
    "GROUP BY n",
    "SELECT COUNT(*) FROM (SELECT sent, sold, asked, given, seen FROM sales WHERE way = 'rail') t "
    "WHERE {0}",
    "SELECT COUNT(*) FROM (SELECT way, {0} AS late FROM sales) t WHERE late AND way <> 'rail'",
)


@pytest.mark.parametrize("seed", range(24))
def test_random_conditions_on_two_columns(world: World, seed: int) -> None:
    draw = random.Random(seed)
    agrees(world, FORMS[seed % len(FORMS)].format(draw_test(draw)))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sent - sold AS gap, COUNT(*) FROM sales GROUP BY gap ORDER BY gap",
        "SELECT (sent - sold) // 30 AS m, way, COUNT(*) FROM sales GROUP BY 1, way",
        "SELECT g, COUNT(*) FROM (SELECT asked - given AS g FROM sales) WHERE g > 500 GROUP BY g",
        "SELECT way, MEDIAN(sent - sold), QUANTILE_DISC(sent - sold, 0.9) FROM sales GROUP BY way",
        "SELECT way, AVG(sent - sold), SUM(date_diff('day', sold, sent)) FROM sales GROUP BY way",
        "SELECT COUNT(*) FROM (SELECT buyer, MIN(sold) AS one FROM sales GROUP BY buyer) f JOIN "
        "sales s USING (buyer) WHERE s.sold - f.one BETWEEN 30 AND 60",
        "SELECT COUNT(*) FROM (SELECT sold, LAG(sold) OVER (PARTITION BY buyer ORDER BY sold) AS p "
        "FROM sales) WHERE date_diff('day', p, sold) <= 14",
    ],
)
def test_differences_are_keys_and_numbers(world: World, sql: str) -> None:
    agrees(world, sql)
