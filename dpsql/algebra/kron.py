"""Kronecker products, applied one attribute at a time and never formed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import reduce

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
    """Return a tensor with one axis contracted with the columns of a factor."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Kron(Operator):
    """The Kronecker product of operators; cells and rows are row-major, first factor slowest."""

    factors: tuple[Operator, ...]

    def __init__(self, factors: Sequence[Operator]) -> None:
        object.__setattr__(self, "factors", tuple(factors))

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(f.rows for f in self.factors), math.prod(f.n for f in self.factors)

    @property
    def key(self) -> Hashable:
        return ("kron", *(f.key for f in self.factors))

    @property
    def integer(self) -> bool:
        return all(f.integer for f in self.factors)

    def matmat(self, X: Array) -> Array:
        tensor = X.reshape(*(f.n for f in self.factors), X.shape[1])
        return kron_apply([*self.factors, None], tensor).reshape(self.rows, X.shape[1])

    def rmatmat(self, Y: Array) -> Array:
        tensor = Y.reshape(*(f.rows for f in self.factors), Y.shape[1])
        transposes = [_Transpose(f) for f in self.factors]
        return kron_apply([*transposes, None], tensor).reshape(self.n, Y.shape[1])

    def gram(self) -> Floats:
        return reduce(_kron, (f.gram() for f in self.factors), np.ones((1, 1)))

    def gram_apply(self, X: Array) -> Array:
        tensor = X.reshape(*(f.n for f in self.factors), X.shape[1])
        grams = [_Gram(f) for f in self.factors]
        return kron_apply([*grams, None], tensor).reshape(self.n, X.shape[1])

    def column_l1(self) -> Array:
        return reduce(_kron, (f.column_l1() for f in self.factors), np.ones(1, dtype=np.int64))

    def column_l2sq(self) -> Array:
        return reduce(_kron, (f.column_l2sq() for f in self.factors), np.ones(1, dtype=np.int64))

    @property
    def l1(self) -> int | float:
        return math.prod(f.l1 for f in self.factors)

    @property
    def l2sq(self) -> int | float:
        return math.prod(f.l2sq for f in self.factors)

    def row_sums(self) -> Array:
        return reduce(_kron, (f.row_sums() for f in self.factors), np.ones(1, dtype=np.int64))

    def frobenius2(self) -> float:
        return math.prod(f.frobenius2() for f in self.factors)


def _kron(left: Array, right: Array) -> Array:
    return np.kron(left, right)


@dataclass(frozen=True, slots=True, eq=False)
class _Transpose(Operator):
    """The transpose of an operator, as a mode of a Kronecker product."""

    op: Operator

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.n, self.op.rows

    @property
    def key(self) -> Hashable:
        return ("transpose", self.op.key)

    def matmat(self, X: Array) -> Array:
        return self.op.rmatmat(X)

    def rmatmat(self, Y: Array) -> Array:
        return self.op.matmat(Y)


@dataclass(frozen=True, slots=True, eq=False)
class _Gram(Operator):
    """The Gram of an operator, as a mode of a Kronecker product."""

    op: Operator

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.n, self.op.n

    @property
    def key(self) -> Hashable:
        return ("gram", self.op.key)

    def matmat(self, X: Array) -> Array:
        return self.op.gram_apply(X)

    def rmatmat(self, Y: Array) -> Array:
        return self.op.gram_apply(Y)
