"""Reconstruction and its variances against dense generalised least squares."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra import cores
from dpsql.algebra.blocks import Dense, Identity, IdentityTotal, Prefix
from dpsql.algebra.operator import Integers
from dpsql.algebra.ranges import AllRange
from dpsql.errors import ProgrammingError
from dpsql.strategy import product_block, product_forecast, product_solve
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.product_block import ProductBlock
from dpsql.strategy.quantise import quantise
from dpsql.workload.workload import Product

DOMAIN = {"a": 3, "b": 4, "c": 2, "d": 5}
KINDS = ["FFTT", "TFTF", "FTFT", "TTTT", "TTRF", "RTTR", "FTTF", "TFTF"]


def dense(rows: list[list[int]]) -> Dense:
    return Dense(np.array(rows))


def p_identity(n: int, rng: np.random.Generator) -> Integers:
    theta = rng.random((2, n))
    A = np.concatenate([np.eye(n), theta]) / (1 + theta.sum(axis=0))
    rows = quantise(A, 10, "laplace")
    assert rows is not None
    return rows


def strategy_of(kinds: list[str], noise: Noise, rng: np.random.Generator) -> ProductStrategy:
    names = list(DOMAIN)
    full: dict[str, Integers | None] = dict.fromkeys(names)
    full["b"] = p_identity(4, rng)
    if not any(kind[3] == "R" for kind in kinds):
        full["d"] = p_identity(5, rng)
    blocks = tuple(
        ProductBlock(
            tuple(n for n, k in zip(names, kind, strict=True) if k != "T"),
            frozenset(n for n, k in zip(names, kind, strict=True) if k == "R"),
            Fraction(1, len(kinds)),
        )
        for kind in kinds
    )
    residual = {n: None for n, *ks in zip(names, *kinds, strict=True) if "R" in ks}
    return ProductStrategy(DOMAIN, full, residual, blocks, noise, "test")


def kron(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return reduce(lambda left, right: np.asarray(np.kron(left, right)), parts)


def dense_block(strategy: ProductStrategy, block: ProductBlock) -> NDArray[np.float64]:
    parts = []
    for name, n in strategy.domain.items():
        if name not in block.attributes:
            parts.append(np.ones((1, n)))
        else:
            rows = block.factors[name]
            parts.append(np.eye(n) if rows is None else rows.astype(float))
    return kron(parts)


def dense_product(strategy: ProductStrategy, product: Product) -> NDArray[np.float64]:
    return kron(
        [
            product.factors[name].dense().astype(float)
            if name in product.factors
            else np.ones((1, n))
            for name, n in strategy.domain.items()
        ]
    )


PRODUCTS = [
    Product({"a": Identity(3), "b": Prefix(4)}),
    Product({"b": dense([[1, 1, 0, 0], [0, 2, 0, -1]]), "d": IdentityTotal(5)}),
    Product({"d": AllRange(5), "a": Identity(3)}),
    Product({"c": Identity(2)}),
    Product({"d": dense([[0, 1, 1, 0, 0]])}),
    Product({}),
]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(("slab", "few"), [(None, 8), (None, 3), (None, 0), (1, 0), (50, 3)])
@pytest.mark.parametrize("kinds", [KINDS, [k for k in KINDS if "R" not in k], ["FFFF"]])
def test_equals_dense_gls(
    kinds: list[str], slab: int | None, few: int, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (product_block, product_forecast, product_solve):
        monkeypatch.setattr(module, "FEW", few)
    if slab is not None:
        monkeypatch.setattr(product_solve, "LARGE", 1)
        monkeypatch.setattr(product_solve, "SLAB", slab)
    rng = np.random.default_rng(7)
    strategy = strategy_of(kinds, noise, rng)
    rows = [dense_block(strategy, block) for block in strategy.blocks]
    variances = [rng.uniform(0.5, 20) * np.abs(R).max() ** 2 for R in rows]
    x = rng.integers(0, 50, 120)
    values = [
        np.rint(R @ x + rng.normal(0, v**0.5, len(R))).astype(np.int64)
        for R, v in zip(rows, variances, strict=True)
    ]
    estimate = strategy.solve(values, strategy.forecast(variances))
    information = sum(
        (R.T @ R / v for R, v in zip(rows, variances, strict=True)), np.zeros((120, 120))
    )
    score = sum(
        (R.T @ y / v for R, y, v in zip(rows, values, variances, strict=True)), np.zeros(120)
    )
    inverse = np.linalg.pinv(information, rcond=1e-13, hermitian=True)
    sums = [estimate.forecast.total(product) for product in PRODUCTS]
    assert estimate.forecast.totals(PRODUCTS) == sums
    for product in PRODUCTS:
        W = dense_product(strategy, product)
        assert estimate.forecast.supports(product)
        want, cov = W @ inverse @ score, W @ inverse @ W.T
        assert estimate.answer(product) == pytest.approx(want, rel=1e-9, abs=1e-7)
        got = estimate.forecast.variance(product)
        assert got == pytest.approx(cov.diagonal(), rel=1e-9)
        assert estimate.forecast.total(product) == pytest.approx(np.trace(cov), rel=1e-9)
        together = estimate.forecast.covariance(product, product)
        assert together == pytest.approx(cov.diagonal(), rel=1e-9)


def test_slabs_give_the_same_digits_on_any_number_of_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (product_block, product_forecast, product_solve):
        monkeypatch.setattr(module, "FEW", 0)
    monkeypatch.setattr(product_solve, "LARGE", 1)
    monkeypatch.setattr(product_solve, "SLAB", 7)
    monkeypatch.setattr(product_solve, "NEAR", 7)
    rng = np.random.default_rng(3)
    strategy = strategy_of(["FFFF"], "laplace", rng)
    (rows,) = (dense_block(strategy, block) for block in strategy.blocks)
    values = [rng.integers(-1000, 1000, len(rows))]
    found = []
    for count in (1, 2, 5):
        monkeypatch.setattr(cores, "_cores", lambda count=count: count)
        estimate = strategy.solve(values, strategy.forecast([2.0]))
        found.append([estimate.answer(product).tolist() for product in PRODUCTS])
    assert found[0] == found[1] == found[2]


def test_an_estimate_keeps_no_more_numbers_than_its_largest_blocks_measure() -> None:
    """With a sum beside the two values of each, twelve columns had 3^12 numbers for 2^12 counts."""
    names = [f"c{j}" for j in range(12)]
    sets = [tuple(names), tuple(names[:5]), (names[3],), ()]
    blocks = tuple(ProductBlock(each, frozenset(), Fraction(1, 4)) for each in sets)
    full: dict[str, Integers | None] = dict.fromkeys(names)
    strategy = ProductStrategy(dict.fromkeys(names, 2), full, {}, blocks, "laplace", "test")
    values = [np.arange(block.rows) for block in strategy.blocks]
    estimate = strategy.solve(values, strategy.forecast([2.0, 3.0, 1.0, 5.0]))
    assert [table.size for table in estimate.tables.values()] == [2**12]
    assert [block.estimated for block in strategy.blocks] == [2**12, 2**5, 2, 1]
    whole = estimate.answer(Product(dict.fromkeys(names, Identity(2)))).reshape((2,) * 12)
    some = estimate.answer(Product({names[3]: Identity(2), names[7]: Identity(2)}))
    others = tuple(j for j in range(12) if j not in (3, 7))
    assert some == pytest.approx(whole.sum(axis=others).ravel())


def test_explicit_residual_rows() -> None:
    """Residual rows that do not come from the identity carry their own null vector."""
    rng = np.random.default_rng(3)
    B = np.rint(1000 * np.linalg.qr(rng.normal(size=(4, 4)))[0][:3]).astype(np.int64)
    blocks = (
        ProductBlock((), frozenset(), Fraction(1, 3)),
        ProductBlock(("b",), frozenset({"b"}), Fraction(2, 3)),
    )
    strategy = ProductStrategy({"b": 4}, {}, {"b": B}, blocks, "gaussian", "test")
    rows = [np.ones((1, 4)), B.astype(float)]
    x = np.array([5, 1, 7, 2])
    values = [(R @ x).astype(np.int64) for R in rows]
    estimate = strategy.solve(values, strategy.forecast([2.0, 3e6]))
    assert estimate.answer(Product({"b": Identity(4)})) == pytest.approx(x, abs=1e-9)
    information = rows[0].T @ rows[0] / 2 + rows[1].T @ rows[1] / 3e6
    cov = Prefix(4).dense() @ np.linalg.inv(information) @ Prefix(4).dense().T
    got = estimate.forecast.variance(Product({"b": Prefix(4)}))
    assert got == pytest.approx(cov.diagonal(), rel=1e-9)


def test_rows_that_do_not_answer_the_total() -> None:
    """A strategy may measure only what is asked: the total is then not supported."""
    Q = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0]])
    strategy = ProductStrategy(
        {"c": 2, "d": 5},
        {"c": None, "d": Q},
        {},
        (ProductBlock(("c", "d"), frozenset(), Fraction(1)),),
        "laplace",
        "test",
    )
    y = np.arange(4)
    estimate = strategy.solve([y], strategy.forecast([2.0]))
    product = Product({"c": Identity(2), "d": Dense(Q)})
    assert estimate.answer(product) == pytest.approx(y)
    assert estimate.forecast.variance(product) == pytest.approx([2.0] * 4)
    assert estimate.answer(Product({"d": Dense(Q)})) == pytest.approx([2, 4])
    for bad in (Product({"c": Identity(2)}), Product({"d": Identity(5)}), Product({})):
        assert not estimate.forecast.supports(bad)
        with pytest.raises(ProgrammingError, match="does not measure enough"):
            estimate.answer(bad)


def test_values_beyond_doubles() -> None:
    """Python integers of any size are converted once, correctly rounded."""
    blocks = (ProductBlock(("c",), frozenset(), Fraction(1)),)
    strategy = ProductStrategy({"c": 2}, {"c": None}, {}, blocks, "laplace", "test")
    values = np.array([2**70 + 1, -(2**65)], dtype=object)
    estimate = strategy.solve([values], strategy.forecast([1.0]))
    assert estimate.answer(Product({"c": Identity(2)})) == pytest.approx([2.0**70, -(2.0**65)])


@pytest.mark.parametrize("grid", [1 << 24, 1])
def test_many_single_rows(grid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch methods agree with one product at a time, whichever way they are computed."""
    monkeypatch.setattr("dpsql.strategy.product_solve.GRID_LIMIT", grid)
    rng = np.random.default_rng(1)
    strategy = strategy_of(["FFFF", "TFTF", "TTTT"], "laplace", rng)
    variances = [3.0, 2.0, 5.0]
    values = [rng.integers(-9, 99, block.rows).astype(np.int64) for block in strategy.blocks]
    estimate = strategy.solve(values, strategy.forecast(variances))
    products = [
        Product(
            {n: Dense(rng.integers(0, 2, (1, DOMAIN[n]))) for n in DOMAIN if rng.random() < 0.6}
        )
        for _ in range(300)
    ] + [Product({"a": Identity(3)})]
    answers, spreads = estimate.answers(products), estimate.forecast.variances(products)
    for product, answer, spread in zip(products, answers, spreads, strict=True):
        assert answer == pytest.approx(estimate.answer(product), abs=1e-9)
        assert spread == pytest.approx(estimate.forecast.variance(product), rel=1e-12)


def test_unmeasured_attribute() -> None:
    blocks = (ProductBlock(("c",), frozenset(), Fraction(1)),)
    strategy = ProductStrategy({"c": 2, "d": 5}, {"c": None}, {}, blocks, "laplace", "test")
    forecast = strategy.forecast([2.0])
    assert not forecast.supports(Product({"d": Identity(5)}))
    assert forecast.supports(Product({"d": dense([[0, 0, 0, 0, 0]])}))
    with pytest.raises(ProgrammingError):
        forecast.variances([Product({"d": dense([[1, 0, 0, 0, 0]])})])
