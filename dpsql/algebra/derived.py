"""Operators made from another operator: permuted columns, weighted rows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Array, Columns, Floats, Operator


def Permuted(  # noqa: N802
    op: Operator, permutation: NDArray[np.integer[Any]]
) -> Operator:
    """Return an operator with its columns permuted: column j is column permutation[j] of ``op``.

    Raises ValueError when the index is not a permutation of the columns.

    >>> from dpsql.algebra.blocks import Prefix
    >>> Permuted(Prefix(2), np.array([1, 0])).dense().tolist()
    [[0, 1], [1, 1]]
    """
    chosen = Columns(op, np.asarray(permutation, dtype=np.int64))
    if not chosen.permutes:
        raise ValueError(f"not a permutation of {op.n} columns")
    return op.take_columns(chosen.index)


@dataclass(frozen=True, slots=True, eq=False)
class Weighted(Operator):
    """Every row of an operator multiplied by one positive weight."""

    op: Operator
    weight: int | float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"weight must be positive and finite, not {self.weight}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape

    @property
    def key(self) -> Hashable:
        return ("weighted", self.weight, self.op.key)

    @property
    def integer(self) -> bool:
        return self.op.integer and isinstance(self.weight, int)

    def matmat(self, X: Array) -> Array:
        return self.op.matmat(X) * self.weight

    def rmatmat(self, Y: Array) -> Array:
        return self.op.rmatmat(Y) * self.weight

    def apply_slabs(self, slabs: Array) -> Array:
        return self.op.apply_slabs(slabs) * self.weight

    def gram(self) -> Floats:
        return self.op.gram() * float(self.weight**2)

    def gram_apply(self, X: Array) -> Array:
        return self.op.gram_apply(X) * self.weight**2

    def column_l1(self) -> Array:
        return self.op.column_l1() * self.weight

    def column_l2sq(self) -> Array:
        return self.op.column_l2sq() * self.weight**2

    def take_columns(self, index: NDArray[np.integer[Any]]) -> Operator:
        return Weighted(self.op.take_columns(index), self.weight)
