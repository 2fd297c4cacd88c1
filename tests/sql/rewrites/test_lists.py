"""Lists in expressions and series in FROM are written out as plain SQL; DuckDB says the same."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import parse_one

from dpsql.sql.rewrites.series import MAX_SERIES
from dpsql.sql.rewrites.sugar import plain
from dpsql.sql.rewrites.tree_parts import NodeLimit

SERIES = [
    "range(5)",
    "range(3, 3)",
    "range(2, 9, 3)",
    "range(9, 2, -3)",
    "generate_series(2, 8, 3)",
    "generate_series(8, 2, -3)",
    "generate_series(-2, 2)",
    "generate_series(DATE '2024-01-31', DATE '2024-06-30', INTERVAL 1 MONTH)",
    "range(DATE '2024-01-01', DATE '2024-02-01', INTERVAL 1 WEEK)",
    "range(TIMESTAMP '2024-01-01 10:30:00', TIMESTAMP '2024-01-02', INTERVAL 6 HOUR)",
    "generate_series(DATE '2024-02-29', DATE '2033-01-01', INTERVAL 1 YEAR)",
    "UNNEST([3, 1, NULL, 1])",
    "UNNEST(['a', 'it''s'])",
]


@pytest.mark.parametrize("series", SERIES)
def test_a_series_has_the_rows_of_duckdb(series: str) -> None:
    with duckdb.connect() as database:
        expected = database.execute(f"SELECT x FROM {series} AS s(x)").fetchall()
        tree = plain(parse_one(f"SELECT x FROM {series} AS s(x)", read="duckdb"), NodeLimit(1000))  # type: ignore[arg-type]
        text = tree.sql("duckdb")
        if expected:
            assert "VALUES" in text
        assert database.execute(text).fetchall() == expected


@pytest.mark.parametrize(
    "written",
    [
        f"range({MAX_SERIES + 1})",
        "range(a)",
        "range(1, 5, 0)",
        "UNNEST([a, 1])",
        "UNNEST([])",
        "generate_series(1, 2, 0.5)",
        "generate_series(DATE '2024-01-01', DATE '2024-03-01', INTERVAL '-1' MONTH)",
    ],
)
def test_what_is_no_series_of_constants_stays(written: str) -> None:
    tree = plain(parse_one(f"SELECT 1 FROM {written} AS s(x)", read="duckdb"), NodeLimit(1000))  # type: ignore[arg-type]
    assert "VALUES" not in tree.sql("duckdb")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a = ANY([1, 2])", "a IN (1, 2)"),
        ("a IN UNNEST([1, 2])", "a IN (1, 2)"),
        ("LIST_CONTAINS([1, 2], a)", "a IN (1, 2)"),
        ("QUANTILE_DISC(a, [0.1, 0.2])[-1]", "QUANTILE_DISC(a, 0.2)"),
        ("QUANTILE_DISC(a, [0.1, 0.2])[3]", "NULL"),
    ],
)
def test_lists_are_written_out(written: str, meant: str) -> None:
    tree = plain(parse_one(f"SELECT {written} AS x", read="duckdb"), NodeLimit(1000))  # type: ignore[arg-type]
    assert tree.sql("duckdb") == f"SELECT {meant} AS x"


def test_a_list_of_quantiles_is_null_where_they_are() -> None:
    asked = "SELECT QUANTILE_CONT(x, [0.2, 0.7]) AS q FROM range({}) AS r(x)"
    with duckdb.connect() as database:
        for count in (0, 5):
            sql = asked.format(count)
            tree = plain(parse_one(sql, read="duckdb"), NodeLimit(1000))  # type: ignore[arg-type]
            text = tree.sql("duckdb")
            if count:
                assert database.execute(text).fetchall() == database.execute(sql).fetchall()
