"""Structured inverses against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity
from dpsql.algebra.weak_cache import WeakCache
from dpsql.search.one_attribute import opt0
from dpsql.strategy import axis
from dpsql.strategy.axis import full_axis
from dpsql.strategy.quantise import extended_diagonal_inverse, quantise, upper_inverse


@pytest.mark.parametrize("n", [1, 2, 13, 64])
def test_inverses_of_structured_rows(n: int) -> None:
    rng = np.random.default_rng(n)
    Q = np.concatenate([np.diag(rng.integers(1, 100, n)), rng.integers(0, 100, (3, n))]) * 1.0
    K, inverse = extended_diagonal_inverse(Q)
    assert np.abs(K - np.linalg.inv(Q.T @ Q)).max() < 1e-12
    assert inverse == pytest.approx(np.linalg.pinv(Q), abs=1e-12)
    U = np.triu(rng.random((n, n))) + np.eye(n)
    assert upper_inverse(U) @ U == pytest.approx(np.eye(n), abs=1e-10)


@pytest.mark.parametrize("shape", ["p-identity", "upper", "permuted"])
def test_an_axis_is_the_same_on_either_path(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    if shape != "p-identity":
        order = np.arange(40) if shape == "upper" else rng.permutation(40)
        upper = np.triu(rng.random((40, 40))) + 2 * np.eye(40)
        rows = quantise(upper[:, order], 16, "gaussian")
    else:
        rows = quantise(opt0.matrix(3 * rng.random((4, 40))), 16, "laplace")
    dense = full_axis(40, rows, False)
    monkeypatch.setattr(axis, "STRUCTURED_FROM", 1)
    assert isinstance(rows, np.ndarray)
    fast = full_axis(40, rows.copy(), False)  # the very same would be remembered
    assert dense.Kt is not None
    assert fast.Kt is not None
    assert dense.inverse is not None
    assert fast.inverse is not None
    assert fast.Kt == pytest.approx(dense.Kt, rel=1e-9, abs=1e-9 * abs(dense.Kt).max())
    assert fast.u == pytest.approx(dense.u, rel=1e-9, abs=1e-12)
    assert fast.inverse == pytest.approx(dense.inverse, abs=1e-9 * abs(dense.inverse).max())
    assert fast.total == pytest.approx(dense.total, rel=1e-9)


def test_the_latest_axis_is_remembered_while_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axis, "_latest", WeakCache(1))
    rows = np.tri(3, dtype=np.int64)
    other = 2 * rows
    first = full_axis(3, rows, False)
    assert full_axis(3, rows, False).Kt is first.Kt
    assert full_axis(3, other, False).Kt is not first.Kt
    assert full_axis(3, rows, False).rows is rows
    del rows, first
    assert len(axis._latest) <= 1
    assert full_axis(3, other, False).rows is other


def test_rows_with_few_numbers_have_the_spread_of_dense_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(4)
    found = full_axis(40, quantise(opt0.matrix(rng.random((3, 40))), 16, "laplace"), False)
    rows = np.zeros((7, 40))
    rows[np.arange(7), rng.integers(0, 40, 7)] = 2
    rows[:6, 5] = rng.random(6)
    dense = found._spread(rows)
    monkeypatch.setattr(axis, "STRUCTURED_FROM", 1)
    monkeypatch.setattr(axis, "SPARSE", 1)
    assert found._spread(rows)[0] == pytest.approx(dense[0])


def test_few_rows_over_many_cells_need_no_matrix_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    Q = np.random.default_rng(2).integers(0, 2, (20, 700))
    thin = full_axis(700, Q, False)
    monkeypatch.setattr(axis, "THIN", 700)
    dense = full_axis(700, Q.copy(), False)  # the very same would be remembered
    assert thin.Kt is None
    assert dense.Kt is not None
    asked = Dense(Q[:7] + Q[3:10])
    (means, spread, answerable), expected = thin.parts(asked), dense.parts(asked)
    assert answerable
    assert expected[2]
    np.testing.assert_allclose(means, expected[0], atol=1e-9)
    np.testing.assert_allclose(spread, expected[1], rtol=1e-8)
    assert thin.total == pytest.approx(dense.total, abs=1e-12)
    assert not thin.parts(Identity(700))[2]
