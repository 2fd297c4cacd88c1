"""Blocks with matrices of their own: sensitivity, least squares, what is released, and storage."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Total
from dpsql.algebra.operator import Floats
from dpsql.errors import InternalError, ProgrammingError
from dpsql.plan.plan import Part, Plan
from dpsql.privacy.doors.measure import measure
from dpsql.strategy import consistent_tables
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.registry import decode_strategy
from dpsql.strategy.separate import SeparateBlock, SeparateStrategy
from dpsql.strategy.separate_forecast import SeparateEstimate, SeparateForecast
from dpsql.workload.cells import cells_of
from dpsql.workload.workload import Product, Workload
from tests.audit.door import Door
from tests.support.seam import zero_noise

DOMAIN = {"a": 3, "b": 4, "c": 2}
NOISES: tuple[Noise, ...] = ("laplace", "gaussian")
Rows = NDArray[np.int64]


def rows_of(rng: np.random.Generator, n: int, merged: bool) -> Rows | None:
    """Random rows that tell all cells apart, or only some classes of them."""
    if rng.random() < 0.3 and not merged:
        return None
    labels = rng.integers(0, 2, n) if merged else np.arange(n)
    labels = np.unique(labels, return_inverse=True)[1]
    count = int(labels.max()) + 1
    extra = rng.integers(-1, 3, (2, count))
    return np.ascontiguousarray(
        np.concatenate([3 * np.eye(count, dtype=np.int64), extra])[:, labels]
    )


def random_strategy(seed: int, noise: Noise = "laplace", merged: float = 0.0) -> SeparateStrategy:
    rng = np.random.default_rng(seed)
    blocks = []
    count = int(rng.integers(2, 6))
    for _ in range(count):
        names = tuple(name for name in DOMAIN if rng.random() < 0.6)
        matrices = tuple(rows_of(rng, DOMAIN[n], rng.random() < merged) for n in names)
        sizes = tuple(DOMAIN[name] for name in names)
        blocks.append(SeparateBlock(names, sizes, matrices, Fraction(1, count)))
    return SeparateStrategy(DOMAIN, tuple(blocks), noise)


def dense(factors: dict[str, Rows | None] | Product) -> NDArray[np.float64]:
    if isinstance(factors, Product):
        parts = [(factors.factors.get(n) or Total(s)).dense() for n, s in DOMAIN.items()]
    else:
        parts = []
        for name, n in DOMAIN.items():
            rows = factors.get(name, np.ones((1, n)))
            parts.append(np.eye(n) if rows is None else rows)
    return np.asarray(reduce(np.kron, parts), dtype=np.float64)


def asked(seed: int, strategy: SeparateStrategy) -> list[Product]:
    """Random products that the strategy answers, the total first."""
    rng = np.random.default_rng(1000 + seed)
    found: list[dict[str, object]] = [{}]
    for block in strategy.blocks:
        for _ in range(3):
            chosen = [name for name in block.attributes if rng.random() < 0.8]
            found.append(
                {n: rng.integers(-1, 3, (int(rng.integers(1, 4)), DOMAIN[n])) for n in chosen}
            )
        own = {n: m for n, m in block.factors.items() if m is not None and m.any(axis=1).all()}
        found.append({str(n): m[:2] for n, m in own.items()})
    kept = [f for f in found if all(np.any(np.asarray(m), axis=1).all() for m in f.values())]
    products = Workload(DOMAIN, kept).products
    forecast = strategy.forecast([1.0] * len(strategy.blocks))
    return [product for product in products if forecast.supports(product)]


def units(strategy: SeparateStrategy, forecast: SeparateForecast) -> list[list[SeparateEstimate]]:
    """Estimates from one measured number of every block at a time."""
    sizes = [block.rows for block in strategy.blocks]
    out = []
    for b, size in enumerate(sizes):
        alone = []
        for k in range(size):
            values = [np.zeros(each) for each in sizes]
            values[b][k] = 1
            alone.append(forecast.solve(values))
        out.append(alone)
    return out


def coefficients(
    found: list[list[SeparateEstimate]], product: Product
) -> list[NDArray[np.float64]]:
    """What answers are of the measured numbers of every block."""
    return [np.stack([each.answer(product) for each in alone], axis=1) for alone in found]


@pytest.mark.parametrize("merged", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(10))
def test_least_squares_is_that_of_dense_algebra(seed: int, merged: float) -> None:
    rng = np.random.default_rng(seed)
    strategy = random_strategy(seed, merged=merged)
    variances = rng.uniform(0.5, 4, len(strategy.blocks)).tolist()
    rows = [dense(block.factors) for block in strategy.blocks]
    scaled = np.concatenate([r / v**0.5 for r, v in zip(rows, variances, strict=True)])
    noisy = [rng.normal(size=len(r)) for r in rows]
    measured = np.concatenate([y / v**0.5 for y, v in zip(noisy, variances, strict=True)])
    inverse = np.linalg.pinv(scaled)
    estimate = strategy.solve(noisy, strategy.forecast(variances))
    forecast = estimate.forecast
    products = asked(seed, strategy)
    total = products[0]
    for product in products:
        spread = dense(product) @ inverse
        assert estimate.answer(product) == pytest.approx(spread @ measured, abs=1e-8)
        assert forecast.variance(product) == pytest.approx(np.square(spread).sum(axis=1), abs=1e-9)
        assert forecast.total(product) == pytest.approx(np.square(spread).sum())
        both = spread @ (dense(total) @ inverse)[0]
        assert forecast.covariance(product, total) == pytest.approx(both, abs=1e-9)
        assert forecast.covariance(total, product) == pytest.approx(both, abs=1e-9)


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_errors_are_those_of_the_answers(
    seed: int, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr("dpsql.strategy.consistency_constraints.MOST_AGREED", 12)
    rng = np.random.default_rng(seed)
    strategy = random_strategy(seed, merged=0.5)
    variances = rng.uniform(0.5, 4, len(strategy.blocks)).tolist()
    forecast = strategy.forecast(variances)
    x = rng.integers(0, 50, 24)
    exact = strategy.solve([dense(b.factors) @ x for b in strategy.blocks], forecast)
    one_by_one = units(strategy, forecast)
    parts, error = np.zeros(len(strategy.blocks)), 0.0
    for product in asked(seed, strategy):
        found = coefficients(one_by_one, product)
        spread = [v * np.square(c).sum(axis=1) for c, v in zip(found, variances, strict=True)]
        assert exact.answer(product) == pytest.approx(dense(product) @ x, abs=1e-6)
        assert forecast.variance(product) == pytest.approx(sum(spread), abs=1e-9)
        assert forecast.total(product) == pytest.approx(float(np.sum(spread)))
        parts += [2.0 * each.sum() for each in spread]
        error += 2.0 * float(np.sum(spread))
        least = np.diag(dense(product) @ _covariance(strategy, variances) @ dense(product).T)
        assert (forecast.variance(product) >= least * (1 - 1e-9)).all()
    found_parts = forecast.parts([(p, 2.0) for p in asked(seed, strategy)])
    assert found_parts == pytest.approx(parts)
    assert found_parts.sum() == pytest.approx(error)


def _covariance(strategy: SeparateStrategy, variances: list[float]) -> NDArray[np.float64]:
    rows = [dense(block.factors) for block in strategy.blocks]
    information = sum(r.T @ r / v for r, v in zip(rows, variances, strict=True))
    return np.asarray(np.linalg.pinv(information, hermitian=True))


@pytest.mark.parametrize("seed", range(10))
def test_paired_rows_are_those_of_the_answers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    strategy = random_strategy(seed, merged=0.3)
    variances = rng.uniform(0.5, 4, len(strategy.blocks)).tolist()
    forecast = strategy.forecast(variances)
    one_by_one, pairs = units(strategy, forecast), []
    for block in strategy.blocks:
        rows = {n: rng.integers(1, 3, (4, DOMAIN[n])) for n in block.attributes if n != "b"}
        product = Product({n: Dense(m) for n, m in rows.items()})
        if forecast.supports(product) and rows:
            single = [Product({n: Dense(m[r : r + 1]) for n, m in rows.items()}) for r in range(4)]
            pairs.append((product, [coefficients(one_by_one, p) for p in single]))
    for left, ours in pairs:
        for right, theirs in pairs:
            expected = [
                sum(v * float((a * b).sum()) for v, a, b in zip(variances, one, two, strict=True))
                for one, two in zip(ours, theirs, strict=True)
            ]
            assert forecast.paired(left, right) == pytest.approx(expected, abs=1e-9)


def plan_of(strategy: SeparateStrategy) -> Plan:
    resolutions = {name: cells_of(name, np.arange(n)) for name, n in strategy.domain.items()}
    part = Part("t", strategy, resolutions, Fraction(1, 2), 1)
    rho = Fraction(1, 2) if strategy.noise == "gaussian" else None
    epsilon = Fraction(1, 2) if rho is None else Fraction(1)
    return Plan((part,), strategy.noise, epsilon, Fraction(1, 10**9), rho)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", range(4))
def test_blocks_are_measured_through_the_door(seed: int, noise: Noise) -> None:
    strategy = random_strategy(seed, noise, merged=0.4)
    plan = plan_of(strategy)
    counts = np.random.default_rng(seed).integers(0, 1000, (3, 4, 2))
    door = Door(plan, counts)
    power = 1 if noise == "laplace" else 2
    for block in strategy.blocks:
        columns = (np.abs(dense(block.factors)) ** power).sum(axis=0)
        assert strategy.sensitivity(block) == columns.max()
    with zero_noise():
        (exact,) = measure(plan, door.receipt(), door)
    for block, values in zip(strategy.blocks, exact.values, strict=True):
        assert values.tolist() == (dense(block.factors) @ counts.ravel()).astype(int).tolist()


def test_a_plan_that_understates_what_blocks_cost_is_refused() -> None:
    class Modest(SeparateStrategy):
        """One that forgets that some rows are larger."""

        def sensitivity(self, block: SeparateBlock) -> int:
            """Return too little."""
            return 1

    found = random_strategy(1)
    plan = plan_of(Modest(found.domain, found.blocks, found.noise))
    door = Door(plan, np.zeros((3, 4, 2), dtype=np.int64))
    with pytest.raises(InternalError, match="costs more than was paid"):
        measure(plan, door.receipt(), door)


def test_simulated_errors_are_those_forecast() -> None:
    strategy = random_strategy(3, "gaussian", merged=0.3)
    variances = strategy.unit_variances()
    forecast, rng = strategy.forecast(variances), np.random.default_rng(7)
    product = max(asked(3, strategy), key=lambda p: p.rows)
    one_by_one = units(strategy, forecast)
    found = coefficients(one_by_one, product)
    draws = [
        rng.normal(0, v**0.5, (20_000, c.shape[1])) for c, v in zip(found, variances, strict=True)
    ]
    answers = np.sum([d @ c.T for c, d in zip(found, draws, strict=True)], axis=0)
    # Of 20,000 draws the variance is off by 1 % of itself at most once in three times: 6 of these.
    assert answers.var(axis=0) == pytest.approx(forecast.variance(product), rel=0.06)


def test_more_than_fits_is_known_by_each_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = random_strategy(2)
    variances = [1.0 + k for k in range(len(strategy.blocks))]
    products = asked(2, strategy)
    whole = [strategy.forecast(variances).total(product) for product in products]
    monkeypatch.setattr("dpsql.strategy.consistency_constraints.MOST_AGREED", 6)
    strategy = random_strategy(2)  # tables of the very same rows are remembered
    forecast = strategy.forecast(variances)
    assert 0 < forecast.count <= 6
    one_by_one = units(strategy, forecast)
    for product, least in zip(products, whole, strict=True):
        found = coefficients(one_by_one, product)
        spread = [v * np.square(c).sum(axis=1) for c, v in zip(found, variances, strict=True)]
        assert forecast.variance(product) == pytest.approx(sum(spread), abs=1e-9)
        assert forecast.total(product) >= least * (1 - 1e-9)


def test_pieces_are_put_together_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = random_strategy(4)
    forecast = strategy.forecast([1.0] * len(strategy.blocks))
    product = max(asked(4, strategy), key=lambda p: p.rows)
    whole = forecast.variance(product)
    monkeypatch.setattr("dpsql.strategy.separate_forecast.CHUNK", 1)
    assert forecast.variance(product).tolist() == pytest.approx(whole.tolist())


def test_what_is_not_measured_is_refused() -> None:
    rows = np.array([[1, 1, 0], [0, 0, 1]])
    block = SeparateBlock(("a",), (3,), (rows,), Fraction(1, 2))
    total = SeparateBlock((), (), (), Fraction(1, 2))
    forecast = SeparateStrategy(DOMAIN, (block, total), "laplace").forecast([1.0, 1.0])
    assert isinstance(forecast, SeparateForecast)
    assert forecast.supports(Product({"a": Dense(np.array([[2, 2, 1]]))}))
    assert not forecast.supports(Product({"a": Dense(np.array([[1, 0, 1]]))}))
    with pytest.raises(ProgrammingError, match="does not measure enough"):
        forecast.variance(Product({"b": Dense(np.array([[1, 0, 0, 0]]))}))


@pytest.mark.parametrize("noise", NOISES)
def test_a_strategy_is_read_back_as_it_was(noise: Noise) -> None:
    strategy = random_strategy(6, noise, merged=0.4)
    arrays: dict[str, Rows] = {}

    def keep(rows: Rows) -> str:
        arrays[f"x{len(arrays)}"] = rows
        return f"x{len(arrays) - 1}"

    again = decode_strategy(strategy.encode(keep), arrays)
    assert again.fingerprint() == strategy.fingerprint()
    assert again.scales(Fraction(1)) == strategy.scales(Fraction(1))


@pytest.mark.parametrize(
    ("matrices", "shares"),
    [
        ((np.array([[1, 2, 3]]), np.array([[1, 1, 1]])), (1, 1)),
        ((np.array([[1, 1, 1]]), np.array([[1.0, 1.0, 1.0]])), (1, 1)),
        ((np.array([[1, 1, 1]]), np.array([[1, 1]])), (1, 1)),
        ((np.array([[1, 1, 1]]), np.array([[1, 1, 1]])), (1, 2)),
        ((np.array([[1, 1, 1]]),), (2,)),
    ],
)
def test_what_is_no_strategy_is_refused(
    matrices: tuple[Rows, ...], shares: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"columns|integers|shares|several"):
        SeparateStrategy(
            DOMAIN,
            tuple(
                SeparateBlock(("a",), (3,), (m,), Fraction(s, 2))
                for m, s in zip(matrices, shares, strict=True)
            ),
            "laplace",
        )


@pytest.mark.parametrize(
    ("rank", "is_regular", "taken"), [(6, True, 0), (6, False, 1), (4, True, 1), (4, False, 1)]
)
def test_only_conditions_that_follow_from_others_take_eigenvalues(
    rank: int, is_regular: bool, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning took eigenvalues even where none of them was zero."""
    asked: list[int] = []
    known = consistent_tables._by_eigenvalues

    def counted(scaled: Floats) -> Floats:
        asked.append(len(scaled))
        return known(scaled)

    monkeypatch.setattr(consistent_tables, "_by_eigenvalues", counted)
    rows = np.random.default_rng(rank).normal(size=(rank, 6))
    found = consistent_tables.pseudo_inverse(rows.T @ rows, is_regular)
    assert np.allclose(found, np.linalg.pinv(rows.T @ rows, hermitian=True), rtol=1e-8)
    assert len(asked) == taken
