"""Inverses of the rows that are measured of one attribute, by what is known of their pattern."""

from __future__ import annotations

import numpy as np

from dpsql.algebra.connected_components import inverse_of_parts
from dpsql.algebra.operator import Floats
from dpsql.strategy.quantise import (
    extended_diagonal_inverse,
    is_diagonal,
    triangular_order,
    upper_inverse,
)

RANK = 1e-9
"""Relative size below which a singular value counts as zero."""

WELL_CONDITIONED = 1e-3
"""Least ratio of pivots at which a Gram is inverted as such: it squares the condition of rows."""

STRUCTURED_FROM = 512
"""From this size on, p-Identity rows are inverted in O(p n^2), triangular ones by halves."""


def inverse_of(Q: Floats) -> tuple[Floats, Floats, Floats | None]:
    """Return (K, pseudo-inverse, projector on the row space or None for full rank).

    Args:
        Q: (m, n); K and the projector are (n, n), the pseudo-inverse (n, m).
    """
    n = Q.shape[1]
    if n >= STRUCTURED_FROM and len(Q) >= n:
        found = inverse_of_parts(Q)
        if found is not None:
            return *found, None
        if len(Q) <= 2 * n and is_diagonal(Q[:n]):
            return *extended_diagonal_inverse(Q), None
        order = triangular_order(Q) if len(Q) == n else None
        if order is not None:
            inverse = np.empty_like(Q)
            inverse[order] = upper_inverse(Q[:, order])
            return inverse @ inverse.T, inverse, None
    if len(Q) >= n:
        try:
            L = np.linalg.cholesky(Q.T @ Q)
        except np.linalg.LinAlgError:
            pass
        else:
            pivots = L.diagonal()
            if pivots.min() > WELL_CONDITIONED * pivots.max():
                half = np.linalg.inv(L)
                K = half.T @ half
                return K, K @ Q.T, None
    # What is left has a low rank, or nearly so: singular values alone tell which.
    left, singular, right = np.linalg.svd(Q, full_matrices=False)
    rank = int((singular > RANK * singular[0]).sum())
    basis = right[:rank].T
    inverse = (basis / singular[:rank]) @ left[:, :rank].T
    K = (basis / singular[:rank] ** 2) @ basis.T
    return K, inverse, None if rank == n else basis @ basis.T
