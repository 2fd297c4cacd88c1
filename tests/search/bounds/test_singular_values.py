"""Lower bounds against the singular values of explicit workloads."""

from __future__ import annotations

import math
from functools import reduce
from itertools import combinations

import numpy as np
import pytest

from dpsql.algebra.blocks import (
    AllRange,
    Dense,
    Hierarchy,
    Identity,
    IdentityTotal,
    Permuted,
    Prefix,
    Total,
    WidthRanges,
)
from dpsql.algebra.operator import Array, Floats, Operator
from dpsql.search.bounds import singular_values
from dpsql.search.bounds.singular_values import common_axis
from dpsql.search.one_attribute import dual
from dpsql.search.select import choose
from dpsql.workload.workload import ProductLike, Workload

LAPLACE, GAUSSIAN = math.sqrt(2), 4.224678889326836


def explicit_gram(workload: Workload) -> Floats:
    sizes = workload.domain
    V = np.zeros((math.prod(sizes.values()),) * 2)
    for product in workload.products:
        rows: list[Array] = [
            product.factors[a].dense() if a in product.factors else np.ones((1, n))
            for a, n in sizes.items()
        ]
        W = reduce(np.kron, rows)
        V += product.weight**2 * W.T @ W
    return V


def explicit_bound(workload: Workload) -> float:
    values = np.linalg.eigvalsh(explicit_gram(workload))
    values[values < 1e-12 * values.max()] = 0
    return float(np.sqrt(values).sum() ** 2 / len(values))


@pytest.mark.parametrize(
    "op",
    [
        Identity(6),
        Total(6),
        IdentityTotal(6),
        Prefix(13),
        AllRange(13),
        WidthRanges(9, 4),
        Permuted(AllRange(8), np.random.RandomState(0).permutation(8)),
        Dense(np.random.default_rng(0).normal(size=(3, 7))),
        Hierarchy(12, 3),
        Prefix(1),
        AllRange(2),
    ],
    ids=repr,
)
def test_one_operator(op: Operator) -> None:
    singular = np.linalg.svd(op.dense(), compute_uv=False)
    assert singular_values.operator_bound(op) == pytest.approx(singular.sum() ** 2 / op.n, rel=1e-6)


@pytest.mark.parametrize(
    ("op", "printed"),
    [
        (AllRange(64), 3.22),
        (Prefix(256), 3.50),
        (WidthRanges(256, 32), 3.26),
        (AllRange(4096), 5.82),
        (Prefix(4096), 4.74),
    ],
    ids=repr,
)
def test_printed_bounds(op: Operator, printed: float) -> None:
    assert LAPLACE * math.sqrt(singular_values.operator_bound(op) / op.rows) == pytest.approx(
        printed, abs=0.006
    )


def test_a_large_unknown_operator_has_a_weaker_bound() -> None:
    op = WidthRanges(2000, 3)
    assert singular_values.operator_bound(op) == pytest.approx(op.frobenius2() / op.n)
    assert singular_values.svd_bound(Workload({"a": 2000}, [{"a": op}])) > 0


EXACT: dict[str, list[ProductLike]] = {
    "one product": [{"a": "prefix", "c": "allrange"}],
    "marginals": [{"a": "identity"}, {"b": "identity", "c": "identity"}, ({}, 3.0)],
    "weighted marginals": [({"a": "identity"}, 0.5), ({"a": IdentityTotal(3), "b": "identity"}, 2)],
    "points and prefix": [{"c": "identity"}, {"c": "prefix"}],
    "prefix beside total": [{"c": "prefix"}, {"a": "identity"}, {"b": "identity", "c": "prefix"}],
    "repeated": [{"a": "identity"}, {"a": "identity"}, {"b": "prefix"}],
    "nothing": [{}],
}


@pytest.mark.parametrize("name", EXACT)
def test_unions_on_a_small_domain_are_exact(name: str) -> None:
    workload = Workload({"a": 3, "b": 2, "c": 5}, EXACT[name])
    assert singular_values.svd_bound(workload) == pytest.approx(explicit_bound(workload), rel=1e-9)


def random_union(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    domain = {"a": 3, "b": 4, "c": 5}
    products = []
    for _ in range(int(rng.integers(2, 6))):
        factors: dict[str, Operator | Array] = {}
        for name, n in domain.items():
            options: list[Operator | Array | None] = [
                None,
                Identity(n),
                Prefix(n),
                AllRange(n),
                rng.integers(0, 2, (3, n)) + 0.5,
            ]
            chosen = options[int(rng.integers(len(options)))]
            if chosen is not None:
                factors[name] = chosen
        products.append((factors, float(rng.random() + 0.1)))
    return Workload(domain, products)


@pytest.mark.parametrize("seed", range(12))
def test_inexact_bounds_stay_below(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = random_union(seed)
    exact = singular_values.svd_bound(workload)
    assert exact == pytest.approx(explicit_bound(workload), rel=1e-6)
    monkeypatch.setattr(singular_values, "SPECTRUM_LIMIT", 1)
    assert 0 < singular_values.svd_bound(workload) <= exact * (1 + 1e-9)
    monkeypatch.setattr(singular_values, "WORK_LIMIT", 100)
    assert 0 < singular_values.svd_bound(workload) <= exact * (1 + 1e-9)
    monkeypatch.setattr(singular_values, "COMPONENT_LIMIT", 1)
    assert 0 < singular_values.svd_bound(workload) <= exact * (1 + 1e-9)


def test_marginals_component_by_component(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload(
        {"a": 3, "b": 4, "c": 5, "d": 2},
        [{"a": "identity", "b": "identity"}, {"b": "identity", "c": "identity"}, {"d": "prefix"}],
    )
    monkeypatch.setattr(singular_values, "WORK_LIMIT", 40)
    assert singular_values.svd_bound(workload) == pytest.approx(explicit_bound(workload), rel=1e-9)


def test_many_attributes() -> None:
    domain = {f"a{i}": 10 for i in range(60)}
    pairs = [{a: "identity", b: "identity"} for a, b in combinations(list(domain)[:20], 2)]
    workload = Workload(domain, pairs)
    closed = math.sqrt(190 / 100) + 20 * 9 * math.sqrt(19 / 100) + 190 * 81 * math.sqrt(1 / 100)
    assert singular_values.svd_bound(workload) == pytest.approx(closed**2, rel=1e-9)


def test_no_bound_exceeds_the_optimum() -> None:
    for seed in range(5):
        workload = random_union(seed)
        optimum = dual.optimise(explicit_gram(workload)).upper
        assert singular_values.svd_bound(workload) <= optimum * (1 + 1e-9)


def test_total_keeps_a_direction_of_its_own() -> None:
    axis = common_axis((Prefix(6), AllRange(6), Total(6)))
    assert axis is not None
    np.testing.assert_allclose(axis.values[2], [1, 0, 0, 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_cells_asked_one_by_one_are_counted(seed: int) -> None:
    """Nothing is searched for then: one count per cell reaches the bound, at the finest scale."""
    rng = np.random.default_rng([7, seed])
    domain = {f"a{i}": int(rng.integers(2, 6)) for i in range(int(rng.integers(1, 4)))}
    asked: list[ProductLike] = [
        {
            name: np.diag(rng.integers(1, 4, size)) if rng.random() < 0.4 else "identity"
            for name, size in domain.items()
        }
        for _ in range(int(rng.integers(1, 4)))
    ]
    workload = Workload(domain, asked)
    bound = singular_values.cells_bound(workload)
    for noise in ("laplace", "gaussian"):
        found = choose(workload, noise)
        assert found.strategy.unit_error(workload) == pytest.approx(bound)
        assert found.strategy.sensitivities() == (1,)
