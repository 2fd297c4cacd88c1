"""Hierarchies of intervals against dense algebra: rows, constants, least squares, the door."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import (
    AllRange,
    Columns,
    Dense,
    Identity,
    IdentityTotal,
    Prefix,
    Ranges,
    Weighted,
    WidthRanges,
)
from dpsql.algebra.decayed_sums import Fading
from dpsql.algebra.groups import Groups
from dpsql.algebra.integer_rows import KronRows
from dpsql.algebra.levels import Levels, Structured
from dpsql.algebra.operator import Operator
from dpsql.answer.codec import Release, decode, encode
from dpsql.errors import InternalError
from dpsql.plan.plan import Part, Plan
from dpsql.privacy.doors import measure as measure_module
from dpsql.privacy.doors.exact_products import apply_rows, apply_rows_unbounded, checked
from dpsql.privacy.doors.measure import check_cost, measure
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy, assemble
from dpsql.strategy.structured import structured_axis
from dpsql.strategy.tree_axis import TreeAxis
from dpsql.workload.cells import cells_of
from dpsql.workload.workload import Product, Workload
from tests.audit.door import Door
from tests.support.seam import zero_noise

TREES = [
    Levels(13, (1, 3, 6, 13), (2, 3, 1, 5)),
    Levels(12, (2, 6, 12), (3, 1, 4)),
    Levels(7, (7,), (3,)),
    Levels(30, (3, 30), (2, 5)),
    Levels(9, (1, 2, 4, 8, 9), (1, 1, 1, 1, 1)),
    Levels(1, (1,), (4,)),
]
FADING = [
    Fading(12, (0, 1, 2, 4, 8), (64, 32, 24, 18, 12)),
    Fading(9, (0,), (3,)),
    Fading(7, (0, 1, 2, 3, 4, 5, 6), (9, 4, 7, 1, 1, 2, 5)),
    Fading(1, (0,), (2,)),
]
ALL: list[Structured] = [*TREES, *FADING]
NOISES: tuple[Noise, ...] = ("laplace", "gaussian")
OTHERS = 3


def operators(n: int) -> list[Operator]:
    random = np.random.default_rng(n)
    ends = np.sort(random.integers(0, n + 1, (2, 6)), axis=0)
    return [
        Identity(n),
        IdentityTotal(n),
        Prefix(n),
        AllRange(n),
        WidthRanges(n, min(3, n)),
        Ranges(n, ends[0], ends[1]),
        Ranges(n, np.array([0, n, 0]), np.array([n, n, 0])),
        Dense(random.normal(size=(6, n))),
        Groups(random.integers(-1, 3, n), 3, random.normal(size=n)),
        Groups(np.sort(random.integers(0, 3, n)), 3),
        Groups(np.roll(np.sort(random.integers(-2, 3, n).clip(-1)), 1), 4),
        Columns(AllRange(n + 3), np.sort(random.permutation(n + 3)[:n])),
        Columns(Prefix(n), random.permutation(n)),
        Weighted(Prefix(n), 3),
    ]


@pytest.mark.parametrize("rows", ALL, ids=lambda rows: str(rows.key))
def test_constants_are_those_of_dense_algebra(rows: Structured) -> None:
    A = rows.dense().astype(float)
    K = np.linalg.inv(A.T @ A)
    tau = K.sum()
    u = K.sum(axis=1) / tau
    Kt = K - tau * np.outer(u, u)
    axis = structured_axis(rows)
    assert axis.u == pytest.approx(u)
    assert axis.total == pytest.approx(1 / tau)
    for one in operators(rows.size):
        Q = one.dense().astype(float)
        means, spread, answerable = axis.parts(one)
        assert answerable
        assert means == pytest.approx(Q @ u, abs=1e-9)
        assert spread == pytest.approx(np.einsum("ij,jk,ik->i", Q, Kt, Q), abs=1e-9)
        sums = axis.sums(one)
        assert sums == pytest.approx((np.square(Q @ u).sum(), np.trace(Q @ Kt @ Q.T)), abs=1e-9)
        for two in operators(rows.size):
            if one.rows == two.rows:
                P = two.dense().astype(float)
                means, spread = axis.cross(one, two)
                assert means == pytest.approx((Q @ u) * (P @ u), abs=1e-9)
                assert spread == pytest.approx(np.einsum("ij,jk,ik->i", Q, Kt, P), abs=1e-9)
        means, spread = axis.cross(None, one)
        assert means == pytest.approx(Q @ u, abs=1e-9)
        assert not spread.any()


@pytest.mark.parametrize("rows", ALL, ids=lambda rows: str(rows.key))
def test_solutions_are_least_squares(rows: Structured) -> None:
    random = np.random.default_rng(1)
    A = rows.dense().astype(float)
    noisy = random.normal(size=(2, rows.rows, 3))
    cells = np.einsum("ij,ajb->aib", np.linalg.pinv(A), noisy)
    sums = cells.sum(axis=1, keepdims=True)
    axis = structured_axis(rows)
    found = axis.solve(noisy, 1)
    assert found[:, :1] == pytest.approx(sums)
    assert found[:, 1:] == pytest.approx(cells - axis.u[:, np.newaxis] * sums, abs=1e-9)


@pytest.mark.parametrize("rows", ALL, ids=lambda rows: str(rows.key))
def test_rows_are_exact_integers(rows: Structured) -> None:
    random = np.random.default_rng(2)
    A = rows.dense()
    counts = random.integers(0, 2**31, (2, rows.size, 2))
    exact = np.einsum("ij,ajb->aib", A.astype(object), counts.astype(object))
    assert (rows.apply(counts, 1) == exact).all()
    assert rows.apply(counts.astype(object), 1).tolist() == exact.tolist()
    kron = KronRows((None, rows, None), counts.shape)
    assert checked(kron) == kron
    assert kron.count == exact.size
    assert apply_rows(kron, counts).tolist() == exact.ravel().tolist()
    assert apply_rows_unbounded(kron, counts).tolist() == exact.ravel().tolist()
    huge = np.full((1, rows.size, 1), 2**62)
    wide = apply_rows_unbounded(KronRows((None, rows, None), huge.shape), huge)
    assert wide.tolist() == (A.astype(object) @ huge[0].astype(object)).ravel().tolist()
    Y = random.integers(0, 9, (rows.rows, 3))
    assert (rows.rmatmat(Y) == A.T @ Y).all()
    assert rows.column_l1().tolist() == A.sum(axis=0).tolist()
    assert rows.column_l2sq().tolist() == np.square(A).sum(axis=0).tolist()


BROKEN: list[tuple[Any, ...]] = [
    (3, (1, 4), (1, 1)),
    (3, (0, 3), (1, 1)),
    (3, (1, 3), (1, 0)),
    (3, (1, 3), (1,)),
    (3, (), ()),
    (3, (1, 3), (1, 1.0)),
    (3, (1, 3), (1, True)),
    (3, (1, 3), (1, 2**21)),
]


@pytest.mark.parametrize("facts", BROKEN, ids=str)
def test_a_broken_hierarchy_is_refused_wherever_it_comes_from(facts: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError):
        Levels(*facts)
    forged = Levels(3, (1, 3), (1, 1))
    for name, value in zip(("size", "counts", "weights"), facts, strict=True):
        object.__setattr__(forged, name, value)
    with pytest.raises(InternalError):
        checked(KronRows((forged,), (3,)))


@pytest.mark.parametrize(
    "facts",
    [
        (3, (), ()),
        (3, (1,), (2,)),
        (3, (0, 2, 1), (1, 1, 1)),
        (3, (0, 3), (2, 1)),
        (3, (0, 1), (2, 0)),
        (3, (0, 1), (2, 1.5)),
        (3, (0, 1), (2**21, 1)),
    ],
    ids=str,
)
def test_broken_fading_sums_are_refused_wherever_they_come_from(facts: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError):
        Fading(*facts)
    forged = Fading(3, (0, 1), (2, 1))
    for name, value in zip(("size", "starts", "heights"), facts, strict=True):
        object.__setattr__(forged, name, value)
    with pytest.raises(InternalError):
        checked(KronRows((forged,), (3,)))


def test_the_membrane_multiplies_by_what_it_has_made_itself() -> None:
    counts = np.array([5, 7, 9])
    forged = Levels(3, (1, 3), (1, 1))
    object.__setattr__(forged, "apply_slabs", lambda slabs: slabs * 0)
    object.__setattr__(forged, "norm", lambda power: 0)
    rows = checked(KronRows((forged,), (3,)))
    assert apply_rows(rows, counts).tolist() == [21, 5, 7, 9]
    assert isinstance(rows, KronRows)
    assert measure_module._norm(rows, "laplace") == 2


class Sly(Levels):
    """A hierarchy that could multiply counts in a way of its own."""


def test_the_membrane_takes_hierarchies_of_the_right_size_alone() -> None:
    for rows, size in ((Sly(3, (1, 3), (1, 1)), 3), (Levels(3, (1, 3), (1, 1)), 4)):
        with pytest.raises(InternalError):
            checked(KronRows((rows,), (size,)))
    with pytest.raises(ValueError, match="the last level"):
        TreeAxis(Levels(4, (1, 2), (1, 1)))
    with pytest.raises(ValueError, match="every level"):
        TreeAxis(Levels(6, (2, 3, 6), (1, 1, 1)))


def strategy_of(rows: Structured, noise: Noise) -> ProductStrategy:
    domain = {"a": rows.size, "b": OTHERS}
    weights = {("a",): 0.5, ("b",): 0.2, ("a", "b"): 0.3}
    return assemble(domain, {"a": rows}, weights, noise, "tree")


def plan_of(strategy: ProductStrategy) -> Plan:
    resolutions = {name: cells_of(name, np.arange(n)) for name, n in strategy.domain.items()}
    part = Part("t", strategy, resolutions, Fraction(1, 2), 2)
    rho = Fraction(1, 2) if strategy.noise == "gaussian" else None
    epsilon = Fraction(1, 2) if rho is None else Fraction(1)
    return Plan((part,), strategy.noise, epsilon, Fraction(1, 10**9), rho)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rows", [*TREES[:2], FADING[0]], ids=lambda rows: str(rows.key))
def test_a_product_with_structured_rows_goes_the_whole_way(rows: Structured, noise: Noise) -> None:
    strategy, random = strategy_of(rows, noise), np.random.default_rng(3)
    plan = plan_of(strategy)
    (part,) = plan.parts
    counts = random.integers(0, 1000, (rows.size, OTHERS))
    door = Door(plan, counts)
    with zero_noise():
        (exact,) = measure(plan, door.receipt(), door)
    A = rows.dense()
    assert exact.values[0].tolist() == (A @ counts.sum(axis=1)).tolist()
    assert exact.values[2].tolist() == (A @ counts).ravel().tolist()
    (noisy,) = measure(plan, door.receipt(), door)

    ones, eye = np.ones((1, OTHERS)), np.eye(OTHERS)
    blocks = [np.kron(A, ones), np.kron(np.ones((1, rows.size)), eye), np.kron(A, eye)]
    spread = np.concatenate(
        [np.full(len(b), v) for b, v in zip(blocks, part.forecast.noise, strict=True)]
    )
    B = np.concatenate(blocks) / np.sqrt(spread)[:, np.newaxis]
    K = np.linalg.inv(B.T @ B)
    y = np.concatenate(noisy.values) / np.sqrt(spread)
    estimate = part.estimate(noisy.values)
    asked = [
        Product({"a": Prefix(rows.size)}),
        Product({"a": AllRange(rows.size), "b": Identity(OTHERS)}),
        Product({"b": Prefix(OTHERS)}),
        Product({}),
    ]
    for product in asked:
        Q = np.kron(
            product.factors["a"].dense() if "a" in product.factors else np.ones((1, rows.size)),
            product.factors["b"].dense() if "b" in product.factors else ones,
        )
        variances = np.einsum("ij,jk,ik->i", Q, K, Q)
        assert part.forecast.variance(product) == pytest.approx(variances)
        assert part.forecast.total(product) == pytest.approx(variances.sum())
        assert estimate.answer(product) == pytest.approx(Q @ (K @ (B.T @ y)))
        assert not part.forecast.is_whole(product)

    again = decode(encode(Release(plan, (noisy.values,), "ledger", 1, "head")))
    assert again.plan.fingerprint == plan.fingerprint
    assert again.plan.parts[0].strategy == strategy


@pytest.mark.parametrize("noise", NOISES)
def test_sensitivities_are_those_of_every_cell(noise: Noise) -> None:
    power = 1 if noise == "laplace" else 2
    for rows in ALL:
        strategy = strategy_of(rows, noise)
        plan = plan_of(strategy)
        for block in strategy.blocks:
            shape = [strategy.domain[name] for name in block.attributes]
            norms = []
            for cell in np.ndindex(*shape):
                unit = np.zeros(shape, dtype=np.int64)
                unit[cell] = 1
                norms.append(int((np.abs(apply_rows(block.integer_rows, unit)) ** power).sum()))
            assert strategy.sensitivity(block) == max(norms)
            assert measure_module._sensitivity(plan.parts[0], block) == 2**power * max(norms)
        check_cost(plan, Door(plan, np.zeros((rows.size, OTHERS), dtype=np.int64)).receipt())


def heavier(rows: Levels) -> Levels:
    """The same rows with one weight larger."""
    return Levels(rows.size, rows.counts, (*rows.weights[:-1], rows.weights[-1] + 1))


def twice(rows: Levels) -> Levels:
    """The same rows with the first level counted twice."""
    return Levels(rows.size, (rows.counts[0], *rows.counts), (rows.weights[0], *rows.weights))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("change", [heavier, twice])
def test_rows_that_cost_more_than_what_was_planned_are_not_measured(
    noise: Noise, change: Any
) -> None:
    class Modest(ProductStrategy):
        """One that pays for the rows it was planned with, and measures others."""

        def _norm(self, name: str, is_residual: bool) -> int:
            return int(TREES[0].norm(1 if noise == "laplace" else 2)) if name == "a" else 1

    honest = strategy_of(TREES[0], noise)
    full = {**honest.full, "a": change(TREES[0])}
    wrong = Modest(honest.domain, full, {}, honest.blocks, noise, "tree")
    plan = plan_of(wrong)
    door = Door(plan, np.zeros((13, OTHERS), dtype=np.int64))
    with pytest.raises(InternalError, match="costs more than was paid"):
        measure(plan, door.receipt(), door)
    part = replace(plan.parts[0], strategy=replace(honest, full=full))
    sound = replace(plan, parts=(part,))
    door = Door(sound, np.zeros((13, OTHERS), dtype=np.int64))
    (measured,) = measure(sound, door.receipt(), door)
    assert len(measured.values) == 3


@pytest.mark.parametrize("noise", NOISES)
def test_simulated_errors_are_those_of_the_forecast(noise: Noise) -> None:
    rows = Levels(40, (1, 5, 40), (300, 500, 700))
    strategy = assemble({"a": 40}, {"a": rows}, {("a",): 1.0}, noise, "tree")
    plan = plan_of(strategy)
    (part,) = plan.parts
    counts = np.arange(40) * 7
    door = Door(plan, counts)
    workload = Workload({"a": 40}, [{"a": "prefix"}, {"a": "allrange"}])
    seen: list[list[NDArray[Any]]] = [[], []]
    for _ in range(1000):
        (measured,) = measure(plan, door.receipt(), door)
        estimate = part.estimate(measured.values)
        for product, errors in zip(workload.products, seen, strict=True):
            errors.append(
                estimate.answer(product) - product.factors["a"].matmat(counts[:, None])[:, 0]
            )
    for product, errors in zip(workload.products, seen, strict=True):
        expected = part.forecast.variance(product)
        found = np.square(np.array(errors)).mean(axis=0)
        # Means of 1,000 squares, and over answers that are not independent: below 5 sigma.
        assert float((found / expected).mean()) == pytest.approx(1, abs=0.35)
        assert float(found.sum()) == pytest.approx(part.forecast.total(product), rel=0.35)
