"""``report_format => 'JSON'``: what a report says is what the answer and its standard error say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.answer.rank_values import quantile, quantile_end
from dpsql.dbapi.connection import Connection
from dpsql.errors import ProgrammingError
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 100000

[table.v]
source = "v.parquet"
privacy_unit = { column = "pid", max_rows = 4 }

[table.v.column]
w = { type = "text", domain = ["A", "B"] }
d = { type = "integer", domain = [0, 20] }
x = { type = "number", bounds = [0, 10] }
g = { type = "number", domain = [0, 12], bins = 4, null = true }
"""
MADE = """
SELECT i // 4 AS pid, ['A', 'B'][i % 3 % 2 + 1] AS w, (i * i + i) % 21 AS d, i % 9 + 0.5 AS x,
CASE WHEN i % 5 > 0 THEN i % 12 END AS g FROM range(80) AS r(i)
"""
CALLED = ["COUNT(*", "COUNT(g", "SUM(d", "SUM(x", "AVG(d", "STDDEV_POP(d"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table and its catalog."""
    (tmp_path / "c.toml").write_text(CATALOG, encoding="utf-8")
    with duckdb.connect() as database:
        database.execute(f"COPY ({MADE}) TO '{tmp_path / 'v.parquet'}'")
    return tmp_path


@pytest.fixture
def connection(folder: Path) -> Iterator[Connection]:
    """A connection that draws noise."""
    with dpsql.connect(folder / "c.toml", epsilon=1) as opened:
        yield opened


def reports(connection: Connection, sql: str) -> list[Any]:
    """The reports in the last column of an answer."""
    return [json.loads(row[-1]) for row in connection.execute(sql).result.rows]


def test_a_report_says_what_the_answer_says(connection: Connection) -> None:
    for called in CALLED:
        whole = f"{called})"
        facts = f"DP_STDDEV({whole}), DP_INTERVAL_LOW({whole}), DP_INTERVAL_HIGH({whole})"
        sql = f"SELECT w, {whole}, {facts}, {called}, report_format => 'JSON') FROM v GROUP BY w"
        result = connection.execute(sql).result
        assert result.types[-1] == "text"
        assert result.stddev[-1] is None  # what it tells is within
        for _, value, stddev, low, high, report in result.rows:
            found = json.loads(report)["result"]
            interval = found["noise_confidence_interval"]
            middle = 0 if called.startswith(("COUNT", "SUM")) else value
            assert found["value"] == value
            assert found["standard_deviation"] == stddev
            assert interval["confidence_level"] == 0.95
            for told, bound in (("lower_bound", low), ("upper_bound", high)):
                if bound is None:  # so is the error where a noisy variance is not positive
                    assert interval[told] is None
                    assert None in (value, stddev)
                else:
                    assert interval[told] == pytest.approx(bound - value + middle)
            assert list(found) == sorted(found)
        before = connection.budget.entries
        connection.execute(f"SELECT w, {called}, report_format => JSON) FROM v GROUP BY w")
        assert connection.budget.entries == before  # the same numbers, told otherwise


def test_bounds_are_those_that_are_declared_or_written(connection: Connection) -> None:
    bounds = "contribution_bounds_per_row => (5, 99)"
    sql = f"SELECT VAR_POP(d, {bounds}, report_format => 'JSON') FROM v"
    for said, expected in (
        (sql, {"lower_bound": 5, "upper_bound": 20}),
        ("SELECT SUM(x, report_format => 'JSON') FROM v", {"lower_bound": 0, "upper_bound": 10}),
        (
            f"SELECT MEDIAN(d, report_format => 'JSON', {bounds}) FROM v",
            {"lower_bound": 5, "upper_bound": 20},
        ),
        ("SELECT COUNT(d, report_format => 'JSON') FROM v", None),
    ):
        (found,) = reports(connection, said)
        assert found.get("bounding_report") == expected
        assert set(found) <= {"bounding_report", "result"}
    units = "contribution_bounds_per_group => (0, 2)"
    (found,) = reports(connection, f"SELECT SUM(d, {units}, report_format => 'JSON') FROM v")
    assert found["bounding_report"] == {"lower_bound": 0, "upper_bound": 2}


def test_fields_are_reached_in_a_select_around_it_and_in_its_clauses(folder: Path) -> None:
    report = "COUNT(*, report_format => 'JSON')"
    inner = f"(SELECT w, {report} AS r FROM v GROUP BY w) AS q"
    counts = "SELECT COUNT(*) FROM v WHERE w = 'A' UNION ALL SELECT COUNT(*) FROM v WHERE w = 'B'"
    asked = [
        f"SELECT w, FLOAT64({report}.result.value) FROM v GROUP BY w ORDER BY w",
        f"SELECT w, INT64(q.r.result.value) FROM {inner} ORDER BY w",
        f"SELECT w, FLOAT64(r.result.value) FROM {inner} ORDER BY 1",
        f"SELECT w, CAST(JSON_VALUE(r, '$.result.value') AS BIGINT) FROM {inner} ORDER BY w",
        f"SELECT w, CAST(JSON_QUERY(r, '$.result').value AS INT) FROM {inner} ORDER BY w",
        f"SELECT w, CAST(r ->> '$.result.value' AS INT) FROM {inner} ORDER BY w",
        f"SELECT w, COUNT(*) FROM v GROUP BY w HAVING FLOAT64({report}.result.value) > 0",
        f"SELECT w, COUNT(*) FROM v GROUP BY w ORDER BY FLOAT64({report}.result.value) DESC",
        "SELECT w, FLOAT64(n.result.value) FROM (SELECT w, "
        "ANON_COUNT(* WITH REPORT (FORMAT = json)) AS n FROM v GROUP BY w) AS s ORDER BY w",
    ]
    with duckdb.connect() as database, zero_noise():
        database.execute(f"CREATE TABLE v AS {MADE}")
        exact = {
            name: n for name, (n,) in zip("AB", database.execute(counts).fetchall(), strict=True)
        }
        with dpsql.connect(folder / "c.toml", epsilon=1) as connection:
            for sql in asked:
                assert dict(connection.execute(sql).result.rows) == exact, sql
            sql = f"SELECT {report}.result.noise_confidence_interval FROM v"
            assert connection.execute(sql).result.columns == ("noise_confidence_interval",)


def test_quantiles_have_intervals_and_lists_of_reports(folder: Path) -> None:
    with zero_noise(), dpsql.connect(folder / "c.toml", epsilon=100) as connection:
        sql = "SELECT w, QUANTILE_DISC(d, 0.3, report_format => 'JSON') FROM v GROUP BY w"
        values = connection.execute("SELECT w, QUANTILE_DISC(d, 0.3) FROM v GROUP BY w").result.rows
        for found, (_, value) in zip(reports(connection, sql), values, strict=True):
            interval = found["result"]["noise_confidence_interval"]
            assert found["result"]["value"] == value == interval["lower_bound"]
            assert interval["upper_bound"] == value
            assert "standard_deviation" not in found["result"]
        sql = "SELECT APPROX_QUANTILES(d, 4, report_format => 'JSON') FROM v"
        ((listed,),) = connection.execute("SELECT APPROX_QUANTILES(d, 4) FROM v").result.rows
        (found,) = reports(connection, sql)
        assert [each["value"] for each in found["result"]] == list(listed)
        (found,) = reports(connection, f"{sql} WHERE d > 20")
        ends = [each["noise_confidence_interval"] for each in found["result"]]
        assert {(each["lower_bound"], each["upper_bound"]) for each in ends} == {(0, 20)}
        inner = f"SELECT JSON_QUERY_ARRAY({sql[7:-7]}.result) AS q FROM v"
        sql = f"SELECT FLOAT64(q[OFFSET(2)].value), ARRAY_LENGTH(q), q[-1].value FROM ({inner})"
        assert connection.execute(sql).result.rows == ((listed[2], 5, str(listed[4])),)
        (found,) = reports(connection, "SELECT MEDIAN(g, report_format => 'JSON') FROM v")
        low, high = (
            found["result"]["noise_confidence_interval"][f"{e}_bound"] for e in ("lower", "upper")
        )
        assert low <= found["result"]["value"] <= high
        assert low % 3 == high % 3 == 0
        (found,) = reports(connection, "SELECT MODE(d, report_format => 'JSON') FROM v")


@pytest.mark.parametrize("interpolate", [False, True])
def test_intervals_of_quantiles_hold_them(interpolate: bool) -> None:
    rng = np.random.default_rng(5)
    values = tuple(float(v) for v in range(30))
    missed = 0
    for _ in range(400):
        place = float(rng.choice([0.0, 0.1, 0.5, 0.75, 1.0]))
        spread = float(rng.choice([0.01, 1.0, 6.0]))
        counts = rng.integers(0, 9, 30) * (rng.random(30) < 0.6)
        counts[int(rng.integers(30))] += 1
        rows = np.repeat(np.arange(30.0), counts)
        truth = float(np.quantile(rows, place))
        if not interpolate:
            truth = float(np.quantile(rows, place, method="inverted_cdf"))
        noisy = np.cumsum(counts) + rng.normal(0, spread, 30)
        wide = np.full(30, 1.96 * spread)
        low, high = (
            quantile_end(noisy, wide, values, place, interpolate, (), end) for end in (-1, 1)
        )
        told = quantile(noisy, values, place, interpolate)
        assert told is None or low <= told <= high
        missed += not low <= truth <= high
    assert missed <= 20  # 5 %


def test_what_has_no_report_is_refused_with_what_works(connection: Connection) -> None:
    before = connection.budget.entries
    for sql, said in (
        ("SELECT COUNT(*, report_format => 'PROTO') FROM v", "'PROTO' is not supported"),
        ("SELECT COUNT(*, report_format => ) FROM v", "malformed"),
        ("SELECT report_format => 'JSON' FROM v", "malformed"),
        ("SELECT COUNT(report_format => 'JSON') FROM v", "malformed"),
        ("SELECT SUM(d, report_format => 'JSON', d) FROM v", "before another argument"),
        ("SELECT ABS(d, report_format => 'JSON') FROM v", "rows cannot be returned"),
        ("SELECT COUNT(*) FROM v WHERE DP_REPORT(d) = ''", "not supported"),
        ("SELECT MIN(d, report_format => 'JSON') FROM v", "MIN"),
        ("SELECT ANON_COUNT(* WITH REPORT(FORMAT=PROTO)) FROM v", "PROTO is not supported"),
        ("SELECT COUNT(*)['\x01'] FROM v", "control character"),
        ("SELECT JSON_VALUE(COUNT(*), '$..a') FROM v", "json_value"),
        ("SELECT d.value FROM v", "d"),
    ):
        with pytest.raises(dpsql.Error, match=said):
            connection.execute(sql)
    assert connection.budget.entries == before


@pytest.mark.parametrize("key", ["d", "g", "COUNT(*)", "SUM(x)", "AVG(d)", "COUNT(*) > 3"])
def test_what_is_no_text_has_no_fields(connection: Connection, key: str) -> None:
    """DuckDB refuses them too; a NULL in their place would be silent."""
    grouped = f"SELECT {key} AS n, COUNT(*) AS c FROM v" + (
        f" GROUP BY {key}" if key in "dg" else ""
    )
    for sql in (f"SELECT (n).x FROM ({grouped})", f"SELECT n.x.y, c FROM ({grouped})"):
        with pytest.raises(ProgrammingError):
            connection.explain(sql)
