"""Few queries of very different sizes: whole numbers keep what was found for real ones."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.search.one_attribute.distinct_queries import read_few
from dpsql.search.one_attribute.low_rank import few_candidates
from dpsql.search.problem import Problem
from dpsql.workload.workload import Workload


@pytest.mark.parametrize("power", [1, 2, 3])
def test_sums_of_powers_beside_ranges_are_near_the_bound(power: int) -> None:
    """Before: three times the bound for squares beside 5 ranges, and no strategy beside 20."""
    x = np.arange(1000)
    ends = np.sort(np.random.default_rng(3).integers(0, 1000, (20, 2)), axis=1)
    ranges = ((x >= ends[:, :1]) & (x <= ends[:, 1:])).astype(np.int64)
    sums = (x.astype(np.int64) ** power)[np.newaxis]
    workload = Workload({"x": 1000}, [({"x": ranges}, 1.0), ({"x": sums}, 1 / float(sums.max()))])
    problem = Problem(workload, "gaussian")
    few = read_few(problem)
    assert few is not None
    found = list(few_candidates(problem, few, 1.0))
    assert found
    for strategy, lower in found:
        assert lower <= strategy.unit_error(workload) <= 1.005 * lower
