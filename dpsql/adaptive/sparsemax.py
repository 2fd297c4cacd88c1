"""Projection of blocks of columns on probability simplices."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpsql.adaptive.handle import Floats


def sparsemax(z: Floats, sizes: Floats | None = None) -> Floats:
    """Return the nearest probability vector of every row, exactly and without sorting.

    A column with a size stands for so many equal ones.
    Source: SparseMax (Martins, Astudillo 2016), by shrinking the active set (Michelot 1986).

    >>> sparsemax(np.array([[0.5, 0.5], [3.0, 0.0], [0.6, 0.2]])).round(3).tolist()
    [[0.5, 0.5], [1.0, 0.0], [0.7, 0.3]]
    >>> sparsemax(np.array([[0.5, 0.3]]), np.array([1.0, 3.0])).round(3).tolist()
    [[0.4, 0.2]]
    """
    columns = np.ascontiguousarray(z.T)
    many = np.ones(len(columns), dtype=z.dtype) if sizes is None else sizes.astype(z.dtype)
    active = (columns > columns.max(axis=0) - 1).astype(z.dtype)
    count = many @ active
    while True:
        level = (np.einsum("i,ij,ij->j", many, columns, active) - 1) / count
        active *= columns > level
        fewer = many @ active
        if (fewer == count).all():
            return np.asarray(np.maximum(columns - level, 0).T)
        count = fewer


def project_blocks(x: Floats, columns: Iterable[slice], sizes: Floats | None = None) -> None:
    """Replace blocks of columns by their projections, in place."""
    for block in columns:
        x[:, block] = sparsemax(x[:, block], None if sizes is None else sizes[block])
