"""Means beside counts and sums that are shown: all keep their errors under Gaussian noise."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.search.select import choose
from dpsql.sql.measures.centred_moments import is_far
from dpsql.sql.measures.mean_weights import MeanWeights
from dpsql.workload.workload import Workload


def variances(asked: list[tuple[list[float], float]], told: list[list[float]]) -> list[float]:
    """The variances under Gaussian noise of sums over two nodes, planned for weighted ones."""
    workload = Workload({"x": 2}, [({"x": [row]}, weight) for row, weight in asked])
    strategy = choose(workload, "gaussian").strategy
    wanted = Workload({"x": 2}, [{"x": [row]} for row in told])
    forecast = strategy.forecast(strategy.unit_variances())
    return [float(each[0]) for each in forecast.variances(list(wanted.products))]


@pytest.mark.parametrize("counts", [1, 2])
@pytest.mark.parametrize("sums", [False, True])
def test_what_is_shown_keeps_its_error(counts: int, sums: bool) -> None:
    """A count and a sum of values, and the same with the sum less the middle for a mean."""
    random = np.random.default_rng([counts, sums])
    tried = 0
    while tried < 10:
        low = float(random.integers(-20, 20))
        high = low + float(random.integers(1, 40))
        if is_far(low, high):
            continue
        tried += 1
        middle, largest = (low + high) / 2, max(abs(low), abs(high))
        count, values = [1.0, 1.0], [low, high]
        less = [low - middle, high - middle]
        weights = MeanWeights(counts=counts, sums=sums)
        own = [(count, 1.0)] * counts
        shown = [(values, weights.of_sums / largest)] if sums else []
        before = variances([*own, (values, 1 / largest)], [count, values, less])
        part = weights.part((low, high)) / less[1]
        now = variances([*own, *shown, (less, part)], [count, values, less])
        assert now == pytest.approx(before, rel=1e-2)


def test_weights_are_needed() -> None:
    """Without them a count beside a mean would have a third more variance."""
    before = variances([([1.0, 1.0], 1.0), ([0.0, 1.0], 1.0)], [[1.0, 1.0]])
    now = variances([([1.0, 1.0], 1.0), ([-0.5, 0.5], 2.0)], [[1.0, 1.0]])
    assert now[0] > 1.3 * before[0]
