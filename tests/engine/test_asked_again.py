"""Requests that are made again: the same one, with its plan, on the same terms alone."""

from __future__ import annotations

import random
import re
from pathlib import Path
from unittest import mock

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.engine import planner
from dpsql.errors import ProgrammingError
from dpsql.plan.request import make_plan
from dpsql.records import replace

SQL = (
    "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex",
    "SELECT COUNT(*) AS n, sex FROM adult GROUP BY sex",
    "SELECT COUNT(*) AS n FROM adult WHERE age < 40",
    "SELECT SUM(age) AS m, COUNT(*) AS n FROM adult",
    "SELECT COUNT(*) AS n, SUM(age) AS m FROM adult",
)
SET = (
    *("epsilon = 0.5", "epsilon = 1", "noise = laplace", "noise = gaussian"),
    *("metric = max", "metric = mean", "mechanism = identity", "mechanism = auto"),
    *("nonnegative = on", "nonnegative = off", "effort = 2", "effort = 1"),
)


@pytest.fixture
def counted() -> mock.Mock:
    return mock.Mock(side_effect=make_plan)


def test_what_is_asked_again_is_planned_once(adult: Connection, counted: mock.Mock) -> None:
    with mock.patch.object(planner, "make_plan", counted):
        adult.execute("SET fresh = on")
        for _ in range(3):
            adult.execute(SQL[0])
        assert counted.call_count == 1
        adult.execute("SET epsilon = 0.25")
        first = adult.execute(SQL[0]).result
        assert counted.call_count == 2
        assert first.cost is not None
        assert first.cost.epsilon == 0.25


def test_answers_are_those_of_a_connection_that_keeps_nothing(demo: Path) -> None:
    """Any order of statements and settings: the same columns, errors, forecasts and costs."""
    picked = random.Random(18)
    with dpsql.connect(demo / "adult.toml", epsilon=1, delta=1e-9) as connection:
        connection.execute("SET fresh = on")
        for _ in range(40):
            if picked.random() < 0.4:
                connection.execute(f"SET {picked.choice(SET)}")
            sql = picked.choice(SQL)
            forecast, found = str(connection.explain(sql)), connection.execute(sql).result
            kept = connection.engine._asked
            connection.engine._asked = {}
            alone, anew = str(connection.explain(sql)), connection.execute(sql).result
            connection.engine._asked = kept
            assert found.columns == anew.columns
            assert found.stddev == anew.stddev
            assert found.cost == anew.cost
            assert _without_budget(forecast) == _without_budget(alone)
        assert connection.engine._asked


def _without_budget(forecast: str) -> str:
    return re.sub(r"at most \S+ can still be asked for", "", forecast)


def test_a_plan_that_was_cut_short_is_not_kept(adult: Connection, counted: mock.Mock) -> None:
    counted.side_effect = lambda request: replace(make_plan(request), is_cut=True)
    with mock.patch.object(planner, "make_plan", counted):
        adult.execute("SET fresh = on")
        adult.execute(SQL[0])
        adult.execute(SQL[0])
    assert counted.call_count == 2


def test_a_refusal_is_not_kept(adult: Connection, counted: mock.Mock) -> None:
    counted.side_effect = [ProgrammingError("E_TOO_LARGE", "not now")]
    with (
        mock.patch.object(planner, "make_plan", counted),
        pytest.raises(ProgrammingError, match="not now"),
    ):
        adult.execute(SQL[0])
    adult.execute(SQL[0])


def test_few_and_small_requests_are_kept(
    adult: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "ASKED", 3)
    for sql in SQL:
        adult.execute(sql)
    asked = adult.engine._asked
    assert [each.request.statements[0].text for each in asked.values()] == [*SQL[2:]]
    monkeypatch.setattr(planner, "SMALL", 3)
    adult.execute("SELECT sex, COUNT(*) FROM adult WHERE age < 30 GROUP BY sex")
    assert [each.request.statements[0].text for each in asked.values()] == [*SQL[2:]]
