"""Designs of a batch of sum queries for a given clipping threshold: five named algorithms.

With W the queries over bins, T the clipped values and A a strategy: Identity measures the bins,
Workload the answers W T x, TiMM the strategy of W on clipped values (A T x), TaMM the strategy
of W T on the bins (A x). SQM asks every query alone and is not a design.

Source: Wu et al. 2019, "Answering summation queries for numerical attributes under differential
privacy", sections 3 and 5. The optimum for the weighted workload dominates the other three in
total squared error; the warm start below makes TaMM at most TiMM for the strategies found, too.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass, field
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.quantise import column_norm, quantise

Algorithm: TypeAlias = Literal["sqm", "identity", "workload", "timm", "tamm"]
Family: TypeAlias = Literal["optimal", "greedy"]

BITS = 16
"""Fraction bits of a strategy's integers."""
CELLS_PER_ROW = 8
"""Bins per learned row of a p-Identity strategy."""
RESTARTS = 4
"""Random starts of a strategy search that has no warm one."""


@dataclass(frozen=True, slots=True)
class Design:
    """Integer rows to measure (r, m), and the matrix (q, r) that turns results into answers.

    ``counts`` (m, r) turns results into least squares counts, None where they stay unknown.
    ``error`` is the expected total squared error at unit noise per unit of sensitivity, so that
    it is multiplied by 2/epsilon^2 or by 1/(2 rho).
    """

    rows: Integers
    answers: Floats
    counts: Floats | None
    error: float


@dataclass(slots=True)
class SumBatch:
    """Sum queries over bins: 0/1 rows (q, m), and the public non-negative value of every bin.

    Designs and strategies depend on public facts only and are kept.
    """

    values: Integers
    queries: Integers
    noise: Noise
    family: Family = "optimal"
    _designs: dict[tuple[Algorithm, int], Design] = field(default_factory=dict, repr=False)
    _strategies: dict[int, tuple[Floats, Floats | None]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.values.min() < 0 or (np.diff(self.values) < 0).any():
            raise ValueError("the values of the bins are non-negative and non-decreasing")
        if self.queries.shape[1:] != self.values.shape or not len(self.queries):
            raise ValueError("every query has one entry per bin")

    @property
    def nested(self) -> bool:
        """Say whether every query counts all bins of the one before."""
        return bool((np.diff(self.queries, axis=0) >= 0).all() and (self.queries >= 0).all())

    def clipped(self, theta: int) -> Integers:
        """Return the value of every bin, at most theta."""
        return np.minimum(self.values, theta)

    def design(self, algorithm: Algorithm, theta: int) -> Design:
        """Return what an algorithm measures when values are clipped to theta."""
        theta = min(int(theta), int(self.values[-1]))
        key = (algorithm, theta)
        if key not in self._designs:
            self._designs[key] = self._design(algorithm, theta)
        return self._designs[key]

    def _design(self, algorithm: Algorithm, theta: int) -> Design:
        values = self.clipped(theta)
        weighted = self.queries * values
        if algorithm == "identity":
            eye = np.eye(len(values), dtype=np.int64)
            return self._of(eye, weighted, np.eye(len(values)))
        if algorithm == "workload":
            return self._of(weighted, np.eye(len(weighted)), None)
        if algorithm not in ("timm", "tamm"):
            raise ValueError(f"{algorithm!r} has no joint design")
        rows = self._integers(algorithm, theta)
        inverse = np.linalg.pinv(rows.astype(np.float64))
        if algorithm == "tamm":
            return self._of(rows, weighted @ inverse, inverse)
        return self._of(rows * values, self.queries @ inverse, None)

    def _of(self, rows: Integers, answers: Floats | Integers, counts: Floats | None) -> Design:
        answers = np.asarray(answers, dtype=np.float64)
        norm = float(column_norm(rows, self.noise))
        norm2 = law(self.noise).squared(norm)
        return Design(rows, answers, counts, norm2 * float(np.square(answers).sum()))

    def _integers(self, algorithm: Algorithm, theta: int) -> Integers:
        plain = algorithm == "timm"
        strategy = self._strategy(0 if plain else theta)[0]
        rows = quantise(strategy, BITS, self.noise)
        return np.eye(len(self.values), dtype=np.int64) if rows is None else rows

    def _strategy(self, theta: int) -> tuple[Floats, Floats | None]:
        """Return the strategy for W (theta 0) or for W T, and its p-Identity parameters."""
        if theta not in self._strategies:
            self._strategies[theta] = self._search(theta)
        return self._strategies[theta]

    def _search(self, theta: int) -> tuple[Floats, Floats | None]:
        from dpsql.search.one_attribute import (
            dual,  # batches of sums alone
            opt0,
        )

        values = self.clipped(theta).astype(np.float64) if theta else np.ones(len(self.values))
        weighted = self.queries * (values / values.max())
        gram = weighted.T @ weighted
        if self.family == "greedy":
            from dpsql.plan.greedy import greedy_hierarchy  # batches of sums alone

            return np.asarray(greedy_hierarchy(gram).dense(), dtype=np.float64), None
        if law(self.noise).norm == 2:
            return dual.optimise(gram, tol=1e-4).matrix, None
        start = None
        if theta:
            plain = self._strategy(0)[1]
            start = None if plain is None else padded(plain, values / values.max())
        p = math.ceil(len(values) / CELLS_PER_ROW)
        found = opt0.optimise(
            gram, p=p, init=start, restarts=RESTARTS if start is None else 0, ftol=1e-6
        )
        return opt0.matrix(found), found


def padded(theta: Floats, values: Floats) -> Floats:
    """Return p-Identity parameters at least as good for W T as ``theta`` on clipped values.

    ``values`` are the clipped values over the largest, in [0, 1]. Every column of A T is padded
    on its identity row to unit norm, which can only add information.
    ``theta`` has shape (p, n), ``values`` (n,).

    >>> padded(np.array([[1.0, 1.0]]), np.array([1.0, 0.0])).tolist()
    [[1.0, 0.0]]
    """
    unit = values / (1 + theta.sum(axis=0))
    return np.asarray(theta * unit / (unit + 1 - values))
