"""Which strategies are compared: what can not be near is not worked out."""

from __future__ import annotations

from fractions import Fraction
from unittest import mock

import pytest

from dpsql.dbapi.connection import Connection
from dpsql.dbapi.cursor import parse_script
from dpsql.plan import choice
from dpsql.plan.request import Request, make_plan
from dpsql.search.itself import measure_queries
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
