"""The algebra of marginals over d attributes, as arrays of shape (2, ..., 2).

Entry a of such an array belongs to a set of attributes: index 1 on axis i says that attribute i is
in the set. C(a) is the Gram of the marginal on a, and G(u) = sum of u_a C(a). All G(u) commute;
their common eigenspaces are indexed by sets c too: functions of the attributes in c that sum to
zero over each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dpsql.algebra.operator import Array, Floats


def sup(x: Array) -> Array:
    """Return for every set the sum of x over the sets that contain it, in O(d 2^d).

    ``x`` has shape (2,) * d: entry 1 along axis i says that the set holds i.

    >>> sup(np.array([[1, 2], [3, 4]])).tolist()
    [[10, 6], [7, 4]]
    """
    return _per_axis(x, 0, 1, 1)


def sub(x: Array) -> Array:
    """Return for every set the sum of x over its subsets; the transpose of ``sup``.

    ``x`` has shape (2,) * d, as in ``sup``.

    >>> sub(np.array([[1, 2], [3, 4]])).tolist()
    [[1, 3], [4, 10]]
    """
    return _per_axis(x, 1, 0, 1)


def sup_inverse(x: Array) -> Array:
    """Return the array whose ``sup`` is x.

    ``x`` has shape (2,) * d, as in ``sup``.
    """
    return _per_axis(x, 0, 1, -1)


def outer(pairs: Sequence[tuple[float, float]]) -> Floats:
    """Return the array of products of one number per attribute: (outside, inside) the set."""
    return reduce(np.multiply.outer, [np.array(p, dtype=np.float64) for p in pairs], np.ones(()))


def merged_cells(sizes: Sequence[int]) -> Floats:
    """Return for every set the number of full cells in one cell of its marginal."""
    return outer([(n, 1) for n in sizes])


def dimensions(sizes: Sequence[int]) -> Floats:
    """Return the dimension of every common eigenspace, prod of n_i - 1 over the set."""
    return outer([(1, n - 1) for n in sizes])


def eigenvalues(u: Array, sizes: Sequence[int]) -> Floats:
    """Return the eigenvalues of G(u), one per common eigenspace.

    Args:
        u: (2,) * d, the weight of the marginal over each set, as in ``sup``.
        sizes: the cells of each of the d attributes.

    Source: HDMM, section 7, Theorem 9.
    """
    return np.asarray(sup(u * merged_cells(sizes)), dtype=np.float64)


def coefficients(values: Array, sizes: Sequence[int]) -> Floats:
    """Return u such that G(u) has the given eigenvalues.

    Args:
        values: (2,) * d, one eigenvalue per common eigenspace.
        sizes: the cells of each of the d attributes.
    """
    return np.asarray(sup_inverse(values) / merged_cells(sizes), dtype=np.float64)


def _per_axis(x: Array, target: int, source: int, sign: int) -> Array:
    out = np.array(x, order="C")
    for axis in range(out.ndim):
        view = out.reshape(1 << axis, 2, -1)
        view[:, target] += sign * view[:, source]
    return out
