"""The paired lower bound against certified optima of small domains."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from dpsql.dbapi.connection import Connection
from dpsql.engine.explain import cheap_bound
from dpsql.plan import Workload, select
from dpsql.search.bounds.isometries import is_quick, paired_bound
from dpsql.search.bounds.singular_values import svd_bound
from dpsql.search.one_attribute import dual
from dpsql.search.problem import Problem
from dpsql.search.select import choose
from tests.support.symmetric import dense_gram

UNION = Workload(
    {"a": 6, "b": 5, "c": 3},
    [{"a": "prefix", "b": "identity"}, {"b": "prefix", "c": "identity"}, {"a": "allrange"}],
)


def test_it_is_the_optimum_of_one_product_and_of_marginals() -> None:
    ranges = Workload({"a": 12, "b": 5}, [{"a": "prefix", "b": "allrange"}])
    optimum = dual.optimise(dense_gram(ranges)).lower
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
    found = dual.optimise(dense_gram(workload))
    assert 0 < paired_bound(Problem(workload, "gaussian")) <= found.upper


def test_it_certifies_plans_of_unions() -> None:
    optimum = dual.optimise(dense_gram(UNION))
    bound = paired_bound(Problem(UNION, "gaussian"))
    assert svd_bound(UNION) < bound <= optimum.upper
    assert bound > 0.98 * optimum.lower
    chosen = choose(UNION, "gaussian", "joint")
    assert bound <= chosen.lower <= chosen.strategy.unit_error(UNION)
    assert bound <= select(UNION).unit_error(UNION)


SMALL: list[tuple[dict[str, int], list[dict[str, str]]]] = [
    ({"a": 6, "b": 5}, [{"a": "prefix"}, {"b": "identity"}, {"a": "allrange", "b": "identity"}]),
    ({"a": 8, "b": 3}, [{"a": "allrange"}, {"a": "identity", "b": "identity"}]),
    ({"a": 4, "b": 4}, [{"a": "prefix", "b": "prefix"}, {"b": "identity"}]),
]


@pytest.mark.parametrize(("domain", "products"), SMALL)
def test_a_forecast_takes_the_better_of_two_bounds(
    domain: dict[str, int], products: list[dict[str, str]]
) -> None:
    workload = Workload(domain, products)
    bound = cheap_bound(workload)
    assert is_quick(workload)
    assert bound == max(svd_bound(workload), paired_bound(Problem(workload, "laplace")))
    found = dual.optimise(dense_gram(workload))
    assert 0.97 * found.lower < bound <= found.upper, "the optimum over all strategies"
    for noise in ("laplace", "gaussian"):
        assert bound <= select(workload, noise).unit_error(workload)


def test_explain_shows_it(adult: Connection) -> None:
    """Running totals beside a table: the singular values alone are 1.3 % lower here."""
    sql = (
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM adult GROUP BY age;"
        "SELECT sex, COUNT(*) FROM adult GROUP BY sex;"
        "SELECT sex, DP_RANGES(education_num), COUNT(*) FROM adult GROUP BY ALL;"
    )
    adult.execute("SET mechanism = 'identity'")
    with mock.patch("dpsql.search.bounds.isometries.is_quick", return_value=False):
        before = adult.explain(sql).bound
    after = adult.explain(sql)
    assert before is not None
    assert after.bound is not None
    assert before * 1.001 < after.bound <= after.rmse


def test_long_unions_are_not_paired_in_passing() -> None:
    rng = np.random.default_rng(1)
    rows = [{"a": rng.integers(0, 2, (1, 10)), "b": rng.integers(0, 2, (1, 8))} for _ in range(200)]
    assert not is_quick(Workload({"a": 10, "b": 8}, rows))
    assert not is_quick(Workload({"a": 500}, [{"a": "prefix"}]))


def test_rows_of_nothing_do_not_disturb_it() -> None:
    plain = Workload({"a": 4, "b": 3}, [{"a": "prefix"}, {"a": "identity"}])
    idle = Workload({"a": 4, "b": 3}, [{"a": "prefix"}, {"a": "identity"}, {"b": np.zeros((1, 3))}])
    assert cheap_bound(idle) == pytest.approx(cheap_bound(plain), rel=1e-6)


def test_too_large_factors_are_not_analysed() -> None:
    assert paired_bound(Problem(Workload({"a": 2000}, [{"a": "prefix"}]), "gaussian")) == 0
