"""Rows applied slab by slab are the rows applied at once, exactly."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.algebra import blocks
from dpsql.algebra.blocks import multiply_slabs
from dpsql.algebra.integer_rows import KronRows
from dpsql.privacy.doors import exact_products
from dpsql.privacy.doors.exact_products import apply_rows, working_shape


@pytest.mark.parametrize("free", [(0,), (1,), (2,), (0, 2)])
@pytest.mark.parametrize("largest", [3, 1 << 11, 1 << 20, 1 << 50])
@pytest.mark.parametrize("has_single_cells", [False, True])
@pytest.mark.parametrize("piece", [1, 37])
def test_slabs_are_exact(
    free: tuple[int, ...],
    largest: int,
    has_single_cells: bool,
    piece: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(len(free) + largest)
    sizes, rows = (4, 5, 3), (6, 5, 7)
    matrices = tuple(
        None if k in free else rng.integers(-largest, largest + 1, (rows[k], n))
        for k, n in enumerate(sizes)
    )
    if has_single_cells:
        for m, n in zip(matrices, sizes, strict=True):
            if m is not None:
                m[:n] *= np.eye(n, dtype=np.int64)
    counts = rng.integers(0, 1 << 31, sizes)
    written = [
        np.eye(n, dtype=object) if m is None else m.astype(object)
        for m, n in zip(matrices, sizes, strict=True)
    ]
    expected = reduce(np.kron, written) @ counts.ravel().astype(object)
    wrapped = np.array([(int(x) + 2**63) % 2**64 - 2**63 for x in expected])
    monkeypatch.setattr(exact_products, "PIECE", piece)
    kron = KronRows(matrices, sizes)
    found = apply_rows(kron, counts.copy(), exact_products.MANY_ROWS)
    assert found.tolist() == wrapped.tolist()
    room = np.zeros(working_shape(kron) or (), dtype=np.int64)
    room[:4, :5, :3] = counts
    found = apply_rows(kron, room, exact_products.MANY_ROWS)
    assert np.shares_memory(found, room)
    assert found.tolist() == wrapped.tolist()


def test_where_there_is_no_room() -> None:
    fewer, as_many = np.ones((2, 3), dtype=np.int64), np.ones((3, 3), dtype=np.int64)
    assert working_shape(KronRows((None, as_many), (2, 3))) == (2, 3)
    assert working_shape(KronRows((None, fewer), (2, 3))) is None
    assert working_shape(KronRows((as_many, as_many), (3, 3))) is None


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_diagonal_above_other_rows_is_told(
    dtype: type, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(more)
    matrix = np.concatenate([np.diag(rng.integers(1, 9, 4)), rng.integers(-9, 9, (more, 4))])
    slabs: NDArray[Any] = rng.integers(-99, 99, (3, 4, 5)).astype(dtype)
    monkeypatch.setattr(blocks, "MANY", 0)
    found = multiply_slabs(matrix.astype(dtype), slabs)
    assert found.dtype == dtype
    assert np.array_equal(found, np.einsum("rn,lnk->lrk", matrix, slabs))
    matrix[0, 1] = 1
    assert np.array_equal(multiply_slabs(matrix, slabs), np.einsum("rn,lnk->lrk", matrix, slabs))
