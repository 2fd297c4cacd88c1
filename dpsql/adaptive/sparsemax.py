"""Projection of blocks of columns on probability simplices."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpsql.adaptive.handle import Floats


def sparsemax(z: Floats) -> Floats:
    """Return the nearest probability vector of every row, exactly and without sorting.

    Source: SparseMax (Martins, Astudillo 2016), by shrinking the active set (Michelot 1986).

    >>> sparsemax(np.array([[0.5, 0.5], [3.0, 0.0], [0.6, 0.2]])).round(3).tolist()
    [[0.5, 0.5], [1.0, 0.0], [0.7, 0.3]]
    """
    active = (z > z.max(axis=1, keepdims=True) - 1).astype(z.dtype)
    ones = np.ones(z.shape[1], dtype=z.dtype)
    count = active @ ones
    while True:
        level = ((np.einsum("ij,ij->i", z, active) - 1) / count)[:, np.newaxis]
        active *= z > level
        fewer = active @ ones
        if (fewer == count).all():
            return np.asarray(np.maximum(z - level, 0))
        count = fewer


def project_blocks(x: Floats, columns: Iterable[slice]) -> None:
    """Replace blocks of columns by their projections, in place."""
    for block in columns:
        x[:, block] = sparsemax(x[:, block])
