"""The paired lower bound against certified optima of small domains."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.plan import Workload, select
from dpsql.plan.bounds import svd_bound
from dpsql.plan.convention import unit_error
from dpsql.plan.select import choose
from dpsql.plan.templates import convex
from dpsql.plan.templates.pairing import paired_bound
from dpsql.plan.templates.problem import Problem
from tests.support.symmetric import dense_gram

UNION = Workload(
    {"a": 6, "b": 5, "c": 3},
    [{"a": "prefix", "b": "identity"}, {"b": "prefix", "c": "identity"}, {"a": "allrange"}],
)


def test_it_is_the_optimum_of_one_product_and_of_marginals() -> None:
    ranges = Workload({"a": 12, "b": 5}, [{"a": "prefix", "b": "allrange"}])
    optimum = convex.optimise(dense_gram(ranges)).lower
    assert paired_bound(Problem(ranges, "gaussian")) == pytest.approx(optimum, rel=1e-5)
    sets = [{"a": "identity", "b": "identity"}, {"b": "identity", "c": "identity"}, {}]
    marginals = Workload(UNION.domain, sets)
    bound = paired_bound(Problem(marginals, "gaussian"))
    assert bound == pytest.approx(svd_bound(marginals), rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_no_strategy_is_below_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    domain = {"a": 5, "b": 4, "c": 2}
    products = []
    for _ in range(4):
        kept = [name for name in domain if rng.random() < 0.6]
        rows = {name: rng.integers(-1, 3, (3, domain[name])) for name in kept}
        products.append((rows, float(rng.uniform(0.5, 2))))
    workload = Workload(domain, [*products, {"a": "prefix"}])
    found = convex.optimise(dense_gram(workload))
    assert 0 < paired_bound(Problem(workload, "gaussian")) <= found.upper


def test_it_certifies_plans_of_unions() -> None:
    optimum = convex.optimise(dense_gram(UNION))
    bound = paired_bound(Problem(UNION, "gaussian"))
    assert svd_bound(UNION) < bound <= optimum.upper
    assert bound > 0.98 * optimum.lower
    chosen = choose(UNION, "gaussian", "joint")
    assert bound <= chosen.lower <= unit_error(chosen.strategy, UNION)
    assert bound <= unit_error(select(UNION), UNION)


def test_too_large_factors_are_not_analysed() -> None:
    assert paired_bound(Problem(Workload({"a": 2000}, [{"a": "prefix"}]), "gaussian")) == 0
