"""What cannot be measured is refused before it is charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from dpsql.dbapi.connection import Connection
from dpsql.errors import ProgrammingError
from dpsql.plan.request import PlannedRequest, Request, make_plan
from dpsql.workload.cells import Cells, Resolution

Change = Callable[[Mapping[str, Resolution]], Mapping[str, Resolution]]
BY_SEX = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"


def other_cells(_: Mapping[str, Resolution]) -> dict[str, Resolution]:
    return {"sex": Cells(("sex",), (np.arange(3),))}


def other_column(_: Mapping[str, Resolution]) -> dict[str, Resolution]:
    return {"sex": Cells(("height",), (np.arange(2),))}


def kept(known: Mapping[str, Resolution]) -> Mapping[str, Resolution]:
    return known


def run(adult: Connection, change: Change) -> None:
    """Ask with a plan whose resolutions were changed after it was made."""

    def changed(request: Request) -> PlannedRequest:
        planned = make_plan(request)
        (part,) = planned.plan.parts
        part = replace(part, resolutions=change(part.resolutions))
        return replace(planned, plan=replace(planned.plan, parts=(part,)))

    with mock.patch("dpsql.engine.planner.make_plan", changed):
        adult.execute(BY_SEX)


@pytest.mark.parametrize("change", [other_cells, other_column])
def test_cells_that_do_not_fit_cost_nothing(adult: Connection, change: Change) -> None:
    with pytest.raises(ProgrammingError) as found:
        run(adult, change)
    assert found.value.code == "E_WORKLOAD"
    assert adult.budget.entries == 0


def test_cells_that_fit_are_measured(adult: Connection) -> None:
    run(adult, kept)
    assert adult.budget.entries == 1
