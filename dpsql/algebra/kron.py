"""Kronecker products, applied one attribute at a time and never formed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.algebra.blocks import multiply_slabs
from dpsql.algebra.operator import Array, Floats, Operator

Factor = Operator | Array | None
"""One mode of a Kronecker product; None leaves its axis as it is."""


def kron_apply(factors: Sequence[Factor], tensor: Array) -> Array:
    """Return (A_1 x ... x A_d) applied to a tensor of shape (n_1, ..., n_d).

    Axes that shrink most go first, so the peak memory is the largest of input and output whenever
    every factor shrinks, or every factor grows.

    Source: HDMM, Theorem 14, without its transposes.

    >>> kron_apply([np.array([[1, 1]]), None], np.array([[1, 2], [3, 4]])).tolist()
    [[4, 6]]
    """
    if len(factors) != tensor.ndim:
        raise ValueError(f"{len(factors)} factors do not fit a tensor of {tensor.ndim} axes")
    used = [(axis, factor) for axis, factor in enumerate(factors) if factor is not None]
    for axis, factor in sorted(used, key=lambda pair: pair[1].shape[0] / pair[1].shape[1]):
        tensor = contract(factor, tensor, axis)
    return tensor


def contract(factor: Operator | Array, tensor: Array, axis: int) -> Array:
    """Return a tensor with one axis contracted with the columns of a factor.

    Args:
        factor: (r, n).
        tensor: n entries along the axis; the result has r.
        axis: the axis, from 0.
    """
    if isinstance(factor, Operator):
        return factor.apply(tensor, axis)
    before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
    slabs = tensor.reshape(math.prod(before), tensor.shape[axis], math.prod(after))
    return multiply_slabs(factor, slabs).reshape(*before, len(factor), *after)


def outer_sum(weights: Array, tables: Sequence[Array]) -> Floats:
    """Return the sum over rows j of weights[j] times the outer product of every table's row j.

    The tables have shape (rows, m_i); the result has one axis of size m_i per table. The work is
    one matrix product of two halves, rows * m_1 * ... * m_d multiplications.

    >>> outer_sum(np.array([1, 2]), [np.array([[1, 0], [0, 1]]), np.array([[1, 1], [1, 3]])])
    array([[1., 1.],
           [2., 6.]])
    """
    halves = [np.asarray(weights, dtype=np.float64)[:, None], np.ones((len(weights), 1))]
    shape, done = [table.shape[1] for table in tables], 1
    for table in tables:
        done *= table.shape[1]
        side = int(done**2 > math.prod(shape))
        halves[side] = (halves[side][:, :, None] * table[:, None, :]).reshape(
            len(weights), halves[side].shape[1] * table.shape[1]
        )
    return (halves[0].T @ halves[1]).reshape(shape)
