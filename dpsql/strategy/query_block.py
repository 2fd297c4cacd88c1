"""A block of queries that are measured themselves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpsql.algebra.integer_rows import KronRows
from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass
from dpsql.strategy.base import Block

MOST_ROWS = 1536
"""Most query rows, but for those of the largest block of more: least squares takes their square in
memory, their cube in time."""


@dataclass(frozen=True, slots=True)
class QueryBlock(Block):
    """The rows of one product: per attribute a matrix, None for the identity.

    Its noise is that of the strategy over ``weight``, a whole number: the Laplace scale, or sigma
    squared for Gaussian noise. ``sizes`` are the cells of the attributes.
    """

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    matrices: tuple[Integers | None, ...]
    weight: int
    share: Fraction = Fraction(1)

    @property
    def integer_rows(self) -> KronRows:
        """Return the rows of every attribute."""
        return KronRows(self.matrices, self.sizes)


def dense_rows(block: QueryBlock) -> list[Floats]:
    """Return the rows of a block on each of its attributes."""
    pairs = zip(block.matrices, block.sizes, strict=True)
    return [np.eye(n) if rows is None else rows.astype(np.float64) for rows, n in pairs]
