"""What is told of planning while one waits."""

from __future__ import annotations

from dpsql.dbapi.connection import Connection
from dpsql.engine.progress import PlanningProgress
from dpsql.search.work_limit import heard, metered, spend


def test_the_part_that_is_done_of_the_limit_is_told_and_no_time() -> None:
    said: list[str] = []
    now = iter(range(0, 100, 2))
    with heard(PlanningProgress(said.append, lambda: float(next(now)))), metered(100.0) as outer:
        spend(20.0)
        with metered(50.0):
            spend(30.0)
        assert outer.done == 50.0
    most = "of the most that it may do"
    assert said == [f"planning: 20 % {most}", f"planning: 50 % {most}", "measuring"]


def test_what_is_short_is_not_told() -> None:
    said: list[str] = []
    with heard(PlanningProgress(said.append, lambda: 0.0)):
        with metered(100.0):
            spend(20.0)
        spend(5.0)
    assert said == []


def test_a_connection_hears_of_its_own_planning_alone(adult: Connection) -> None:
    said: list[str] = []
    adult.report = said.append
    adult.explain("SELECT sex, COUNT(*) FROM adult GROUP BY sex")
    adult.report = None
    assert all(line.startswith(("planning", "measuring")) for line in said)
