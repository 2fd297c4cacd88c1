"""Kronecker products as operators: the oracle of what is applied one attribute at a time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Array, Floats, Operator


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
