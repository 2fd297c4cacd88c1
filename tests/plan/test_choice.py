"""Which strategies are compared: what can not be near is not worked out."""

from __future__ import annotations

from fractions import Fraction
from unittest import mock

import pytest

from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.plan import choice
from dpsql.plan.answer_weights import Reached
from dpsql.plan.candidate_plan import CandidatePlan
from dpsql.plan.choice import Chooser
from dpsql.plan.request import Request, choose_one, make_plan
from dpsql.search.workload_rows import measure_queries
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Workload

TOTALS = "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM adult GROUP BY age"
OVERLAPPING = "SELECT sex, income, COUNT(*) FROM adult GROUP BY GROUPING SETS ((sex), (income))"


def tried(adult: Connection, script: str) -> list[int]:
    """The rows of the workloads of which a plan tries the queries themselves."""
    sizes: list[int] = []

    def noted(workload: Workload, noise: Noise) -> object:
        sizes.append(workload.rows)
        return measure_queries(workload, noise)

    compiled = adult.engine.compile(parse_script(script))
    with mock.patch.object(choice, "measure_queries", noted):
        make_plan(Request(compiled, Fraction(1), Fraction(0), "laplace", "auto"))
    return sizes


def test_many_queries_that_gain_much_are_not_tried_themselves(
    adult: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: each plan of running totals over 2,000 cells inverted a matrix of that size."""
    assert tried(adult, TOTALS)
    monkeypatch.setattr(choice, "FEW_QUERIES", 8)
    assert not tried(adult, TOTALS)


def test_queries_that_gain_little_are_tried_however_many(
    adult: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "FEW_QUERIES", 0)
    assert tried(adult, OVERLAPPING)


UNEVEN = """
SELECT COUNT(*) FROM adult;
SELECT age, education, COUNT(*) FROM adult GROUP BY age, education;
SELECT age, workclass, COUNT(*) FROM adult GROUP BY age, workclass
"""


@pytest.mark.parametrize("worst", [choice.BEYOND * 0.99, choice.BEYOND * 1.01])
def test_where_weights_come_nowhere_near_no_other_family_is_weighed(
    adult: Connection, monkeypatch: pytest.MonkeyPatch, worst: float
) -> None:
    weighed: list[str] = []
    named: list[object] = []

    def nearest(self: Chooser, start: CandidatePlan, *_: object) -> Reached:
        weighed.append(start.strategy.method)
        return Reached([], worst)

    def by_name(*given: object) -> list[CandidatePlan]:
        named.append(given)
        return []

    monkeypatch.setattr(Chooser, "nearest", nearest)
    monkeypatch.setattr(Chooser, "simpler", by_name)
    compiled = adult.engine.compile(parse_script(UNEVEN))
    (target,) = Request(compiled, Fraction(1), Fraction(0), "laplace", "auto").targets
    Chooser(target, "laplace", "auto", 1.0).best()
    assert weighed
    assert bool(named) == (worst < choice.BEYOND)


def test_nothing_is_searched_for_where_cells_stay_far_beyond_the_limits(
    adult: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one plan of all is not searched for; what is taken in the end has been, or is within."""
    searched: list[int] = []
    known = Chooser.selected

    def counted(self: Chooser) -> list[CandidatePlan]:
        searched.append(len(self.target.asked))
        return known(self)

    monkeypatch.setattr(Chooser, "selected", counted)
    compiled = adult.engine.compile(parse_script(UNEVEN))
    request = Request(compiled, Fraction(1), Fraction(0), "laplace", "auto")
    make_plan(request)
    assert 3 in searched
    searched.clear()
    monkeypatch.setattr(choice, "FARTHEST", 0.0)
    monkeypatch.setattr(Chooser, "queries", lambda *_, **__: [])
    (target,) = request.targets
    amount = Fraction(1)
    hasty = choose_one(request, target, "laplace", amount, False)
    assert searched == []
    assert hasty.free == 0
    assert choose_one(request, target, "laplace", amount).free > 0
