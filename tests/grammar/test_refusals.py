"""Hostile statements: each is refused before anything is read, with code, caret and hint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.oracle import open_world
from tests.support.world import ledger_state, watching

LONG = ", ".join(map(str, range(1_100)))
CASES = [
    (f"SELECT COUNT(*) FROM t WHERE a > {'(' * 60}1{')' * 60}", "E_TOO_COMPLEX"),
    (f"SELECT COUNT(*) FROM t WHERE {'NOT ' * 60}c", "E_TOO_COMPLEX"),
    (f"SELECT COUNT(*) FROM t WHERE a = {'- ' * 60}1", "E_TOO_COMPLEX"),
    (f"SELECT {'CASE WHEN c THEN ' * 60}1{' END' * 60}, COUNT(*) FROM t", "E_TOO_COMPLEX"),
    (f"SELECT COUNT(*) FROM t WHERE a IN ({LONG})", "E_TOO_LARGE"),
    ("SELECT COUNT(*) FROM t WHERE b = 'x\x00'", "E_CONTROL_CHAR"),
    ("SELECT COUNT(*) FROM t WHERE b = 'x\x1b[31m'", "E_CONTROL_CHAR"),
    ("SELECT COUNT(*) FROM t; SELECT COUNT(*) FROM t", "E_MULTI_STATEMENT"),
    ("SELECT COUNT(*) FROM t WHERE soundex(b) = 'x'", "E_FUNCTION"),
    ("SELECT getenv(b || CAST(a AS VARCHAR)) AS k, COUNT(*) FROM t GROUP BY k", "E_FUNCTION"),
    ("SELECT [b, CAST(a AS VARCHAR)] AS k, COUNT(*) FROM t GROUP BY k", "E_FUNCTION"),
    ("SELECT COUNT(*) FROM t WHERE random() < 0.5", "E_NONDETERMINISTIC"),
    ("SELECT MEDIAN(a) FROM t WHERE a > (SELECT AVG(a) FROM t)", "E_SUBQUERY"),
    ("SELECT COUNT(*) FROM t JOIN adult ON t.a = adult.age", "E_JOIN"),
    ("SELECT SUM(a) OVER (ORDER BY a) FROM t", "E_NO_AGGREGATE"),
    ("SELECT * FROM t", "E_NO_AGGREGATE"),
    ("SELECT SUM(DISTINCT a + e) FROM t", "E_AGGREGATE"),
    (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) ward,"
        " COUNT(*) FROM visits GROUP BY CUBE (ward)",
        "E_AGGREGATE",
    ),
    ("SELECT COUNT(DISTINCT a + e) FROM t", "E_AGGREGATE"),
    ("SELECT SUM(notes) FROM visits", "E_NO_BOUNDS"),
    ("SELECT MIN(a) FROM t", "E_AGGREGATE"),
    ("SELECT QUANTILE_CONT(a, , 0.9) FROM t", "E_PARSE"),
    ("SELECT COUNT(*) FROM t WHERE b = 'x' 'y'", "E_PARSE"),
    ("SELECT COUNT(*) FROM t WHERE a > > 1", "E_PARSE"),
    ("SELECT COUNT(*) FROM t WHERE n", "E_BIN_EDGE"),
]


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with open_world(tmp_path_factory.mktemp("refusals"), []) as (opened, _):
        yield opened


@pytest.mark.parametrize(("sql", "code"), CASES)
def test_refused_by_name_with_caret_and_hint(connection: Connection, sql: str, code: str) -> None:
    before = ledger_state(connection)
    with watching() as watch, pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    error = caught.value
    assert error.code == code, str(error)
    assert error.hint
    assert error.span is not None
    assert error.span.text == sql
    assert "^" in str(error)
    assert not watch.counted
    assert ledger_state(connection) == before


def test_division_by_zero_in_the_shell_is_null(connection: Connection) -> None:
    sql = "SELECT COUNT(*) AS n, 1 / (COUNT(*) - COUNT(*)) AS x, 10 // 0 AS y, 5 % 0 AS z FROM t"
    row = connection.execute(sql).result.rows[0]
    assert row[1:] == (None, None, None)
