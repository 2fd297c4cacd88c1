"""Scalar sub-queries over a public table that depend on the row around them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from tests.suites.suite import compared
from tests.support.seam import zero_noise
from tests.support.tables import World, stored_world

CATALOG = """
[budget]
epsilon = 100000
[table.sales]
source = "sales.parquet"
privacy_unit = { column = "buyer", max_rows = 5 }
[table.sales.column]
shop = { type = "integer", domain = [0, 5], null = true }
pieces = { type = "integer", domain = [0, 9] }
[table.ages]
source = "ages.parquet"
privacy_unit = "row"
[table.ages.column]
age = { type = "integer", domain = [0, 9] }
[table.shops]
source = "shops.parquet"
public = true
[table.shops.column]
id = { type = "integer" }
town = { type = "text" }
floors = { type = "integer" }
"""
TABLES = """
CREATE TABLE sales AS SELECT i // 3 AS buyer, CASE WHEN i % 7 > 0 THEN i % 6 END AS shop,
    i * i % 10 AS pieces FROM range(120) r(i);
CREATE TABLE ages AS SELECT i % 10 AS age FROM range(70) r(i);
CREATE TABLE shops AS SELECT * FROM (VALUES (0, 'Ayr', 2), (1, 'Ayr', 1), (2, 'Bow', 3),
    (3, 'Bow', NULL), (8, 'Cam', 4)) v(id, town, floors);
"""
STATEMENTS = [
    "SELECT (SELECT town FROM shops s WHERE s.id = x.shop) AS town, COUNT(*) FROM sales x "
    "GROUP BY town",
    "SELECT COUNT(*) FROM sales x WHERE (SELECT floors FROM shops WHERE id = x.shop) > 1",
    "SELECT COUNT(*) FROM sales x WHERE x.pieces > (SELECT floors FROM shops WHERE x.shop = id)",
    "SELECT SUM(pieces * (SELECT floors FROM shops WHERE id = shop)) FROM sales",
    "SELECT shop, (SELECT town FROM shops s WHERE s.id = x.shop) AS town, COUNT(*) FROM sales x "
    "GROUP BY shop ORDER BY shop",
    "SELECT (SELECT town FROM shops WHERE id = age) AS town, COUNT(*) FROM ages GROUP BY ALL",
    "SELECT (SELECT COUNT(*) FROM shops s WHERE s.floors = x.shop) AS n, COUNT(*) FROM sales x "
    "GROUP BY n",
    "SELECT COUNT(*) FROM sales x WHERE shop < (SELECT MAX(id) FROM shops s "
    "WHERE s.floors = x.pieces AND s.town <> 'Cam')",
    "SELECT shop, n - (SELECT floors FROM shops s WHERE s.id = g.shop) AS d FROM "
    "(SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop) AS g",
    "SELECT n, COUNT(*) FROM (SELECT buyer, (SELECT s.town FROM shops s WHERE s.id = x.shop) AS "
    "town, COUNT(*) AS n FROM sales x GROUP BY buyer, town) AS p GROUP BY n",
    "SELECT t.town, MEDIAN(pieces) FROM sales x JOIN (SELECT s.id AS k, s.town FROM shops s "
    "WHERE s.floors > 1) AS t ON t.k = x.shop GROUP BY t.town",
    "SELECT AVG(CASE WHEN (SELECT town FROM shops WHERE id = shop) = 'Ayr' THEN pieces END) "
    "FROM sales",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("lookups")
    with stored_world(folder, TABLES, ("sales", "ages", "shops"), CATALOG) as found:
        yield found


@pytest.mark.parametrize("sql", STATEMENTS)
def test_values_are_looked_up(world: World, sql: str) -> None:
    connection, database = world
    with zero_noise():
        result = connection.execute(sql).result
    assert compared(result, database.execute(sql).fetchall(), 1e-6) is None


def test_they_are_groups_of_which_a_unit_has_few(world: World) -> None:
    connection, _ = world
    clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1)"
    sql = (
        f"SELECT {clause} (SELECT s.town FROM shops s WHERE s.id = x.shop) AS town, COUNT(*) AS n, "
    )
    sql += "COUNT(DISTINCT buyer) AS m FROM sales x GROUP BY town"
    with zero_noise():
        found = connection.execute(sql).fetchall()
    assert sum(m for *_, m in found) == pytest.approx(40)
    assert 40 <= sum(n for _, n, _ in found) < 120


@pytest.mark.parametrize(
    "sql",
    [
        # several shops in a town: which one is asked?
        "SELECT COUNT(*) FROM sales x WHERE (SELECT id FROM shops s WHERE s.town = 'a') = x.shop"
        " AND (SELECT town FROM shops s WHERE s.floors * 0 = x.shop) = 'Ayr'",
        "SELECT (SELECT town FROM shops s WHERE s.town = CAST(x.shop AS VARCHAR)) AS t, COUNT(*) "
        "FROM sales x GROUP BY t",
        "SELECT pieces, (SELECT town FROM shops s WHERE s.id = x.shop), COUNT(*) FROM sales x "
        "GROUP BY pieces",
        "SELECT (SELECT pieces FROM sales s WHERE s.shop = x.id) FROM shops x",
    ],
)
def test_what_is_no_look_up_is_refused_uncharged(world: World, sql: str) -> None:
    connection, _ = world
    before = connection.budget.entries
    with pytest.raises(dpsql.Error):
        connection.execute(sql)
    assert connection.budget.entries == before
