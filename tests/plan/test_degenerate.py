"""Workloads at the edge: a plan that answers them, or a refusal that names one that fits."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import ProgrammingError
from dpsql.plan import Workload, select
from dpsql.settings.table import FAMILIES, PUBLISHED
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy

EDGES: dict[str, Workload] = {
    "no attribute": Workload({}, [{}]),
    "total": Workload({"a": 3}, [{}]),
    "one query": Workload({"a": 3, "b": 2}, [{"a": [[1, 0, 1]]}]),
    "one query of nothing": Workload({"a": 3}, [{"a": [[0, 0, 0]]}]),
    "one cell": Workload({"a": 1}, [{"a": "identity"}]),
    "cells alone": Workload({"a": 1, "b": 1}, [{"a": "identity"}, {"b": "prefix"}]),
    "one cell, asked for often": Workload({"a": 4, "b": 1}, [{"a": "prefix", "b": [[1]] * 6}]),
    "differences": Workload({"a": 3, "b": 3}, [{"a": [[1, -1, 0]]}, {"b": "identity"}]),
    "rank deficient": Workload(
        {"a": 6, "b": 4},
        [
            {"a": [[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]},
            {"b": [[1, 1, 0, 0]], "a": [[1, 1, 0, 0, 0, 0]]},
        ],
    ),
}
LARGE = Workload(
    {f"a{i}": 1000 for i in range(4)},
    [{"a0": "identity", "a1": "identity"}, {"a2": "identity", "a3": "identity"}],
)


def assert_plan_or_advice(workload: Workload, noise: Noise, mechanism: str) -> None:
    """Plan; where that is refused, plan with every mechanism that the hint names."""
    try:
        strategy = select(workload, noise, mechanism, 0.25)
    except ProgrammingError as refusal:
        error = refusal
    else:
        return check(strategy, workload)
    assert error.code in ("E_TOO_LARGE", "E_SETTING")
    named = re.findall("'([a-z_0]+)'", error.hint or "")
    assert named
    for other in named:
        check(select(workload, noise, other, 0.25), workload)
    return None


def check(strategy: Any, workload: Workload) -> None:
    if isinstance(strategy, ProductStrategy):
        assert sum((b.share for b in strategy.blocks), Fraction(0)) == 1
    assert np.isfinite(strategy.rmse(workload))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("mechanism", [*FAMILIES, *PUBLISHED])
@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str, mechanism: str, noise: Noise) -> None:
    assert_plan_or_advice(EDGES[name], noise, mechanism)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("mechanism", ["kron", "workload", "symmetric", "opt_kron", "opt_0"])
def test_mechanisms_that_do_not_fit_name_some_that_do(mechanism: str, noise: Noise) -> None:
    with pytest.raises(ProgrammingError, match=mechanism):
        select(LARGE, noise, mechanism)
    assert_plan_or_advice(LARGE, noise, mechanism)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("mechanism", FAMILIES[:-2])
def test_an_answer_too_large_for_any_mechanism_is_refused_at_once(
    mechanism: str, noise: Noise
) -> None:
    everything = Workload(LARGE.domain, [dict.fromkeys(LARGE.domain, "identity")])
    with pytest.raises(ProgrammingError, match="fewer attributes") as caught:
        select(everything, noise, mechanism)
    assert caught.value.code == "E_TOO_LARGE"


@pytest.mark.parametrize(
    ("domain", "products"),
    [
        ({"a": 3}, []),
        ({"a": 0}, [{"a": "identity"}]),
        ({"a": 3}, [({"a": "identity"}, 0)]),
        ({"a": 3}, [({"a": "identity"}, -1.0)]),
        ({"a": 3}, [({"a": "identity"}, float("nan"))]),
        ({"a": 3}, [{"a": np.zeros((0, 3))}]),
        ({"a": 3}, [{"a": np.full((1, 3), np.nan)}]),
        ({"a": 3}, [{"a": [[1, 0]]}]),
        ({"a": 3}, [{"b": "identity"}]),
    ],
)
def test_workloads_that_mean_nothing_are_refused(domain: dict[str, int], products: Any) -> None:
    with pytest.raises(ProgrammingError) as caught:
        Workload(domain, products)
    assert caught.value.code == "E_WORKLOAD"
    assert caught.value.hint


def test_one_row_over_very_many_cells() -> None:
    half = np.repeat([[1, 0]], 50_000, axis=1)
    workload = Workload({"a": 100_000}, [{"a": half}])
    assert select(workload, "gaussian", "identity").rmse(workload) > 0
