"""Keys of several columns, found together: what statements see of them, and sequences of these."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.engine.test_discover import anew, ask, private, refused, sell, shop  # noqa: F401
from tests.support.seam import zero_noise

BOTH = "CREATE DOMAIN both FROM sales (product, code) OPTIONS (epsilon = 5)"
BY = "SELECT product, code, COUNT(*) AS n FROM sales GROUP BY product, code"


def naive(folder: Path, keys: set[tuple[Any, Any]], where: str = "TRUE") -> Counter[Any]:
    """Rows by combination, those of no listed one together."""
    with duckdb.connect() as database:
        rows = database.execute(
            f"SELECT product, code FROM '{folder / 'sales.parquet'}' WHERE {where}"
        ).fetchall()
    return Counter(row if row in keys else ("other", -1) for row in rows)


def test_combinations_are_found_once_and_are_then_groups(shop: Connection) -> None:  # noqa: F811
    refused(shop, BY, "E_DOMAIN", "CREATE DOMAIN")
    ask(shop, BOTH)
    with zero_noise():
        found = {tuple(row[:2]): row[2] for row in ask(shop, BY).rows}
    folder = shop.catalog.path.parent
    keys = {key for key in found if key != ("other", -1)}
    assert keys == {(p, c) for p in ("tea", "milk", "salt") for c in (7, 9, 11)}
    assert found == naive(folder, keys)
    assert ask(shop, "SHOW domains").rows == (("both", "domain", "sales.product, code", 1),)
    told = ask(shop, "DESCRIBE sales").rows
    assert ("product, code", "text", "9 combinations, else one row for all others", 10) in told


def test_a_statement_about_some_of_the_columns_is_not_about_the_combinations(
    shop: Connection,  # noqa: F811
) -> None:
    ask(shop, BOTH)
    refused(shop, "SELECT product, COUNT(*) FROM sales GROUP BY product", "E_DOMAIN")
    ask(shop, "CREATE DOMAIN products FROM sales (product) OPTIONS (epsilon = 5)")
    with zero_noise():
        rows = dict(ask(shop, "SELECT product, COUNT(*) FROM sales GROUP BY product").rows)
    assert rows == {"milk": 300, "salt": 200, "tea": 400, "other": 40, None: 61}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT sex, COUNT(*) FROM sales WHERE product = 'tea' AND code = 7 GROUP BY sex", 134),
        ("SELECT COUNT(*) FROM sales WHERE product IN ('tea', 'milk') AND code > 7", 466),
        ("SELECT COUNT(*) FILTER (WHERE code = 7) FROM sales WHERE product = 'tea'", 134),
        ("SELECT COUNT(*) FROM sales AS s WHERE s.product || '-' || s.code = 'tea-7'", 134),
        (
            "SELECT SUM(n) FROM (SELECT product, code, COUNT(*) AS n FROM sales GROUP BY ALL) t",
            1001,
        ),
        ("SELECT COUNT(*) FROM sales WHERE product = 'other' AND code = -1", 101),
    ],
)
def test_conditions_are_about_combinations_too(
    shop: Connection,  # noqa: F811
    sql: str,
    expected: int,
) -> None:
    ask(shop, BOTH)
    with zero_noise():
        found = sum(row[-1] for row in ask(shop, sql).rows)
    assert found == pytest.approx(expected)


def test_distinct_lists_them_free_and_rollup_adds_them_up(shop: Connection) -> None:  # noqa: F811
    ask(shop, BOTH)
    before = shop.budget
    listed = ask(shop, "SELECT DISTINCT product, code FROM sales").rows
    assert len(listed) == 10
    assert shop.budget == before
    rolled = BY.replace("GROUP BY product, code", "GROUP BY ROLLUP (product, code)")
    with zero_noise():
        rows = ask(shop, rolled).rows
    assert rows[-1] == (None, None, 1001)
    assert ("tea", None, 400) in rows


def test_the_order_of_columns_does_not_matter(shop: Connection) -> None:  # noqa: F811
    ask(shop, BOTH)
    swapped = BOTH.replace("product, code", "code, product").replace("both", "again")
    refused(shop, swapped, "E_STATEMENT", "DROP DOMAIN both")
    lenient = swapped.replace("DOMAIN", "DOMAIN IF NOT EXISTS")
    assert ask(shop, lenient).message == "domain both was found before: free"
    assert len(ask(shop, "SELECT code, product, COUNT(*) FROM sales GROUP BY ALL").rows) == 10
    assert ask(shop, private(BY)).rows, "nothing is missing"


def test_units_and_derived_tables_use_combinations(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    text = catalog.read_text()
    catalog.write_text(text + 'shop = { type = "integer", domain = "discover", max_keys = 2 }\n')
    sql = (
        "SELECT n, COUNT(*) FROM (SELECT person, COUNT(*) FILTER (WHERE product = 'tea' AND"
        " shop = 1) AS n FROM buys GROUP BY person) AS p GROUP BY n"
    )
    with duckdb.connect() as database:
        path = tmp_path / "buys.parquet"
        database.execute(f"CREATE TABLE buys AS SELECT *, person % 2 AS shop FROM '{path}'")
        database.execute(f"COPY buys TO '{path}' (FORMAT parquet)")
        wanted = database.execute(sql).fetchall()
    with dpsql.connect(catalog, epsilon=5) as connection, zero_noise():
        ask(connection, "CREATE DOMAIN d FROM buys (product, shop)")
        found = dict(ask(connection, sql).rows)
        assert {n: count for n, count in found.items() if count} == dict(wanted)
        ask(connection, "DROP DOMAIN d")
        refused(connection, sql, "E_DOMAIN")


def test_a_synthetic_table_keeps_its_combinations(shop: Connection) -> None:  # noqa: F811
    ask(shop, BOTH)
    ask(shop, f"CREATE SYNTHETIC TABLE s FROM sales OPTIONS (epsilon = 5) FOR ({BY})")
    of_model = BY.replace("FROM sales", "FROM s")
    before = ask(shop, of_model).rows
    assert {type(code) for _, code, _ in before} == {int}
    ask(shop, "DROP DOMAIN both")
    assert ask(shop, of_model).rows == before


KEYS = ("tea\x1f7", "tea\x1f9", "milk\x1f7", "salt\x1f11", "rare 1\x1f7")


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_those_of_what_is_found_now(tmp_path: Path, seed: int) -> None:
    """Domains of columns and of combinations come and go; two connections, and restarts."""
    catalog, draw = sell(tmp_path, epsilon="100000"), random.Random(seed)
    found: dict[str, set[Any]] = {}
    connections = [dpsql.connect(catalog, epsilon=1) for _ in range(2)]
    with zero_noise():
        for step in range(14):
            who = draw.randrange(2)
            name = draw.choice(["both", "both", "products"])
            if name in found and draw.random() < 0.5:
                ask(connections[who], f"DROP DOMAIN {name}")
                del found[name]
            elif name not in found:
                found[name] = discover(connections[who], name, draw.sample(KEYS, 2))
            if step == 9:
                connections[who].close()
                connections[who] = dpsql.connect(catalog, epsilon=1)
            sql = draw.choice([BY, BY.replace("GROUP BY", "WHERE sex = 'f' GROUP BY")])
            if "both" in found:
                where = "sex = 'f'" if "WHERE" in sql else "TRUE"
                rows = {tuple(row[:2]): row[2] for row in ask(connections[1 - who], sql).rows}
                expected = naive(tmp_path, found["both"], where)
                assert rows == {key: expected[key] for key in (*found["both"], ("other", -1))}
            else:
                refused(connections[1 - who], sql, "E_DOMAIN")
    for each in connections:
        each.close()


def discover(connection: Connection, name: str, keys: list[str]) -> set[Any]:
    """Find some combinations, or the products of them."""
    split = [(key.split("\x1f")[0], int(key.split("\x1f")[1])) for key in keys]
    products = sorted({product for product, _ in split})
    columns, chosen = ("product, code", sorted(keys)) if name == "both" else ("product", products)
    with mock.patch("dpsql.privacy.doors.find_keys._choose", return_value=tuple(chosen)):
        sql = f"CREATE DOMAIN {name} FROM sales ({columns}) OPTIONS (discovery_delta = 1e-9)"
        anew(connection, sql)
    return set(split) if name == "both" else set(products)
