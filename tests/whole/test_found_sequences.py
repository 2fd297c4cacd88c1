"""Domains and bounds come and go between statements: every answer is that of what is found now.

Random statements of two connections, with workloads that one of them has open meanwhile, restarts,
and other keys under an old name; answers without noise are compared with the naive ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection, Result
from dpsql.engine.discover import DiscoveryJob
from dpsql.privacy.doors.discovery import CountedDiscovery
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import insert

pytestmark = pytest.mark.slow

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-6
discovery_delta = 5e-7
[ledger]
anchor = "anchors"
[unit.person]
[table.people]
source = "people.parquet"
privacy_unit = { column = "person", max_rows = 1 }
[table.people.column]
sex = { type = "text", domain = ["f", "m"] }
[table.buys]
source = "buys.parquet"
privacy_unit = { column = "person", max_rows = 3 }
references = { people = "person" }
[table.buys.column]
product = { type = "text", domain = "discover", max_keys = 3, null = true }
shop = { type = "text", domain = "discover" }
sex = { type = "text", domain = ["f", "m"] }
code = { type = "integer", domain = "discover" }
price = { type = "number", bounds = "discover" }
tip = { type = "number", bounds = [0, 8] }
[view.cheap]
sql = "SELECT product, sex, person FROM buys WHERE sex = 'f'"
max_rows = 2
"""
PEOPLE, MOST = 40, 3
LACKS = ("E_DOMAIN", "E_NO_BOUNDS", "E_NOT_IN_DOMAIN", "E_AGGREGATE", "E_JOIN")
"""Why a statement about what is not found is refused."""
KEYS = ("ale", "gin", "rum", "tea")
BOUNDS = ((0, 8), (0, 32), (4, 32))
CHOICE = {
    "_choose": "dpsql.privacy.doors.find_keys._choose",
    "enclosing": "dpsql.engine.discover.enclosing",
}
STEPS = 25

UNITS = "(SELECT person, {} FROM buys {} GROUP BY person) AS p"
FORMS = (
    "SELECT product, COUNT(*) AS x FROM buys GROUP BY product",
    "SELECT COUNT(*) AS x FROM buys WHERE product = '{k}'",
    "SELECT sex, COUNT(*) AS x FROM buys GROUP BY sex",
    "SELECT product, shop, COUNT(*) AS x FROM buys GROUP BY product, shop",
    "SELECT n, COUNT(*) AS x FROM " + UNITS.format("COUNT(*) AS n", "") + " GROUP BY n",
    "SELECT n, COUNT(*) AS x FROM "
    + UNITS.format("COUNT(*) AS n", "WHERE product = '{k}'")
    + " GROUP BY n",
    "SELECT n, COUNT(*) AS x FROM "
    + UNITS.format("COUNT(*) FILTER (WHERE product = '{k}') AS n", "")
    + " GROUP BY n",
    "SELECT n, COUNT(*) AS x FROM "
    + UNITS.format("COUNT(DISTINCT product) AS n", "")
    + " GROUP BY n",
    "SELECT COUNT(*) AS x FROM people WHERE person IN"
    " (SELECT person FROM buys WHERE product = '{k}')",
    "SELECT sex, COUNT(*) AS x FROM people WHERE EXISTS (SELECT 1 FROM buys AS b"
    " WHERE b.person = people.person AND b.product = '{k}' AND b.sex = 'f') GROUP BY sex",
    "SELECT p.sex, b.product, COUNT(*) AS x FROM buys AS b JOIN people AS p USING (person)"
    " GROUP BY p.sex, b.product",
    "SELECT p.sex, COUNT(*) AS x FROM buys AS b JOIN people AS p USING (person)"
    " WHERE b.product = '{k}' GROUP BY p.sex",
    "SELECT product, COUNT(DISTINCT person) AS x FROM buys GROUP BY product",
    "SELECT code, COUNT(*) AS x FROM buys GROUP BY code",
    "SELECT sex, code, COUNT(*) AS x FROM buys GROUP BY sex, code",
    "SELECT COUNT(*) AS x FROM buys",
    "SELECT SUM(price) AS x FROM buys",
    "SELECT SUM(tip) AS x FROM buys",
    "SELECT sex, SUM(tip) AS x FROM buys GROUP BY sex",
    "SELECT SUM(s) AS x FROM " + UNITS.format("SUM(price) AS s", ""),
    "SELECT SUM(s) AS x FROM " + UNITS.format("SUM(price) AS s", "WHERE product = '{k}'"),
)


@dataclass
class Shop:
    """Two connections to one catalog, and what is found by now."""

    folder: Path
    draw: random.Random
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    paid: set[str] = field(default_factory=set)
    connections: list[Connection] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = self.draw
        for person in range(PEOPLE):
            for _ in range(draw.randrange(MOST + 1)):
                product = draw.choice([*KEYS, *KEYS, "rare", None])
                shop = draw.choice(["here", "there"])
                sex, code = draw.choice("fm"), draw.randrange(3)
                self.rows.append(
                    (person, product, shop, sex, draw.random() * 40, code, draw.randrange(9))
                )
        self.folder.mkdir(exist_ok=True)
        (self.folder / "t.toml").write_text(CATALOG)
        with duckdb.connect() as database:
            texts = ", ".join(f"{name} VARCHAR" for name in ("product", "shop", "sex"))
            declared = f"(person INTEGER, {texts}, price DOUBLE, code INTEGER, tip INTEGER)"
            database.execute(f"CREATE TABLE buys {declared}")
            insert(database, "buys", self.rows)
            sexes = f"SELECT i AS person, 'fm'[1 + i % 2] AS sex FROM range({PEOPLE}) t(i)"
            database.execute(f"CREATE TABLE people AS {sexes}")
            for name in ("buys", "people"):
                database.execute(f"COPY {name} TO '{self.folder / name}.parquet'")
        self.connections = [self.connect() for _ in range(2)]

    def connect(self) -> Connection:
        return dpsql.connect(self.folder / "t.toml", epsilon=1)

    def begin(self) -> None:
        """Find something of every column."""
        for _ in range(12):
            self.change(self.connections[0])

    def close(self) -> None:
        for each in self.connections:
            each.close()

    def step(self) -> None:
        """One random thing that one of the connections does."""
        who = self.draw.randrange(2)
        kinds = ("ask", "ask", "ask", "explain", "change", "change", "open", "private", "restart")
        match self.draw.choice(kinds):
            case "ask":
                sql = self.statement()
                self.check(sql, lambda: self.connections[who].execute(sql).result)
            case "explain":
                with_refusals(lambda sql: self.connections[who].explain(sql), self.statement())
            case "change":
                self.change(self.connections[who])
            case "open":
                self.open(who)
            case "private":
                self.private(who)
            case _:
                self.connections[who].close()
                self.connections[who] = self.connect()

    def statement(self) -> str:
        """A statement that mostly is about what is found."""
        for _ in range(self.draw.choice([1, 6, 6, 6])):
            sql = self.draw.choice(FORMS).replace("{k}", self.draw.choice(KEYS))
            if self.expected(sql) is not None:
                break
        return sql

    def change(self, connection: Connection) -> None:
        """Find what is not found, or drop what is."""
        column = self.draw.choice(["product", "product", "shop", "code", "price"])
        what = "BOUNDS" if column == "price" else "DOMAIN"
        if column in self.found and self.draw.random() < 0.6:
            connection.execute(f"DROP {what} d_{column}")
            del self.found[column]
            return
        if column in self.found:
            return
        found: Any = tuple(sorted(self.draw.sample(KEYS, 2)))
        if column == "shop":
            found = (self.draw.choice(["here", "there"]),)
        if column == "code":
            found = (self.draw.randrange(3),)
        seam, told = ("_choose", found)
        if column == "price":
            found = self.draw.choice(BOUNDS)
            seam, told = "enclosing", tuple(map(Fraction, found))
        with mock.patch(CHOICE[seam], return_value=told):
            connection.execute(f"CREATE {what} IF NOT EXISTS d_{column} FROM buys ({column})")
        self.found[column] = found

    def open(self, who: int) -> None:
        """A workload of which some statements are given before a change, and some after it."""
        connection, other = self.connections[who], self.connections[1 - who]
        sql = [self.statement() for _ in range(2)]
        if any(self.expected(each) is None for each in sql):
            return
        connection.execute("BEGIN WORKLOAD")
        connection.execute(sql[0])
        if self.draw.random() < 0.7:
            self.change(other)
        try:
            connection.execute(sql[1])
            cursor = connection.execute("RUN WORKLOAD")
        except dpsql.Error as error:
            connection.rollback()
            if any(self.expected(each) is None for each in sql) and error.code in LACKS:
                self.seen["workload refused"] += 1
                return
            raise
        results = [cursor.result]
        while cursor.nextset():
            results.append(cursor.result)
        self.seen["workload"] += 1
        for each, result in zip(sql, results, strict=True):
            self.compare(each, result, "; ".join(sql))

    def private(self, who: int) -> None:
        """A statement that finds keys by itself, of a column that is found or not."""
        if "product" in self.found:
            sql = self.statement()
        else:
            sql = self.draw.choice(
                [form for form in FORMS if "{k}" not in form and "code" not in form]
            )
        wanted = sql.replace(
            "SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (keys = 'private')", 1
        )
        before = {key: self.found.get(key) for key in ("product", "shop")}
        keys = tuple(sorted(self.draw.sample(KEYS, 2)))
        missing = [key for key in before if key in sql and before[key] is None]
        if any(f"'{key}'" in sql and key not in self.found["product"] for key in KEYS):
            return
        if len(missing) > 1 or any(k in sql and k not in self.found for k in ("price", "code")):
            return
        first = keys if missing != ["shop"] else ("here",)
        with (
            mock.patch(CHOICE["_choose"], return_value=first),
            mock.patch.object(CountedDiscovery, "level", 1),
            mock.patch.object(CountedDiscovery, "shown", return_value=first),
        ):
            result = self.connections[who].execute(wanted).result
        named = [row[0] for row in self.connections[who].execute("SHOW domains").result.rows]
        for key in missing:
            (name,) = [each for each in named if each.startswith(f"buys_{key}")]
            self.found[key] = keys if key == "product" else ("here",)
            self.compare(sql, result)
            self.connections[who].execute(f"DROP DOMAIN {name}")
            del self.found[key]
        if not missing:
            self.compare(sql, result)
        self.seen["private"] += 1
        self.seen["in one release"] += "DISTINCT person" in sql and bool(missing)

    def check(self, sql: str, ask: Any) -> None:
        """The answer is the naive one; what is not found is refused."""
        if self.expected(sql) is None:
            with pytest.raises(dpsql.Error) as caught:
                ask()
            assert caught.value.code in LACKS, caught.value
            self.seen["refused"] += 1
        else:
            result = ask()
            self.compare(sql, result)
            if not any(key in sql for key in ("product", "shop", "code", "price")):
                assert sql not in self.paid or result.cost.free, sql  # whatever was found since
                self.paid.add(sql)

    def compare(self, sql: str, result: Result, together: str = "") -> None:
        """Compare an answer; statements that are asked ``together`` are about the same rows."""
        assert result.cost is not None
        self.seen["free" if result.cost.free else "paid"] += 1
        expected = self.expected(sql, together or sql)
        assert expected is not None, sql
        found = {row[:-1]: row[-1] for row in result.rows}
        for key in expected.keys() | found.keys():
            one, two = expected.get(key, 0.0) or 0.0, found.get(key, 0.0) or 0.0
            assert one == pytest.approx(two, rel=1e-3, abs=1e-2), (sql, key, self.found, found)

    def expected(self, sql: str, together: str = "") -> dict[tuple[Any, ...], Any] | None:
        """The answer of DuckDB over what the catalog shows now; None where it shows too little."""
        found = self.found
        for key in ("product", "shop", "code"):
            if key in sql and key not in found:
                return None
        if "price" in sql and "price" not in found:
            return None
        for key in KEYS:
            if f"'{key}'" in sql and key not in found["product"]:
                return None
        with duckdb.connect() as database:
            listed = ", ".join(f"'{key}'" for key in found.get("product", ()))
            shown = f"CASE WHEN product IS NULL THEN NULL WHEN product IN ({listed}) THEN product"
            shown = f"{shown} ELSE 'other' END" if listed else "NULL"
            shops = ", ".join(f"'{key}'" for key in found.get("shop", ())) or "''"
            low, high = found.get("price", (0, 0))
            database.execute(
                f"CREATE VIEW buys AS SELECT person, {shown} AS product, sex,"
                f" CASE WHEN shop IN ({shops}) THEN shop ELSE 'other' END AS shop,"
                f" LEAST(GREATEST(price, {low}), {high}) AS price, code, tip"
                f" FROM '{self.folder / 'buys.parquet'}'"
            )
            if "code" in sql or ("code" in together and "person" not in sql):
                database.execute("ALTER VIEW buys RENAME TO every")
                code = found["code"][0]
                database.execute(f"CREATE VIEW buys AS SELECT * FROM every WHERE code = {code}")
            database.execute(f"CREATE VIEW people AS FROM '{self.folder / 'people.parquet'}'")
            return {row[:-1]: row[-1] for row in database.execute(sql).fetchall()}


def with_refusals(work: Any, sql: str) -> None:
    try:
        work(sql)
    except dpsql.Error as error:
        if error.code not in LACKS:
            raise


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        found.enter_context(zero_noise())
        # What is found again without a charge is what was found before: test_owners has that.
        found.enter_context(mock.patch.object(DiscoveryJob, "_dropped", return_value=None))
        yield found


@pytest.mark.parametrize("seed", range(effort(2)))
def test_answers_are_those_of_what_is_found_now(
    tmp_path: Path, seed: int, stack: ExitStack
) -> None:
    shop = Shop(tmp_path / "shop", random.Random(seed))
    stack.callback(shop.close)
    shop.begin()
    for _ in range(STEPS):
        shop.step()
    assert shop.seen["free"] + shop.seen["paid"] > STEPS // 5, shop.seen


@pytest.mark.parametrize("seed", range(effort(1)))
def test_what_is_found_beside_a_statement_does_not_charge_it_again(
    tmp_path: Path, seed: int, stack: ExitStack
) -> None:
    shop = Shop(tmp_path / "shop", random.Random(seed))
    stack.callback(shop.close)
    words = ("product", "shop", "code", "price")
    plain = [sql for sql in FORMS if not any(word in sql for word in words)]
    assert len(plain) > 3
    for sql in plain:
        shop.check(sql, lambda sql=sql: shop.connections[0].execute(sql).result)
    for _ in range(6):
        shop.change(shop.connections[0])
        for sql in plain:
            shop.check(sql, lambda sql=sql: shop.connections[1].execute(sql).result)
    assert shop.seen["paid"] <= len(plain)
