"""Queries that are measured themselves: sensitivity, least squares and storage."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity, Total
from dpsql.errors import ProgrammingError
from dpsql.search.workload_rows import measure_queries
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.queries import QueriesStrategy
from dpsql.strategy.queries_forecast import QueriesForecast
from dpsql.strategy.query_block import QueryBlock
from dpsql.strategy.registry import decode_strategy
from dpsql.strategy.woodbury import LargeQueriesForecast
from dpsql.workload.workload import Product, Workload

DOMAIN = {"a": 3, "b": 4, "c": 2}
NOISES: tuple[Noise, ...] = ("laplace", "gaussian")


def random_workload(rng: np.random.Generator, count: int) -> Workload:
    products = []
    for _ in range(count):
        factors: dict[str, object] = {}
        for name, n in DOMAIN.items():
            shape = rng.random()
            if shape < 0.3:
                factors[name] = "identity"
            elif shape < 0.7:
                rows = rng.integers(-1, 3, (int(rng.integers(1, 3)), n))
                rows[:, 0] += 1 - np.abs(rows).sum(axis=1).clip(0, 1)
                factors[name] = rows
        products.append((factors, float(rng.choice([0.5, 1.0, 3.0]))))
    return Workload(DOMAIN, products)


def dense(factors: dict[str, NDArray[np.int64] | None] | Product) -> NDArray[np.float64]:
    if isinstance(factors, Product):
        parts = [(factors.factors.get(n) or Total(s)).dense() for n, s in DOMAIN.items()]
    else:
        parts = []
        for name, n in DOMAIN.items():
            rows = factors.get(name, np.ones((1, n)))
            parts.append(np.eye(n) if rows is None else rows)
    return np.asarray(reduce(np.kron, parts), dtype=np.float64)


def strategy_of(workload: Workload, noise: Noise) -> QueriesStrategy:
    found = measure_queries(workload, noise)
    assert found is not None
    return found


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", range(8))
def test_all_blocks_together_cost_what_is_given(seed: int, noise: Noise) -> None:
    strategy = strategy_of(random_workload(np.random.default_rng(seed), 5), noise)
    multipliers = [1 + i % 3 for i in range(len(strategy.blocks))]
    amount = Fraction(1, 3)
    scales = strategy.scales(amount, 1, multipliers)
    power = 1 if noise == "laplace" else 2
    cost = sum(
        m * (np.abs(dense(b.factors)) ** power).sum(axis=0) / (power * float(scale))
        for m, b, scale in zip(multipliers, strategy.blocks, scales, strict=True)
    )
    assert float(np.max(cost)) <= float(amount) * (1 + 1e-12)
    assert float(np.max(cost)) >= float(amount) * (1 - 1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_least_squares_is_that_of_dense_algebra(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    workload = random_workload(rng, 6)
    strategy = strategy_of(workload, "gaussian")
    variances = rng.uniform(0.5, 4, len(strategy.blocks)).tolist()
    rows = [dense(block.factors) for block in strategy.blocks]
    scaled = np.concatenate([r / v**0.5 for r, v in zip(rows, variances, strict=True)])
    noisy = [rng.normal(size=len(r)) for r in rows]
    measured = np.concatenate([y / v**0.5 for y, v in zip(noisy, variances, strict=True)])
    inverse = np.linalg.pinv(scaled)
    estimate = strategy.solve(noisy, strategy.forecast(variances))
    forecast = estimate.forecast
    for product in workload.products:
        Q = dense(product)
        assert forecast.supports(product)
        assert estimate.answer(product) == pytest.approx(Q @ inverse @ measured, abs=1e-8)
        spread = np.square(Q @ inverse).sum(axis=1)
        assert forecast.variance(product) == pytest.approx(spread, abs=1e-9)
        assert forecast.total(product) == pytest.approx(spread.sum())
    total = Product({})
    wide = workload.products[0]
    both = (dense(wide) @ inverse) @ (dense(total) @ inverse)[0]
    if forecast.supports(total):
        assert forecast.covariance(wide, total) == pytest.approx(both, abs=1e-9)
    picked = rng.integers(0, wide.rows, 5)
    places = np.unravel_index(picked, [f.rows for f in wide.factors.values()] or [1])
    pairs = Product(
        {
            name: Dense(factor.dense()[place])
            for (name, factor), place in zip(wide.factors.items(), places, strict=False)
        }
    )
    if wide.factors:
        expected = np.square(dense(wide) @ inverse).sum(axis=1)[picked]
        assert forecast.paired(pairs, pairs) == pytest.approx(expected, abs=1e-9)


def test_what_is_not_measured_is_refused() -> None:
    workload = Workload(DOMAIN, [{"a": [[1, 0, 0]], "b": [[1, 1, 0, 0]]}, {"c": "identity"}])
    forecast = strategy_of(workload, "laplace").forecast([1.0, 1.0])
    assert forecast.supports(Product({}))
    with pytest.raises(ProgrammingError, match="does not measure enough"):
        forecast.variance(Product({"a": Dense(np.array([[1, 0, 0]]))}))


@pytest.mark.parametrize("noise", NOISES)
def test_a_strategy_is_read_back_as_it_was(noise: Noise) -> None:
    strategy = strategy_of(random_workload(np.random.default_rng(5), 4), noise)
    arrays: dict[str, NDArray[np.int64]] = {}

    def keep(rows: NDArray[np.int64]) -> str:
        arrays[f"x{len(arrays)}"] = rows
        return f"x{len(arrays) - 1}"

    again = decode_strategy(strategy.encode(keep), arrays)
    assert again.fingerprint() == strategy.fingerprint()
    assert again.scales(Fraction(1)) == strategy.scales(Fraction(1))


def test_equal_queries_are_measured_once_and_what_has_no_common_part_not_at_all() -> None:
    twice = Workload(DOMAIN, [{"a": "identity"}, ({"a": "identity"}, 2.0), {"b": [[1, 2, 0, 2]]}])
    blocks = strategy_of(twice, "laplace").blocks
    assert [block.attributes for block in blocks] == [("a",), ("b",)]
    assert blocks[0].weight == 3 * blocks[1].weight
    assert measure_queries(Workload(DOMAIN, [{"b": [[0.1, 1, 2**0.5, 1]]}]), "laplace") is None


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    "row", [[0.1, 1, -0.3, 0], [9.99, 19.98, 29.97, 9.99], [2.0**40, 0, 1e13, 1]]
)
def test_rows_of_multiples_of_a_fraction_have_plain_noise(noise: Noise, row: list[float]) -> None:
    """Rounded numbers are measured as the whole ones that they are multiples of, or not at all."""
    workload = Workload(DOMAIN, [{"b": [row]}])
    found = measure_queries(workload, noise)
    if max(row) > 2.0**24:
        assert found is None
        return
    assert found is not None
    largest = max(map(abs, row))
    assert found.unit_error(workload) == pytest.approx(largest**2, rel=1e-12)


def test_malformed_blocks_are_refused() -> None:
    rows = np.ones((1, 3), dtype=np.int64)
    for wrong in (
        QueryBlock(("a",), (3,), (rows,), 0),
        QueryBlock(("a",), (4,), (rows,), 1),
        QueryBlock(("a",), (3,), (rows,), 1, Fraction(1, 2)),
        QueryBlock(("b", "a"), (4, 3), (None, rows), 1),
    ):
        with pytest.raises(ValueError, match=r"weights|integers|order"):
            QueriesStrategy(DOMAIN, (wrong,), "laplace")


@pytest.mark.parametrize("seed", range(12))
def test_a_large_block_is_eliminated_without_a_difference(seed: int) -> None:
    """Least squares with one block eliminated is that of all rows, where these depend too."""
    rng = np.random.default_rng(200 + seed)
    workload = random_workload(rng, 7)
    own = Dense(np.eye(4, dtype=np.int64)[: 2 + seed % 3] + (seed % 2))
    large = Product({"a": Identity(3), "b": own, "c": Identity(2)})
    workload = Workload(DOMAIN, [*workload.products, Product({"a": Identity(3)}), large])
    strategy = strategy_of(workload, "gaussian")
    variances = rng.uniform(0.5, 4, len(strategy.blocks)).tolist()
    noisy = [rng.normal(size=block.rows) for block in strategy.blocks]
    plain = QueriesForecast(DOMAIN, strategy.blocks, variances)
    found = LargeQueriesForecast(DOMAIN, strategy.blocks, variances)
    measured = np.concatenate([y / v**0.5 for y, v in zip(noisy, variances, strict=True)])
    for product in (*workload.products, Product({})):
        assert found.supports(product) == plain.supports(product)
        if not plain.supports(product):
            continue
        assert found.variance(product) == pytest.approx(plain.variance(product), abs=1e-8)
        assert found.read(product, measured) == pytest.approx(
            plain.read(product, measured), abs=1e-6
        )
        for other in (product, large, Product({})):
            same = all(
                product.factors[n].rows == other.factors[n].rows
                for n in product.factors.keys() & other.factors.keys()
            )
            if same and plain.supports(other):
                expected = plain.covariance(product, other)
                assert found.covariance(product, other) == pytest.approx(expected, abs=1e-8)
    pairs = Product({"a": Dense(np.eye(3, dtype=np.int64)[[0, 2, 1, 1]])})
    assert found.paired(pairs, pairs) == pytest.approx(plain.paired(pairs, pairs), abs=1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_a_large_block_may_be_alone(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    names = [name for name in DOMAIN if rng.random() < 0.7] or ["b"]
    large = Product({name: Dense(np.tril(np.ones((DOMAIN[name],) * 2))) for name in names})
    strategy = strategy_of(Workload(DOMAIN, [large]), "laplace")
    variances = rng.uniform(0.5, 4, 1).tolist()
    plain = QueriesForecast(DOMAIN, strategy.blocks, variances)
    found = LargeQueriesForecast(DOMAIN, strategy.blocks, variances)
    measured = rng.normal(size=large.rows)
    asked = [{n: f for n, f in large.factors.items() if rng.random() < 0.5} for _ in range(4)]
    for product in (large, Product({}), Product({"c": Identity(2)}), *map(Product, asked)):
        assert found.supports(product) == plain.supports(product)
        if plain.supports(product):
            assert found.variance(product) == pytest.approx(plain.variance(product))
            assert found.read(product, measured) == pytest.approx(plain.read(product, measured))
            expected = plain.covariance(product, Product({}))
            assert found.covariance(product, Product({})) == pytest.approx(expected)


def test_a_large_block_of_dependent_rows_is_refused() -> None:
    twice = np.array([[1, 0, 0], [1, 0, 0]])
    block = QueryBlock(("a",), (3,), (twice,), 1)
    with pytest.raises(ValueError, match="independent"):
        LargeQueriesForecast(DOMAIN, (block,), [1.0]).variance(Product({"a": Dense(twice)}))


def test_many_rows_are_measured_themselves_where_most_are_of_one_block() -> None:
    domain = {"a": 60, "b": 40, "c": 2}
    groups = {"a": "identity", "b": "identity"}
    few = {"a": [[1] * 30 + [0] * 30], "c": [[1, 0]]}
    strategy = measure_queries(Workload(domain, [groups, few, {"b": "identity"}]), "laplace")
    assert strategy is not None
    forecast = strategy.forecast(strategy.unit_variances())
    assert isinstance(forecast, LargeQueriesForecast)
    assert measure_queries(Workload(domain, [groups, {**groups, "c": [[1, 0]]}]), "laplace") is None


def test_short_queries_count_beside_long_ones_and_empty_ones_are_zero() -> None:
    # of 1e12 cells one is 1e-12 of all of them: it was taken for a sum of others
    sizes = {"a": 100, "b": 100, "c": 100, "d": 10_000}
    first = {n: np.eye(1, size, dtype=np.int64) for n, size in sizes.items()}
    asked: list[dict[str, NDArray[np.int64]]] = [{}, {}, first]
    asked += [{"a": np.zeros((1, 100), dtype=np.int64)}, {"d": np.eye(2, 10_000, dtype=np.int64)}]
    workload = Workload(sizes, [{n: Dense(m) for n, m in each.items()} for each in asked])
    strategy = strategy_of(workload, "laplace")
    forecast = strategy.forecast(strategy.unit_variances())
    noise = strategy.unit_variances()
    found = forecast.variances(workload.products)
    measured = [noise[0], noise[0], noise[1], 0.0]  # the total, asked twice, is measured once
    assert [len(each) for each in found] == [1, 1, 1, 1, 2]
    assert [each[0] for each in found[:4]] == pytest.approx(measured, rel=1e-6)
    assert found[4] == pytest.approx([noise[3], noise[3]], rel=1e-6)


def test_coefficients_are_the_shortest_where_rows_depend_on_each_other() -> None:
    rows = np.array([[1, 1, 1], [1, 0, 0], [0, 1, 1], [0, 0, 5]])
    blocks = tuple(
        QueryBlock(("a",), (3,), (row[np.newaxis],), 1 + j) for j, row in enumerate(rows)
    )
    noise = [1.0, 3.0, 7.0, 1e6]
    forecast = QueriesForecast({"a": 3}, blocks, noise)
    scaled = rows / np.sqrt(noise)[:, np.newaxis]
    expected = np.square(np.linalg.pinv(scaled.T) @ rows.T).sum(axis=0)
    for row, variance in zip(rows, expected, strict=True):
        product = Product({"a": Dense(row[np.newaxis])})
        assert forecast.variance(product)[0] == pytest.approx(variance, rel=1e-9)


def test_columns_that_nothing_measured_mentions_take_no_work() -> None:
    """Before: a catalog of forty columns took inner products of all rows on each of them."""
    products = [{"a": "identity", "b": "identity"}, {"a": "prefix"}, {"b": "prefix"}]
    sizes = {"a": 5, "b": 4}
    found = []
    for domain in (sizes, {**sizes, **{f"c{i}": 3 for i in range(40)}}):
        workload = Workload(domain, products)
        strategy = strategy_of(workload, "laplace")
        forecast = LargeQueriesForecast(domain, strategy.blocks, strategy.unit_variances())
        assert forecast.used == ["a", "b"]
        for ours in forecast._ours:
            for name in domain.keys() - sizes:
                del ours[name]  # type: ignore[attr-defined]
        found.append([forecast.variance(product) for product in workload.products])
    for one, other in zip(*found, strict=True):
        assert np.allclose(one, other, rtol=1e-7)
