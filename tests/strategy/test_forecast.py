"""Forecasts: noise laws, worked numbers, the published convention."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.algebra.operator import Integers, Permuted
from dpsql.algebra.ranges import AllRange, WidthRanges
from dpsql.strategy import product_forecast
from dpsql.strategy.axis import Axis
from dpsql.strategy.noise_law import NO_NOISE, laplace_variance
from dpsql.strategy.product import ProductStrategy, assemble
from dpsql.strategy.product_block import ProductBlock
from dpsql.workload.workload import Product, Workload


def test_laplace_variance_by_summation() -> None:
    for scale in (0.05, 0.3, 1.0, 7.5):
        z = np.arange(-2000, 2001)
        p = np.exp(-np.abs(z) / scale)
        assert laplace_variance(scale) == pytest.approx((p @ z**2) / p.sum(), rel=1e-12)
    assert laplace_variance(1e7) == pytest.approx(2e14, rel=1e-9)
    assert laplace_variance(1e-4) == NO_NOISE


def test_noise_variances() -> None:
    blocks = (ProductBlock(("a",), frozenset(), Fraction(1)),)
    gaussian = ProductStrategy({"a": 2}, {"a": None}, {}, blocks, "gaussian", "test")
    assert gaussian.noise_variances(gaussian.scales(Fraction(1, 8))) == (4.0,)
    laplace = ProductStrategy({"a": 2}, {"a": None}, {}, blocks, "laplace", "test")
    (variance,) = laplace.noise_variances(laplace.scales(Fraction(1)))
    a = math.exp(-1)
    assert variance == pytest.approx(2 * a / (1 - a) ** 2)


def worked_example() -> ProductStrategy:
    theta = np.array([[1.0, 0.0, 2.0]])
    A = np.concatenate([np.eye(3), theta]) / (1 + theta[0])
    weights = {(): 0.1, ("1",): 0.2, ("2",): 0.3, ("1", "2"): 0.4}
    exact = np.rint(A * 3 * 2**12).astype(np.int64)
    return assemble({"1": 2, "2": 3}, {"2": exact}, weights, "laplace", "test")


def test_worked_example() -> None:
    """Two attributes, one p-Identity factor with weights 1, 0, 2, four blocks, prefix queries."""
    strategy = worked_example()
    forecast = strategy.forecast(strategy.unit_variances())
    axis = forecast.axis("2")
    assert axis.u == pytest.approx([0.4, 0.3, 0.3], abs=1e-3)
    product = Product({"1": Identity(2), "2": Prefix(3)})
    want = [14.27057, 16.70452, 8.76824]
    assert forecast.variance(product) == pytest.approx(want * 2, rel=1e-3)
    assert forecast.total(product) == pytest.approx(79.4866, rel=1e-3)
    workload = Workload(strategy.domain, [product])
    assert strategy.unit_error(workload) == pytest.approx(79.4866, rel=1e-3)
    assert strategy.rmse(workload) == pytest.approx(math.sqrt(2 * 79.4866 / 6), rel=1e-3)


def test_exact_worked_example() -> None:
    """With factors that rounding cannot change, the numbers are exact to the digits shown."""
    rows = np.array([[3, 0, 0], [0, 6, 0], [0, 0, 2], [3, 0, 4]])
    blocks = tuple(
        ProductBlock(names, frozenset(), Fraction(share, 10))
        for names, share in [((), 1), (("1",), 2), (("2",), 3), (("1", "2"), 4)]
    )
    strategy = ProductStrategy(
        {"1": 2, "2": 3}, {"1": None, "2": rows}, {}, blocks, "laplace", "test"
    )
    forecast = strategy.forecast(strategy.unit_variances())
    axis = forecast.axis("2")
    assert isinstance(axis, Axis)
    assert axis.Kt is not None
    want = np.array([[2.8, -0.4, -2.4], [-0.4, 0.7, -0.3], [-2.4, -0.3, 2.7]]) / 36
    assert axis.Kt == pytest.approx(want, abs=1e-12)
    assert 1 / axis.total == pytest.approx(10 / 3 / 36)
    product = Product({"1": Identity(2), "2": Prefix(3)})
    variances = forecast.variance(product)
    assert np.round(variances, 5).tolist() == [14.27057, 16.70452, 8.76824] * 2
    assert forecast.total(product) == pytest.approx(79.4866, abs=1e-4)


@pytest.mark.parametrize("identity", [True, False])
def test_intervals_without_rows(identity: bool) -> None:
    """Range queries are forecast from cumulative sums; explicit rows must agree."""
    n = 9
    rng = np.random.default_rng(2)
    rows = None if identity else np.rint(100 * rng.random((12, n))).astype(np.int64)
    blocks = (ProductBlock(("a",), frozenset(), Fraction(1)),)
    strategy = ProductStrategy({"a": n}, {"a": rows}, {}, blocks, "laplace", "test")
    forecast = strategy.forecast([3.0])
    shuffled = Permuted(AllRange(n), rng.permutation(n))
    repeated = AllRange(14).take_columns(np.array([0, 3, 3, 5, 6, 13, 12, 1, 8]))
    for operator in (AllRange(n), Prefix(n), WidthRanges(n, 4), shuffled, repeated):
        explicit = Product({"a": Dense(operator.dense())})
        got = forecast.variance(Product({"a": operator}))
        assert got == pytest.approx(forecast.variance(explicit), rel=1e-9)


def test_covariance_with_a_total() -> None:
    strategy = worked_example()
    forecast = strategy.forecast(strategy.unit_variances())
    part, whole = Product({"1": Identity(2)}), Product({})
    cov = forecast.covariance(part, whole)
    assert cov.sum() == pytest.approx(forecast.variance(whole)[0])
    assert cov[0] == pytest.approx(cov[1])


@pytest.mark.parametrize("kinds", ["full", "some residual", "not the sum"])
def test_precisions_in_one_array_are_those_looked_up(
    kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = {"a": 3, "b": 2, "one": 1, "c": 4}
    full: dict[str, Integers | None] = dict.fromkeys(domain)
    residual: dict[str, Integers | None] = {}
    if kinds == "some residual":
        del full["b"]
        residual["b"] = None
    if kinds == "not the sum":
        full["b"] = np.array([[1, 0]])
    sets = [("a", "b", "one", "c"), ("b", "one"), ("b", "c"), ("a", "b")]
    blocks = tuple(
        ProductBlock(each, frozenset(residual) & set(each), Fraction(1, 4)) for each in sets
    )
    strategy = ProductStrategy(domain, full, residual, blocks, "laplace", "test")
    found = []
    for many in (1, 1 << 10):
        monkeypatch.setattr(product_forecast, "MANY", many)
        forecast = strategy.forecast([1.0, 2.0, 3.0, 5.0])
        asked = [["a"], ["b", "one"], ["a", "b", "one", "c"], ["b", "c"]]
        found.append([forecast.precisions(names) for names in asked])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    assert found[0][2].shape == (2, 2, 2)
