"""One battery of questions for every operator, answered by its dense twin."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from dpsql.algebra.blocks import (
    AllRange,
    Columns,
    Dense,
    Haar,
    Hierarchy,
    Identity,
    IdentityTotal,
    Permuted,
    Prefix,
    Ranges,
    Total,
    Weighted,
    WidthRanges,
    simplify,
)
from dpsql.algebra.groups import EXPLICIT, Groups, grouped
from dpsql.algebra.kron import contract, kron_apply
from dpsql.algebra.operator import Array, Operator, exact
from tests.support.kron import Kron
from tests.support.stack import Stack


def all_range_rows(n: int) -> Array:
    rows = [[int(lo <= j <= hi) for j in range(n)] for lo in range(n) for hi in range(lo, n)]
    return np.array(rows)


def haar_rows(n: int) -> Array:
    size = 1 << (n - 1).bit_length()
    rows = [np.ones(size, dtype=np.int64)]
    length = size
    while length > 1:
        for start in range(0, size, length):
            row = np.zeros(size, dtype=np.int64)
            row[start : start + length // 2] = 1
            row[start + length // 2 : start + length] = -1
            rows.append(row)
        length //= 2
    return np.array(rows)[:, :n]


TWINS: dict[str, tuple[Callable[[int], Operator], Callable[[int], Array]]] = {
    "identity": (Identity, lambda n: np.eye(n, dtype=np.int64)),
    "total": (Total, lambda n: np.ones((1, n), dtype=np.int64)),
    "identity+total": (
        IdentityTotal,
        lambda n: np.vstack([np.eye(n, dtype=np.int64), np.ones((1, n), dtype=np.int64)]),
    ),
    "prefix": (Prefix, lambda n: np.tril(np.ones((n, n), dtype=np.int64))),
    "allrange": (AllRange, all_range_rows),
    "width": (
        lambda n: WidthRanges(n, (n + 1) // 2),
        lambda n: np.array([r for r in all_range_rows(n) if r.sum() == (n + 1) // 2]),
    ),
    "haar": (Haar, haar_rows),
    "permuted": (
        lambda n: Permuted(AllRange(n), np.random.RandomState(0).permutation(n)),
        lambda n: all_range_rows(n)[:, np.random.RandomState(0).permutation(n)],
    ),
    "groups": (
        lambda n: Groups(np.arange(n) * 5 % 4 - 1, 3),
        lambda n: (np.arange(n) * 5 % 4 - 1 == np.arange(3)[:, None]).astype(np.int64),
    ),
    "weighted groups": (
        lambda n: Groups(np.arange(n) % 3 - 1, 4, np.arange(n) - 2),
        lambda n: (np.arange(n) % 3 - 1 == np.arange(4)[:, None]) * (np.arange(n) - 2),
    ),
    "columns": (
        lambda n: Columns(Prefix(n), np.array([0, n - 1, 0])),
        lambda n: np.tril(np.ones((n, n), dtype=np.int64))[:, [0, n - 1, 0]],
    ),
    "dense": (
        lambda n: Dense(np.arange(2 * n).reshape(2, n) - 3),
        lambda n: np.arange(2 * n).reshape(2, n) - 3,
    ),
    "dense float": (
        lambda n: Dense(np.arange(2 * n).reshape(2, n) / 7),
        lambda n: np.arange(2 * n).reshape(2, n) / 7,
    ),
    "weighted": (lambda n: Weighted(Prefix(n), 3), lambda n: 3 * np.tril(np.ones((n, n), int))),
    "weighted float": (lambda n: Weighted(Total(n), 0.5), lambda n: np.full((1, n), 0.5)),
    "stack": (
        lambda n: Stack([(2, Prefix(n)), (1, Total(n))]),
        lambda n: np.vstack([2 * np.tril(np.ones((n, n), int)), np.ones((1, n), int)]),
    ),
    "kron": (
        lambda n: Kron([Prefix(n), Total(2), IdentityTotal(3)]),
        lambda n: np.kron(
            np.kron(np.tril(np.ones((n, n), int)), np.ones((1, 2), int)),
            np.vstack([np.eye(3, dtype=int), np.ones((1, 3), int)]),
        ),
    ),
}


@pytest.fixture(params=TWINS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[1, 2, 13])
def pair(request: pytest.FixtureRequest, name: str) -> tuple[Operator, Array]:
    operator, twin = TWINS[name]
    return operator(request.param), twin(request.param)


def test_dense_twin(pair: tuple[Operator, Array]) -> None:
    op, twin = pair
    assert op.shape == twin.shape == (op.rows, op.n)
    np.testing.assert_array_equal(op.dense(), twin)
    assert op.dense().dtype == (np.int64 if op.integer else np.float64)
    assert op.integer == (exact(twin).dtype == np.int64)


def test_products_and_adjoint(pair: tuple[Operator, Array]) -> None:
    op, twin = pair
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(op.n, 3)), rng.normal(size=(op.rows, 3))
    np.testing.assert_allclose(op.matmat(X), twin @ X, atol=1e-10)
    np.testing.assert_allclose(op.rmatmat(Y), twin.T @ Y, atol=1e-10)
    assert np.vdot(op.matmat(X), Y) == pytest.approx(np.vdot(X, op.rmatmat(Y)), abs=1e-9)


def test_integer_products_stay_exact(pair: tuple[Operator, Array]) -> None:
    op, twin = pair
    X = np.random.default_rng(2).integers(-9, 9, size=(op.n, 2)) + 2**53
    if op.integer:
        assert op.matmat(X).dtype == np.int64
        np.testing.assert_array_equal(op.matmat(X), twin @ X)
        Y = np.random.default_rng(3).integers(-9, 9, size=(op.rows, 2))
        np.testing.assert_array_equal(op.rmatmat(Y), twin.T @ Y)


def test_gram(pair: tuple[Operator, Array]) -> None:
    op, twin = pair
    X = np.random.default_rng(4).normal(size=(op.n, 2))
    assert op.gram().dtype == np.float64
    np.testing.assert_allclose(op.gram(), twin.T @ twin, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(op.gram_apply(X), twin.T @ twin @ X, rtol=1e-9, atol=1e-9)


def test_norms(pair: tuple[Operator, Array]) -> None:
    op, twin = pair
    np.testing.assert_allclose(op.column_l1(), np.abs(twin).sum(axis=0))
    np.testing.assert_allclose(op.column_l2sq(), (twin**2).sum(axis=0))
    assert op.l1 == pytest.approx(np.abs(twin).sum(axis=0).max())
    assert op.l2sq == pytest.approx((twin**2).sum(axis=0).max())
    assert isinstance(op.l1, int) == isinstance(op.l2sq, int) == op.integer
    assert op.frobenius2() == pytest.approx((twin**2).sum())
    np.testing.assert_allclose(op.row_sums(), twin.sum(axis=1), atol=1e-12)
    assert op.only_counts == (op.integer and bool(np.isin(twin, (0, 1)).all()))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("others", [(2, 3), (1, 1), (4, 20)])
def test_tensor_apply(pair: tuple[Operator, Array], axis: int, others: tuple[int, int]) -> None:
    op, twin = pair
    shape = list(others)
    shape.insert(axis % 3, op.n)
    tensor = np.random.default_rng(5).integers(-5, 9, size=shape)
    expected = np.moveaxis(np.tensordot(twin, tensor, axes=(1, axis)), 0, axis)
    for given in (tensor, tensor.astype(np.float64)):
        np.testing.assert_allclose(op.apply(given, axis), expected, rtol=1e-12)
        np.testing.assert_allclose(contract(twin, given, axis % 3), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="axis"):
        op.apply(np.zeros((op.n + 1,)), 0)


def test_take_columns(pair: tuple[Operator, Array]) -> None:
    op, twin = pair
    index = np.random.default_rng(6).integers(0, op.n, size=op.n + 2)
    taken = op.take_columns(index)
    np.testing.assert_array_equal(taken.dense(), twin[:, index])
    np.testing.assert_array_equal(taken.take_columns(np.array([1])).dense(), twin[:, index[[1]]])
    assert op.take_columns(np.arange(op.n)) == op


def test_key_separates_contents(pair: tuple[Operator, Array], name: str) -> None:
    op, _ = pair
    again = TWINS[name][0](7)
    assert again == TWINS[name][0](7)
    assert hash(again) == hash(TWINS[name][0](7))
    assert op != again
    assert op != "op"


def test_operators_are_distinct() -> None:
    assert len({operator(6) for operator, _ in TWINS.values()}) == len(TWINS)


def test_key_does_not_depend_on_the_storage_of_rows() -> None:
    assert Dense(np.array([[1, 0, 2]])) == Dense(np.array([[1.0, -0.0, 2.0]]))
    assert Dense(np.array([[True, False]])) == Dense(np.array([[1, 0]], dtype=np.uint8))
    assert Dense(np.array([[1, 0]])) != Dense(np.array([[1], [0]]))
    assert Dense(np.array([[0.5, 0]])) != Dense(np.array([[0.25, 0]]))


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (np.eye(4), Identity),
        (np.ones((1, 4)), Total),
        (np.ones((1, 1)), Total),
        (np.tril(np.ones((4, 4))), Prefix),
        (np.vstack([np.eye(3), np.ones((1, 3))]), IdentityTotal),
        (np.eye(4)[::-1], Dense),
        (np.eye(4) * 2, Dense),
        (np.full((1, 3), 0.5), Dense),
        (all_range_rows(3), Dense),
    ],
)
def test_simplify(rows: Array, kind: type[Operator]) -> None:
    op = simplify(rows)
    assert type(op) is kind
    np.testing.assert_array_equal(op.dense(), rows)


@pytest.mark.parametrize(
    "rows",
    [np.zeros((0, 3)), np.zeros((3, 0)), [[np.nan]], [[np.inf, 1]], [1, 2], [["a"]], [[1j]]],
)
def test_dense_refuses(rows: object) -> None:
    with pytest.raises(ValueError):
        simplify(rows)


def test_other_refusals() -> None:
    for build in (
        lambda: WidthRanges(4, 5),
        lambda: Hierarchy(4, 1),
        lambda: Permuted(Prefix(3), np.array([0, 1, 1])),
        lambda: Columns(Prefix(3), np.array([3])),
        lambda: Columns(Prefix(3), np.array([], dtype=int)),
        lambda: Ranges(3, np.array([2]), np.array([1])),
        lambda: Ranges(3, np.array([1]), np.array([1, 2])),
        lambda: Weighted(Prefix(3), 0.0),
        lambda: Stack([]),
        lambda: Stack([(1, Total(2)), (1, Total(3))]),
        lambda: kron_apply([None], np.zeros((2, 2))),
    ):
        with pytest.raises(ValueError):
            build()


def test_all_range_never_forms_its_rows() -> None:
    op = AllRange(8192)
    X = np.random.default_rng(7).normal(size=(8192, 2))
    i = np.arange(8192, dtype=np.float64)
    row = np.minimum(i, 5000) + 1
    row *= 8192 - np.maximum(i, 5000)
    np.testing.assert_allclose(op.gram_apply(X)[5000], row @ X, rtol=1e-9)
    assert op.rows == 8192 * 8193 // 2
    assert op.l1 == 4096 * 4097
    assert op.frobenius2() == pytest.approx(float((i + 1) @ (8192 - i)))


@pytest.mark.parametrize("n", [1, 2, 13, 64])
def test_spectra(n: int) -> None:
    k = np.arange(1, n + 1)
    prefix = 1 / (2 * np.sin((2 * k - 1) * np.pi / (4 * n + 2)))
    ranges = np.sqrt(n + 1) / (2 * np.sin(k * np.pi / (2 * n + 2)))
    for op, values in ((Prefix(n), prefix), (AllRange(n), ranges)):
        np.testing.assert_allclose(np.linalg.eigvalsh(op.gram())[::-1], values**2, rtol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 13, 64])
def test_tridiagonal_inverses(n: int) -> None:
    second = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    np.testing.assert_allclose(second @ AllRange(n).gram(), (n + 1) * np.eye(n), atol=1e-8)
    second[0, 0] = 1
    np.testing.assert_allclose(second @ Prefix(n).gram(), np.eye(n), atol=1e-10)


@pytest.mark.parametrize(("branching", "height"), [(2, 3), (3, 2), (4, 2)])
def test_hierarchy_spectrum(branching: int, height: int) -> None:
    n = branching**height
    op = Hierarchy(n, branching)
    assert op.rows == sum(branching**level for level in range(height + 1))
    assert op.l1 == op.l2sq == height + 1
    values = [sum(branching**q for q in range(height + 1))]
    for level in range(1, height + 1):
        value = sum(branching ** (height - q) for q in range(level, height + 1))
        values += [value] * (branching**level - branching ** (level - 1))
    np.testing.assert_allclose(np.linalg.eigvalsh(op.gram()), sorted(values), atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 12, 13])
def test_hierarchy_cuts(n: int) -> None:
    op = Hierarchy(n, 3)
    children = Hierarchy(n, 3, root=False)
    sums = op.dense().sum(axis=0)
    assert (op.dense()[0] == 1).all()
    assert sums.min() >= 1
    assert len({tuple(row) for row in op.dense()}) == op.rows
    assert n == 1 or children.rows == op.rows - 1


@pytest.mark.parametrize("n", [1, 2, 8, 64])
def test_haar_inverse(n: int) -> None:
    op = Haar(n)
    Y = np.random.default_rng(8).normal(size=(n, 2))
    np.testing.assert_allclose(op.inverse(Y), np.linalg.pinv(op.dense()) @ Y, atol=1e-10)
    outer = op.dense() @ op.dense().T
    np.testing.assert_allclose(outer, np.diag(np.diag(outer)), atol=1e-12)


def test_kron_apply_matches_the_explicit_product() -> None:
    rng = np.random.default_rng(9)
    factors = [rng.normal(size=shape) for shape in ((2, 3), (5, 4), (1, 2))]
    tensor = rng.normal(size=(3, 4, 2))
    explicit = np.kron(np.kron(*factors[:2]), factors[2]) @ tensor.ravel()
    np.testing.assert_allclose(kron_apply(factors, tensor).ravel(), explicit, rtol=1e-12)
    skipped = kron_apply([factors[0], None, Total(2)], tensor)
    np.testing.assert_allclose(skipped, np.einsum("ai,ijk->aj", factors[0], tensor)[..., None])


def test_union_sensitivity_is_exact_for_shared_factors() -> None:
    factor = Dense(np.array([[3, 1], [0, 2]]))
    blocks = [(2, Kron([factor, Total(3)])), (5, Kron([factor, Prefix(3)]))]
    stack = Stack(blocks)
    assert stack.l1 == sum(weight * op.l1 for weight, op in blocks)
    assert stack.l2sq == sum(weight**2 * op.l2sq for weight, op in blocks)


def test_groups_are_recognised_and_written_out_where_they_are_small() -> None:
    assert isinstance(grouped(np.arange(5), 5), Identity)
    assert isinstance(grouped(np.zeros(5, dtype=np.int64), 1), Total)
    assert isinstance(grouped(np.arange(5) // 2, 3), Dense)
    assert isinstance(grouped(np.arange(5), 5, np.ones(5)), Identity)
    n = EXPLICIT // 2
    wide = grouped(np.arange(n) % 3, 3)
    assert isinstance(wide, Groups)
    assert isinstance(wide.take_columns(np.arange(3)), Identity)
    fractions = Groups(np.array([0, -1, 0]), 1, np.array([0.5, 2.0, 0.25]))
    assert not fractions.integer
    assert fractions.dense().tolist() == [[0.5, 0.0, 0.25]]
    assert fractions.key != Groups(np.array([0, -1, 0]), 1).key
    for labels in ([-2], [3], []):
        with pytest.raises(ValueError, match="labels"):
            Groups(np.array(labels, dtype=np.int64), 3)


def test_a_matrix_of_few_rows_takes_no_square_of_its_columns() -> None:
    cells, rows = 200_000, 3
    lo = np.arange(rows, dtype=np.int64) * 1_000
    tracemalloc.start()
    dense = Ranges(cells, lo, lo + 500).dense()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert dense.sum() == 500 * rows
    assert dense[1, 1_000] == 1
    assert peak < 50 * cells * rows * dense.itemsize, "and a square has 4e10 numbers"
