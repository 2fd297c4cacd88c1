"""Kronecker blocks that share one integer matrix per attribute."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np

from dpsql.algebra.integer_rows import KronRows, Matrix
from dpsql.algebra.operator import Integers
from dpsql.records import dataclass, field
from dpsql.strategy.base import Block

FEW = 8
"""Cells of an attribute up to which the last one is not kept beside their sum and the others.

Of more attributes than a few, one more number each is many times as many in all: sixteen columns of
two values have 65,536 combinations, and 43 million with a sum beside the values of each.
"""


def estimated(sizes: Iterable[int]) -> int:
    """Return how many numbers the estimate keeps of attributes of so many cells each.

    >>> estimated([2, 2]), estimated([2, 100])
    (4, 202)
    """
    return math.prod([n + (n > FEW) for n in sizes])


@dataclass(frozen=True, slots=True, eq=False)
class AttributeRows:
    """The full and the residual rows of every attribute, None for the identity.

    ``full[a]`` and ``residual[a]`` have shape (rows, n_a), full rows may be a hierarchy of
    intervals; residual rows of the identity are formed on use.
    """

    domain: Mapping[str, int]
    full: Mapping[str, Matrix]
    residual: Mapping[str, Integers | None]

    def of(self, name: str, is_residual: bool) -> Matrix:
        """Return the rows of an attribute, full or residual ones."""
        if not is_residual:
            return self.full[name]
        rows = self.residual[name]
        return residual_rows(self.domain[name]) if rows is None else rows


NOTHING = AttributeRows({}, {}, {})
"""The rows of a block that no strategy has taken yet."""


@dataclass(frozen=True, slots=True)
class ProductBlock(Block):
    """One Kronecker block: the attributes it resolves and its share of the budget.

    ``attributes`` are in domain order, () for the grand total; those in ``residual`` are measured
    with residual rows, the others with the full rows. ``share`` is of epsilon under Laplace and
    of rho under Gaussian noise. The strategy that a block is of gives it its ``tables``.
    """

    attributes: tuple[str, ...]
    residual: frozenset[str]
    share: Fraction
    tables: AttributeRows = field(default=NOTHING, compare=False, repr=False)

    @property
    def integer_rows(self) -> KronRows:
        """Return the rows of every attribute."""
        matrices = tuple(self.tables.of(a, a in self.residual) for a in self.attributes)
        return KronRows(matrices, tuple(self.tables.domain[a] for a in self.attributes))

    @property
    def estimated(self) -> int:
        """Return how many numbers the estimate keeps."""
        return estimated([self.tables.domain[name] for name in self.attributes])


def residual_rows(n: int) -> Integers:
    """Return n I - J, the integer residual rows of the identity.

    >>> residual_rows(2).tolist()
    [[1, -1], [-1, 1]]
    """
    return n * np.eye(n, dtype=np.int64) - 1
