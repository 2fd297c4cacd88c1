"""The symmetry-reduced Gaussian optimum against dense algebra on small domains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpsql.algebra.blocks import IdentityTotal, Total
from dpsql.errors import ProgrammingError
from dpsql.search.one_attribute import dual
from dpsql.search.symmetry.interchangeable_cells import fits, symmetric_optimum
from dpsql.search.symmetry.invariant_strategy import optimise
from dpsql.search.symmetry.reduction import Reduction, groups, orbits_of, reduce_group
from dpsql.workload.coarsen import coarsen
from dpsql.workload.workload import Product, Workload
from tests.support.symmetric import BINS, UNIONS, dense_gram, dense_rows, measured_rows, strategy_of


def reduced(workload: Workload) -> Reduction:
    active = [i for i, factors in enumerate(workload.factors) if factors]
    return reduce_group(workload, active, orbits_of(workload, active), workload.weights2)


@pytest.mark.parametrize("name", UNIONS)
def test_components_keep_trace_and_norm(name: str) -> None:
    V = dense_gram(UNIONS[name])
    components = reduced(UNIONS[name]).components
    assert sum(c.copies * np.trace(c.gram) for c in components) == pytest.approx(np.trace(V))
    squares = sum(c.copies * np.square(c.gram).sum() for c in components)
    assert squares == pytest.approx(np.square(V).sum())


@pytest.mark.parametrize("name", UNIONS)
def test_components_have_the_spectrum_of_the_workload(name: str) -> None:
    values = np.linalg.eigvalsh(dense_gram(UNIONS[name]))
    found = [
        np.repeat(np.linalg.eigvalsh(c.gram), c.copies) for c in reduced(UNIONS[name]).components
    ]
    whole = np.zeros(len(values))
    whole[: sum(map(len, found))] = np.concatenate(found)
    assert np.allclose(np.sort(whole), values, atol=1e-9 * values.max())


@pytest.mark.parametrize("name", UNIONS)
def test_bounds_bracket_the_dense_optimum(name: str) -> None:
    found = symmetric_optimum(UNIONS[name])
    assert found is not None
    dense = dual.optimise(dense_gram(UNIONS[name]), tol=1e-6, maxiter=300)
    assert found.lower <= dense.upper * (1 + 1e-9)
    assert dense.lower <= found.upper * (1 + 1e-9)
    assert found.upper <= found.lower * (1 + 1e-3)


@pytest.mark.parametrize("name", UNIONS)
def test_integer_rows_are_next_to_the_optimum(name: str) -> None:
    found = symmetric_optimum(UNIONS[name])
    assert found is not None
    error = found.strategy.unit_error(UNIONS[name])
    assert found.lower * (1 - 1e-9) <= error <= found.upper * (1 + 1e-3)


@pytest.mark.parametrize("name", UNIONS)
def test_variances_are_those_of_dense_least_squares(name: str) -> None:
    workload = UNIONS[name]
    strategy = strategy_of(name)
    inverse = np.linalg.pinv(measured_rows(workload, strategy), rcond=1e-12)
    forecast = strategy.forecast((3.0,))
    found = forecast.variances(workload.products)
    total = 0.0
    for product, variance in zip(workload.products, found, strict=True):
        exact = 3 * np.square(dense_rows(workload, product) @ inverse).sum(axis=1)
        assert np.allclose(variance, exact, rtol=1e-9, atol=0)
        assert np.allclose(forecast.variance(product), variance, rtol=1e-12, atol=0)
        assert forecast.total(product) == pytest.approx(exact.sum(), rel=1e-9)
        total += product.weight**2 * exact.sum() / 3
    error = total * strategy.sensitivity(strategy.block)
    assert strategy.unit_error(workload) == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("name", ["mixed", "prefix", "factored", "rows"])
def test_covariances_are_those_of_dense_least_squares(name: str) -> None:
    workload = UNIONS[name]
    strategy = strategy_of(name)
    inverse = np.linalg.pinv(measured_rows(workload, strategy), rcond=1e-12)
    forecast = strategy.forecast((2.0,))
    for left in workload.products:
        for right in (left, Product({k: Total(v.n) for k, v in left.factors.items()})):
            if not forecast.supports(right):
                continue
            P, Q = (dense_rows(workload, p) @ inverse for p in (left, right))
            found = forecast.covariance(left, right)
            assert np.allclose(found, 2 * (P * Q).sum(axis=1), rtol=1e-8, atol=1e-10)


def test_unsupported_products_are_refused() -> None:
    strategy = strategy_of("deficient")
    forecast = strategy.forecast((1.0,))
    asked = Workload({"b": 4, "c": 6}, [{"b": "prefix", "c": "identity"}, {"c": "identity"}, {}])
    assert [forecast.supports(p) for p in asked.products] == [False, False, True]
    with pytest.raises(ProgrammingError) as refusal:
        forecast.variance(asked.products[0])
    assert refusal.value.code == "E_NOT_MEASURED"
    other = Workload({"b": 4, "z": 3}, [{"z": "identity"}])
    assert not forecast.supports(other.products[0])


def test_support_agrees_with_the_row_space() -> None:
    workload = UNIONS["deficient"]
    strategy = strategy_of("deficient")
    forecast = strategy.forecast((1.0,))
    A = measured_rows(workload, strategy)
    space = np.linalg.pinv(A, rcond=1e-12) @ A
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(60):
        b = rng.integers(0, 2, (1, 4)) if rng.random() < 0.6 else np.ones((1, 4), dtype=int)
        c = np.array(BINS)[:1] * rng.integers(1, 3) if rng.random() < 0.7 else np.eye(1, 6)
        product = Workload(workload.domain, [{"b": b, "c": c}]).products[0]
        q = dense_rows(workload, product)
        inside = bool(np.abs(q - q @ space).max() < 1e-9)
        assert forecast.supports(product) == inside
        seen.add(inside)
    assert seen == {True, False}


def test_single_attribute_is_the_convex_optimum() -> None:
    for n in (3, 16):
        workload = Workload({"a": n}, [{"a": "prefix"}])
        found = symmetric_optimum(workload)
        assert found is not None
        dense = dual.optimise(dense_gram(workload))
        assert found.upper == pytest.approx(dense.upper, rel=1e-4)


def test_points_and_total_in_closed_form() -> None:
    for n in (2, 5, 51):
        found = symmetric_optimum(Workload({"a": n}, [{"a": IdentityTotal(n)}]))
        assert found is not None
        assert found.lower == pytest.approx((math.sqrt(n + 1) + n - 1) ** 2 / n, rel=1e-4)


def test_marginals_meet_the_singular_value_bound() -> None:
    domain = {"a": 3, "b": 4, "c": 2}
    workload = Workload(domain, [{"a": "identity", "b": "identity"}, {"c": "identity"}])
    found = symmetric_optimum(workload)
    assert found is not None
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(dense_gram(workload)), 0)).sum()
    assert found.upper == pytest.approx(roots**2 / 24, rel=1e-4)


def test_attributes_with_one_factor_are_split_off() -> None:
    workload = UNIONS["factored"]
    assert groups(workload) == [[1, 2], [0]]
    whole = optimise(reduced(workload))
    found = symmetric_optimum(workload)
    assert found is not None
    assert found.upper == pytest.approx(whole.upper, rel=1e-3)
    assert groups(UNIONS["single"]) == [[0], [1]]


def test_rows_asked_one_by_one_are_as_symmetric_as_together() -> None:
    domain = {"a": 2, "b": 4}
    together = Workload(domain, [{"a": [[1, 0]], "b": "identity"}, {"b": [[1, 1, 0, 0]]}])
    apart = UNIONS["rows"]
    sizes = [[o.sizes.tolist() for o in orbits_of(w, [0, 1])] for w in (together, apart)]
    assert sizes[0] == sizes[1] == [[1, 1], [2, 2]]
    left, right = symmetric_optimum(together), symmetric_optimum(apart)
    assert left is not None
    assert right is not None
    assert left.upper == pytest.approx(right.upper, rel=1e-6)


def test_limits() -> None:
    assert not fits(Workload({"a": 5000}, [{"a": "identity"}]))
    assert not fits(Workload({"a": 100, "b": 100}, [{"a": "prefix", "b": "prefix"}, {}]))
    assert not fits(Workload({"a": 3}, [{}]))
    large = Workload({"a": 400, "b": 6}, [{"a": "prefix", "b": "prefix"}, {"b": "prefix"}, {}])
    assert not fits(large)
    assert fits(large, effort=40)
    assert symmetric_optimum(Workload({"a": 3}, [{}])) is None
    assert fits(UNIONS["mixed"])
    assert not fits(UNIONS["mixed"], cells=47)


def test_pinned_attributes_are_measured_in_full() -> None:
    raw = Workload(
        {"a": 4, "b": 3}, [{"a": [[1, 1, 0, 0]], "b": "identity"}, {"a": [[1, 1, 0, 0]]}]
    )
    coarse = coarsen(raw)
    assert coarse.workload.pinned == {"a"}
    found = symmetric_optimum(coarse.workload)
    assert found is not None
    assert "a" in found.strategy.block.attributes


def test_rmse_follows_the_convention() -> None:
    workload = Workload({"a": 4}, [{"a": "identity"}])
    found = symmetric_optimum(workload)
    assert found is not None
    assert found.strategy.rmse(workload) == pytest.approx(4.224678889326836, rel=1e-3)


def random_workload(rng: np.random.Generator) -> Workload:
    domain = {name: int(rng.integers(1, 6)) for name in "abc"[: rng.integers(1, 4)]}
    products: list[tuple[dict[str, Any], float]] = []
    for _ in range(rng.integers(1, 6)):
        factors: dict[str, Any] = {}
        for name, n in domain.items():
            kind = rng.integers(0, 6)
            if kind < 2:
                factors[name] = ("identity", "prefix")[kind]
            elif kind < 4:
                factors[name] = rng.integers(2 - kind, 2, (int(rng.integers(1, 3)), n))
        products.append((factors, float(rng.choice([1.0, 0.1, 3.0]))))
    return Workload(domain, products)


def test_random_workloads() -> None:
    rng = np.random.default_rng(11)
    solved = 0
    for _ in range(60):
        workload = random_workload(rng)
        V = dense_gram(workload)
        found = symmetric_optimum(workload)
        if found is None:
            continue
        solved += 1
        dense = dual.optimise(V, maxiter=300)
        assert found.lower <= dense.upper * (1 + 1e-7)
        assert dense.lower <= found.upper * (1 + 1e-7)
        assert found.upper <= found.lower * (1 + 2e-3)
        inverse = np.linalg.pinv(measured_rows(workload, found.strategy), rcond=1e-12)
        error = float(np.einsum("ij,jk,ik->", inverse.T, V, inverse.T))
        exact = error * found.strategy.sensitivity(found.strategy.block)
        assert found.strategy.unit_error(workload) == pytest.approx(exact, rel=1e-8)
        assert dense.lower * (1 - 1e-7) <= exact <= found.upper * (1 + 2e-3)
    assert solved > 45
