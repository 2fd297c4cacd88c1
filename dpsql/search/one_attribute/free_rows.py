"""The rows of one attribute as they are descended over: of cells, or of orbits of cells.

Where a workload cannot tell cells apart, neither do the best rows: their Gram is one number for
what sums to zero within an orbit, and a matrix between orbits. A column of 366 values of which all
are asked, and four ranges, has nine orbits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from dpsql.algebra.blocks import Dense, Identity
from dpsql.algebra.operator import Floats, Operator
from dpsql.algebra.orbits import Orbits, find_orbits
from dpsql.records import dataclass
from dpsql.search.problem import FactorSet

FROM, PER_ORBIT = 16, 2
"""Cells from which orbits are looked for, and how many of them there are to an orbit at least."""

Slopes: TypeAlias = Sequence[tuple[int, Floats, Floats, float]]
"""Gradient of a group: per member its place, and derivatives by t, r (no Total) and tau."""


@dataclass(frozen=True, slots=True)
class DescentRows:
    """Rows at one place of a descent: as they are, of unit columns, and the inverse of these.

    ``K`` is the inverse Gram. Of orbits, ``inside`` are the roots of what sums to zero within each
    of several cells, ``spread`` these squared, of unit columns.
    """

    rows: Floats
    norms: Floats
    unit: Floats
    root: Floats
    K: Floats
    inside: Floats
    spread: Floats


class CellRows:
    """Rows (n, n) of cells, columns of any length."""

    def __init__(self, members: Sequence[FactorSet], start: Floats) -> None:
        self.members, self.n = members, start.shape[1]
        self.start, self.size = start.ravel(), self.n

    def look(self, x: Floats) -> DescentRows:
        """Return the rows at a place (variables,). Raises LinAlgError if they have no inverse."""
        rows = x.reshape(-1, self.n)
        norms = np.sqrt(np.square(rows).sum(axis=0))
        root = np.asarray(np.linalg.inv(rows / norms), dtype=np.float64)
        none = np.zeros(0)
        return DescentRows(rows, norms, rows / norms, root, root @ root.T, none, none)

    def tables(self, look: DescentRows, member: int) -> tuple[Floats, Floats, float]:
        """Return (t, r, tau) of a member."""
        return *self.members[member].tables(look.K), float(look.K.sum())

    def gradient(self, look: DescentRows, slopes: Slopes) -> Floats:
        """Return the derivative by all variables."""
        g, A = -2 * look.root.T @ _pulled(self.members, look, slopes), look.unit
        return np.asarray((g - A * (A * g).sum(axis=0)) / look.norms).ravel()

    def cells(self, x: Floats) -> Floats:
        """Return rows (n, n) of unit columns."""
        rows = x.reshape(-1, self.n)
        return np.asarray(rows / np.sqrt(np.square(rows).sum(axis=0)))


class OrbitCells:
    """Rows of cells that are alike within orbits: between k orbits, and within the wide ones.

    Variables have the metric of the rows of cells, so that descents take the same steps.
    """

    def __init__(self, members: Sequence[FactorSet], start: Floats, orbits: Orbits) -> None:
        self.orbits, self.wide, self.size = orbits, orbits.wide, len(orbits.sizes)
        self.sizes = orbits.sizes.astype(np.float64)
        self.others = self.sizes[self.wide] - 1
        means, inside = orbits.gram_parts(start.T @ start)
        between = np.linalg.cholesky(means).T * np.sqrt(self.sizes)
        self.start = np.concatenate([between.ravel(), np.sqrt(inside)])
        self.members = [self._reduced(each) for each in members]
        self.inside = [self._traces(each) for each in members]

    def _reduced(self, factors: FactorSet) -> FactorSet:
        return FactorSet(factors.name, [self._between(op) for op in factors.operators])

    def _between(self, operator: Operator) -> Operator:
        """Return rows over orbits of which the Gram is that of a factor on what is even in each."""
        if isinstance(operator, Identity):
            return Dense(np.diag(1 / np.sqrt(self.sizes)))
        means = self.orbits.means(operator)
        return Dense(means if len(means) <= self.size else np.asarray(np.linalg.qr(means)[1]))

    def _traces(self, factors: FactorSet) -> Floats:
        """Return what each factor asks of what sums to zero within wide orbits, (factors, wide)."""
        found = [
            self.others if isinstance(op, Identity) else self.orbits.cross(op, op).sum(axis=0)
            for op in factors.operators
        ]
        return np.array(found)

    def look(self, x: Floats) -> DescentRows:
        """Return the rows at a place (variables,). Raises LinAlgError if they have no inverse."""
        rows = x[: self.size**2].reshape(self.size, -1) / np.sqrt(self.sizes)
        inside = x[self.size**2 :] / np.sqrt(self.others)
        squares = np.square(rows).sum(axis=0)
        squares[self.wide] += np.square(inside) * self.others / (self.others + 1)
        norms = np.sqrt(squares)
        unit, spread = rows / norms, np.square(inside) / squares[self.wide]
        if not (spread > 0).all():
            raise np.linalg.LinAlgError
        root = np.asarray(np.linalg.inv(unit), dtype=np.float64)
        return DescentRows(rows, norms, unit, root, root @ root.T, inside, spread)

    def tables(self, look: DescentRows, member: int) -> tuple[Floats, Floats, float]:
        """Return (t, r, tau) of a member."""
        t, r = self.members[member].tables(look.K)
        r[:-1] += self.inside[member] @ (1 / look.spread)
        return t, r, float(look.K.sum())

    def gradient(self, look: DescentRows, slopes: Slopes) -> Floats:
        """Return the derivative by all variables."""
        g, squares = -2 * look.root.T @ _pulled(self.members, look, slopes), np.square(look.norms)
        traces = np.sum([gr @ self.inside[i] for i, _, gr, _ in slopes], axis=0)
        by_spread = -traces / np.square(look.spread)
        by_squares = -(look.unit * g).sum(axis=0) / (2 * squares)
        by_squares[self.wide] -= by_spread * look.spread / squares[self.wide]
        by_rows = g / look.norms + 2 * by_squares * look.rows
        own = by_spread / squares[self.wide]
        own += by_squares[self.wide] * self.others / (self.others + 1)
        by_inside = 2 * own * look.inside / np.sqrt(self.others)
        return np.concatenate([(by_rows / np.sqrt(self.sizes)).ravel(), by_inside])

    def cells(self, x: Floats) -> Floats:
        """Return rows (n, n) of unit columns."""
        look, labels = self.look(x), self.orbits.labels
        gram, within = look.unit.T @ look.unit, np.zeros(self.size)
        within[self.wide] = look.spread
        even = gram - np.diag(within / self.sizes)
        X = even[labels[:, np.newaxis], labels] + np.diag(within[labels])
        return np.asarray(np.linalg.cholesky(X).T, dtype=np.float64)


def _pulled(members: Sequence[FactorSet], look: DescentRows, slopes: Slopes) -> Floats:
    """Return the derivative by the inverse Gram, times that."""
    parts = [members[i].slope_times(look.K, gt, gr, gtau) for i, gt, gr, gtau in slopes]
    return np.asarray(np.sum(parts, axis=0))


FreeRows: TypeAlias = CellRows | OrbitCells


def free_rows(members: Sequence[FactorSet], start: Floats) -> FreeRows:
    """Return the rows (n, n) of attributes that share them, by orbits where these are few."""
    first, n = members[0], start.shape[1]
    if n >= FROM:
        asked = [op for op in first.operators if not isinstance(op, Identity)]
        orbits = find_orbits((op.gram() for op in asked), n)
        if len(orbits.sizes) * PER_ORBIT <= n:
            return OrbitCells(members, start, orbits)
    return CellRows(members, start)
