"""The symmetry-reduced Gaussian optimum against dense algebra on small domains."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra.blocks import IdentityTotal, Total
from dpsql.errors import ProgrammingError
from dpsql.plan.coarsen import coarsen
from dpsql.plan.orbits import Orbits
from dpsql.plan.symmetric_forecast import SymmetricForecast, invert, unit_error
from dpsql.plan.symmetric_strategy import (
    CONSTANT,
    OrbitBlock,
    OrbitPart,
    SymmetricStrategy,
    squared_columns,
)
from dpsql.plan.templates import convex
from dpsql.plan.templates.invariant import optimise
from dpsql.plan.templates.reduction import Reduction, groups, orbits_of, reduce_group
from dpsql.plan.templates.symmetric import fits, symmetric_optimum
from dpsql.plan.workload import Product, Workload

BINS = [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]]
ONE = [[1, 0, 0, 0]]

UNIONS: dict[str, Workload] = {
    "mixed": Workload(
        {"a": 2, "b": 4, "c": 6},
        [
            ({"a": "identity", "b": ONE}, 2.0),
            {"b": "identity", "c": BINS},
            ({"c": "identity"}, 0.5),
            {},
        ],
    ),
    "prefix": Workload(
        {"a": 2, "b": 4, "c": 6},
        [{"b": "prefix", "c": BINS}, {"a": "identity", "c": "identity"}, {"b": "identity"}],
    ),
    "deficient": Workload({"b": 4, "c": 6}, [{"b": ONE, "c": BINS}, {"b": "identity"}]),
    "factored": Workload(
        {"a": 3, "b": 4, "c": 6},
        [
            {"a": IdentityTotal(3), "b": "identity"},
            {"a": IdentityTotal(3), "b": ONE, "c": BINS},
        ],
    ),
    "between": Workload(
        {"b": 4, "a": 3, "c": 6},
        [{"b": "prefix", "a": "prefix", "c": BINS}, {"a": "prefix", "c": "identity"}],
    ),
    "single": Workload({"b": 4, "a": 3}, [({"b": ONE, "a": "prefix"}, 3.0)]),
    "contrast": Workload({"b": 4, "a": 2}, [{"b": [[1, -1, 0, 0]]}, {"a": "identity"}]),
    "rows": Workload(
        {"a": 2, "b": 4},
        [{"a": [[1, 0]], "b": row} for row in np.eye(4)] + [{"b": [[1, 1, 0, 0]]}],
    ),
    "one attribute": Workload({"b": 9}, [{"b": "prefix"}, ({"b": "identity"}, 2.0)]),
}


def dense_rows(workload: Workload, product: Product) -> NDArray[np.float64]:
    parts = [
        (product.factors.get(name) or Total(n)).dense().astype(float)
        for name, n in workload.domain.items()
    ]
    return reduce(np.kron, parts)


def dense_gram(workload: Workload) -> NDArray[np.float64]:
    rows = np.concatenate([p.weight * dense_rows(workload, p) for p in workload.products])
    return np.asarray(rows.T @ rows)


def reduced(workload: Workload) -> Reduction:
    active = [i for i, factors in enumerate(workload.factors) if factors]
    return reduce_group(workload, active, orbits_of(workload, active), workload.weights2)


def strategy_of(name: str) -> SymmetricStrategy:
    found = symmetric_optimum(UNIONS[name])
    assert found is not None
    return found.strategy


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
    dense = convex.optimise(dense_gram(UNIONS[name]), tol=1e-6, maxiter=300)
    assert found.lower <= dense.upper * (1 + 1e-9)
    assert dense.lower <= found.upper * (1 + 1e-9)
    assert found.upper <= found.lower * (1 + 1e-3)


@pytest.mark.parametrize("name", UNIONS)
def test_integer_rows_are_next_to_the_optimum(name: str) -> None:
    found = symmetric_optimum(UNIONS[name])
    assert found is not None
    error = unit_error(found.strategy, UNIONS[name])
    assert found.lower * (1 - 1e-9) <= error <= found.upper * (1 + 1e-3)


@pytest.mark.parametrize("name", UNIONS)
def test_sensitivity_is_that_of_the_largest_column(name: str) -> None:
    strategy = strategy_of(name)
    (block,) = strategy.blocks
    shape = [orbits.n for orbits in block.orbits]
    norms = block.column_norms()
    largest = 0
    for cell in itertools.product(*map(range, shape)):
        unit = np.zeros(shape, dtype=np.int64)
        unit[cell] = 1
        column = sum(int(v) ** 2 for v in block.apply(unit))
        place = tuple(int(o.labels[c]) for o, c in zip(block.orbits, cell, strict=True))
        assert norms[place] == column
        largest = max(largest, column)
    assert strategy.sensitivity(block) == block.sensitivity() == largest
    assert isinstance(strategy.sensitivity(block), int)


@pytest.mark.parametrize("name", UNIONS)
def test_scales_cost_at_most_the_amount(name: str) -> None:
    strategy = strategy_of(name)
    for amount, rows in ((Fraction(1, 7), 1), (Fraction(355, 113), 2)):
        (sigma2,) = strategy.scales(amount, rows)
        cost = rows**2 * strategy.sensitivity(strategy.block) / (2 * sigma2)
        assert amount * (1 - Fraction(1, 2**29)) < cost <= amount
    assert sum(block.share for block in strategy.blocks) == 1


@pytest.mark.parametrize("name", UNIONS)
def test_apply_is_the_matrix(name: str) -> None:
    block = strategy_of(name).block
    A = block.matrix()
    assert A.shape == (block.rows, block.cells)
    assert A.dtype == np.int64
    ((names, same),) = block.factors.items()
    assert names == block.attributes
    assert np.array_equal(A, same)
    shape = [orbits.n for orbits in block.orbits]
    x = np.random.default_rng(0).integers(0, 1 << 20, shape)
    assert np.array_equal(block.apply(x), A @ x.reshape(-1))


def test_apply_wraps_around_like_integers_do() -> None:
    block = strategy_of("mixed").block
    shape = [orbits.n for orbits in block.orbits]
    x = np.random.default_rng(0).integers(0, 1 << 62, shape)
    exact = block.matrix().astype(object) @ x.reshape(-1).astype(object)
    assert all(
        (int(a) - int(b)) % (1 << 64) == 0 for a, b in zip(exact, block.apply(x), strict=True)
    )


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
    assert unit_error(strategy, workload) == pytest.approx(error, rel=1e-9)


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


def measured_rows(workload: Workload, strategy: SymmetricStrategy) -> NDArray[np.float64]:
    """All rows over all attributes of the domain, the unmeasured ones summed over."""
    block = strategy.block
    shape = [n if a in block.attributes else 1 for a, n in workload.domain.items()]
    tensor = block.matrix().astype(float).reshape(block.rows, *shape)
    full = np.broadcast_to(tensor, (block.rows, *workload.domain.values()))
    return full.reshape(block.rows, -1)


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
        dense = convex.optimise(dense_gram(workload))
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


def test_equal_workloads_give_equal_strategies() -> None:
    one, two = strategy_of("mixed"), strategy_of("mixed")
    assert one.fingerprint() == two.fingerprint()
    assert one.fingerprint() != strategy_of("prefix").fingerprint()
    assert one.blocks == (one.block,)
    assert (one.noise, one.method) == ("gaussian", "symmetric")


def test_rmse_follows_the_convention() -> None:
    workload = Workload({"a": 4}, [{"a": "identity"}])
    found = symmetric_optimum(workload)
    assert found is not None
    assert found.strategy.rmse(workload) == pytest.approx(4.224678889326836, rel=1e-3)


@pytest.mark.parametrize("attribute", ["a", "b", "c"])
def test_heatmap_is_the_root_of_the_information(attribute: str) -> None:
    strategy = strategy_of("mixed")
    block = strategy.block
    shape = [orbits.n for orbits in block.orbits]
    axis = block.attributes.index(attribute)
    rows = block.matrix().astype(float).reshape(-1, *shape)
    rows = rows.sum(axis=tuple(1 + i for i in range(len(shape)) if i != axis))
    root = strategy.heatmap(attribute)
    assert np.abs(root).max() == pytest.approx(1)
    information = rows.T @ rows
    square = root @ root
    assert np.allclose(square / square.max(), information / information.max(), atol=1e-9)


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
        dense = convex.optimise(V, maxiter=300)
        assert found.lower <= dense.upper * (1 + 1e-7)
        assert dense.lower <= found.upper * (1 + 1e-7)
        assert found.upper <= found.lower * (1 + 2e-3)
        inverse = np.linalg.pinv(measured_rows(workload, found.strategy), rcond=1e-12)
        error = float(np.einsum("ij,jk,ik->", inverse.T, V, inverse.T))
        exact = error * found.strategy.sensitivity(found.strategy.block)
        assert unit_error(found.strategy, workload) == pytest.approx(exact, rel=1e-8)
        assert dense.lower * (1 - 1e-7) <= exact <= found.upper * (1 + 2e-3)
    assert solved > 45


def part_of(rows: list[list[int]]) -> OrbitPart:
    return OrbitPart((CONSTANT,), np.array(rows, dtype=np.int64))


def strategy_with(part: OrbitPart, names: tuple[str, ...] = ("a",)) -> SymmetricStrategy:
    block = OrbitBlock(names, (Orbits(np.array([0, 1])),) * len(names), (part,))
    return SymmetricStrategy({"a": 2, "b": 2}, block)


@pytest.mark.parametrize(
    "make",
    [
        lambda: strategy_with(part_of([[1, 0, 0]])),
        lambda: strategy_with(OrbitPart((CONSTANT,) * 2, np.eye(4, dtype=np.int64)), ("b", "a")),
        lambda: strategy_with(OrbitPart((CONSTANT,), np.eye(2))),  # type: ignore[arg-type]
        lambda: invert(part_of([[1, 1]]), [Orbits(np.array([0, 1]))]),
        lambda: invert(part_of([[1, 1], [2, 2]]), [Orbits(np.array([0, 1]))]),
        lambda: SymmetricForecast(strategy_with(part_of([[1, 0], [0, 1]])), [0.0]),
        lambda: strategy_with(part_of([[1, 0], [0, 1]])).scales(Fraction(0)),
    ],
)
def test_malformed_strategies_are_refused(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_norms_of_large_entries_are_exact() -> None:
    rows = np.array([[1 << 40, 3], [-(1 << 40), 4]], dtype=np.int64)
    assert squared_columns(rows).tolist() == [1 << 81, 25]
    block = strategy_with(part_of(rows.tolist())).block
    assert block.sensitivity() == 1 << 81


def census(states: int = 1) -> Workload:
    """The person tables of Census Summary File 1; with several states, also for each of them."""
    domain = {"sex": 2, "hispanic": 2, "race": 64, "age": 115}
    single = [1 << k for k in range(6)]
    count = np.array([bin(mask).count("1") for mask in range(64)])
    race1 = np.array([np.arange(64) == mask for mask in single] + [count != 1])
    exactly = [count == k for k in range(1, 7)]
    race2 = np.array([np.arange(64) == m for m in range(1, 64)] + exactly + [count > 1])
    ends = [5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85]
    age = np.arange(115)
    edges1 = [0, *ends, 115]
    edges3 = [*range(100), 100, 105, 110, 115]
    age1, age3 = (
        np.array([(age >= lo) & (age < hi) for lo, hi in itertools.pairwise(e)])
        for e in (edges1, edges3)
    )
    white, adult = race1[:1], np.array([age >= 18])
    yes, no, ethnicity = [[1, 0]], [[0, 1]], "identity"
    sexes, both = "identity", IdentityTotal(2)
    products: list[dict[str, Any]] = [{}, {"race": race1}, {}, {"hispanic": ethnicity}, {}]
    products += [{"hispanic": ethnicity, "race": race1}, {"hispanic": IdentityTotal(2)}]
    products += [{"race": race2}, {}, {"hispanic": ethnicity}, {"hispanic": no, "race": race2}, {}]
    products += [{"race": race2, "age": adult}, {"age": adult}]
    products += [{"hispanic": ethnicity, "age": adult}]
    products += [{"hispanic": no, "race": race2, "age": adult}, {"age": adult}]
    for bins, last in ((age1, white), (age3, race1)):
        for more in (
            {},
            {"race": race1},
            {"hispanic": yes},
            {"hispanic": no, "race": last},
        ):
            products += [{"sex": sexes, "age": bins, **more}, {"sex": both, **more}]
    if states == 1:
        return Workload(domain, products)
    region = IdentityTotal(states)
    return Workload({**domain, "state": states}, [{**p, "state": region} for p in products])


@pytest.mark.parametrize(
    ("states", "rows", "bound", "best"),
    [(1, 4151, 8.0444, 8.0458), (51, 215852, 8.9369, 8.9385)],
)
def test_census_tables_reach_the_certified_optimum(
    states: int, rows: int, bound: float, best: float
) -> None:
    raw = census(states)
    assert raw.rows == rows
    workload = coarsen(raw).workload
    found = symmetric_optimum(workload)
    assert found is not None
    rmse = found.strategy.rmse(workload)
    assert rmse <= best
    unit = 4.224678889326836
    lower = unit * math.sqrt(found.lower / rows)
    assert bound <= lower <= rmse <= lower * (1 + 5e-4)
