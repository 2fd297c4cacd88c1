"""Which requests an earlier release determines: they are free with reuse = always, others not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.answer.implied import merge_columns
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from dpsql.workload.cells import merging_of

CUBE = "SELECT sex, race, income, COUNT(*) AS n FROM adult GROUP BY sex, race, income"
BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"
DECADES = "SELECT age // 10 AS decade, COUNT(*) AS n FROM adult GROUP BY ALL"


def ask(connection: Connection, sql: str, **options: Any) -> Result:
    return connection.execute(sql, **options).result


def is_free(result: Result) -> bool:
    assert result.cost is not None
    return result.cost.free


@pytest.fixture
def always(adult: Connection) -> Connection:
    """A connection that takes whatever a release determines."""
    adult.set("reuse", "always")
    return adult


def test_margins_of_a_release_are_free_and_agree_with_it(always: Connection) -> None:
    adult = always
    cube = ask(adult, CUBE)
    for sql, position in [(BY_SEX, 0), ("SELECT race, COUNT(*) FROM adult GROUP BY race", 1)]:
        margin = ask(adult, sql)
        assert is_free(margin)
        for value, number in margin.rows:
            parts = [row[3] for row in cube.rows if row[position] == value]
            assert number == pytest.approx(sum(parts))
        errors = margin.stddev[1]
        assert errors is not None
        cell, size = cube.stddev[3], len(cube.rows) // len(margin.rows)
        assert cell is not None
        assert cell[0] is not None
        assert errors[0] == pytest.approx(cell[0] * size**0.5)
    assert adult.budget.entries == 1


def test_the_result_says_where_it_came_from(always: Connection) -> None:
    first = ask(always, CUBE)
    second = ask(always, BY_SEX)
    assert first.notes == first.standing
    assert second.receipt == first.receipt
    assert any("entry 1 of the ledger" in note for note in second.notes)


def test_filters_and_arithmetic_come_from_a_release_too(always: Connection) -> None:
    adult = always
    ask(adult, CUBE)
    share = "SELECT 100.0 * COUNT(*) FILTER (WHERE sex = 'Male') / COUNT(*) AS p FROM adult"
    result = ask(adult, f"{share} WHERE income = '>50K'")
    assert is_free(result)
    assert 80 < result.rows[0][0] < 90
    assert is_free(ask(adult, f"{BY_SEX} HAVING COUNT(*) > 10 ORDER BY n DESC LIMIT 1"))
    assert adult.budget.entries == 1


def test_a_part_of_a_script_is_free(always: Connection) -> None:
    adult = always
    script = f"{BY_SEX}; SELECT COUNT(*) FROM adult WHERE age < 30; {DECADES}"
    adult.executescript(script)
    assert is_free(ask(adult, "SELECT COUNT(*) FROM adult WHERE age < 30"))
    assert is_free(ask(adult, DECADES))
    assert is_free(ask(adult, "SELECT COUNT(*) FROM adult"))
    assert is_free(adult.executescript(f"{DECADES}; {BY_SEX}").result)
    assert adult.budget.entries == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM adult WHERE age = 31",  # splits a class
        "SELECT age, COUNT(*) FROM adult GROUP BY age",
        "SELECT sex, COUNT(*) FROM adult GROUP BY sex",  # an attribute that was not measured
        "SELECT COUNT(*) FROM adult WHERE age < 30 AND sex = 'Male'",
    ],
)
def test_what_a_release_does_not_determine_is_charged(always: Connection, sql: str) -> None:
    adult = always
    ask(adult, DECADES)
    assert not is_free(ask(adult, sql))
    assert adult.budget.entries == 2


def test_cells_that_were_left_out_are_never_taken_for_none(always: Connection) -> None:
    adult = always
    ask(adult, "SELECT COUNT(*) FROM adult WHERE age BETWEEN 30 AND 39")
    for sql in ("SELECT COUNT(*) FROM adult", BY_SEX, "SELECT COUNT(*) FROM adult WHERE age < 40"):
        assert not is_free(ask(adult, sql, epsilon=0.5))
    ask(adult, "SELECT sex, COUNT(*) FROM adult WHERE age = 44 GROUP BY sex")
    assert not is_free(ask(adult, "SELECT sex, COUNT(*) FROM adult WHERE age = 45 GROUP BY sex"))
    assert is_free(ask(adult, "SELECT COUNT(*) FROM adult WHERE age = 44"))


def test_who_offers_more_gets_a_measurement(adult: Connection) -> None:
    ask(adult, CUBE, epsilon=0.5)
    assert is_free(ask(adult, BY_SEX, epsilon=0.1))
    assert not is_free(ask(adult, BY_SEX, epsilon=2))
    assert adult.budget.entries == 2


def test_the_least_error_wins_and_stays_chosen(adult: Connection, demo: Path) -> None:
    ask(adult, CUBE, epsilon=1)
    better = ask(adult, "SELECT sex, race, COUNT(*) AS n FROM adult GROUP BY 1, 2", epsilon=2)
    assert not is_free(better)
    first = ask(adult, BY_SEX)
    assert first.receipt == better.receipt
    ask(adult, BY_SEX, epsilon=3)
    assert ask(adult, BY_SEX).rows == first.rows
    with dpsql.connect(demo / "adult.toml", epsilon=1) as other:
        assert ask(other, BY_SEX).rows == first.rows
    assert adult.budget.entries == 3


def test_a_forecast_says_what_is_free(always: Connection) -> None:
    adult = always
    assert not adult.explain(BY_SEX).free
    cube = ask(adult, CUBE)
    forecast = adult.explain(BY_SEX)
    assert forecast.free
    assert (forecast.entry, forecast.epsilon) == (1, Fraction(1))
    assert "free: from entry 1 of the ledger" in str(forecast)
    errors = ask(adult, BY_SEX).stddev[1]
    assert errors is not None
    assert forecast.rmse == pytest.approx(errors[0])
    assert adult.explain(CUBE).free
    adult.set("fresh", "on")
    assert not adult.explain(BY_SEX).free
    assert cube.notes == cube.standing


def test_a_forecast_needs_no_data(adult: Connection, demo: Path) -> None:
    ask(adult, CUBE)
    adult.close()
    (demo / "adult.parquet").unlink()
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        assert not connection.explain(BY_SEX).free


def test_fresh_pays_again(adult: Connection) -> None:
    ask(adult, CUBE)
    adult.set("fresh", "on")
    assert not is_free(ask(adult, BY_SEX))
    assert adult.budget.remaining_epsilon == Fraction(98)


def test_noise_laws_are_not_exchanged(adult: Connection) -> None:
    ask(adult, CUBE, noise="gaussian", delta=1e-9)
    assert not is_free(ask(adult, BY_SEX, epsilon=0.1))
    gaussian = {"noise": "gaussian", "epsilon": 0.1}
    assert is_free(ask(adult, BY_SEX, delta=1e-9, **gaussian))
    assert is_free(ask(adult, "SELECT COUNT(*) FROM adult", delta=1e-10, **gaussian))
    assert not is_free(ask(adult, BY_SEX, noise="gaussian", delta=1e-6))


def test_other_data_and_other_catalogs_determine_nothing(demo: Path) -> None:
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        ask(connection, CUBE)
    (demo / "adult.parquet").touch()
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        assert not is_free(ask(connection, BY_SEX))
    text = (demo / "adult.toml").read_text()
    (demo / "adult.toml").write_text(text.replace("[17, 90]", "[17, 91]"))
    dpsql.dbapi.connection.migrate_ledger(demo / "adult.toml")
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        assert not is_free(ask(connection, BY_SEX))


def test_factors_on_merged_cells() -> None:
    classes = np.array([0, 0, 1, 2, 2])
    rows = np.array([[1, 1, 0, 5, 5], [0, 0, 0, 1, 1]])
    merged = merge_columns(Dense(rows), merging_of(classes))
    assert merged is not None
    assert merged.dense().tolist() == [[1, 0, 5], [0, 0, 1]]
    assert merge_columns(Identity(5), merging_of(classes)) is None
    assert merge_columns(Prefix(5), merging_of(np.array([0, 1, 2, 3, -1]))) is None
    assert merge_columns(Identity(5), merging_of(np.arange(5))) == Identity(5)
    assert merge_columns(Dense(np.eye(3)[:2]), merging_of(np.array([0, 1, -1]))) is not None
