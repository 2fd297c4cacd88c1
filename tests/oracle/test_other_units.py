"""Columns with ids of other units: rows meet by them within their own unit, and never beyond it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import dpsql
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

UNIT = 'privacy_unit = { column = "buyer", max_rows = 6 }'
CATALOG = f"""
[budget]
epsilon = 100000
[unit.person]
[table.people]
source = "people.parquet"
privacy_unit = {{ column = "person", max_rows = 1 }}
[table.people.column]
town = {{ type = "text", domain = ["a", "b"] }}
[table.orders]
source = "orders.parquet"
{UNIT}
unit_columns = ["receiver"]
[table.orders.column]
size = {{ type = "integer", domain = [0, 9] }}
[table.visits]
source = "visits.parquet"
privacy_unit = {{ column = "person", max_rows = 4 }}
[table.visits.column]
ward = {{ type = "text", domain = ["x", "y", "z"] }}
day = {{ type = "integer", domain = [0, 9] }}
[table.wards]
source = "wards.parquet"
public = true
[table.wards.column]
ward = {{ type = "text" }}
floor = {{ type = "integer" }}
"""
OWN = "SELECT * REPLACE (CASE WHEN receiver = buyer THEN receiver END AS receiver) FROM orders"
"""What others see of orders for somebody else: nobody receives them."""
ASKED = (
    "SELECT town, COUNT(*) FROM people p WHERE EXISTS "
    "(SELECT 1 FROM orders o WHERE o.receiver = p.person) GROUP BY town",
    "SELECT town, COUNT(*) FROM people WHERE person IN "
    "(SELECT receiver FROM orders WHERE size > 4) GROUP BY town",
    "SELECT town, COUNT(*) FROM people p WHERE NOT EXISTS "
    "(SELECT 1 FROM orders WHERE p.person = receiver AND size > 2) GROUP BY town",
    "SELECT town, COUNT(*) FROM people p WHERE EXISTS (SELECT * FROM visits v, wards w WHERE "
    "v.person = p.person AND v.ward = w.ward AND floor = 1) AND (EXISTS (SELECT 1 FROM orders "
    "WHERE buyer = p.person AND size > 6) OR EXISTS (SELECT 1 FROM orders WHERE receiver = "
    "p.person AND size < 4)) GROUP BY town",
    "SELECT ward, COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM orders o WHERE o.receiver = "
    "v.person AND o.size > v.day) GROUP BY ward",
    "SELECT size, COUNT(*) FROM orders o WHERE EXISTS "
    "(SELECT 1 FROM people p WHERE p.person = o.receiver AND p.town = 'a') GROUP BY size",
    "SELECT size, COUNT(*) FROM orders WHERE receiver IN "
    "(SELECT person FROM visits WHERE ward <> 'x') GROUP BY size",
    "SELECT town, COUNT(*) FROM orders JOIN people ON receiver = person GROUP BY town",
    "SELECT town, COUNT(*) FROM people JOIN orders ON receiver = person AND size > 1 GROUP BY town",
    "SELECT size, COUNT(*) FROM orders o LEFT JOIN people p ON o.receiver = p.person "
    "WHERE p.person IS NULL GROUP BY size",
    "SELECT town, ward, COUNT(*) FROM orders o, people p, visits v WHERE o.receiver = p.person "
    "AND v.person = p.person GROUP BY ALL",
)
MOST = (1, 1, 1, 1, 4, 6, 6, 6, 6, 6, 24)
"""By how much one person may move all numbers of a statement together."""


def drawn(seed: int) -> Tables:
    draw = random.Random(seed)
    people = [(k, draw.choice("ab")) for k in range(7)]
    orders = [
        (buyer, draw.choice([buyer, buyer, None, *range(9)]), draw.randrange(10))
        for buyer in range(9)
        for _ in range(draw.randrange(7))
    ]
    visits = [
        (who, draw.choice("xyz"), draw.randrange(10))
        for who in range(9)
        for _ in range(draw.randrange(5))
    ]
    return {
        "people": ("person BIGINT, town VARCHAR", people),
        "orders": ("buyer BIGINT, receiver BIGINT, size BIGINT", orders),
        "visits": ("person BIGINT, ward VARCHAR, day BIGINT", visits),
        "wards": ("ward VARCHAR, floor BIGINT", [("x", 0), ("y", 1), ("z", 1)]),
    }


def without(tables: Tables, person: int) -> Tables:
    """The tables without the rows of a person, the first column of which says whose they are."""
    private = {name: table for name, table in tables.items() if not isinstance(table, str)}
    return {
        name: (head, [row for row in rows if name == "wards" or row[0] != person])
        for name, (head, rows) in private.items()
    }


def answers(found: World, sql: str) -> dict[Sequence[object], float]:
    rows = found[0].execute(sql).fetchall()
    return {tuple(row[:-1]): row[-1] for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_rows_meet_by_them_within_their_unit(tmp_path: Path, seed: int) -> None:
    with open_tables(tmp_path, CATALOG, drawn(seed)) as found, zero_noise():
        found[1].execute(f"CREATE TEMP TABLE own AS {OWN}")
        for sql in ASKED:
            rows = found[1].execute(sql.replace("orders", "own")).fetchall()
            expected = {tuple(row[:-1]): row[-1] for row in rows}
            shown = {key: n for key, n in answers(found, sql).items() if n}
            assert shown == expected, sql


def test_a_person_moves_answers_by_what_is_declared(tmp_path: Path) -> None:
    whole, most, moved = drawn(5), dict.fromkeys(ASKED, 0.0), 0.0
    with zero_noise():
        with open_tables(tmp_path / "whole", CATALOG, whole) as found:
            before = [answers(found, sql) for sql in ASKED]
            (written,) = found[1].execute(_written(ASKED[0])).fetchall()
        for person in range(9):
            rest = without(whole, person)
            with open_tables(tmp_path / str(person), CATALOG, rest) as found:
                for sql, all_of_it in zip(ASKED, before, strict=True):
                    after = answers(found, sql)
                    change = sum(abs(all_of_it[key] - after[key]) for key in all_of_it)
                    most[sql] = max(most[sql], change)
                (other,) = found[1].execute(_written(ASKED[0])).fetchall()
                moved = max(moved, abs(written[0] - other[0]))
    assert all(most[sql] <= bound for sql, bound in zip(ASKED, MOST, strict=True))
    assert max(most.values()) > 1
    assert moved > 1  # as it is written, what others were sent would tell of who sent it


def _written(sql: str) -> str:
    return f"SELECT SUM(n) FROM ({sql}) AS q(town, n)"


def test_the_answer_says_that_units_do_not_meet(tmp_path: Path) -> None:
    with open_tables(tmp_path, CATALOG, drawn(1)) as (connection, _):
        notes = connection.execute(ASKED[0]).result.notes
        assert any("rows of different units never meet by receiver" in each for each in notes)
        notes = connection.execute("SELECT COUNT(*) FROM orders").result.notes
        assert not any("never meet" in each for each in notes)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM people p WHERE EXISTS "
        "(SELECT 1 FROM orders o WHERE o.receiver = p.person)",
        "SELECT COUNT(*) FROM people WHERE person IN (SELECT receiver FROM orders)",
        "SELECT COUNT(*) FROM people JOIN orders ON receiver = person",
    ],
)
def test_what_is_not_declared_is_refused(tmp_path: Path, sql: str) -> None:
    bare = CATALOG.replace('unit_columns = ["receiver"]\n', "")
    with open_tables(tmp_path, bare, drawn(1)) as (connection, _), pytest.raises(dpsql.Error):
        connection.execute(sql)


@pytest.mark.parametrize("given", ['"receiver"', '["receiver", "RECEIVER"]', '["buyer"]', "[3]"])
def test_bad_declarations_are_refused(tmp_path: Path, given: str) -> None:
    bad = CATALOG.replace('["receiver"]', given)
    with (
        pytest.raises(dpsql.Error, match="unit_columns"),
        open_tables(tmp_path, bad, drawn(1)),
    ):
        pass


def test_they_need_a_unit_column_of_their_own_table(tmp_path: Path) -> None:
    through = 'privacy_unit = { through = "visits", on = "visit", max_rows = 6 }'
    with (
        pytest.raises(dpsql.Error, match="unit of another table"),
        open_tables(tmp_path, CATALOG.replace(UNIT, through), drawn(1)),
    ):
        pass


def stored_as(kind: str) -> Tables:
    """The tables, with ids of receivers in another type."""
    tables = dict(drawn(1))
    orders = tables["orders"]
    assert not isinstance(orders, str)
    tables["orders"] = orders[0].replace("receiver BIGINT", f"receiver {kind}"), orders[1]
    return tables


def test_ids_are_stored_in_one_type(tmp_path: Path) -> None:
    tables = stored_as("VARCHAR")
    with (
        open_tables(tmp_path, CATALOG, tables) as (connection, _),
        pytest.raises(dpsql.Error, match="store keys that refer to each other in one type"),
    ):
        connection.execute(ASKED[0])


def test_narrow_and_wide_ids_are_the_same(tmp_path: Path) -> None:
    tables = stored_as("SMALLINT")
    with open_tables(tmp_path, CATALOG, tables) as found, zero_noise():
        found[1].execute(f"CREATE TEMP TABLE own AS {OWN}")
        known = dict(found[1].execute(ASKED[1].replace("orders", "own")).fetchall())
        assert {key: n for (key,), n in answers(found, ASKED[1]).items() if n} == known


BESIDE_OWN = (
    "SELECT size, COUNT(*) AS n FROM orders o WHERE o.receiver = o.buyer GROUP BY size",
    "SELECT size, COUNT(*) AS n FROM orders WHERE buyer <> receiver GROUP BY size",
    "SELECT size, COUNT(*) FILTER (WHERE receiver <> buyer) AS n FROM orders GROUP BY size",
    "SELECT receiver = buyer AS k, COUNT(*) AS n FROM orders WHERE receiver IS NOT NULL GROUP BY k",
    "SELECT town, COUNT(*) AS n FROM people p JOIN orders o ON o.buyer = p.person "
    "WHERE o.receiver <> o.buyer AND size > 2 GROUP BY town",
    "SELECT town, COUNT(*) AS n FROM people p WHERE EXISTS (SELECT 1 FROM orders o WHERE o.buyer = "
    "p.person AND o.receiver <> o.buyer) GROUP BY town",
    "SELECT k, COUNT(*) AS n FROM (SELECT buyer, COUNT(*) FILTER (WHERE receiver = buyer) AS k "
    "FROM orders GROUP BY buyer) t GROUP BY k",
)


@pytest.mark.parametrize("seed", range(2))
def test_a_row_says_whether_it_names_its_own_unit(tmp_path: Path, seed: int) -> None:
    with open_tables(tmp_path, CATALOG, drawn(seed)) as found, zero_noise():
        for sql in BESIDE_OWN:
            rows = found[1].execute(sql).fetchall()
            expected = {tuple(row[:-1]): row[-1] for row in rows if row[-1]}
            assert {key: n for key, n in answers(found, sql).items() if n} == expected, sql
