"""Composite statements: what is measured, what is shell, its errors, limits and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlglot import exp

import dpsql
from dpsql.catalog import Catalog
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
from dpsql.sql import compose
from dpsql.sql.compiled import Compiled
from dpsql.sql.products import Compiler
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import Statement, parse
from tests.gate.digest import digest
from tests.sql.test_inline import CATALOG, build
from tests.support.grammar import read_cases, verdict
from tests.support.oracle import open_world

PER_AGE = "SELECT age, COUNT(*) AS n FROM adult GROUP BY age"
BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    path: Path = tmp_path_factory.mktemp("compose") / "c.toml"
    path.write_text(CATALOG)
    return Compiler(read_catalog(path))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    import duckdb

    database = duckdb.connect()
    database.execute(
        "COPY (SELECT range % 50 AS person, 20 + range % 60 AS age, "
        "CASE WHEN range % 3 = 0 THEN 'F' ELSE 'M' END AS sex, 1 + range % 99 AS hours, "
        f"1.0 * (range % 100) AS gain, 'n' AS note FROM range(90)) TO '{tmp_path}/adult.parquet'"
    )
    database.execute(
        f"COPY (SELECT * FROM (VALUES (20, 29), (30, 39)) b(lo, hi)) TO '{tmp_path}/bands.parquet'"
    )
    (tmp_path / "c.toml").write_text(CATALOG)
    with dpsql.connect(tmp_path / "c.toml", epsilon=0.5) as opened:
        yield opened


def refused(compiler: Compiler, sql: str) -> Error:
    with pytest.raises(Error) as caught:
        build(compiler, sql)
    assert caught.value.hint
    assert caught.value.span is not None
    return caught.value


def test_plain_selects_are_measured_as_by_the_reader_of_all_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short cut is no second compiler: without it the same is compiled."""
    short, asked = compose.is_plain, dict[str, bool]()
    cases = [case.sql for case in read_cases("accepted.sql") if case.sql.startswith("SELECT ")][
        :250
    ]
    monkeypatch.setattr(compose, "recalled", lambda *_: None)

    def digests(folder: Path, wanted: list[str]) -> dict[str, str]:
        folder.mkdir()
        with open_world(folder, []) as (connection, _):
            found = {sql: verdict(connection, sql) for sql in wanted}
        return {s: digest(c) for s, c in found.items() if isinstance(c, Compiled) and asked.get(s)}

    def noted(tree: exp.Expr, statement: Statement, catalog: Catalog) -> bool:
        asked[statement.sql] = short(tree, statement, catalog)
        return asked[statement.sql]

    monkeypatch.setattr(compose, "is_plain", noted)
    before = digests(tmp_path / "short", cases)
    monkeypatch.setattr(compose, "is_plain", lambda *_: False)
    after = digests(tmp_path / "whole", [sql for sql, is_plain in asked.items() if is_plain])
    assert len(after) > 20
    assert after == before


def test_equal_selects_are_measured_once(connection: Connection) -> None:
    count = "SELECT COUNT(*) FROM adult"
    sql = f"{count} UNION ALL {count}"
    result = connection.execute(sql).result
    assert result.rows[0] == result.rows[1]
    assert result.stddev[0] is not None
    assert len(connection.engine.compile([parse(split_statements(sql)[0])])[0].selects) == 1
    assert connection.budget.entries == 1


def errors(item: Compiled) -> list[bool]:
    assert item.outer is not None
    return [place is not None for place in item.outer.errors]


@pytest.mark.parametrize(
    ("sql", "noisy", "known"),
    [
        (f"SELECT * FROM ({BY_SEX}) q", [False, True], [False, True]),
        (f"SELECT n, sex FROM ({BY_SEX}) q WHERE n > 2 ORDER BY n LIMIT 1", [True, False],
         [True, False]),
        (f"SELECT n, n + 1 AS m FROM ({BY_SEX}) q", [True, True], [True, False]),
        (f"SELECT SUM(n), COUNT(*) FROM ({BY_SEX}) q", [True, True], [False, False]),
        (f"{BY_SEX} UNION ALL SELECT 'all', COUNT(*) FROM adult", [False, True], [False, True]),
        (f"{BY_SEX} UNION SELECT 'all', COUNT(*) FROM adult", [False, True], [False, False]),
        (f"{BY_SEX} UNION ALL SELECT sex, AVG(n) FROM ({BY_SEX}) q GROUP BY sex", [False, True],
         [False, False]),
        (f"SELECT age, n, lo FROM ({PER_AGE}) q JOIN bands ON age = lo", [False, True, False],
         [False, True, False]),
        (f"SELECT age > 3, n > 3, row_number() OVER (ORDER BY age) FROM ({PER_AGE}) q",
         [False, True, True], [False, False, False]),
    ],
)  # fmt: skip
def test_copies_of_noisy_numbers_keep_their_errors(
    compiler: Compiler, sql: str, noisy: list[bool], known: list[bool]
) -> None:
    item = build(compiler, sql)
    assert item.outer is not None
    assert list(item.outer.noisy) == noisy
    assert errors(item) == known


@pytest.mark.slow
def test_errors_travel_with_their_rows(connection: Connection) -> None:
    result = connection.execute(
        f"{BY_SEX} UNION ALL SELECT 'all', SUM(hours) FROM adult ORDER BY sex DESC"
    ).result
    assert [row[0] for row in result.rows] == ["all", "M", "F"]
    spreads = result.stddev[1]
    assert spreads is not None
    assert spreads[1] == spreads[2]
    assert spreads[0] is not None
    assert spreads[1] is not None
    assert spreads[0] > 3 * spreads[1]
    assert result.notes == result.standing


def test_an_unknown_error_is_said_so(connection: Connection) -> None:
    result = connection.execute(f"SELECT AVG(n) FROM ({BY_SEX}) q").result
    assert [*map(list, filter(None, result.stddev))] == [[None]]
    assert set(result.notes) > set(result.standing)


def test_a_failing_expression_is_null(connection: Connection) -> None:
    result = connection.execute(
        f"SELECT n / 0, CAST('x' || n AS INTEGER), n % (n - n), SQRT(-1 - n * n), 1 // 0"
        f" FROM ({BY_SEX}) q"
    ).result
    assert set(result.rows) == {(None,) * 5}
    (row,) = connection.execute(
        f"SELECT (SELECT n FROM ({BY_SEX}) q WHERE n > -1e9), LN(SUM(-n * n)) FROM ({BY_SEX}) q"
    ).result.rows
    assert row == (None, None)


def test_public_tables_alone_cost_nothing(connection: Connection) -> None:
    result = connection.execute("SELECT hi - lo AS w, COUNT(*) FROM bands GROUP BY w").result
    assert result.rows == ((9, 2),)
    assert result.cost is None
    assert connection.budget.entries == 0


@pytest.mark.slow
def test_a_joint_workload_takes_composite_statements(connection: Connection) -> None:
    connection.set("mechanism", "identity")
    cursor = connection.executescript(
        f"{BY_SEX}; SELECT MAX(n) FROM ({BY_SEX} HAVING COUNT(*) > 0) q; {PER_AGE}"
    )
    first = cursor.result
    assert cursor.nextset()
    assert cursor.result.rows == ((max(row[1] for row in first.rows),),)
    assert connection.budget.entries == 1


def test_a_forecast_of_a_composite_statement(connection: Connection) -> None:
    lines = connection.execute(f"EXPLAIN SELECT MAX(n) FROM ({BY_SEX}) q").fetchall()
    assert lines
    assert connection.budget.entries == 0


def test_views_are_listed_and_described(connection: Connection) -> None:
    assert ("older", "view", None) in connection.execute("SHOW tables").fetchall()
    ((name, sql),) = connection.execute("DESCRIBE older").fetchall()
    assert name == "older"
    assert sql.startswith("SELECT band + 1")


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        ("SELECT age, random() FROM x", "E_NONDETERMINISTIC"),
        ("SELECT read_csv('/etc/passwd') FROM x", "E_FUNCTION"),
        ("SELECT getenv('HOME') FROM x", "E_FUNCTION"),
        ("SELECT * FROM read_csv('/etc/passwd')", "E_TABLE_FUNCTION"),
        ("SELECT * FROM duckdb_settings()", "E_TABLE_FUNCTION"),
        ("SELECT * FROM 'file.csv'", "E_UNKNOWN_TABLE"),
        ("SELECT * FROM t0", "E_UNKNOWN_TABLE"),
        ("SELECT * FROM cells", "E_UNKNOWN_TABLE"),
        ("SELECT * FROM main.x", "E_UNKNOWN_TABLE"),
        ("SELECT histogram(n) FROM x", "E_AGGREGATE"),
        ("SELECT SUM(SUM(n)) FROM x", "E_AGGREGATE"),
        ("SELECT SUM(DISTINCT n, age) FROM x", "E_AGGREGATE"),
        ("SELECT quantile_cont(n, n) FROM x", "E_AGGREGATE"),
        ("SELECT m FROM x", "E_UNKNOWN_COLUMN"),
        ("SELECT y.n FROM x", "E_UNKNOWN_TABLE"),
        ("SELECT n FROM x a, x b", "E_UNKNOWN_COLUMN"),
        ("SELECT 1 FROM x, x", "E_UNKNOWN_TABLE"),
        ("SELECT age, SUM(n) FROM x", "E_GROUP_BY"),
        ("SELECT age, n FROM x GROUP BY age", "E_GROUP_BY"),
        ("SELECT age FROM x GROUP BY CUBE (age, age)", "E_GROUP_BY"),
        ("SELECT age FROM x GROUP BY 7", "E_GROUP_BY"),
        ("SELECT * FROM x ORDER BY 7", "E_ORDER_BY"),
        ("SELECT age FROM x ORDER BY 7", "E_ORDER_BY"),
        ("SELECT age FROM x LIMIT 10 PERCENT", "E_LIMIT"),
        ("SELECT age FROM x WHERE rank() OVER (ORDER BY n) = 1", "E_WINDOW"),
        ("SELECT ntile(age) OVER (ORDER BY n) FROM x", "E_WINDOW"),
        ("SELECT * FROM x NATURAL JOIN bands", "E_JOIN"),
        ("SELECT * FROM x POSITIONAL JOIN bands", "E_JOIN"),
        ("SELECT * FROM x JOIN adult USING (age)", "E_JOIN"),
        ("SELECT a.n FROM x a, x b, x c, x d", "E_TOO_LARGE"),
        ("SELECT age FROM x WHERE n > (SELECT MAX(n) FROM x y WHERE y.age < x.age)", "E_SUBQUERY"),
        ("SELECT age, (SELECT age, n FROM x) FROM x", "E_SUBQUERY"),
        ("SELECT age, (SELECT age FROM adult) FROM x", "E_SUBQUERY"),
        ("SELECT age FROM adult EXCEPT ALL SELECT age FROM x", "E_SET_OP"),
        ("SELECT age FROM x UNION SELECT age, n FROM x", "E_SET_OP"),
        ("SELECT n AS age, age FROM x UNION BY NAME SELECT n AS age FROM x", "E_SET_OP"),
        ("SELECT year(n) FROM x", "E_DOMAIN_EVAL"),
    ],
)
def test_refusals_have_code_caret_and_hint(compiler: Compiler, tail: str, code: str) -> None:
    error = refused(compiler, f"WITH x AS ({PER_AGE}) {tail}")
    assert error.code == code, str(error)


def test_a_join_on_whole_keys_may_be_large(compiler: Compiler) -> None:
    keyed = "SELECT age, hours, sex, COUNT(*) AS n FROM adult GROUP BY age, hours, sex"
    joined = f"FROM ({keyed}) a JOIN ({keyed}) b ON a.age = b.age AND a.hours = b.hours"
    build(compiler, f"SELECT COUNT(*) {joined} AND a.sex = b.sex")
    build(compiler, f"SELECT COUNT(*) {joined}")  # two rows have the same age and hours
    error = refused(compiler, f"SELECT COUNT(*) {joined.replace(' AND a.hours = b.hours', '')}")
    assert error.code == "E_TOO_LARGE"


@pytest.mark.slow
def test_a_statement_has_a_limited_number_of_selects(compiler: Compiler) -> None:
    parts = [f"SELECT COUNT(*) FROM adult WHERE age > {20 + k}" for k in range(33)]
    build(compiler, " UNION ALL ".join(parts[:32]))
    assert refused(compiler, " UNION ALL ".join(parts)).code == "E_TOO_LARGE"


def test_a_cte_that_nothing_uses_is_not_measured(compiler: Compiler) -> None:
    item = build(compiler, f"WITH x AS ({PER_AGE}) SELECT COUNT(*) FROM adult")
    assert item.outer is None
    assert len(item.selects) == 1
    both = build(compiler, f"WITH x AS ({PER_AGE}) {BY_SEX} UNION ALL SELECT 'z', 1")
    assert len(both.selects) == 1


@pytest.mark.parametrize(
    "item",
    [
        "CAST(1000 * SUM(COUNT(*)) OVER (ORDER BY COUNT(*)) AS TINYINT)",
        "SUM(CAST(1000 * COUNT(*) AS TINYINT)) OVER (ORDER BY COUNT(*))",
    ],
)
def test_what_fails_around_or_in_a_window_is_null(connection: Connection, item: str) -> None:
    found = connection.execute(f"SELECT sex, {item} AS x FROM adult GROUP BY sex").result
    assert [row[1] for row in found.rows] == [None, None]
    tested = f"SELECT sex, COUNT(*) FROM adult GROUP BY sex QUALIFY {item} > 0"
    assert connection.execute(tested).result.rows == ()
