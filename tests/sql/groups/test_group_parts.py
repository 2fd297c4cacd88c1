"""Sums and counts of what units add to groups, and counts of keys that have no domain."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import dpsql
from tests.suites.suite import compared
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import World, stored_world

CATALOG = """
[budget]
epsilon = 100000
[unit.buyer]
[table.buyers]
source = "buyers.parquet"
privacy_unit = { column = "buyer", max_rows = 1, unit = "buyer" }
[table.buyers.column]
kind = { type = "text", domain = ["x", "y"] }
[table.lines]
source = "lines.parquet"
privacy_unit = { column = "buyer", max_rows = 9, unit = "buyer" }
references = { buyers = "buyer" }
unit_keys = ["bill"]
[table.lines.column]
shop = { type = "text", domain = ["a", "b", "c"], null = true }
pieces = { type = "integer", domain = [0, 9] }
"""
TABLES = """
CREATE TABLE buyers AS SELECT i AS buyer, ['x', 'y'][1 + i % 2] AS kind FROM range(40) r(i);
CREATE TABLE lines AS SELECT i // 6 AS buyer,
    CASE WHEN i % 7 > 0 THEN i // 6 * 10 + i % 3 END AS bill,
    CASE WHEN i % 5 > 0 THEN ['a', 'b', 'c'][1 + i % 3 * i % 3] END AS shop, i * i % 10 AS pieces
FROM range(180) r(i);
"""
STATEMENTS = [
    "SELECT COUNT(DISTINCT bill), COUNT(bill), COUNT(*) FROM lines",
    "SELECT shop, COUNT(DISTINCT bill) FROM lines GROUP BY shop",
    "SELECT shop, COUNT(DISTINCT bill) AS n, AVG(pieces), COUNT(bill), COUNT(DISTINCT buyer) "
    "FROM lines WHERE pieces > 1 GROUP BY shop ORDER BY n",
    "SELECT pieces // 5 AS p, shop, COUNT(DISTINCT bill) FROM lines GROUP BY ALL",
    "SELECT shop, COUNT(DISTINCT bill) FILTER (WHERE pieces > 4) FROM lines GROUP BY shop",
    "SELECT shop, COUNT(DISTINCT CASE WHEN pieces > 4 THEN bill END), "
    "COUNT(CASE WHEN pieces > 4 THEN bill END) FROM lines GROUP BY shop",
    "SELECT kind, COUNT(DISTINCT l.bill), COUNT(l.bill), COUNT(*) FROM buyers b "
    "LEFT JOIN lines l ON b.buyer = l.buyer GROUP BY kind",
    "SELECT kind, 1.0 * COUNT(DISTINCT bill) / COUNT(DISTINCT buyer) AS each FROM lines "
    "JOIN buyers USING (buyer) GROUP BY kind HAVING COUNT(DISTINCT bill) > 3",
    "SELECT COUNT(DISTINCT a.bill), COUNT(DISTINCT b.bill) FROM lines a "
    "JOIN lines b ON a.buyer = b.buyer AND a.pieces < b.pieces",
    "SELECT kind, COUNT(*) FROM buyers b LEFT JOIN lines l ON b.buyer = l.buyer "
    "WHERE l.bill IS NULL GROUP BY kind",
    "SELECT bill IS NULL AS without, COUNT(*) FROM lines WHERE shop = 'a' GROUP BY without",
    "SELECT n, COUNT(*) FROM (SELECT b.buyer, COUNT(l.bill) AS n, COUNT(*) AS m FROM buyers b "
    "LEFT JOIN lines l ON b.buyer = l.buyer WHERE bill IS NOT NULL GROUP BY b.buyer) AS p "
    "GROUP BY n",
    "SELECT kind, COUNT(DISTINCT l.buyer), COUNT(DISTINCT l.buyer) FILTER (WHERE l.pieces > 4) "
    "FROM buyers b LEFT JOIN lines l ON b.buyer = l.buyer AND l.pieces > 7 GROUP BY kind",
    "SELECT kind, COUNT(DISTINCT CASE WHEN l.pieces > 4 THEN l.buyer END), COUNT((l.buyer)), "
    "COUNT(CASE WHEN l.pieces > 4 THEN l.buyer END), COUNT(IF(l.shop = 'a', (l.buyer), NULL)) "
    "FROM buyers b LEFT JOIN lines l ON b.buyer = l.buyer GROUP BY kind",
    "SELECT COUNT(DISTINCT CASE WHEN pieces > 4 THEN CASE WHEN shop = 'a' THEN buyer END END), "
    "COUNT(DISTINCT CASE WHEN pieces > 4 THEN IF(shop = 'a', bill, NULL) END) FROM lines",
    "SELECT COUNT(DISTINCT bill) - (SELECT COUNT(*) FROM buyers) AS d FROM lines",
    "SELECT n, SUM(m) FROM (SELECT shop, COUNT(DISTINCT bill) AS m, COUNT(*) > 30 AS n "
    "FROM lines GROUP BY shop) AS s GROUP BY n",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("keys")
    with stored_world(folder, TABLES, ("buyers", "lines"), CATALOG) as found:
        yield found


@pytest.mark.parametrize("sql", STATEMENTS)
def test_counts_are_those_of_duckdb(world: World, sql: str) -> None:
    connection, database = world
    with zero_noise():
        result = connection.execute(sql).result
    assert compared(result, database.execute(sql).fetchall(), 1e-6) is None


def test_noise_is_that_of_as_many_keys_as_a_unit_has_rows(world: World) -> None:
    """A bill may be in several groups, but a buyer is in no more of them than it has rows."""
    connection, _ = world
    with zero_noise():
        one, other = (
            connection.execute(f"SELECT shop, {what} FROM lines GROUP BY shop").result.stddev[1]
            for what in ("COUNT(DISTINCT bill)", "COUNT(*)")
        )
    assert one == pytest.approx(other)


def test_keys_of_as_many_groups_as_are_told(world: World) -> None:
    connection, _ = world
    clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1)"
    sql = f"SELECT {clause} shop, COUNT(DISTINCT bill), COUNT(*), COUNT(DISTINCT buyer) FROM lines "
    with zero_noise():
        found = connection.execute(f"{sql} GROUP BY shop").fetchall()
    assert sum(row[3] for row in found) == pytest.approx(30)
    assert all(row[1] <= row[2] + 1e-6 for row in found)
    assert sum(row[2] for row in found) < 180


def test_keys_that_units_may_share_are_not_counted(world: World) -> None:
    connection, _ = world
    before = connection.budget.entries
    sql = (
        "SELECT COUNT(DISTINCT bill) FROM (SELECT bill FROM lines UNION ALL SELECT bill FROM lines)"
    )
    with pytest.raises(dpsql.Error, match="E_AGGREGATE"):
        connection.execute(f"{sql} AS u")
    assert connection.budget.entries == before


BOUNDS = "contribution_bounds_per_group => (0, {})"
NAMES = ("buyer", "bill", "shop", "pieces", "unit", "k0", "v0", "_part", " part", "known", "lines")


@pytest.mark.parametrize("seed", range(effort(6)))
def test_parts_are_of_units_whatever_the_columns_are_called(world: World, seed: int) -> None:
    """A sub-query may hide the unit, and call another column as the unit is called."""
    rng, (connection, _) = random.Random(seed), world
    own = ("buyer", "shop", "pieces", "bill")
    names = dict(zip(own, rng.sample(NAMES, 4), strict=True))
    shown = own[rng.randrange(2) :]
    columns = ", ".join(f'{name} AS "{names[name]}"' for name in shown)
    answers = []
    asked = (dict(zip(own, own, strict=True)), "lines"), (names, f"(SELECT {columns} FROM lines)")
    for called, rows in asked:
        shop, pieces, bill = (f'"{called[name]}"' for name in own[1:])
        sums = f"SUM({pieces}, {BOUNDS.format(5)}), AVG({pieces}, {BOUNDS.format(5)})"
        sql = f"SELECT {shop}, {sums}, COUNT(DISTINCT {bill}) FROM {rows} AS x GROUP BY {shop}"
        with zero_noise():
            result = connection.execute(sql).result
        answers.append((sorted(map(repr, result.rows)), repr(result.stddev)))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("most", [1, 8, 9])
@pytest.mark.parametrize("column", ["buyer", "bill", "pieces"])
@pytest.mark.parametrize("rest", ["", " FILTER (WHERE shop = 'a')"])
def test_bounds_of_different_values_are_kept_or_refused(
    world: World, column: str, most: int, rest: str
) -> None:
    """A buyer has nine bills in a shop, and is there once."""
    connection, _ = world
    before = connection.budget.entries
    sql = f"SELECT shop, COUNT(DISTINCT {column}, {BOUNDS.format(most)}){rest} FROM lines"
    if most >= (1 if column == "buyer" else 9):
        connection.execute(f"EXPLAIN {sql} GROUP BY shop")
    else:
        with pytest.raises(dpsql.Error, match="E_EXPR_IN_AGG"):
            connection.execute(f"{sql} GROUP BY shop")
    assert connection.budget.entries == before


def test_bounds_of_different_values_of_a_unit_are_kept(world: World) -> None:
    connection, _ = world
    each = f"SELECT buyer, COUNT(DISTINCT shop, {BOUNDS.format(1)}) AS n FROM lines GROUP BY buyer"
    with zero_noise():
        found = connection.execute(f"SELECT n, COUNT(*) FROM ({each}) AS b GROUP BY n").fetchall()
    assert dict(found) == pytest.approx({0: 0, 1: 30})
