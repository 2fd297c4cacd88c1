"""A lower bound on every strategy for any union of products: the workload paired with isometries.

For weights D > 0 of the cells that sum to one, no strategy of unit L2 sensitivity has a total
squared error below S^2, S the sum of the singular values of W D^(1/2). S is the largest inner
product of W D^(1/2) with a matrix of spectral norm 1, so any such matrix gives a bound. Take D as
a product of weights d_i, delta_i = d_i^(1/2), and for every factor Q on attribute i an orthogonal
U, which splits into y = U delta and X = U (I - delta delta'), with X'y = 0. Against product j the
matrix is the sum over components c of a_jc times X on the attributes in c, and y delta' or delta'
elsewhere. All its parts are orthogonal: its norm is 1 where sum_j a_jc^2 = 1 for every c. The
best a_jc give

    S >= sum_c sqrt( sum_j w_j^2 prod_{i in c} r_ij^2 prod_{i not in c} t_ij^2 ),

t = y'Q D^(1/2) delta and r = tr(U'Q D^(1/2)) - t: the form of the error of residual blocks. It is
the optimum itself for one product and for marginals.
"""

from __future__ import annotations

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass
from dpsql.search.problem import FactorSet, Problem
from dpsql.workload.workload import Workload

STEPS = 15
"""Steps towards better weights and isometries."""

WORK_LIMIT = 5e7
"""Most sum of n^3 over all factors."""

QUICK = 60.0
"""Most milliseconds, on an ordinary core, of a bound that is computed in passing."""

FLOOR = 1e-9
"""Least step of a weight, relative to the largest."""

SAFETY = 1e-9
"""Relative part by which the bound is lowered, far above what is lost in rounding."""


@dataclass(slots=True)
class _Side:
    """One attribute: symmetric roots of its Grams, delta, and the worth of t and of r."""

    roots: list[Floats]
    delta: Floats
    worth: list[tuple[float, float]]

    def pairings(self) -> list[Floats]:
        """Return U'Q per factor, with the orthogonal U that is best for its worth."""
        delta, found = self.delta, []
        for root, (a, b) in zip(self.roots, self.worth, strict=True):
            towards = b * np.eye(len(delta)) + (a - b) * np.outer(delta, delta)
            left, _, right = np.linalg.svd(root @ (delta[:, np.newaxis] * towards))
            found.append((left @ right).T @ root)
        return found

    def tables(self, pairings: list[Floats]) -> tuple[Floats, Floats]:
        """Return (t^2, r^2) per factor, and of Total last."""
        delta = self.delta
        t = np.array([delta @ C @ delta**2 for C in pairings])
        r = np.array([C.diagonal() @ delta for C in pairings]) - t
        return np.append(np.maximum(t, 0), 1.0) ** 2, np.append(np.maximum(r, 0), 0.0) ** 2

    def improve(self, pairings: list[Floats], a: Floats, b: Floats) -> None:
        """Move half of the way, in logarithms, to where the gradient of the bound points."""
        gradient, delta = np.zeros_like(self.delta), self.delta
        for C, of_t, of_r in zip(pairings, a, b, strict=True):
            shared = 2 * delta * (C.T @ delta) + C @ delta**2
            gradient += of_r * C.diagonal() + (of_t - of_r) * shared
        if not gradient.any():
            return
        gradient = np.maximum(gradient, FLOOR * np.abs(gradient).max())
        moved = np.sqrt(delta * gradient)
        self.delta = moved / np.linalg.norm(moved)
        self.worth = list(zip(a.tolist(), b.tolist(), strict=True))


def is_quick(workload: Workload) -> bool:
    """Say whether ``paired_bound`` takes less than a tenth of a second, from the sizes alone."""
    # Nominal, from sizes: a clock would make plans differ from machine to machine.
    factors = sum(1 + float(f.n) ** 3 / 3e4 for found in workload.factors for f in found)
    terms = float((2.0 ** (workload.index >= 0).sum(axis=1)).sum())
    return 0 < factors + terms / 2e3 <= QUICK


def paired_bound(problem: Problem) -> float:
    """Return a lower bound on the unit error of every strategy, for Gaussian or Laplace noise.

    Zero where it would take too long.
    """
    if sum(len(f.operators) * float(f.n) ** 3 for f in problem.factors) > WORK_LIMIT:
        return 0.0
    sides = [_side(factors) for factors in problem.factors]
    best = 0.0
    for _ in range(STEPS):
        pairings = [side.pairings() for side in sides]
        both = [side.tables(C) for side, C in zip(sides, pairings, strict=True)]
        t, r = [pair[0] for pair in both], [pair[1] for pair in both]
        R = problem.components.values(t, r)
        best = max(best, float(np.sqrt(R).sum()) ** 2)
        slope = np.divide(0.5, np.sqrt(R), out=np.zeros_like(R), where=R > 0)
        gt, gr = problem.components.pull(slope, t, r)
        for i, side in enumerate(sides):
            side.improve(
                pairings[i], 2 * np.sqrt(t[i][:-1]) * gt[i], 2 * np.sqrt(r[i][:-1]) * gr[i]
            )
    return best * (1 - SAFETY)


def _side(factors: FactorSet) -> _Side:
    count, n = len(factors.operators), factors.n
    roots = []
    for operator in factors.operators:
        values, vectors = np.linalg.eigh(operator.gram())
        roots.append((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)
    return _Side(roots, np.full(n, n**-0.5), [(1.0, 1.0)] * count)
