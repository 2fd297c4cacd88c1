"""The person tables of the census: the certified optimum is reached."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from dpsql.algebra.blocks import IdentityTotal
from dpsql.search.symmetry.interchangeable_cells import symmetric_optimum
from dpsql.workload.coarsen import coarsen
from dpsql.workload.workload import Workload


def census(states: int = 1) -> Workload:
    """The person tables of Census Summary File 1; with several states, also for each of them."""
    domain = {"sex": 2, "hispanic": 2, "race": 64, "age": 115}
    single = [1 << k for k in range(6)]
    count = np.array([bin(mask).count("1") for mask in range(64)])
    race1 = np.array([np.arange(64) == mask for mask in single] + [count != 1])
    exactly = [count == k for k in range(1, 7)]
    race2 = np.array([np.arange(64) == m for m in range(1, 64)] + exactly + [count > 1])
    ends = [5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85]
    age = np.arange(115)
    edges1 = [0, *ends, 115]
    edges3 = [*range(100), 100, 105, 110, 115]
    age1, age3 = (
        np.array([(age >= lo) & (age < hi) for lo, hi in itertools.pairwise(e)])
        for e in (edges1, edges3)
    )
    white, adult = race1[:1], np.array([age >= 18])
    yes, no, ethnicity = [[1, 0]], [[0, 1]], "identity"
    sexes, both = "identity", IdentityTotal(2)
    products: list[dict[str, Any]] = [{}, {"race": race1}, {}, {"hispanic": ethnicity}, {}]
    products += [{"hispanic": ethnicity, "race": race1}, {"hispanic": IdentityTotal(2)}]
    products += [{"race": race2}, {}, {"hispanic": ethnicity}, {"hispanic": no, "race": race2}, {}]
    products += [{"race": race2, "age": adult}, {"age": adult}]
    products += [{"hispanic": ethnicity, "age": adult}]
    products += [{"hispanic": no, "race": race2, "age": adult}, {"age": adult}]
    for bins, last in ((age1, white), (age3, race1)):
        for more in (
            {},
            {"race": race1},
            {"hispanic": yes},
            {"hispanic": no, "race": last},
        ):
            products += [{"sex": sexes, "age": bins, **more}, {"sex": both, **more}]
    if states == 1:
        return Workload(domain, products)
    region = IdentityTotal(states)
    return Workload({**domain, "state": states}, [{**p, "state": region} for p in products])


@pytest.mark.parametrize(
    ("states", "rows", "bound", "best"),
    [(1, 4151, 8.0444, 8.0458), (51, 215852, 8.9369, 8.9385)],
)
def test_census_tables_reach_the_certified_optimum(
    states: int, rows: int, bound: float, best: float
) -> None:
    raw = census(states)
    assert raw.rows == rows
    workload = coarsen(raw).workload
    found = symmetric_optimum(workload)
    assert found is not None
    rmse = found.strategy.rmse(workload)
    assert rmse <= best
    unit = 4.224678889326836
    lower = unit * math.sqrt(found.lower / rows)
    assert bound <= lower <= rmse <= lower * (1 + 5e-4)
