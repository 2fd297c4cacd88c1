"""Other shares for the rows of a strategy, and what a search over sets of attributes may use."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest

from dpsql.algebra.operator import Floats
from dpsql.search import shares
from dpsql.search.laplace import BLOCK_LIMIT, room
from dpsql.search.problem import Problem
from dpsql.search.shares import reweight
from dpsql.search.unions.kron_union import Family
from dpsql.search.unions.opt_m import LocalOptimum, WeightSearch
from dpsql.strategy.product import NEGLIGIBLE, ProductStrategy, assemble
from dpsql.workload.workload import Workload

LIMIT = 1 << 27


def two_way(sizes: dict[str, int]) -> Workload:
    pairs = combinations(sizes, 2)
    return Workload(sizes, [dict.fromkeys(each, "identity") for each in pairs])


@pytest.mark.parametrize("largest", [30, 3000, 1 << 19])
def test_which_sets_fit(largest: int) -> None:
    sizes = {"a": 2, "b": 30, "c": largest, "d": 7, "e": 1 << 18}
    problem = Problem(two_way({"a": 2, "b": 30, "c": largest, "d": 7}), "laplace")
    wide = Problem(Workload(sizes, [dict.fromkeys(sizes, "identity")]), "laplace")
    for each in (problem, wide):
        space = room(each, LIMIT, 1.0)
        apart = [prod(each.sizes[i] + 1 for i in each.axes(M)) for M in space.family.sets]
        most = max(BLOCK_LIMIT, *(apart[M] for M in each.components.supports))
        assert space.family.sets == list(range(1 << each.d))
        assert space.allowed.tolist() == [
            float(each.cells(M) <= LIMIT and apart[M] <= most) for M in space.family.sets
        ]


def rounded(rng: np.random.Generator, n: int) -> Floats:
    rows = np.concatenate([np.eye(n), rng.random((1, n))])
    return np.asarray(rows / rows.sum(axis=0))


@pytest.mark.parametrize("seed", range(4))
def test_no_more_rounded_rows_meet_than_before(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = {"a": 3, "b": 4, "c": 2, "d": 5}
    workload = two_way(sizes)
    factors = {"b": rounded(rng, 4), "d": rounded(rng, 5), "c": rounded(rng, 2)}
    asked = [("a", "b"), ("b", "c"), ("a", "d"), ("c",)][: seed + 1]
    weights = {names: 1.0 + k for k, names in enumerate([*asked, ("a", "b", "c", "d")][-4:])}
    strategy = assemble(sizes, factors, weights, "laplace", "joint")
    problem = Problem(workload, "laplace")
    sets = list(range(1 << problem.d))
    long = {name for name, rows in strategy.full.items() if rows is not None}
    most = max(len(long & set(block.attributes)) for block in strategy.blocks)
    told = shares._are_short(problem, strategy, sets)
    assert told.tolist() == [len(long & set(problem.attributes(M))) <= most for M in sets]


@pytest.mark.parametrize("reach", ["own", "near", "far"])
def test_shares_anew_are_no_worse_and_of_the_same_rows(reach: shares.Reach) -> None:
    workload = two_way({"a": 3, "b": 4, "c": 2})
    names = list(combinations("abc", 2))
    start = assemble(
        workload.domain, {}, dict(zip(names, (5.0, 1.0, 1.0), strict=True)), "laplace", "x"
    )
    found = reweight(start, workload, LIMIT, reach)
    assert isinstance(found, ProductStrategy)
    assert found.unit_error(workload) <= start.unit_error(workload) * (1 + NEGLIGIBLE)
    assert reach != "own" or {b.attributes for b in found.blocks} <= set(names)


def test_a_climb_without_time_lists_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(two_way({"a": 3, "b": 4, "c": 2}), "laplace")
    family = Family(problem.d, None, problem.components.masks)
    t, r = problem.identity_tables()
    totals = problem.totals()
    R = problem.components.values(t, r)
    search = WeightSearch(family, R, totals, "laplace", np.ones(len(family.sets)))
    state = search.descend(np.arange(8), np.ones(8))
    listed: list[LocalOptimum] = []
    known = WeightSearch.shortlist

    def counted(self: WeightSearch, state: LocalOptimum) -> object:
        listed.append(state)
        return known(self, state)

    monkeypatch.setattr(WeightSearch, "shortlist", counted)
    before = search.spent
    assert search.climb(state, np.random.default_rng(0), search.listing / 2, 1.0) is state
    assert search.spent == before + search.listing
    assert not listed
    search.climb(state, np.random.default_rng(0), 1.0, 1.0)
    assert listed
