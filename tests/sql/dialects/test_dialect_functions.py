"""Functions as other databases spell them, and expressions over keys of whole cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.errors import NotSupportedError
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4
max_epsilon_per_request = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
seen = { type = "timestamp", domain = ["2024-01-01", "2024-01-03"], by = "hour" }
month = { type = "date", domain = ["2024-01-01", "2024-06-30"], by = "month" }
day = { type = "date", domain = ["2024-01-01", "2024-02-29"] }
price = { type = "number", bins = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99.99] }
zip = { type = "integer", domain = [10000, 10999] }
word = { type = "text", domain = ["2024-01-05", "2024-02-06"] }
"""
ALIKE = [
    ("date_part('hour', seen)", "date_part('hour', seen)"),
    ("datepart('dow', day)", "date_part('dow', day)"),
    ("weekday(day)", "dayofweek(day)"),
    ("century(month)", "century(month)"),
    ("to_char(seen, 'YYYY-MM-DD HH24')", "strftime(seen, '%Y-%m-%d %H')"),
    ("to_char(month, 'Mon YYYY')", "strftime(month, '%b %Y')"),
    ("to_date(word, 'YYYY-MM-DD')", "CAST(word AS DATE)"),
    ("day - DATE '2024-01-01'", "day - DATE '2024-01-01'"),
    ("datediff('month', DATE '2023-11-05', month)",
     "date_diff('month', DATE '2023-11-05', month)"),
    ("datediff('week', DATE '2023-11-05', day)", "date_diff('week', DATE '2023-11-05', day)"),
    ("last_day(day)", "last_day(day)"),
    ("day + INTERVAL 1 MONTH", "day + INTERVAL 1 MONTH"),
    ("left(CAST(zip AS VARCHAR), 3)", "left(CAST(zip AS VARCHAR), 3)"),
    ("regexp_extract(CAST(zip AS VARCHAR), '^(..)', 1)", "left(CAST(zip AS VARCHAR), 2)"),
    ("regexp_replace(word, '-.*', '')", "left(word, 4)"),
    ("greatest(zip // 100, 105)", "greatest(zip // 100, 105)"),
    ("width_bucket(zip, 10000, 11000, 4)", "1 + (zip - 10000) // 250"),
    ("width_bucket(price, 20, 80, 3)", "CASE WHEN price < 20 THEN 0 WHEN price >= 80 THEN 4"
     " ELSE 1 + CAST(floor((price - 20) / 20) AS BIGINT) END"),
    ("iff(zip > 10500, 'high', 'low')", "if(zip > 10500, 'high', 'low')"),
    ("zeroifnull(nullif(zip // 100, 103))", "coalesce(nullif(zip // 100, 103), 0)"),
    ("isnull(nullifzero(zip - 10003), -1)", "coalesce(nullif(zip - 10003, 0), -1)"),
    ("nvl2(nullif(zip // 100, 103), 'y', 'n')", "if(zip // 100 = 103, 'n', 'y')"),
    ("square(zip - 10500)", "(zip - 10500) * (zip - 10500)"),
    ("100 // square(zip // 5000)", "100 // ((zip // 5000) * (zip // 5000))"),
    ("div0(zip, zip - 10003)", "if(zip = 10003, 0, zip / (zip - 10003))"),
    ("div0null(zip, nullif(zip - 10003, 0))", "if(zip = 10003, 0, zip / (zip - 10003))"),
    ("decode(zip // 100, 101, 'a', 102, 'b', 'c')",
     "CASE zip // 100 WHEN 101 THEN 'a' WHEN 102 THEN 'b' ELSE 'c' END"),
    ("decode(nullif(zip // 100, 103), NULL, 'none', 101, 'a')",
     "CASE zip // 100 WHEN 103 THEN 'none' WHEN 101 THEN 'a' END"),
    ("dateadd(day, 3, day)", "day + INTERVAL 3 DAY"),
    ("dateadd('month', -1, date_trunc('month', month))",
     "date_trunc('month', month) - INTERVAL 1 MONTH"),
    ("date_sub(day, INTERVAL 2 WEEK)", "day - INTERVAL 2 WEEK"),
    ("date_trunc(day, MONTH)", "date_trunc('month', day)"),
    ("date_trunc(day, isoweek)", "date_trunc('week', day)"),
    ("date_trunc(t.day, WEEK)", "CAST(date_trunc('week', day + 1) - INTERVAL 1 DAY AS DATE)"),
    ("timestamp_trunc(seen, DAY)", "date_trunc('day', seen)"),
    ("date_diff(day, DATE '2023-12-31', DAY)", "date_diff('day', DATE '2023-12-31', day)"),
    ("date_diff(day, DATE '2023-12-31', ISOWEEK)", "(day - DATE '2023-12-25') // 7"),
    ("date_diff(day, DATE '2023-12-30', WEEK)", "(day - DATE '2023-12-24') // 7"),
    ("format_date('%Y/%m', month)", "strftime(month, '%Y/%m')"),
    ("date_format(day, '%d.%m.')", "strftime(day, '%d.%m.')"),
    ("date_part(isoweek, day)", "week(day)"),
    ("EXTRACT(isoweek FROM day)", "week(day)"),
    ("date_trunc(date_trunc(day, WEEK), MONTH)",
     "date_trunc('month', CAST(date_trunc('week', day + 1) - INTERVAL 1 DAY AS DATE))"),
    ("eomonth(day)", "last_day(day)"),
    ("day < to_date('2024-01-09')", "day < DATE '2024-01-09'"),
    ("regexp_contains(word, '-01-')", "regexp_matches(word, '-01-')"),
    ("safe_cast(left(word, 4) AS INT64)", "2024"),
]  # fmt: skip
OVER_KEYS = [
    ("EXTRACT(hour FROM day)", "day", False),
    ("EXTRACT(day FROM month)", "month", False),
    ("EXTRACT(month FROM month)", "month", True),
    ("EXTRACT(minute FROM seen)", "seen", False),
    ("hour(seen) + 1", "seen", True),
    ("floor(price / 10)", "price", True),
    ("floor(price / 7)", "price", False),
    ("price + 1", "price", False),
]


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Connection, duckdb.DuckDBPyConnection]]:
    place: Path = tmp_path_factory.mktemp("spellings")
    naive = duckdb.connect()
    naive.execute(
        "CREATE TABLE t AS SELECT"
        " TIMESTAMP '2024-01-01' + to_minutes((i * 37 % 4000)::INT) AS seen,"
        " DATE '2024-01-01' + (i * 7 % 180)::INT AS month,"
        " DATE '2024-01-01' + (i % 60)::INT AS day,"
        " ((i * 13) % 1000) / 10.0 AS price, 10000 + (i * 77) % 1000 AS zip,"
        " ['2024-01-05', '2024-02-06'][1 + i % 2] AS word FROM range(500) r(i)"
    )
    naive.execute(f"COPY t TO '{place / 't.parquet'}' (FORMAT parquet)")
    (place / "c.toml").write_text(CATALOG)
    with dpsql.connect(place / "c.toml") as connection:
        connection.set("epsilon", "100")
        yield connection, naive
    naive.close()


@pytest.mark.parametrize(("ours", "theirs"), ALIKE)
def test_one_within_another(
    sides: tuple[Connection, duckdb.DuckDBPyConnection], ours: str, theirs: str
) -> None:
    """Functions whose arguments are written several times have them as DuckDB calls them."""
    connection, naive = sides
    inner = [f"CASE WHEN {each} IS NULL THEN 2 ELSE 3 END" for each in (ours, theirs)]
    sql = "SELECT {} AS k, COUNT(*) AS n FROM t GROUP BY k ORDER BY k"
    with zero_noise():
        found = connection.execute(sql.format(f"square({inner[0]})")).fetchall()
    expected = naive.execute(sql.format(f"({inner[1]}) ** 2")).fetchall()
    assert [tuple(row) for row in found if row[1]] == expected


@pytest.mark.parametrize("call", ["date_trunc()", "DATE_DIFF('day', day)", "date_trunc('day')"])
def test_wrong_arguments_are_what_is_refused(
    sides: tuple[Connection, duckdb.DuckDBPyConnection], call: str
) -> None:
    with pytest.raises(NotSupportedError, match=r"of these arguments is not supported") as caught:
        sides[0].explain(f"SELECT {call}, COUNT(*) FROM t GROUP BY 1")
    assert caught.value.code == "E_FUNCTION"


@pytest.mark.parametrize(("ours", "theirs"), ALIKE)
def test_what_duckdb_calls_otherwise(
    sides: tuple[Connection, duckdb.DuckDBPyConnection], ours: str, theirs: str
) -> None:
    connection, naive = sides
    with zero_noise():
        rows = connection.execute(f"SELECT {ours} AS k, COUNT(*) AS n FROM t GROUP BY k").fetchall()
    true = naive.execute(f"SELECT {theirs} AS k, COUNT(*) AS n FROM t GROUP BY k").fetchall()
    assert {str(k): round(n) for k, n in rows if round(n)} == {str(k): n for k, n in true}


@pytest.mark.parametrize(("expression", "key", "fine"), OVER_KEYS)
def test_an_expression_over_a_key_is_the_same_on_all_of_its_cell(
    sides: tuple[Connection, duckdb.DuckDBPyConnection], expression: str, key: str, fine: bool
) -> None:
    sql = f"SELECT {key}, {expression} AS x, COUNT(*) AS n FROM t GROUP BY {key}"
    if fine:
        sides[0].explain(sql)
        return
    with pytest.raises(dpsql.errors.ProgrammingError) as error:
        sides[0].explain(sql)
    assert error.value.code == "E_BIN_EDGE"


UNKNOWN = [
    "to_char(seen, 'J')",
    "date_part('moment', seen)",
    "format_date('%Q', day)",
    "date_format(day, '%M')",
    "date_trunc(day, MOON)",
    "dateadd(day, zip, day)",
    "iff(zip > 3, 1)",
]


@pytest.mark.parametrize("call", UNKNOWN)
def test_what_is_not_known_is_refused(
    sides: tuple[Connection, duckdb.DuckDBPyConnection], call: str
) -> None:
    with pytest.raises(dpsql.Error):
        sides[0].explain(f"SELECT {call} AS k, COUNT(*) FROM t GROUP BY k")


ANSWERS = [
    ("SELECT TOP 2 zip // 500 AS k, COUNT(*) AS n FROM t GROUP BY k ORDER BY k",
     "SELECT zip // 500 AS k, COUNT(*) AS n FROM t GROUP BY k ORDER BY k LIMIT 2"),
    ("SELECT word, RATIO_TO_REPORT(COUNT(*)) OVER () AS share FROM t GROUP BY word",
     "SELECT word, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM t GROUP BY word"),
    ("SELECT word, ANY_VALUE(word) AS a, MAX(word) AS b FROM t GROUP BY 1 HAVING MIN(word) > '0'",
     "SELECT word, word, word FROM t GROUP BY 1"),
    ("SELECT VAR(zip) AS v, APPROX_PERCENTILE(zip, 0.5) AS m FROM t",
     "SELECT VAR_SAMP(zip), QUANTILE_CONT(zip, 0.5) FROM t"),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), ANSWERS)
def test_answers_as_others_ask_for_them(
    sides: tuple[Connection, duckdb.DuckDBPyConnection], ours: str, theirs: str
) -> None:
    connection, naive = sides
    with zero_noise():
        rows = connection.execute(ours).fetchall()
    true = naive.execute(theirs).fetchall()
    for found, expected in zip(sorted(rows), sorted(true), strict=True):
        assert list(found) == [pytest.approx(v, 1e-3) if v != str(v) else v for v in expected]
