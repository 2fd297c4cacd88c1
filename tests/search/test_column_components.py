"""Components of columns are planned by themselves, equal ones once, and lose nothing by that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpsql.search import column_components, select
from dpsql.search.column_components import components_of
from dpsql.search.one_attribute import opt0
from dpsql.search.one_attribute.distinct_queries import read_few
from dpsql.search.one_attribute.low_rank import few_candidates
from dpsql.search.problem import Problem
from dpsql.search.search_cache import SearchCache
from dpsql.search.select import choose
from dpsql.search.unions import opt_plus
from dpsql.workload.workload import Workload
from tests.support.effort import effort

BANDS = np.kron(np.eye(5, dtype=np.int64), np.ones((1, 4), dtype=np.int64))


def copies(count: int) -> Workload:
    """Bands and cells of a column, by groups of another one, so many times."""
    domain = {f"{name}{i}": n for i in range(count) for name, n in (("a", 20), ("b", 6))}
    asked: list[dict[str, Any]] = []
    for i in range(count):
        asked += [{f"a{i}": BANDS}, {f"a{i}": "identity", f"b{i}": "identity"}]
    return Workload(domain, asked)


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[..., None] = lambda *given: None  # noqa: E731
    monkeypatch.setattr(column_components, "plan_apart", found)


@pytest.mark.parametrize(
    "workload",
    [
        copies(2),
        Workload(
            {f"c{n}": n for n in (2, 3, 5, 8, 20)},
            [{f"c{n}": "identity"} for n in (2, 3, 5, 8, 20)],
        ),
        *(
            Workload(
                {"a": 6, "b": 9, "c": 12},
                [({}, total), {"a": "identity", "b": "identity"}, {"c": "identity"}],
            )
            for total in (1.0, 40.0)
        ),
        Workload({f"c{i}": 20 for i in range(4)}, [{f"c{i}": "prefix"} for i in range(4)]),
        Workload(
            {"a": 10, "b": 3, "c": 12, "d": 40},
            [({"a": "prefix"}, 0.2), {"b": "identity", "c": "identity"}, ({"d": "prefix"}, 0.05)],
        ),
    ],
)
def test_components_lose_nothing(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running totals of four columns had 15 % more error: each told the number of rows anew."""
    assert len(components_of(workload)) > 1
    apart = choose(workload).strategy
    without(monkeypatch)
    whole = choose(workload).strategy
    assert apart.unit_error(workload) <= 1.011 * whole.unit_error(workload)


def test_copies_take_no_more_work_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted, not timed: 8 copies took 8.4 times that of one."""
    one, many = choose(copies(1)), choose(copies(8))
    assert many.work <= 1.1 * one.work
    searched: list[int] = []
    product = select._best_product

    def counted(workload: Workload, *given: Any) -> Any:
        searched.append(len(workload.domain))
        return product(workload, *given)

    monkeypatch.setattr(select, "_best_product", counted)
    choose(copies(8))
    assert searched == []  # its component is known
    monkeypatch.setattr(column_components, "_known", SearchCache(1))
    choose(copies(8))
    assert searched == [2]


def test_plans_of_components_do_not_depend_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known plan is of a scale that other requests have not, and the same as found anew."""

    def planned(*scales: float) -> list[str]:
        monkeypatch.setattr(column_components, "_known", SearchCache(8))
        monkeypatch.setattr(opt0, "_found", SearchCache(1000))
        found = []
        for scale in scales:
            asked = [(product.factors, product.weight * scale) for product in copies(2).products]
            found.append(choose(Workload(copies(2).domain, asked)).strategy.fingerprint())
        return found

    assert planned(3.0) == planned(7.0, 3.0)[1:]


def test_small_columns_are_planned_with_others() -> None:
    small = Workload({"a": 2, "b": 3, "c": 400}, [{each: "identity"} for each in "abc"])
    assert [list(each.sizes) for each in components_of(small)] == [["a", "b"], ["c"]]


@pytest.mark.parametrize("seed", range(effort(3)))
def test_few_queries_of_large_columns_are_planned(seed: int) -> None:
    """SUM(date_diff('day', a, b)) over two years each was a defect: sums tell no number of rows."""
    rng = np.random.default_rng(seed)
    domain = {name: int(rng.integers(18, 26)) for name in "ab"}
    asked: list[dict[str, Any]] = [{}] * int(rng.integers(2))
    for name, size in domain.items():
        some = (np.arange(size) + 9, rng.integers(-3, 4, size), np.ones(size, dtype=np.int64))
        asked += [{name: some[i][None]} for i in {rng.integers(2), *rng.permutation(3)[:1]}]
    workload = Workload(domain, asked)
    assert len(components_of(workload)) > 1
    errors = [choose(workload, "laplace", kind).strategy for kind in ("auto", "identity")]
    assert errors[0].unit_error(workload) <= errors[1].unit_error(workload)


def test_parts_of_the_cells_have_what_they_have_alone() -> None:
    """Four groups of three queries over four cells: one is searched for, and is in all."""
    queries = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 1, 0]])
    alone = Workload({"x": 5}, [{"x": np.pad(queries, ((0, 0), (0, 1)))}])
    whole = Workload({"x": 16}, [{"x": np.kron(np.eye(4, dtype=np.int64), queries)}])
    errors = []
    for workload in (alone, whole):
        problem = Problem(workload, "laplace")
        few = read_few(problem)
        assert few is not None
        found = [each for each, _ in few_candidates(problem, few, 1.0)]
        errors.append(min(each.unit_error(workload) for each in found))
    assert errors[1] == pytest.approx(4 * errors[0], rel=1e-3)


@pytest.mark.parametrize("cells", [3, 4, 5])
def test_of_counts_that_tell_all_cells_apart_opt_0_is_no_worse(cells: int) -> None:
    """Combinations of such are not searched for: those of sums are, which have less error."""
    rng = np.random.default_rng(cells)
    queries = np.concatenate([np.eye(cells, dtype=np.int64), rng.integers(0, 2, (3, cells))])
    workload = Workload({"a": cells}, [{"a": queries}])
    few = read_few(Problem(workload, "laplace"))
    assert few is not None
    assert len(few.basis) == cells
    found = few_candidates(Problem(workload, "laplace"), few, 1.0)
    combined = min(strategy.unit_error(workload) for strategy, _ in found)
    assert choose(workload).strategy.unit_error(workload) <= 1.001 * combined


def test_blocks_of_their_own_are_looked_for_within_components(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a count and a sum by groups, and of one product, there are none that gain."""
    looked: list[Workload] = []

    def separate(workload: Workload, *given: Any, **named: Any) -> None:
        looked.append(workload)

    monkeypatch.setattr(opt_plus, "separate_strategy", separate)
    counts: list[dict[str, Any]] = [
        {"g": "identity", "v": np.array([[0, 1]])},
        {"g": "identity"},
        {"a": "identity"},
    ]
    workload = Workload({"g": 3, "v": 2, "a": 400}, counts)
    assert len(components_of(workload)) == 2
    assert choose(workload).strategy.method == select.APART
    assert not looked
    choose(copies(2))
    assert looked
