"""The inverse Gram of a p-Identity strategy, never formed: p learned rows say all of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.algebra.operator import Array, Floats, Operator
from dpsql.records import dataclass

STRUCTURED_FROM = 512
"""From this domain size on, the Gram of an implicit workload is applied and never formed."""

STEP_COST = 60.0
"""Products of numbers for each cell that it takes to apply one, about."""


@dataclass(frozen=True, slots=True)
class AppliedGram:
    """A symmetric matrix V, as a search applies it: its diagonal (n,), and V X.

    ``cost`` is the work of that for one column of X, in products of numbers.
    """

    diagonal: Floats
    apply: Callable[[Array], Array]
    cost: float = 0.0


def is_structured(operator: Operator) -> bool:
    """Say whether the Gram of an operator is quicker applied than formed."""
    return operator.n >= STRUCTURED_FROM and not isinstance(operator, Dense)


def applied(gram: Floats | Operator | AppliedGram) -> AppliedGram:
    """Return a Gram matrix (n, n), that of an operator over n cells too, to be applied."""
    if isinstance(gram, AppliedGram):
        return gram
    if isinstance(gram, Operator):
        if is_structured(gram):
            diagonal = gram.column_l2sq().astype(np.float64)
            return AppliedGram(diagonal, gram.gram_apply, STEP_COST * gram.n)
        gram = gram.gram()
    explicit = np.ascontiguousarray(gram, dtype=np.float64)
    return AppliedGram(explicit.diagonal(), explicit.__matmul__, float(explicit.size))


@dataclass(frozen=True, slots=True, eq=False)
class LeanInverse:
    """K = (A'A)^-1 = S (I - Theta' B Theta) S of A = [I; Theta] S^-1, in O(pn) numbers.

    ``theta`` has shape (p, n); S has the columns' norms 1 + sum Theta, B = (I + Theta Theta')^-1.
    ``row_sums`` are those of K, (n,).
    """

    theta: Floats
    scale: Floats
    inner: Floats
    row_sums: Floats

    @classmethod
    def of(cls, theta: Floats) -> LeanInverse:
        """Return K (n, n), unformed, of learned rows (p, n). Raises: LinAlgError."""
        scale = 1 + theta.sum(axis=0)
        inner = np.asarray(np.linalg.inv(np.eye(len(theta)) + theta @ theta.T))
        sums = scale * (scale - theta.T @ (inner @ (theta @ scale)))
        return cls(theta, scale, inner, sums)

    @property
    def total(self) -> float:
        """Return the sum of all entries."""
        return float(self.row_sums.sum())

    def trace(self) -> float:
        """Return tr(K)."""
        kept = 1 - np.einsum("pn,pn->n", self.theta, self.inner @ self.theta)
        return float(self.scale * self.scale @ kept)

    def row_traces(self, rows: Floats) -> Floats:
        """Return q K q' of every row q, for rows of shape (m, n)."""
        scaled = rows * self.scale
        projected = scaled @ self.theta.T
        squares = np.einsum("mn,mn->m", scaled, scaled)
        return np.asarray(squares - np.einsum("mp,mp->m", projected @ self.inner, projected))

    def gram_trace(self, gram: Floats | AppliedGram) -> float:
        """Return tr(G K) of a symmetric G, shape (n, n)."""
        G, scaled = applied(gram), self.theta * self.scale
        inside = scaled @ G.apply(scaled.T)
        diagonal = G.diagonal @ (self.scale * self.scale)
        return float(diagonal - np.vdot(self.inner, inside))
