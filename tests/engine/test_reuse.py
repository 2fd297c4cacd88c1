"""A release answers again where no number has a larger error than a new measurement would have."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import dpsql
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from tests.support.seam import zero_noise

WIDE = "SELECT education, race, sex, income, COUNT(*) AS n FROM adult GROUP BY ALL"
BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"
SHARE = "SELECT 100.0 * COUNT(*) FILTER (WHERE sex = 'Male') / COUNT(*) AS p FROM adult"


def ask(connection: Connection, sql: str, **options: Any) -> Result:
    return connection.execute(sql, **options).result


def is_free(result: Result) -> bool:
    assert result.cost is not None
    return result.cost.free


def largest(result: Result, column: int = -1) -> float:
    errors = result.stddev[column]
    assert errors is not None
    return float(errors.numbers().max())


def test_a_noisier_release_does_not_answer(adult: Connection) -> None:
    ask(adult, WIDE)
    new = adult.explain(BY_SEX)
    assert not new.free
    result = ask(adult, BY_SEX)
    assert not is_free(result)
    assert largest(result) == pytest.approx(new.rmse)
    note = next(note for note in result.notes if "entry 1" in note)
    assert note in str(new)
    assert f"where a new measurement has {new.rmse:.4g}" in note
    assert "SET reuse = always takes it, free" in note


def test_a_more_accurate_release_does(adult: Connection) -> None:
    ask(adult, BY_SEX, epsilon=1)
    adult.set("epsilon", "0.125")
    forecast = adult.explain(BY_SEX)
    result = ask(adult, BY_SEX)
    assert is_free(result)
    assert (forecast.free, forecast.entry) == (True, 1)
    figures = f"with an error of {largest(result):.4g} where a new measurement has"
    assert figures in str(forecast)
    assert any(figures in note and "SET fresh = on" in note for note in result.notes)
    assert is_free(ask(adult, SHARE))


def test_a_demand_is_kept_to(adult: Connection) -> None:
    ask(adult, WIDE, epsilon=0.01)
    wanted = BY_SEX.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_stddev = 5)")
    for reuse in ("auto", "always"):
        adult.set("reuse", reuse)
        result = ask(adult, wanted)
        assert largest(result) <= 5
    assert adult.budget.entries == 2
    assert largest(ask(adult, BY_SEX.replace("sex", "race"))) > 100


def test_always_and_never(adult: Connection) -> None:
    ask(adult, WIDE)
    adult.set("reuse", "always")
    assert adult.explain(BY_SEX).free
    first = ask(adult, BY_SEX)
    assert is_free(first)
    assert ask(adult, BY_SEX).rows == first.rows
    adult.set("reuse", "auto")
    assert not is_free(ask(adult, BY_SEX))
    adult.set("reuse", "never")
    assert not adult.explain(BY_SEX).free
    assert not is_free(ask(adult, BY_SEX))
    assert adult.budget.entries == 3


def test_an_older_wish_for_fresh_noise_means_never(adult: Connection) -> None:
    adult.set("reuse", "always")
    for text, reuse, fresh in [
        ("off", "always", "off"),
        ("on", "never", "on"),
        ("off", "auto", "off"),
    ]:
        adult.execute(f"SET fresh = {text}")
        assert (adult.settings["reuse"], adult.settings["fresh"]) == (reuse, fresh)
        assert adult.execute("SHOW reuse").fetchone() == (reuse,)
    with pytest.raises(dpsql.DataError, match="reuse = some"):
        adult.execute("SET reuse = 'some'")


def test_a_budget_that_is_spent_leaves_what_is_published(adult: Connection) -> None:
    ask(adult, WIDE, epsilon=99.5)
    adult.set("epsilon", "1")
    with pytest.raises(dpsql.BudgetExceeded):
        ask(adult, "SELECT age, COUNT(*) FROM adult GROUP BY age")
    assert is_free(ask(adult, BY_SEX))
    assert adult.budget.remaining_epsilon == Fraction(1, 2)


def test_ratios_are_compared_as_they_are_shown(adult: Connection) -> None:
    """A plan for a mean alone may be better for it than one whose sum and count are better."""
    with zero_noise():
        ask(adult, "SELECT AVG(age) AS m, COUNT(*) AS n FROM adult", epsilon=0.05)
        result = ask(adult, "SELECT AVG(age) AS m FROM adult", epsilon=0.05)
        adult.set("reuse", "never")
        new = ask(adult, "SELECT AVG(age) AS m FROM adult", epsilon=0.05)
    assert largest(result) <= largest(new) * (1 + 1e-6)


def test_projected_answers_come_from_what_is_accurate(adult: Connection) -> None:
    ask(adult, WIDE)
    adult.set("nonnegative", "on")
    assert is_free(ask(adult, WIDE))
    assert not is_free(ask(adult, BY_SEX))
