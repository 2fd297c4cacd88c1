"""A number that is summed and compared: bins, bounds and both, against DuckDB without noise."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise

ROWS = 400
SEARCHED = 8
"""Statements for which a strategy is searched; the others are measured cell by cell."""
CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4
max_epsilon_per_request = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
g = { type = "text", domain = ["a", "b", "c"] }
price = { type = "number", bounds = [-10, 90], step = 10, null = true }
kept = { type = "number", domain = [0, 60], bins = [0, 5, 20, 60] }
qty = { type = "integer", bounds = [0, 50], bins = [0, 1, 10, 25, 50] }
long = { type = "number", bounds = [0, 1000], bins = 1000 }
"""
VIEW = """
SELECT g, CASE WHEN price IS NOT NULL THEN greatest(-10, least(90, price)) END AS price, kept,
  greatest(0, least(50, qty)) AS qty, greatest(0, least(1000, long)) AS long
FROM '{}' WHERE kept BETWEEN 0 AND 60
"""
CONDITIONS = {
    "price": ["price >= 0", "price < 50", "price >= 10 AND price < 80", "price IS NOT NULL"],
    "kept": ["kept >= 5", "kept < 20"],
    "qty": ["qty >= 1", "qty < 25", "qty > 9", "qty BETWEEN 1 AND 9"],
    "long": ["long >= 250", "long < 500 OR long >= 501"],
}
BANDS = {
    "price": "CASE WHEN price < 0 THEN 'low' WHEN price < 50 THEN 'mid' ELSE 'high' END",
    "kept": "kept >= 20",
    "qty": "qty >= 10",
    "long": "CASE WHEN long < 100 THEN 0 ELSE 1 END",
}


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Connection, duckdb.DuckDBPyConnection]]:
    place = tmp_path_factory.mktemp("binned")
    path = place / "t.parquet"
    duckdb.execute(
        "COPY (SELECT chr((97 + i % 3)::INT) AS g,"
        " CASE WHEN i % 11 = 0 THEN NULL ELSE ((i * 37) % 1300) / 10.0 - 20 END AS price,"
        " ((i * 29) % 700) / 10.0 - 3 AS kept, (i * 31) % 70 - 8 AS qty,"
        " ((i * 91) % 11111) / 10.0 - 20 AS long"
        f" FROM range({ROWS}) r(i)) TO '{path}' (FORMAT parquet)"
    )
    (place / "c.toml").write_text(CATALOG)
    naive = duckdb.connect()
    naive.execute(f"CREATE TABLE t AS {VIEW.format(path)}")
    with dpsql.connect(place / "c.toml") as connection:
        connection.set("epsilon", "100")
        connection.set("fresh", "on")
        yield connection, naive
    naive.close()


def statements() -> list[str]:
    draw = random.Random(66)
    found = ["SELECT SUM(long) AS s, AVG(long) AS a, COUNT(*) AS c FROM t WHERE kept >= 0"]
    while len(found) < 40:
        column, other = draw.choice(list(BANDS)), draw.choice(list(BANDS))
        sums = [f"SUM({column}) AS s", f"COUNT({column}) AS n", "COUNT(*) AS c"]
        condition = draw.choice(CONDITIONS[draw.choice([column, other])])
        sums.append(f"SUM({column}) FILTER (WHERE {condition}) AS f")
        if column != other and draw.random() < 0.3:
            sums.append(f"SUM({column} * {other}) AS m")
        if draw.random() < 0.3:
            sums.append(f"SUM({column} * {column}) AS q")
        key = draw.choice(["g", f"{BANDS[column]}", "1", f"{BANDS[other]}"])
        where = f"kept >= 0 AND {draw.choice(CONDITIONS[draw.choice([column, other])])}"
        if key == "1":
            found.append(f"SELECT {', '.join(sums)} FROM t WHERE {where}")
        else:
            listed = f"SELECT {key} AS k, {', '.join(sums)} FROM t WHERE {where}"
            found.append(f"{listed} GROUP BY {key} ORDER BY k")
    return found


def test_sums_and_conditions_on_one_column_agree_with_duckdb(
    sides: tuple[Connection, duckdb.DuckDBPyConnection],
) -> None:
    connection, naive = sides
    for number, sql in enumerate(statements()):
        # what is measured is searched for where it may matter: it is the same data
        connection.set("mechanism", "auto" if number < SEARCHED else "identity")
        with zero_noise():
            rows = connection.execute(sql).fetchall()
        expected = naive.execute(sql).fetchall()
        if "GROUP BY" in sql:
            names = {row[0] for row in expected}
            rows = [row for row in rows if row[0] in names]
        assert len(rows) == len(expected), sql
        for row, true in zip(rows, expected, strict=True):
            for one, two in zip(row, true, strict=True):
                if isinstance(one, str | bool):
                    assert one == two
                elif one is not None and two is not None:
                    assert one == pytest.approx(float(two), rel=1e-3, abs=ROWS * 0.3), sql


def test_bins_that_no_statement_tells_apart_cost_a_sum_nothing(
    sides: tuple[Connection, duckdb.DuckDBPyConnection],
) -> None:
    connection, _ = sides
    connection.set("mechanism", "auto")
    by_bins = connection.explain("SELECT SUM(long) AS s FROM t").rmse
    assert by_bins == pytest.approx(2**0.5 * 1000 / 100, rel=0.01)


def test_a_cut_between_edges_says_which_edges_there_are(
    sides: tuple[Connection, duckdb.DuckDBPyConnection],
) -> None:
    connection, _ = sides
    with pytest.raises(dpsql.errors.ProgrammingError) as error:
        connection.explain("SELECT SUM(price) FROM t WHERE price > 15")
    assert error.value.code == "E_BIN_EDGE"
    assert "-10, 0, 10, 20, 30" in str(error.value.hint)


@pytest.mark.parametrize("column", ["price", "kept", "qty", "long"])
@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_quantiles_are_read_within_bins(
    sides: tuple[Connection, duckdb.DuckDBPyConnection], column: str, place: float
) -> None:
    """Off by less than half of a bin, where its lower edge is off by half of one in the mean."""
    connection, naive = sides
    connection.set("mechanism", "identity")
    kept = "WHERE kept IS NOT NULL"  # whether rows beyond its domain count is not what is asked
    sql = f"SELECT g, QUANTILE_CONT({column}, {place}) AS q FROM t {kept} GROUP BY g ORDER BY g"
    with zero_noise():
        rows = dict(connection.execute(sql).fetchall())
    edges = {"price": range(-10, 100, 10), "kept": (0, 5, 20, 60), "qty": (0, 1, 10, 25, 50)}
    for group, true in naive.execute(sql).fetchall():
        known = edges.get(column, range(1001))
        width = next(b - a for a, b in itertools.pairwise(known) if true <= b)
        assert rows[group] == pytest.approx(true, abs=max(width / 2, 1.5)), (group, true)
        assert rows[group] not in known or width == 1
