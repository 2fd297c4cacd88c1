"""The PEP 249 surface on real data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

import dpsql
import dpsql.dbapi.types
from dpsql.dbapi.connection import Connection
from tests.conftest import DEMO


def truth(sql: str, parameters: Sequence[object] = ()) -> list[Any]:
    """DuckDB's own answer on the demonstration data, which are public."""
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW adult AS FROM '{DEMO / 'adult.parquet'}'")
        return database.execute(sql, list(parameters)).fetchall()


def test_module_attributes() -> None:
    assert (dpsql.apilevel, dpsql.threadsafety, dpsql.paramstyle) == ("2.0", 1, "qmark")
    assert issubclass(dpsql.BudgetExceeded, dpsql.OperationalError)
    assert issubclass(dpsql.OperationalError, dpsql.DatabaseError)
    assert issubclass(dpsql.DatabaseError, dpsql.Error)
    assert getattr(dpsql, "STRING") == "text"  # noqa: B009


def test_rows_errors_and_description(adult: Connection) -> None:
    cursor = adult.execute("SELECT sex, COUNT(*) AS people FROM adult GROUP BY sex")
    assert cursor.description is not None
    assert [column[0] for column in cursor.description] == ["sex", "people"]
    assert cursor.description[0][1] == dpsql.dbapi.types.STRING
    assert cursor.description[1][1] == dpsql.dbapi.types.NUMBER
    assert cursor.rowcount == 2
    rows = cursor.fetchall()
    exact = dict(truth("SELECT sex, COUNT(*) FROM adult GROUP BY sex"))
    assert [row[0] for row in rows] == ["Female", "Male"]
    assert [row[1] for row in rows] == pytest.approx([exact["Female"], exact["Male"]], abs=40)
    assert cursor.stddev[0] is None
    laplace = math.sqrt(2 * math.exp(-1) / (1 - math.exp(-1)) ** 2)
    assert cursor.stddev[1] == pytest.approx((laplace, laplace))
    intervals = cursor.result.intervals[1]
    assert intervals is not None
    assert intervals[0] is not None
    assert intervals[0][0] < rows[0][1] < intervals[0][1]
    assert cursor.fetchone() is None


def test_fetching_in_pieces(adult: Connection) -> None:
    cursor = adult.execute("SELECT race, COUNT(*) FROM adult GROUP BY race")
    assert len(cursor.fetchmany()) == 1
    assert len(cursor.fetchmany(2)) == 2
    assert len(list(cursor)) == 2


def test_parameters_are_literals(adult: Connection) -> None:
    sql = "SELECT COUNT(*) FROM adult WHERE sex = ? AND age < ?"
    row = adult.execute(sql, ("Male", 30)).fetchone()
    assert row is not None
    assert row[0] == pytest.approx(truth(sql, ["Male", 30])[0][0], abs=60)
    with pytest.raises(dpsql.ProgrammingError, match="E_NOT_IN_DOMAIN"):
        adult.execute(sql, ("x' OR 1=1 --", 30))


@pytest.mark.parametrize("metric", ["mean", "fair"])
def test_a_script_is_one_charge_and_consistent(adult: Connection, metric: str) -> None:
    """Also where statements are measured apart, each with its share."""
    adult.execute(f"SET metric = {metric}")
    before = adult.budget.remaining_epsilon
    cursor = adult.executescript(
        "SELECT COUNT(*)::DOUBLE AS n FROM adult;"
        "SELECT sex, COUNT(*)::DOUBLE AS n FROM adult GROUP BY sex;"
        "SELECT race, COUNT(*)::DOUBLE AS n FROM adult GROUP BY race"
    )
    totals = []
    while True:
        totals.append(sum(row[-1] for row in cursor.fetchall()))
        if not cursor.nextset():
            break
    assert totals == pytest.approx([totals[0]] * 3)
    assert adult.budget.remaining_epsilon == before - 1
    assert adult.budget.entries == 1
    adult.execute("SET reuse = always")
    (again,) = adult.execute("SELECT COUNT(*)::DOUBLE AS n FROM adult").fetchall()
    assert again[0] == pytest.approx(totals[0])
    assert adult.budget.entries == 1


def test_a_workload_in_statements(adult: Connection) -> None:
    cursor = adult.cursor()
    cursor.execute("BEGIN WORKLOAD")
    cursor.execute("SELECT COUNT(*) FROM adult")
    assert cursor.result.kind == "message"
    assert adult.workload == 1
    with pytest.raises(dpsql.ProgrammingError):
        cursor.execute("SELECT COUNT(*) FROM nowhere")
    cursor.execute("SELECT income, COUNT(*) FROM adult GROUP BY income")
    cursor.execute("RUN WORKLOAD")
    assert len(cursor.fetchall()) == 1
    assert cursor.nextset()
    assert len(cursor.fetchall()) == 2
    assert adult.workload is None
    assert adult.budget.entries == 1


def test_an_identical_request_is_free(adult: Connection, demo: Path) -> None:
    sql = "SELECT income, COUNT(*) AS n FROM adult GROUP BY income"
    first = adult.execute(sql).result
    with dpsql.connect(demo / "adult.toml", epsilon=1) as other:
        second = other.execute("select INCOME, count(*) as m from ADULT group by 1").result
        assert second.rows == first.rows
        assert second.cost is not None
        assert second.cost.free
        assert other.budget.entries == 1
        other.execute("SET fresh = on")
        third = other.execute(sql).result
        assert other.budget.entries == 2
        assert third.cost is not None
        assert not third.cost.free


def test_statements_the_catalog_determines_are_free(demo: Path) -> None:
    with dpsql.connect(demo / "adult.toml") as connection:
        result = connection.execute("SELECT COUNT(*) FROM adult WHERE age > 200").result
        assert result.rows == ((0.0,),)
        assert [*map(list, filter(None, result.stddev))] == [[0.0]]
        assert connection.budget.entries == 0


def test_an_epsilon_is_needed(demo: Path) -> None:
    with dpsql.connect(demo / "adult.toml") as connection:
        with pytest.raises(dpsql.DataError, match="SET epsilon"):
            connection.execute("SELECT COUNT(*) FROM adult")
        connection.execute("SET epsilon = 0.5")
        assert connection.settings["epsilon"] == "0.5"
        connection.execute("SELECT COUNT(*) FROM adult")
        assert connection.budget.remaining_epsilon == Fraction(199, 2)


@pytest.mark.parametrize("value", ["1", True, None, 0, -1, math.nan, math.inf, 1e-400, 101, 1e309])
def test_bad_epsilons_change_nothing(adult: Connection, value: Any) -> None:
    with pytest.raises(dpsql.DataError, match="E_EPSILON"):
        adult.execute("SELECT COUNT(*) FROM adult", epsilon=value)
    assert adult.budget.entries == 0


@pytest.mark.parametrize("value", [1, 0.5, Decimal("0.25"), Fraction(1, 3)])
def test_good_epsilons(adult: Connection, value: Any) -> None:
    adult.execute("SELECT COUNT(*) FROM adult", epsilon=value)
    assert adult.budget.entries == 1


def test_a_refused_budget_says_what_is_left(demo: Path) -> None:
    text = (demo / "adult.toml").read_text().replace("epsilon = 100.0", "epsilon = 1.0")
    (demo / "small.toml").write_text(text)
    with dpsql.connect(demo / "small.toml", epsilon=0.75) as connection:
        connection.execute("SELECT COUNT(*) FROM adult")
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            connection.execute("SELECT sex, COUNT(*) FROM adult GROUP BY sex")
        error = caught.value
        assert (error.requested, error.remaining) == (Fraction(3, 4), Fraction(1, 4))
        assert "Requested 0.75" in str(error)
        assert "Remaining 0.25" in str(error)
        assert "Difference 0.5" in str(error)
        assert connection.budget.entries == 1
        connection.execute("SELECT sex, COUNT(*) FROM adult GROUP BY sex", epsilon=0.25)


def test_gaussian_noise(adult: Connection) -> None:
    adult.execute("SET noise = 'gaussian'")
    with pytest.raises(dpsql.DataError, match="E_DELTA"):
        adult.execute("SELECT sex, COUNT(*) FROM adult GROUP BY sex")
    adult.execute("SET delta = 1e-9")
    result = adult.execute("SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex").result
    assert result.cost is not None
    assert result.cost.noise == "gaussian"
    assert result.stddev[1] == pytest.approx((5.779, 5.779), rel=1e-3)


def test_auto_noise_takes_the_lesser_error(adult: Connection) -> None:
    adult.execute("SET delta = 1e-9")
    few = adult.execute("SELECT sex, COUNT(*) FROM adult GROUP BY sex").result
    assert few.cost is not None
    assert few.cost.noise == "laplace"


def test_several_statements_need_a_script(adult: Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="E_MULTI_STATEMENT"):
        adult.execute("SELECT COUNT(*) FROM adult; DROP TABLE adult")
    with pytest.raises(dpsql.NotSupportedError, match="E_STATEMENT"):
        adult.executescript("SELECT COUNT(*) FROM adult; DROP TABLE adult")
    with pytest.raises(dpsql.ProgrammingError, match="E_SETTING"):
        adult.executescript(
            "SELECT COUNT(*) FROM adult; SET epsilon = 2; SELECT COUNT(*) FROM adult"
        )
    assert adult.budget.entries == 0


def test_unsupported_calls(adult: Connection) -> None:
    with pytest.raises(dpsql.NotSupportedError):
        adult.cursor().executemany("SELECT COUNT(*) FROM adult", [()])
    with pytest.raises(dpsql.InterfaceError):
        adult.execute(b"SELECT COUNT(*) FROM adult")  # type: ignore[arg-type]
    with pytest.raises(dpsql.ProgrammingError, match="E_SEED"):
        dpsql.connect("x.toml", seed=42)
    with pytest.raises(dpsql.ProgrammingError, match="E_DEBUG"):
        adult.execute("SELECT COUNT(*) FROM adult", include_true=True)
    with pytest.raises(dpsql.InterfaceError):
        _ = adult.cursor().result
    adult.rollback()
    adult.commit()
    adult.close()
    adult.close()
    with pytest.raises(dpsql.InterfaceError):
        adult.cursor()


def test_show_and_describe(adult: Connection) -> None:
    assert dict(adult.execute("SHOW budget").fetchall())["total epsilon"] == "100"
    assert adult.execute("SHOW tables").fetchall() == [("adult", "row", 14)]
    assert adult.execute("SHOW epsilon").fetchall() == [("1",)]
    columns = adult.execute("DESCRIBE adult").fetchall()
    assert columns[0] == ("age", "integer", "17 to 90", 74)
    with pytest.raises(dpsql.ProgrammingError, match="E_UNKNOWN_TABLE"):
        adult.execute("DESCRIBE adlt")


def test_explain_is_free_and_names_the_error(adult: Connection) -> None:
    explanation = adult.explain("SELECT education, COUNT(*) AS n FROM adult GROUP BY education")
    assert explanation.rmse == pytest.approx(1.357, rel=1e-2)
    assert "column      n \u00b1 1.357" in str(explanation)
    rows = adult.execute("EXPLAIN SELECT COUNT(*) FROM adult").fetchall()
    assert any("strategy" in row[0] for row in rows)
    assert adult.budget.entries == 0


def test_pandas_and_polars_read_it(adult: Connection) -> None:
    sql = "SELECT race, COUNT(*) AS n FROM adult GROUP BY race"
    with pytest.warns(UserWarning, match="DBAPI2"):
        frame = pd.read_sql(sql, adult)  # type: ignore[call-overload]
    assert list(frame.columns) == ["race", "n"]
    assert len(frame) == 5
    assert frame.n.sum() == pytest.approx(48842, abs=60)
    other = pl.read_database(sql, adult)
    assert other.shape == (5, 2)
    errors = adult.execute(sql).result.to_df(stddev=True)
    assert list(errors.columns) == ["race", "n", "n_stddev"]


def test_results_render_as_html(adult: Connection) -> None:
    html = adult.execute("SELECT income, COUNT(*) AS n FROM adult GROUP BY income").result
    assert "&lt;=50K" in html._repr_html_()
    assert "&plusmn;" in html._repr_html_()


def test_options_are_terms_of_one_statement(adult: Connection) -> None:
    sql = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.25) COUNT(*) AS n FROM adult"
    cost = adult.execute(sql).result.cost
    assert cost is not None
    assert cost.epsilon == Fraction(1, 4)
    assert adult.settings["epsilon"] == "1"
    adult.execute("BEGIN WORKLOAD")
    adult.execute(sql)
    adult.execute("SELECT sex, COUNT(*) FROM adult GROUP BY sex")
    with pytest.raises(dpsql.ProgrammingError, match="differ in epsilon"):
        adult.execute("RUN WORKLOAD")
    assert adult.budget.entries == 1
    adult.execute("SET epsilon = 0.25")
    assert adult.execute("RUN WORKLOAD").result.cost.epsilon == Fraction(1, 4)  # type: ignore[union-attr]


def test_options_of_a_statement_with_common_tables(adult: Connection) -> None:
    sql = (
        "WITH people AS (SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex) "
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.25) sex, n FROM people"
    )
    assert adult.explain(sql).epsilon == Fraction(1, 4)
    for run in (adult.execute, adult.executescript):
        cost = run(sql).result.cost
        assert cost is not None
        assert cost.epsilon == Fraction(1, 4)
    assert adult.budget.spent_epsilon == Fraction(1, 4)


@pytest.mark.parametrize("mechanism", ["identity", "workload", "kron", "union", "joint", "hdmm"])
def test_mechanisms_by_name(adult: Connection, mechanism: str) -> None:
    adult.execute(f"SET mechanism = '{mechanism}'")
    text = (
        "SELECT COUNT(*) AS n FROM adult WHERE age < 40; SELECT COUNT(*) FROM adult WHERE age < 60"
    )
    explanation = adult.explain(text)
    assert explanation.rmse > 0
    cursor = adult.executescript(text)
    assert cursor.fetchall()[0][0] == pytest.approx(
        truth("SELECT COUNT(*) FROM adult WHERE age < 40")[0][0], abs=200
    )


def test_unknown_mechanisms_and_efforts_are_refused(adult: Connection) -> None:
    with pytest.raises(dpsql.DataError, match="one of"):
        adult.execute("SET mechanism = 'magic'")
    with pytest.raises(dpsql.DataError, match="above 0"):
        adult.execute("SET effort = 0")
    adult.execute("SET effort = 2")
    assert adult.settings["effort"] == "2"
