"""A vertical stack of weighted operators over the same cells."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Array, Floats, Operator


@dataclass(frozen=True, slots=True, eq=False)
class Stack(Operator):
    """The rows w_1 Q_1; w_2 Q_2; ... of (weight, operator) parts, in order.

    Raises ValueError when the parts differ in their number of columns, or there is none.
    """

    parts: tuple[tuple[int | float, Operator], ...]

    def __init__(self, parts: Iterable[tuple[int | float, Operator]]) -> None:
        kept = tuple(parts)
        widths = sorted({op.n for _, op in kept})
        if len(widths) != 1:
            raise ValueError(f"parts of a stack must agree on their columns, not {widths}")
        object.__setattr__(self, "parts", kept)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(op.rows for _, op in self.parts), self.parts[0][1].n

    @property
    def key(self) -> Hashable:
        return ("stack", *((weight, op.key) for weight, op in self.parts))

    @property
    def integer(self) -> bool:
        return all(op.integer and isinstance(weight, int) for weight, op in self.parts)

    def matmat(self, X: Array) -> Array:
        return np.concatenate([weight * op.matmat(X) for weight, op in self.parts])

    def rmatmat(self, Y: Array) -> Array:
        ends = np.cumsum([op.rows for _, op in self.parts])
        pieces = np.split(Y, ends[:-1])
        terms = [w * op.rmatmat(piece) for (w, op), piece in zip(self.parts, pieces, strict=True)]
        return np.asarray(sum(terms[1:], start=terms[0]))

    def gram(self) -> Floats:
        return np.asarray(sum(float(w**2) * op.gram() for w, op in self.parts))

    def gram_apply(self, X: Array) -> Array:
        return np.asarray(sum(w**2 * op.gram_apply(X) for w, op in self.parts))

    def column_l1(self) -> Array:
        return np.asarray(sum(abs(w) * op.column_l1() for w, op in self.parts))

    def column_l2sq(self) -> Array:
        return np.asarray(sum(w**2 * op.column_l2sq() for w, op in self.parts))

    def take_columns(self, index: NDArray[np.integer[Any]]) -> Operator:
        return Stack((weight, op.take_columns(index)) for weight, op in self.parts)
