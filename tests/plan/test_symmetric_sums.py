"""Marginals planned by size against marginals planned one by one."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from benchmarks.reference.symmetric_sums import plan_all_marginals
from dpsql.search.bounds.singular_values import svd_bound
from dpsql.search.select import select
from dpsql.workload.workload import Workload


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (2, 5, 2, 4, 5), (7,)])
@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_levels_agree_with_the_general_planner(sizes: tuple[int, ...], k: int) -> None:
    domain = {f"a{i}": n for i, n in enumerate(sizes)}
    sets = [s for j in range(k + 1) for s in combinations(domain, j)]
    workload = Workload(domain, [dict.fromkeys(s, "identity") for s in sets])
    levels, total = plan_all_marginals(sizes, k)
    assert total == pytest.approx(svd_bound(workload))
    assert select(workload, "gaussian").unit_error(workload) == pytest.approx(total, rel=1e-4)
    assert sum(level.count for level in levels) == len(sets)
    cost = sum(
        level.count * math.prod(1 - 1 / n for n in level.sizes) / level.variance for level in levels
    )
    assert cost == pytest.approx(1)


def test_degenerate_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        plan_all_marginals([3, 1], 2)
