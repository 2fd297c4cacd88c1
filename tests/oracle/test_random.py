"""Differential oracle on random tables and statements: without noise, answers are DuckDB's."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.dbapi.connection import Connection, Result
from tests.support.effort import IS_LARGE, effort
from tests.support.oracle import ROWS, compare, declare_view, mentioned, write_world
from tests.support.persons import UNIT, Persons, persons, statements_of_persons, write_persons
from tests.support.seam import zero_noise
from tests.support.statements import Measured, Statement, statements

pytestmark = pytest.mark.slow

TABLES = effort(2)
LEAST, MOST = (8, 16) if IS_LARGE else (3, 5)
"""Statements about a table."""
REFUSED = {"E_TOO_LARGE", "E_PREDICATE"}


def answer(connection: Connection, sql: str) -> Result | None:
    """The result of a statement, None where it is refused for its size."""
    try:
        return connection.execute(sql).result
    except dpsql.Error as error:
        if error.code in REFUSED:
            return None
        raise AssertionError(f"{sql}\n{error}") from error


def settle_terms(connection: Connection, mechanism: str, noise: str) -> None:
    """Ask for a mechanism and a law of noise."""
    connection.set("mechanism", mechanism)
    connection.set("delta", "0" if noise == "laplace" else "1e-9")
    connection.set("noise", noise)


@settings(
    max_examples=TABLES,
    deadline=None,
    derandomize=not IS_LARGE,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    rows=ROWS,
    wanted=st.lists(statements(), min_size=LEAST, max_size=MOST),
    mechanism=st.sampled_from(["identity"] * 9 + ["auto"]),
    noise=st.sampled_from(["laplace", "gaussian", "auto"]),
)
def test_random_statements_on_random_tables(
    rows: list[tuple[Any, ...]], wanted: list[Statement], mechanism: str, noise: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = write_world(folder, rows)
        with zero_noise(), dpsql.connect(folder / "t.toml", epsilon=1) as connection:
            connection.execute(f"SET mechanism = {mechanism}")
            connection.execute("SET delta = 1e-9")
            connection.execute(f"SET noise = {noise}")
            for statement in wanted:
                if (result := answer(connection, statement.sql)) is not None:
                    declare_view(database, mentioned(connection, statement.sql))
                    compare(statement, result, database, len(rows))
        database.close()


@settings(
    max_examples=TABLES,
    deadline=None,
    derandomize=not IS_LARGE,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    table=persons(),
    wanted=st.lists(statements_of_persons(), min_size=LEAST, max_size=MOST),
    mechanism=st.sampled_from(["identity"] * 9 + ["auto"]),
    noise=st.sampled_from(["laplace", "gaussian", "auto"]),
)
def test_random_statements_about_persons(
    table: Persons, wanted: list[Statement], mechanism: str, noise: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database, size = write_persons(folder, table), len(table.rows)
        with zero_noise(), dpsql.connect(folder / "t.toml", epsilon=1) as connection:
            settle_terms(connection, mechanism, noise)
            known = []
            for statement in wanted:
                if (result := answer(connection, statement.sql)) is not None:
                    declare_view(database, mentioned(connection, statement.sql), UNIT, table.most)
                    compare(statement, result, database, size)
                    known.append(statement)
            connection.set("fresh", "on")
            texts = [statement.sql for statement in known[:3]]
            cursor = connection.executescript(";".join(texts) or "SELECT 1")
            declare_view(database, mentioned(connection, *texts), UNIT, table.most)
            for statement in known[:3]:
                compare(statement, cursor.result, database, size)
                cursor.nextset()
        with dpsql.connect(folder / "t.toml", epsilon=1) as connection:
            settle_terms(connection, mechanism, noise)
            for statement in known[:4]:
                again = connection.execute(statement.sql).result
                assert again.cost is None or again.cost.free
                declare_view(database, mentioned(connection, statement.sql), UNIT, table.most)
                compare(statement, again, database, size)
        database.close()


ADULT = [
    "SELECT sex, race, COUNT(*) AS n FROM adult GROUP BY sex, race",
    "SELECT income, AVG(age) AS m, STDDEV(age) AS sd, MEDIAN(age) AS md FROM adult GROUP BY income",
    "SELECT COUNT(*) FROM adult WHERE age > 60 OR education = 'Doctorate' OR hours_per_week < 10",
    "SELECT sex, SUM(hours_per_week * education_num) AS s FROM adult WHERE age < 40 GROUP BY sex",
    "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS upto FROM adult GROUP BY age",
    "SELECT sex, income, COUNT(*) AS n FROM adult GROUP BY CUBE (sex, income)",
    "SELECT education, COUNT(*) AS n FROM adult GROUP BY 1 ORDER BY n DESC LIMIT 5",
    "SELECT race, n FROM (SELECT race, COUNT(*) AS n FROM adult GROUP BY race) q WHERE n > 1000",
]
RAND = [
    "SELECT site, COUNT(*) AS n, SUM(md_visits) AS v, AVG(child) AS a FROM rand_hie GROUP BY 1",
    "SELECT health, VAR_POP(md_visits) AS v, COUNT(education_years) AS k FROM rand_hie GROUP BY 1",
    "SELECT plan, COUNT(*) FILTER (WHERE child = 1 OR age < 18) AS n FROM rand_hie GROUP BY plan",
    "SELECT sex, SUM(mental_visits) AS m FROM rand_hie WHERE coinsurance >= 50 GROUP BY sex",
    "SELECT year, SUM(COUNT(*)) OVER (ORDER BY year DESC) AS n FROM rand_hie GROUP BY year",
    "SELECT QUANTILE_DISC(md_visits, 0.9) AS q, COUNT(*) AS n FROM rand_hie",
]


@pytest.mark.parametrize(("table", "wanted"), [("adult", ADULT), ("rand_hie", RAND)])
def test_statements_on_real_tables(demo: Path, table: str, wanted: list[str]) -> None:
    database = duckdb.connect()
    database.execute(f"CREATE VIEW {table} AS FROM '{demo / table}.parquet'")
    size = database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
    assert size is not None
    with zero_noise(), dpsql.connect(demo / f"{table}.toml", epsilon=1) as connection:
        connection.execute("SET mechanism = identity")
        for sql in wanted:
            result = connection.execute(sql).result
            kinds = [isinstance(v, str) for v in result.rows[0]]
            keys = sum(kinds) if any(kinds) else int(" GROUP BY " in sql)
            measured = (Measured(""),) * (len(result.columns) - keys)
            compare(Statement(sql, keys, measured, "LIMIT" in sql), result, database, size[0])
