"""What is asked of a person's own sums and means, in steps: compared with DuckDB, and audited."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import dpsql
from tests.support.effort import IS_LARGE, effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

CATALOG = """
[budget]
epsilon = 100000
[unit.person]
[table.people]
source = "people.parquet"
privacy_unit = { column = "person", max_rows = 1 }
[table.people.column]
town = { type = "text", domain = ["a", "b"] }
[table.sales]
source = "sales.parquet"
privacy_unit = { column = "buyer", max_rows = 8 }
references = { people = { on = { buyer = "person" } } }
[table.sales.column]
kind = { type = "text", domain = ["x", "y"] }
pieces = { type = "integer", domain = [1, 5] }
price = { type = "integer", bounds = [-500, 2000] }
paid = { type = "number", bounds = [0, 300], null = true }
cost = { type = "number", bounds = [0, 900] }
[table.visits]
source = "visits.parquet"
privacy_unit = { column = "person", max_rows = 4 }
[table.visits.column]
ward = { type = "text", domain = ["p", "q"] }
fee = { type = "integer", bounds = [0, 4000] }
"""
SUMS = (
    "SUM(price) AS s, AVG(paid) AS a, SUM(cost) AS c, SUM(price * pieces) AS r, MAX(paid) AS g, "
    "SUM(pieces * (cost - 2 * paid) / 4) AS d, COUNT(*) AS n"
)
SUM = f"SELECT buyer, {SUMS} FROM sales"


def drawn(seed: int, people: int = 40) -> Tables:
    draw = random.Random(seed)
    kept = [(k, draw.choice("ab")) for k in range(people) if draw.random() < 0.9]
    sales = [
        (
            buyer,
            draw.choice("xy"),
            draw.randrange(1, 6),
            draw.choice([draw.randrange(-500, 2001), draw.randrange(-5, 9) * 100]),
            draw.choice([None, draw.randrange(300), draw.randrange(2400) / 8]),
            Decimal(draw.randrange(90001)) / 100,
        )
        for buyer in range(people)
        for _ in range(draw.randrange(9))
    ]
    visits = [
        (who, draw.choice("pq"), draw.randrange(4001))
        for who in range(people)
        for _ in range(draw.randrange(5))
    ]
    columns = (
        "buyer BIGINT, kind VARCHAR, pieces BIGINT, price BIGINT, paid DOUBLE, cost DECIMAL(9,2)"
    )
    return {
        "people": ("person BIGINT, town VARCHAR", kept),
        "sales": (columns, sales),
        "visits": ("person BIGINT, ward VARCHAR, fee BIGINT", visits),
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_tables(tmp_path_factory.mktemp("steps"), CATALOG, drawn(1)) as found, zero_noise():
        found[0].set("mechanism", "identity")
        yield found


def draw_test(draw: random.Random, name: str) -> str:
    k = draw.choice([0, 100, 150.25, 400, 1500, 4000.01])
    sign = draw.choice(["<", "<=", ">", ">=", "=", "<>"])
    return draw.choice(
        [
            f"{name} {sign} {k}",
            f"{name} / 2 {sign} {k}",
            f"{name} BETWEEN {k} AND {k + 700}",
            f"COALESCE({name}, 200) {sign} {k}",
            f"{name} IS NULL",
            f"NOT ({name} > {k} OR {name} < 20)",
        ]
    )


def draw_key(draw: random.Random, name: str) -> str:
    return draw.choice(
        [
            f"CAST({name} / 50 AS INT)",
            f"FLOOR({name} / 100) * 100",
            f"CAST(FLOOR(LEAST({name}, 900) / 75) AS INT)",
            f"CASE WHEN {draw_test(draw, name)} THEN 'one' WHEN {name} > 90 THEN 'two' END",
            f"ROUND({name}, -2)",
            draw_test(draw, name),
        ]
    )


def draw_statement(draw: random.Random) -> str:
    """Counts of persons by what they spend, or of those who spend so much."""
    where = draw.choice(["", " WHERE kind = 'x'", " WHERE pieces > 2"])
    having = draw.choice(
        ["", "", f" HAVING {draw_test(draw, 'SUM(price)')}", " HAVING COUNT(*) > 1"]
    )
    people = f"{SUM}{where} GROUP BY buyer{having}"
    name = draw.choice(["s", "s", "a", "c", "r", "g", "d"])
    key, test = draw_key(draw, name), draw_test(draw, draw.choice(["s", "a", "c", "r"]))
    if draw.random() < 0.2:
        one, two = draw.sample(["s", "a", "c", "r", "g", "d", "n", "5 * n"], 2)
        test = f"{one} {draw.choice(['<', '>=', '<>'])} {two}"
    if draw.random() < 0.3:
        key = f"CASE WHEN {test} THEN 'p' WHEN {draw_test(draw, name)} AND n > 1 THEN 'q' END"
    match draw.randrange(6):
        case 0:
            source, items, by = f"({people}) t", f"{key} AS k, COUNT(*) AS m", "k"
        case 1:
            source = f"({people}) t JOIN people p ON p.person = t.buyer"
            items, by = f"{key} AS k, town, COUNT(*) AS m, SUM(t.n) AS l", "k, town"
        case 2:
            source = f"people p LEFT JOIN ({people}) t ON p.person = t.buyer"
            items, by = f"town, {key} AS k, COUNT(*) FILTER (WHERE {test}) AS m", "ALL"
        case 3:
            source, by = f"(SELECT {key} AS k, n FROM ({people}) t WHERE {test}) u", "k"
            items = "k, COUNT(*) AS m, SUM(n) AS l"
        case 4:
            inner = f"SELECT buyer FROM ({people}) t WHERE {test}"
            source, items, by = f"people WHERE person IN ({inner})", "town, COUNT(*) AS m", "town"
        case _:
            fees = "SELECT person, SUM(fee) AS f FROM visits GROUP BY person"
            source = f"({people}) t JOIN ({fees}) v ON v.person = t.buyer"
            items, by = f"{key} AS k, f >= 6000 AS big, COUNT(*) AS m", "k, big"
    more = "" if " WHERE person IN" in source or draw.random() < 0.5 else f" WHERE {test}"
    more = "" if by == "k" and "u" in source[-1] else more
    return f"SELECT {items} FROM {source}{more} GROUP BY {by}"


def settled(rows: Sequence[Sequence[Any]]) -> set[tuple[Any, ...]]:
    """Groups with what they count, but for those in which nobody is."""
    found = {tuple(round(float(v), 6) + 0.0 if _is_number(v) else v for v in row) for row in rows}
    return {row for row in found if row[-1]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def test_random_statements_are_those_of_the_database(world: World) -> None:
    connection, database = world
    draw, several = random.Random(7), 0
    for _ in range(effort(8)):
        sql = draw_statement(draw)
        known = settled(database.execute(sql).fetchall())
        several += len(known) > 1
        assert settled(connection.execute(sql).fetchall()) == known, sql
    assert several > 3


ASKED = (
    f"SELECT FLOOR(s / 500), COUNT(*) FROM ({SUM} GROUP BY buyer) t GROUP BY 1",
    f"SELECT town, s > 3000, COUNT(*) FROM people p LEFT JOIN ({SUM} GROUP BY buyer) t "
    "ON p.person = t.buyer GROUP BY 1, 2",
    "SELECT town, COUNT(*) FROM people WHERE person IN "
    "(SELECT buyer FROM sales "
    "GROUP BY buyer HAVING SUM(price) > 2500 AND AVG(paid) < 200) GROUP BY town",
    f"SELECT CASE WHEN c > 1500 THEN 'much' WHEN a IS NULL THEN 'none' END, COUNT(*) FROM ({SUM} "
    "GROUP BY buyer HAVING SUM(cost) BETWEEN 100.5 AND 4000) t GROUP BY 1",
)


def test_a_person_moves_one_count_by_one(tmp_path: Path) -> None:
    whole = drawn(3, people=12)
    with zero_noise():
        with open_tables(tmp_path / "whole", CATALOG, whole) as (connection, _):
            before = [dict(_keyed(connection.execute(sql).fetchall())) for sql in ASKED]
        moved = dict.fromkeys(ASKED, 0.0)
        for person in range(0, 12, 1 if IS_LARGE else 3):
            rest = {n: (t[0], [r for r in t[1] if r[0] != person]) for n, t in whole.items()}
            with open_tables(tmp_path / str(person), CATALOG, rest) as (connection, _):
                for sql, counts in zip(ASKED, before, strict=True):
                    after = dict(_keyed(connection.execute(sql).fetchall()))
                    assert after.keys() == counts.keys(), sql
                    change = sum(abs(after[key] - counts[key]) for key in counts)
                    assert change <= 1, sql
                    moved[sql] = max(moved[sql], change)
    assert set(moved.values()) == {1.0}


def _keyed(rows: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, float]]:
    return ((tuple(row[:-1]), float(row[-1])) for row in rows)


@pytest.mark.parametrize(
    ("sql", "code", "told"),
    [
        (f"SELECT s, COUNT(*) FROM ({SUM} GROUP BY buyer) t GROUP BY s", "E_DOMAIN", "in steps"),
        (f"SELECT COUNT(*) FROM ({SUM} GROUP BY buyer) t WHERE s % 7 > a", "E_DOMAIN", "in steps"),
        (f"SELECT ABS(s) > 4, COUNT(*) FROM ({SUM} GROUP BY buyer) t GROUP BY 1", "E_DOMAIN", ""),
        (
            f"SELECT FLOOR(c), FLOOR(c * 4), COUNT(*) FROM ({SUM} GROUP BY buyer) t GROUP BY 1, 2",
            "E_TOO_LARGE",
            "wider steps",
        ),
        (
            f"SELECT COUNT(*) FROM ({SUM} GROUP BY buyer) t WHERE s / 2 > random()",
            "E_NONDETERMINISTIC",
            "",
        ),
    ],
)
def test_what_has_no_steps_is_refused(world: World, sql: str, code: str, told: str) -> None:
    with pytest.raises(dpsql.Error) as caught:
        world[0].execute(sql)
    assert caught.value.code == code
    assert told in str(caught.value)


BY_UNIT = (
    "SELECT town, COUNT(*) AS n FROM people p WHERE (SELECT SUM(price) FROM sales s WHERE s.buyer "
    "= p.person) > 2000 GROUP BY town",
    "SELECT town, AVG((SELECT COUNT(*) FROM sales s WHERE s.buyer = p.person AND kind = 'x')) AS n "
    "FROM people p GROUP BY town",
    "SELECT (SELECT COUNT(*) FROM visits v WHERE v.person = p.person) AS k, COUNT(*) AS n "
    "FROM people p GROUP BY k",
    "SELECT town, (SELECT COUNT(*) FROM visits v WHERE v.person = p.person) AS k, COUNT(*) AS n "
    "FROM people p GROUP BY 1, 2",
    "SELECT town, COUNT(*) FILTER (WHERE (SELECT MAX(pieces) FROM sales s WHERE s.buyer = p.person)"
    " = 5) AS n FROM people p GROUP BY town",
    "SELECT kind, COUNT(*) AS n FROM sales s WHERE price > (SELECT AVG(t.price) FROM sales t WHERE "
    "t.buyer = s.buyer) GROUP BY kind",
    "SELECT pieces, COUNT(*) AS n FROM sales s WHERE pieces < (SELECT AVG(t.pieces) FROM sales t "
    "WHERE t.buyer = s.buyer) GROUP BY pieces",
    "SELECT ward, COUNT(*) AS n FROM visits v WHERE fee >= 2 * (SELECT SUM(paid) FROM sales s "
    "WHERE s.buyer = v.person) GROUP BY ward",
    "SELECT kind, COUNT(*) AS n FROM (SELECT kind, ROW_NUMBER() OVER (PARTITION BY buyer ORDER BY "
    "cost * -2 + paid) AS k FROM sales) t WHERE k = 1 AND kind = 'x' GROUP BY kind",
    "SELECT r > 4000 AS k, COUNT(*) AS n FROM (SELECT SUM(price * pieces) OVER (PARTITION BY "
    "buyer) AS r FROM sales) t GROUP BY k",
    "SELECT kind, COUNT(*) AS n FROM (SELECT kind, price - MIN(price * 1) OVER (PARTITION BY "
    "buyer) AS d FROM sales) t WHERE d > 800 GROUP BY kind",
    "SELECT town, COUNT(*) AS n FROM people p LEFT JOIN (SELECT buyer, SUM(cost) AS c FROM sales "
    "GROUP BY buyer) s ON s.buyer = p.person LEFT JOIN (SELECT person, SUM(fee) AS f FROM visits "
    "GROUP BY person) v ON v.person = p.person WHERE COALESCE(c, 0) > COALESCE(f, 0) / 2 "
    "GROUP BY town",
    "SELECT s > 1500 AS k, COUNT(*) AS n FROM (SELECT buyer, SUM(price - COALESCE(paid, 50)) AS s "
    "FROM sales GROUP BY buyer) t GROUP BY k",
    "SELECT x > 1500 AS k, COUNT(*) AS n FROM (SELECT price * pieces AS x FROM sales UNION ALL "
    "SELECT fee FROM visits) t GROUP BY k",
    f"SELECT s >= 1000 AS big, town, COUNT(*) AS n FROM ({SUM} GROUP BY buyer) t JOIN people p ON "
    "p.person = t.buyer GROUP BY ROLLUP (big, town)",
)


@pytest.mark.parametrize("sql", BY_UNIT)
def test_sub_queries_by_the_unit_are_beside_every_row(world: World, sql: str) -> None:
    connection, database = world
    known = settled(database.execute(sql).fetchall())
    assert settled(connection.execute(sql).fetchall()) == known
    assert known


def test_sums_of_a_column_with_bins_are_compared_between_its_edges(tmp_path: Path) -> None:
    bare = 'paid = { type = "number", bounds = [0, 300], null = true }'
    binned = CATALOG.replace(bare, bare.replace(" }", ", bins = 30 }"))
    assert binned != CATALOG
    with open_tables(tmp_path, binned, drawn(1)) as (connection, database), zero_noise():
        connection.set("mechanism", "identity")
        for sql in (
            "SELECT town, COUNT(*) AS n FROM people WHERE person IN (SELECT buyer FROM sales GROUP "
            "BY buyer HAVING SUM(paid) > 403 AND AVG(paid) <> 120) GROUP BY town",
            "SELECT s > 5 * n AS k, s >= 400 AS l, COUNT(*) AS m FROM (SELECT buyer, SUM(paid) AS "
            "s, SUM(pieces) AS n FROM sales GROUP BY buyer) t GROUP BY k, l",
            "SELECT kind, COUNT(*) AS n FROM sales s WHERE paid > (SELECT AVG(paid) FROM sales t "
            "WHERE t.buyer = s.buyer) GROUP BY kind",
            "SELECT CAST(s / 70 AS INT) AS k, COUNT(*) AS n FROM (SELECT buyer, SUM(paid) AS s "
            "FROM sales GROUP BY buyer) t GROUP BY k",
            "SELECT FLOOR(s / 100) AS k, AVG(s) > 0 AS p, COUNT(*) AS n FROM (SELECT buyer, "
            "SUM(paid) AS s FROM sales GROUP BY buyer) t GROUP BY k HAVING COUNT(*) > 0.5",
        ):
            known = settled(database.execute(sql).fetchall())
            assert settled(connection.execute(sql).fetchall()) == known, sql
            assert known
