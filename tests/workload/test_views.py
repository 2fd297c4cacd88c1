"""The view of a request: a row is left out for columns that the request mentions, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.answer.codec import decode, encode
from dpsql.answer.implied import imply
from dpsql.answer.result import Result
from dpsql.dbapi.checking import CountingStep
from dpsql.dbapi.connection import Connection
from dpsql.engine.terms import form_request
from dpsql.plan.request import Request, make_plan
from dpsql.plan.target import find_views
from dpsql.relation.row_view import RowView
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.support.seam import zero_noise
from tests.support.tables import write_tables
from tests.support.visits import CATALOG, INSIDE, TABLES

pytestmark = pytest.mark.slow


@pytest.fixture
def database(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with write_tables(tmp_path, CATALOG, TABLES) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path, database: duckdb.DuckDBPyConnection) -> Path:
    return tmp_path / "t.toml"


@pytest.fixture
def connection(path: Path) -> Iterator[Connection]:
    with dpsql.connect(path, epsilon=1) as opened:
        yield opened


def view_of(connection: Connection, *statements: str) -> RowView:
    parsed = [parse(split_statements(sql)[0]) for sql in statements]
    return find_views(connection.engine.compile(parsed))["visits"]


def count(database: duckdb.DuckDBPyConnection, *columns: str) -> int:
    tests = " AND ".join(INSIDE[name] for name in columns) or "TRUE"
    found = database.execute(f"SELECT COUNT(*) FROM visits WHERE {tests}").fetchone()
    assert found is not None
    return int(found[0])


def number(result: Result) -> Any:
    return round(result.rows[0][-1])


MENTIONED = [
    ("SELECT COUNT(*) FROM visits", ()),
    ("SELECT COUNT(*) FROM visits WHERE severity > 1", ("severity",)),
    ("SELECT COUNT(*) FROM visits WHERE severity >= 1 OR kind = 'x'", ("kind", "severity")),
    ("SELECT severity // 2 AS g, COUNT(*) FROM visits GROUP BY g", ("severity",)),
    ("SELECT COUNT(*) FILTER (WHERE age < 9), COUNT(*) FROM visits", ("age",)),
    ("SELECT SUM(cost) FROM visits", ("cost",)),
    ("SELECT AVG(cost * severity) FROM visits WHERE ward = 'A'", ("cost", "severity")),
    ("SELECT COUNT(cost) FROM visits", ("cost",)),
    ("SELECT MEDIAN(age) FROM visits", ("age",)),
    ("SELECT SUM(CASE WHEN kind = 'x' THEN 1 ELSE 0 END) FROM visits", ("kind",)),
    ("SELECT ward, SUM(score) FROM visits GROUP BY ward", ()),
    ("SELECT COUNT(DISTINCT patient_id) FROM visits WHERE kind = 'y'", ("kind",)),
    ("SELECT label, COUNT(*) FROM visits JOIN bands ON severity = low GROUP BY label",
     ("severity",)),
    ("SELECT COUNT(*) FROM visits LEFT JOIN bands ON severity = low", ("severity",)),
    ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) FILTER (WHERE age < 3)"
     " > 2 ORDER BY SUM(cost)", ("age", "cost")),
    ("WITH x AS (SELECT severity AS s, kind, age FROM visits WHERE age > 3) SELECT s, COUNT(*) "
     "FROM x GROUP BY s", ("age", "severity")),
    ("SELECT (SELECT COUNT(*) FROM visits WHERE kind = 'x') / COUNT(*) FROM visits WHERE age > 1",
     ("age", "kind")),
    ("SELECT severity, COUNT(*) FROM visits WHERE severity > 99 GROUP BY ALL", ("severity",)),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "columns"), MENTIONED)
def test_the_columns_that_a_statement_mentions(
    connection: Connection, sql: str, columns: tuple[str, ...]
) -> None:
    assert view_of(connection, sql).columns == columns


def test_statements_answered_together_have_one_view(
    connection: Connection, database: duckdb.DuckDBPyConnection
) -> None:
    by_severity = "SELECT severity, COUNT(*) AS n FROM visits GROUP BY severity"
    of_kinds = "SELECT kind, COUNT(*) AS n FROM visits GROUP BY kind"
    total = "SELECT COUNT(*) AS n FROM visits"
    script = ";".join((total, by_severity, of_kinds))
    with zero_noise():
        assert number(connection.execute(total).result) == count(database)
        cursor = connection.executescript(script)
        whole = number(cursor.result)
        assert whole == count(database, "severity", "kind")
        for _ in range(2):
            cursor.nextset()
            assert round(sum(row[-1] for row in cursor.result.rows)) == whole
        assert any("undeclared severity, or without kind" in s for s in cursor.result.standing)
        found = connection.execute("BEGIN WORKLOAD")  # a workload is one request as well
        connection.execute(total)
        connection.execute(by_severity)
        cursor = connection.execute("RUN WORKLOAD")
        assert number(cursor.result) == count(database, "severity")
        assert found.result.kind == "message"


@pytest.mark.parametrize("sql", ["SUM(1)", "COUNT(*)"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_answers_leave_out_rows_for_their_own_columns(
    connection: Connection, database: duckdb.DuckDBPyConnection, sql: str, noise: str
) -> None:
    connection.execute(f"SET noise = {noise}")
    connection.execute("SET delta = 1e-12")
    with zero_noise():
        for condition, columns in [
            ("TRUE", ()),
            ("severity IS NOT NULL", ("severity",)),
            ("severity < 9 AND age IS NOT DISTINCT FROM age", ("severity", "age")),
            ("ward IS DISTINCT FROM 'A' OR ward = 'A'", ()),
        ]:
            text = f"SELECT {sql} FROM visits WHERE {condition}"
            found = number(connection.execute(text).result)
            assert found == count(database, *columns), text


def test_a_release_answers_only_requests_of_its_own_view(connection: Connection) -> None:
    def paid(sql: str) -> bool:
        cost = connection.execute(sql).result.cost
        assert cost is not None
        return not cost.free

    connection.execute("SET reuse = always")
    assert paid("SELECT severity, ward, COUNT(*) FROM visits GROUP BY CUBE (severity, ward)")
    assert not paid("SELECT severity, COUNT(*) FROM visits GROUP BY severity")
    assert not paid("SELECT COUNT(*) FROM visits WHERE severity < 3 AND ward = 'A'")
    assert not paid("SELECT COUNT(*) FILTER (WHERE severity IS NOT NULL) FROM visits")
    assert paid("SELECT ward, COUNT(*) FROM visits GROUP BY ward")
    assert not paid("SELECT COUNT(*) FROM visits")
    assert paid("SELECT COUNT(*) FROM visits WHERE severity < 3 AND kind = 'x'")
    explained = connection.explain("SELECT COUNT(*) FROM visits WHERE kind = 'x'")
    assert not explained.free


def test_releases_of_earlier_versions_are_of_all_columns(connection: Connection) -> None:
    """Stored before parts had a view: they answer requests that mention every column, alone."""
    everything = "severity > 1 AND kind = 'x' AND age > 3 AND day IS NOT NULL"
    engine = connection.engine

    def asked(sql: str) -> Request:
        compiled = engine.compile([parse(split_statements(sql)[0])])
        return form_request(compiled, connection.terms, None)

    full = asked(f"SELECT ward, SUM(cost), COUNT(*) FROM visits WHERE {everything} GROUP BY ward")
    some = asked("SELECT COUNT(*) FROM visits WHERE severity > 1")
    for request, is_answered in ((full, True), (some, False)):
        plan = make_plan(request).plan
        release, _ = engine.settle(CountingStep(plan))
        assert imply(request, "name", release) is not None
        stored = decode(encode(release))
        assert [part.view for part in stored.plan.parts] == [part.view for part in plan.parts]
        parts = tuple(replace(part, view=None) for part in plan.parts)
        old = decode(encode(replace(release, plan=replace(plan, parts=parts))))
        assert [part.view for part in old.plan.parts] == [None]
        assert (imply(request, "name", old) is not None) is is_answered


def test_complete_tables_have_one_view(path: Path, database: duckdb.DuckDBPyConnection) -> None:
    path.write_text(CATALOG.replace("privacy_unit = {", "complete = true\nprivacy_unit = {", 1))
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        whole = ("age", "cost", "day", "kind", "severity")
        assert view_of(connection, "SELECT COUNT(*) FROM visits") == RowView(whole)
        connection.execute("SET reuse = always")
        result = connection.execute("SELECT ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)")
        assert round(result.result.rows[-1][-1]) == count(database, *whole)
        total = connection.execute("SELECT COUNT(*) FROM visits").result
        assert total.cost is not None
        assert total.cost.free
        assert "by declaration no row has undeclared values" in total.standing[0]


@pytest.mark.parametrize("clip", ["svt", "quantile"])
def test_runs_that_choose_a_clip_see_the_same_rows_as_their_answers(
    connection: Connection, clip: str
) -> None:
    options = f"WITH DIFFERENTIAL_PRIVACY OPTIONS(clip = '{clip}', epsilon = 100)"
    alone = connection.execute(f"SELECT {options} SUM(cost) FROM visits").result
    assert alone.standing == (
        "visits: at most 4 rows of each patient_id count, none without one; "
        "rows without cost are left out",
    )
    both = f"SELECT {options} kind, SUM(cost), COUNT(*) FROM visits GROUP BY kind"
    assert "rows without kind or cost are left out" in connection.execute(both).result.standing[0]


def test_models_are_of_the_view_of_their_workload(
    connection: Connection, database: duckdb.DuckDBPyConnection
) -> None:
    connection.execute(
        "CREATE SYNTHETIC TABLE s FROM visits OPTIONS (epsilon = 100, model = 'marginals')"
        " FOR (SELECT severity, ward, COUNT(*) FROM visits GROUP BY CUBE (severity, ward))"
    )
    found = number(connection.execute("SELECT COUNT(*) FROM s").result)
    assert abs(found - count(database, "severity")) <= 5
    asked = connection.execute("SELECT ward, COUNT(*) FROM s GROUP BY ward").result
    assert "rows with undeclared severity are left out" in asked.standing[0]
    facts = dict(connection.execute("DESCRIBE SYNTHETIC TABLE s").result.rows)
    assert "rows with undeclared severity are left out" in facts["left out"]
    connection.execute("SET mechanism = mwem")
    connection.execute("SET epsilon = 100")
    learned = connection.execute("SELECT kind, COUNT(*) AS n FROM visits GROUP BY kind").result
    assert abs(sum(row[1] for row in learned.rows) - count(database, "kind")) <= 5
    again = connection.execute("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward").result
    assert abs(sum(row[1] for row in again.rows) - count(database)) <= 5
