"""Keys and their counts in one request: what it answers, costs, stores, and says beforehand."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import duckdb
import pytest

import dpsql
from dpsql.answer.discovered import decode_found, encode_found
from dpsql.dbapi.connection import Connection
from tests.engine.test_discover import ask, private, refused, sell, shop  # noqa: F401
from tests.support.seam import zero_noise

COUNTS = private("SELECT product, COUNT(*) AS n FROM sales GROUP BY product")
UNITS = private("SELECT product, COUNT(DISTINCT person) AS n FROM buys GROUP BY product")


def test_keys_and_counts_come_from_one_release(shop: Connection) -> None:  # noqa: F811
    lines = [row[0] for row in ask(shop, "EXPLAIN " + COUNTS, epsilon=2).rows]
    assert any("noisy count is" in line for line in lines)
    assert any("standard error 0.68" in line for line in lines), lines
    with zero_noise():
        first = ask(shop, COUNTS, epsilon=2)
    assert dict(first.rows) == {"milk": 300, "salt": 200, "tea": 400, "other": 40, None: 61}
    assert first.cost is not None
    assert first.cost.epsilon == 2
    assert not first.cost.free
    assert [entry.epsilon for entry in shop.entries()[1:]] == ["2"]
    assert first.stddev[1] is not None
    by_key = dict(zip([row[0] for row in first.rows], first.stddev[1], strict=True))
    assert by_key["tea"] == by_key[None] == pytest.approx(0.69, abs=0.01)
    assert by_key["other"] == pytest.approx(7.07, abs=0.1)
    assert any("too high on average" in note for note in first.notes)
    assert ask(shop, "SHOW domains").rows == (("sales_product", "domain", "sales.product", 1),)


def test_the_same_statement_is_free_as_long_as_it_is_as_accurate(shop: Connection) -> None:  # noqa: F811
    first = ask(shop, COUNTS, epsilon=2)
    before = shop.budget
    for sql in (COUNTS, COUNTS.replace("AS n", "AS m"), COUNTS + " ORDER BY n LIMIT 1"):
        again = ask(shop, sql, epsilon=2)
        assert again.cost is not None
        assert again.cost.free
        assert set(again.rows) <= set(first.rows)
    assert ask(shop, COUNTS, epsilon=1).rows == first.rows
    assert shop.explain(COUNTS).free
    assert shop.budget == before
    more = ask(shop, COUNTS, epsilon=8)
    assert more.cost is not None
    assert not more.cost.free
    assert ask(shop, "SELECT product, COUNT(*) FROM sales WHERE sex = 'f' GROUP BY product").rows


def test_it_survives_a_restart_and_new_data_are_counted_anew(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    with dpsql.connect(catalog, epsilon=1) as connection:
        first = ask(connection, COUNTS)
    with dpsql.connect(catalog, epsilon=1) as connection:
        again = ask(connection, COUNTS)
        assert again.cost is not None
        assert again.cost.free
        assert again.rows == first.rows
    with duckdb.connect() as database:
        path = tmp_path / "sales.parquet"
        database.execute(f"CREATE TABLE t AS SELECT * FROM '{path}' LIMIT 900")
        database.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    with dpsql.connect(catalog, epsilon=1) as connection:
        assert not ask(connection, COUNTS).cost.free  # type: ignore[union-attr]


def test_dropped_keys_answer_nothing_until_they_are_found_again(shop: Connection) -> None:  # noqa: F811
    first = ask(shop, COUNTS)
    ask(shop, "DROP DOMAIN sales_product")
    refused(shop, "SELECT product, COUNT(*) FROM sales GROUP BY product", "E_DOMAIN")
    again = ask(shop, COUNTS, epsilon=2)
    assert again.cost is not None
    assert not again.cost.free
    ask(shop, "DROP DOMAIN sales_product")
    assert ask(shop, COUNTS).rows == first.rows, "what was paid for is found again"
    assert shop.budget.entries == 2


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_units_of_several_rows_are_counted_by_key(shop: Connection, noise: str) -> None:  # noqa: F811
    with zero_noise():
        found = ask(shop, UNITS, epsilon=3, noise=noise, delta=1e-7)
    with duckdb.connect() as database:
        rows = database.execute(
            "SELECT CASE WHEN product IN ('tea', 'milk', 'salt') THEN product"
            " WHEN product IS NULL THEN NULL ELSE 'Rest' END AS k, COUNT(DISTINCT person)"
            f" FROM '{shop.catalog.path.parent / 'buys.parquet'}' GROUP BY k"
        ).fetchall()
    assert dict(found.rows) == dict(rows)
    assert any("at most 3 keys of product count of each person" in each for each in found.notes)


def test_numbers_without_a_cell_for_others_spend_all_on_keys(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    catalog.write_text(catalog.read_text().replace(", other = -1 }", " }"))
    with dpsql.connect(catalog, epsilon=1) as connection, zero_noise():
        sql = private("SELECT code, COUNT(*) FROM sales GROUP BY code ORDER BY code")
        assert ask(connection, sql).rows == ((7, 334), (9, 334), (11, 333))


def test_expressions_of_the_counts_have_standard_errors(shop: Connection) -> None:  # noqa: F811
    sql = COUNTS.replace("AS n", "* 2 + COUNT(*) AS n") + " HAVING COUNT(*) > 100 ORDER BY n"
    with zero_noise():
        found = ask(shop, sql, epsilon=2)
    assert found.rows == (("salt", 600), ("milk", 900), ("tea", 1200))
    assert found.stddev[1] == pytest.approx((2.07, 2.07, 2.07), abs=0.02)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT product, COUNT(*) FROM sales WHERE sex = 'f' GROUP BY product",
        "SELECT product, sex, COUNT(*) FROM sales GROUP BY product, sex",
        "SELECT product, COUNT(*) FROM buys GROUP BY product",
        "SELECT product, COUNT(*) FROM sales GROUP BY ROLLUP (product)",
        "SELECT upper(product), COUNT(*) FROM sales GROUP BY upper(product)",
        "SELECT day, COUNT(*) FROM sales GROUP BY day",
        "SELECT MAX(n) FROM (SELECT product, COUNT(*) AS n FROM sales GROUP BY product) AS t",
        "SELECT product, COUNT(*) FILTER (WHERE sex = 'f') FROM sales GROUP BY product",
    ],
)
def test_whatever_else_is_asked_takes_two_releases(shop: Connection, sql: str) -> None:  # noqa: F811
    assert ask(shop, private(sql), epsilon=4).rows
    assert [entry.epsilon for entry in shop.entries()[1:]] == ["2", "2"]


def test_what_fails_stays_paid_and_stores_nothing(tmp_path: Path) -> None:
    catalog = sell(tmp_path)
    for count, step in enumerate(
        ("dpsql.privacy.doors.find_keys._count", "dpsql.answer.store.Domains.add"), 1
    ):
        with (
            dpsql.connect(catalog, epsilon=1) as connection,
            mock.patch(step, side_effect=OSError),
            pytest.raises(dpsql.Error),
        ):
            ask(connection, COUNTS)
        with dpsql.connect(catalog, epsilon=1) as connection:
            assert connection.budget.remaining_epsilon == 60 - count
            assert not ask(connection, "SHOW domains").rows


def test_counts_are_stored_as_they_were_released(shop: Connection) -> None:  # noqa: F811
    ask(shop, COUNTS)
    assert shop._engine is not None
    (found,) = shop._engine.found.values()
    assert found.counted is not None
    assert decode_found(encode_found(found)) == found
