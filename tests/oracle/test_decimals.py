"""Decimal columns against DuckDB without noise, as several libraries write them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from tests.suites.suite import compared
from tests.support.seam import zero_noise
from tests.support.tables import World, open_tables

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4
max_epsilon_per_request = 1000

[table.t]
source = "{}"
privacy_unit = "row"

[table.t.column]
g = {{ type = "text", domain = ["a", "b"] }}
price = {{ type = "decimal", domain = [0, 4.9], step = 0.1 }}
rate = {{ type = "decimal", domain = [0, 0.25, 1.5, 2.125, 3], null = true }}
"""
STATEMENTS = [
    "SELECT SUM(price) AS s, COUNT(*) AS n FROM t",
    "SELECT COUNT(*) AS n FROM t WHERE price = 1.2",
    "SELECT COUNT(*) AS n FROM t WHERE price > 1.2",
    "SELECT COUNT(*) AS n FROM t WHERE price BETWEEN 0.30 AND 2.5 AND g = 'a'",
    "SELECT g, AVG(price) AS a FROM t WHERE price >= 0.1 GROUP BY g ORDER BY g",
    "SELECT floor(price) AS k, COUNT(*) AS n, SUM(price) AS s FROM t GROUP BY k ORDER BY k",
    "SELECT price // 3 AS k, COUNT(*) AS n FROM t GROUP BY k ORDER BY k",
    "SELECT rate, COUNT(*) AS n FROM t GROUP BY rate ORDER BY rate",
    "SELECT SUM(rate) AS s, COUNT(rate) AS n FROM t",
    "SELECT COUNT(*) AS n FROM t WHERE rate IN (0.25, 3)",
    "SELECT SUM(price * price) AS s FROM t WHERE g = 'b'",
    "SELECT QUANTILE_DISC(price, 0.5) AS m FROM t",
]
VALUES = [Decimal(n).scaleb(-2) for n in range(0, 500, 10)] + [Decimal("1.2")] * 9
ODD = [
    None,
    Decimal("1.23"),
    Decimal("-0.01"),
    Decimal("10.00"),
    Decimal("99999999.99"),
    Decimal("0.30"),
]
RATES = [None, Decimal(0), Decimal("0.25"), Decimal("1.5"), Decimal("2.125"), Decimal(3)]
RATES += [Decimal("0.125"), Decimal(-3)]
Rows = Sequence[tuple[str, Decimal | None, Decimal | None]]


def rows_of(seed: int) -> Rows:
    draw = random.Random(seed)
    prices = [draw.choice(VALUES if draw.random() < 0.9 else ODD) for _ in range(300)]
    return [(draw.choice("ab"), price, draw.choice(RATES)) for price in prices]


def arrow(rows: Rows, price: Any, rate: Any) -> pa.Table:
    def column(index: int, kind: Any) -> pa.Array:
        values: list[Any] = [row[index] for row in rows]
        if pa.types.is_floating(kind):
            values = [None if value is None else float(value) for value in values]
        return pa.array(values, kind)

    groups = pa.array([row[0] for row in rows])
    return pa.table({"g": groups, "price": column(1, price), "rate": column(2, rate)})


def by_duckdb(path: Path, rows: Rows) -> None:
    table = arrow(rows, pa.decimal128(10, 2), pa.decimal128(38, 20))
    with duckdb.connect() as connection:
        connection.register("written", table)
        connection.execute(f"COPY written TO '{path}' (FORMAT parquet)")


def by_pyarrow(path: Path, rows: Rows) -> None:
    pq.write_table(arrow(rows, pa.decimal128(30, 15), pa.float64()), path, row_group_size=13)


def by_polars(path: Path, rows: Rows) -> None:
    frame = pl.from_arrow(arrow(rows, pa.decimal128(12, 4), pa.float32()))
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path)


def by_pandas(path: Path, rows: Rows) -> None:
    prices = [math.nan if row[1] is None else float(row[1]) for row in rows]
    rates = [None if row[2] is None else row[2] for row in rows]
    frame = pd.DataFrame({"g": [row[0] for row in rows], "price": prices, "rate": rates})
    frame.to_parquet(path)


def by_csv(path: Path, rows: Rows) -> None:
    def shown(value: Decimal | None) -> str:
        return "" if value is None else f"{value:.5f}"

    lines = [f"{group},{shown(price)},{shown(rate)}" for group, price, rate in rows]
    path.write_text("\n".join(["g,price,rate", *lines]) + "\n")


def expected(naive: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    tests = ["price BETWEEN 0 AND 4.9 AND price * 10 = round(price * 10)"] if "price" in sql else []
    tests += ["(rate IN (0, 0.25, 1.5, 2.125, 3) OR rate IS NULL)"] if "rate" in sql else []
    naive.execute(f"CREATE OR REPLACE TABLE t AS FROM every WHERE {' AND '.join(tests)}")
    return naive.execute(sql).fetchall()


def near(one: Any, two: Any) -> bool:
    if isinstance(one, float | int) and isinstance(two, float | int | Decimal):
        return bool(one == pytest.approx(float(two), rel=2e-3, abs=0.01))
    return bool(one == two)


@pytest.mark.parametrize("writer", [by_duckdb, by_pyarrow, by_polars, by_pandas, by_csv])
def test_decimals_agree_with_duckdb(writer: Callable[[Path, Rows], None], tmp_path: Path) -> None:
    path = tmp_path / ("t.csv" if writer is by_csv else "t.parquet")
    rows = rows_of(3)
    writer(path, rows)
    (tmp_path / "c.toml").write_text(CATALOG.format(path.name))
    with dpsql.connect(tmp_path / "c.toml") as connection, duckdb.connect() as naive:
        naive.register("every", arrow(rows, pa.decimal128(12, 2), pa.decimal128(10, 3)))
        connection.set("epsilon", "100")
        connection.set("fresh", "on")
        # What is written otherwise is read otherwise, and all statements read alike.
        for sql in STATEMENTS if writer in (by_duckdb, by_csv) else STATEMENTS[::3]:
            with zero_noise():
                found = [tuple(row) for row in connection.execute(sql).fetchall()]
            true = expected(naive, sql)
            assert len(found) == len(true), sql
            assert all(map(near, sum(found, ()), sum(true, ()))), (sql, found, true)


def test_a_decimal_that_no_cell_holds_is_said(tmp_path: Path) -> None:
    by_duckdb(tmp_path / "t.parquet", rows_of(4))
    (tmp_path / "c.toml").write_text(CATALOG.format("t.parquet"))
    with dpsql.connect(tmp_path / "c.toml") as connection:
        rows = dict(connection.explain("SELECT COUNT(*) FROM t WHERE price = 1.255").rows())
        assert "holds for no declared value" in str(rows)


ROUNDED = """
[budget]
epsilon = 100000

[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
g = { type = "text", domain = ["a", "b"] }
price = { type = "number", bounds = [0, 128], null = true }
count = { type = "integer", domain = [0, 9], null = true }
share = { type = "number", bounds = [0, 1] }
"""
SOLD = {
    "t": "SELECT ['a', 'b'][i % 2 + 1] AS g, CASE WHEN i % 7 > 0 THEN (i * 37 % 12800) / 100.0 END "
    "AS price, CASE WHEN i % 5 > 0 THEN i % 10 END AS count, (i % 100) / 100.0 AS share "
    "FROM range(200) r(i)"
}


@pytest.fixture(scope="module")
def sold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_tables(tmp_path_factory.mktemp("sold"), ROUNDED, SOLD) as world, zero_noise():
        world[0].set("mechanism", "identity")
        yield world


@pytest.mark.parametrize("seed", range(16))
def test_measures_rounded_to_fine_places_are_summed(sold: World, seed: int) -> None:
    draw = random.Random(seed)
    value = draw.choice(["price", "price * count", "count * price + price", "price - count"])
    form = draw.choice(
        ["CAST({0} AS DECIMAL(12, 2))", "ROUND({0}, 2)", "COALESCE({0} + 0 * count, 0)",
         "COALESCE({0} * 1.5, 0)", "CAST(ROUND({0}, 3) AS DECIMAL(18, 3))",
         "COALESCE(CAST({0} AS DECIMAL(9, 2)) * 2, 0)", "({0})::DECIMAL"]
    ).format(value)  # fmt: skip
    called = draw.choice(["SUM({0})", "AVG({0})", "SUM(CASE WHEN count > 2 THEN {0} ELSE 0 END)"])
    sql = f"SELECT g, {called.format(form)} FROM t GROUP BY g"
    found = compared(sold[0].execute(sql).result, sold[1].execute(sql).fetchall(), 1e-4)
    assert found is None, (sql, found)


@pytest.mark.parametrize(
    "value",
    ["ROUND(price)", "ROUND(price, 0)", "CAST(price AS DECIMAL(4, 2))", "CAST(price AS DECIMAL(8))",
     "ROUND(share, 2)", "CAST(share * price AS DECIMAL(12, 2))", "ROUND(price, count)",
     "COALESCE(price * count, 1)"],
)  # fmt: skip
def test_coarse_places_are_refused(sold: World, value: str) -> None:
    with pytest.raises(dpsql.Error) as caught:
        sold[0].execute(f"SELECT SUM({value}) FROM t")
    assert caught.value.code == "E_EXPR_IN_AGG"


BY_UNIT = """
[budget]
epsilon = 100000

[table.v]
source = "v.parquet"
privacy_unit = { column = "who", max_rows = 4 }

[table.v.column]
g = { type = "text", domain = ["a", "b"] }
fee = { type = "decimal", domain = [-1, 4.9], step = 0.1, null = true }
tax = { type = "decimal", domain = [0.05, 0.45], step = 0.1 }
rate = { type = "decimal", domain = [0, 0.25, 1.5, 2.125] }
"""
OF_UNITS = {
    "v": "SELECT i // 3 AS who, ['a', 'b'][i % 5 % 2 + 1] AS g, (CASE WHEN i % 7 > 0 THEN "
    "i * 37 % 60 / 10.0 - 1 END)::DECIMAL(9, 2) AS fee, (i % 5 / 10.0 + 0.05)::DECIMAL(9, 2) AS "
    "tax, [0, 0.25, 1.5, 2.125][i % 4 + 1]::DECIMAL(9, 3) AS rate FROM range(90) r(i)"
}
WITHIN_UNITS = [
    "SELECT s, COUNT(*) FROM (SELECT who, SUM(fee) AS s FROM v GROUP BY who) p GROUP BY s",
    "SELECT SUM(s) FROM (SELECT who, g, SUM(fee) AS s FROM v GROUP BY ALL) p WHERE s > 2.5",
    "SELECT COUNT(*) FROM (SELECT who, SUM(fee) AS s FROM v GROUP BY who) p WHERE s = 0.7",
    "SELECT SUM(s), SUM(r), SUM(a) FROM (SELECT who, SUM(tax) AS s, SUM(rate) AS r, AVG(fee) AS a "
    "FROM v GROUP BY who) p",
    "SELECT m, COUNT(*) FROM (SELECT who, MAX(fee) AS m FROM v GROUP BY who) p GROUP BY m",
    "SELECT SUM(d) FROM (SELECT who, SUM(DISTINCT fee) AS d FROM v GROUP BY who) p",
    "SELECT SUM(x) FROM (SELECT SUM(fee) OVER (PARTITION BY who ORDER BY rate, tax, fee ROWS "
    "UNBOUNDED PRECEDING) AS x FROM v WHERE fee IS NOT NULL) p",
]
CLIPPED = {
    f"{kind}(fee, contribution_bounds_per_group => (0.5, 3))": (
        f"{kind}(CASE WHEN {part} < 0.5 THEN 0.5 WHEN {part} > 3 THEN 3 ELSE {part} END)"
    )
    for kind, part in (("SUM", "s"), ("AVG", "a"))
}


def test_decimals_of_one_unit_are_added_up_exactly(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(BY_UNIT)
    with duckdb.connect() as database:
        for name, made in OF_UNITS.items():
            database.execute(f"CREATE TABLE {name} AS {made}")
            database.execute(f"COPY {name} TO '{tmp_path / name}.parquet'")
        with zero_noise(), dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
            connection.set("mechanism", "identity")
            for sql in WITHIN_UNITS:
                found = compared(connection.execute(sql).result, database.sql(sql).fetchall(), 1e-3)
                assert found is None, (sql, found)
            parts = "(SELECT g, SUM(fee) AS s, AVG(fee) AS a FROM v GROUP BY who, g)"
            for asked, exact in CLIPPED.items():
                result = connection.execute(f"SELECT g, {asked} FROM v GROUP BY g").result
                rows = database.sql(f"SELECT g, {exact} FROM {parts} GROUP BY g").fetchall()
                assert compared(result, rows, 1e-3) is None, asked
