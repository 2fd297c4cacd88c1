"""What crosses between units: statements that combine ids of others, bounds, steps and sets."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.privacy.vault.unit import unit_sums
from dpsql.privacy.vault.unit.relation_frame import Frame
from tests.audit import crossings
from tests.audit.crossing_statements import Data, draw_data
from tests.audit.test_relations import Fault, join_on_another_column, over_all_units
from tests.support.effort import effort

WORLDS = effort(2)
ALIKE: Data = {
    "people": [(0, None, "a", 3), (1, 0, "b", 4)],
    "sales": [(k, 0, 0, k, "x", 5, 100, 1 + k) for k in (0, 1, 1, 1)],
    "visits": [(0, 1, "x", 2, 50.0), (0, 1, "y", 3, 50.0), (1, 0, "y", 3, 12.5)],
    "lines": [(0, 1, 2), (1, 2, 3)],
}
"""Two units, of which each is named by rows of the other."""


@pytest.mark.parametrize("seed", range(WORLDS))
def test_statements_are_bounded_and_tell_nothing_else(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    data, script = draw_data(draw, odd=seed % 4 > 0), crossings.draw_script(draw, 9)
    assert not list(crossings.breaches(tmp_path, data, script, draw))


def parts_of_everybody(patch: pytest.MonkeyPatch) -> None:
    """Number the groups that all units are in, and not those of each."""
    number = unit_sums._number_parts

    def all_alike(window: Any, rows: Frame, people: Any) -> Any:
        return number(window, replace(rows, units=np.zeros_like(rows.units)), people)

    patch.setattr(unit_sums, "_number_parts", all_alike)


FAULTS = [
    (
        join_on_another_column,
        "SELECT ward, COUNT(*) FROM sales s JOIN visits v ON s.receiver = v.person GROUP BY ward",
    ),
    (
        over_all_units,
        "SELECT FLOOR(r / 400) AS k, COUNT(*) FROM (SELECT buyer, SUM(price * size) AS r "
        "FROM sales GROUP BY buyer) t GROUP BY k",
    ),
    (
        parts_of_everybody,
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) item, COUNT(*) "
        "FROM sales GROUP BY item",
    ),
]


@pytest.mark.parametrize(("fault", "sql"), FAULTS)
def test_planted_faults_are_found(
    tmp_path: Path, fault: Fault, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, draw = [("ASK", sql)], random.Random(0)
    assert not list(crossings.breaches(tmp_path / "sound", ALIKE, script, draw))
    fault(monkeypatch)
    assert list(crossings.breaches(tmp_path / "faulty", ALIKE, script, draw))
