"""Selection: dominance, certificates, refusals, the audit surface."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from dpsql.algebra.integer_rows import largest_entry
from dpsql.errors import ProgrammingError
from dpsql.plan import Workload, select
from dpsql.search.bounds.singular_values import svd_bound
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy
from dpsql.workload.coarsen import coarsen
from tests.support.effort import IS_LARGE

CDF = Workload({"age": 74}, [{"age": (np.arange(17, 91) < k).astype(int)} for k in range(20, 81)])
MIXED = Workload(
    {"a": 4, "b": 12, "c": 3},
    [{"a": "identity", "b": "prefix"}, {"b": "prefix", "c": "identity"}, {"c": "identity"}, {}],
)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_one_histogram_is_certified(noise: Noise) -> None:
    w = Workload({"a": 5, "b": 7, "c": 3}, [{"a": "identity", "b": "identity"}])
    strategy = select(w, noise)
    assert isinstance(strategy, ProductStrategy)
    assert strategy.method == "identity"
    assert [b.attributes for b in strategy.blocks] == [("a", "b")]
    assert strategy.full == {"a": None, "b": None}
    assert strategy.unit_error(w) == pytest.approx(35)
    assert svd_bound(w) == pytest.approx(35)


def test_simple_plans_do_not_load_the_optimiser() -> None:
    code = (
        "import sys; from dpsql.plan import Workload, select;"
        "select(Workload({'a': 5, 'b': 7}, [{'a': 'identity', 'b': 'identity'}]));"
        "sys.exit('scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_prefix_counts() -> None:
    """Counts below 61 thresholds: a histogram has 7.8, learned rows at most 5.3."""
    w = coarsen(CDF).workload
    strategy = select(w)
    assert strategy.rmse(w) <= 5.3
    assert select(w, mechanism="identity").rmse(w) > 7
    gaussian = select(w, "gaussian")
    assert gaussian.rmse(w) >= math.sqrt(4.224678889326836**2 * _svd_bound(w) / w.rows)


def _svd_bound(workload: Workload) -> float:
    W = np.concatenate([p.factors["age"].dense() for p in workload.products])
    return float(np.linalg.svd(W, compute_uv=False).sum() ** 2 / W.shape[1])


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_auto_is_at_least_as_good_as_every_named_mechanism(noise: Noise) -> None:
    names = ["identity", "kron", "union", "marginals", "joint", "hdmm"]
    names += ["residual"] if noise == "gaussian" else []
    auto = select(MIXED, noise, effort=0.3).unit_error(MIXED)
    for name in names:
        named = select(MIXED, noise, name, effort=0.3)
        assert auto <= named.unit_error(MIXED) * 1.01, name
    assert svd_bound(MIXED) <= auto


def test_same_arguments_same_strategy() -> None:
    one, two = (select(MIXED, effort=0.2).fingerprint() for _ in range(2))
    assert one == two


def test_pinned_attributes_are_in_every_block() -> None:
    """With one common filter the rows outside it must not be counted by any block."""
    young = [1, 1, 1, 0, 0, 0]
    products = [{"age": young, **dict.fromkeys(c, "identity")} for c in combinations("abc", 2)]
    w = coarsen(Workload({"a": 30, "age": 6, "b": 40, "c": 20}, products)).workload
    assert w.pinned == {"age"}
    for noise in ("laplace", "gaussian"):
        strategy = select(w, noise, effort=0.2)
        assert len(strategy.blocks) > 1
        assert all("age" in block.attributes for block in strategy.blocks)
        assert strategy.rmse(w) > 0


def test_pinned_factors_keep_within_the_integer_range() -> None:
    """Factors that were planned apart and meet in one block are rounded to fewer bits."""
    filtered = np.tri(20)[:12].astype(int)
    w = Workload({"age": 20, "x": 15}, [{"age": filtered, "x": "prefix"}])
    coarse = coarsen(w).workload
    assert coarse.pinned == {"age"}
    for noise in ("laplace", "gaussian"):
        strategy = select(coarse, noise, effort=0.1)
        assert isinstance(strategy, ProductStrategy)
        largest = [
            largest_entry(rows)
            for source in (strategy.full, strategy.residual)
            for rows in source.values()
            if rows is not None
        ]
        assert all(entry <= 2**10 for entry in largest)
        assert strategy.rmse(coarse) < select(coarse, noise, "identity").rmse(coarse)


@pytest.mark.parametrize(
    "products",
    [
        [{}],
        [{"a": [0, 0, 0]}],
        [{"a": [0, 0, 0], "b": "identity"}],
        [{"a": [1, 0, 0]}],
        [{"a": [[1, -1, 0]]}],
        [{"a": [[0.5, 0.25, 0.1]]}, {"b": "identity"}],
        [{"a": [1, 0, 0]}, {"a": [1, 0, 0], "b": "identity"}],
        [{"a": "identity"}, {"a": "identity"}, {"a": "identity"}],
    ],
)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_degenerate_workloads(products: list[dict[str, object]], noise: Noise) -> None:
    domain = {"a": 3, "b": 2, "one": 1}
    raw = Workload(domain, products)
    for w in (raw, coarsen(raw).workload):
        strategy = select(w, noise, effort=0.1)
        assert math.isfinite(strategy.rmse(w))


def test_refusals() -> None:
    huge = Workload({"a": 5000, "b": 5000, "c": 5000}, [dict.fromkeys("abc", "identity")])
    with pytest.raises(ProgrammingError, match="spans") as caught:
        select(huge)
    assert caught.value.code == "E_TOO_LARGE"
    apart = Workload({"a": 5000, "b": 5000, "c": 5000}, [{n: "identity"} for n in "abc"])
    with pytest.raises(ProgrammingError, match="does not fit") as caught:
        select(apart, mechanism="kron")
    assert caught.value.code == "E_TOO_LARGE"
    assert "mechanism 'auto'" in str(caught.value)
    assert len(select(apart, effort=0.1).blocks) == 3
    for arguments in ({"mechanism": "magic"}, {"noise": "cauchy"}, {"mechanism": "residual"}):
        with pytest.raises(ProgrammingError) as caught:
            select(MIXED, **arguments)  # type: ignore[arg-type]
        assert caught.value.code == "E_SETTING"


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("seed", range(12))
def test_pinned_sums_of_few_groups_are_measured(seed: int, noise: Noise) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 100, 5)
    groups = np.arange(5) >= rng.integers(1, 5)
    rows = np.array([values * groups, values * ~groups])
    factors = {"a": rows, "b": "identity"}
    workload = Workload({"a": 5, "b": 3}, [(factors, 1 / 7)], pinned=["a"])
    strategy = select(workload, noise)
    forecast = strategy.forecast(strategy.unit_variances())
    assert all(forecast.supports(product) for product in workload.products)


def some_workload(seed: int) -> Workload:
    """A few products of cells, running totals and random conditions over up to three columns."""
    random = np.random.default_rng([seed, 4])
    domain = {name: int(random.integers(2, 9)) for name in "abc"[: random.integers(1, 4)]}
    products = []
    for _ in range(random.integers(1, 6)):
        chosen = [name for name in domain if random.random() < 0.7]
        rows = {name: random.random((2, domain[name])) < 0.5 for name in chosen}
        kinds = {name: random.choice(["identity", "prefix", "rows"]) for name in chosen}
        factors = {n: rows[n] * 1 if kind == "rows" else str(kind) for n, kind in kinds.items()}
        products.append((factors, float(random.choice([0.5, 1, 3]))))
    return Workload(domain, products)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("seed", range(12) if IS_LARGE else (3, 4, 6))
def test_more_effort_is_never_worse(seed: int, noise: Noise) -> None:
    workload = some_workload(seed)
    one, two = (select(workload, noise, effort=effort).unit_error(workload) for effort in (1, 2))
    assert two <= one
