"""Errors of optimal Gaussian marginals, foretold from public sizes alone.

The strategy of least weighted total squared error measures every subset A of the asked marginals
once; its error needs no strategy to be formed. Source: ResidualPlanner (Xiao et al. 2023) with
the closed form of its least squares objective; HDMM, Theorem 12.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from typing import TypeAlias

from dpsql.records import dataclass

Clique: TypeAlias = tuple[str, ...]

POWERS = (0.0, 0.125, 0.25, 0.375, 0.5)
"""Exponents g tried for weights n_S^-g when the largest error counts."""


@dataclass(frozen=True, slots=True)
class MarginalErrors:
    """Error of every cell of every marginal when rho buys noise of variance 1/(2 rho).

    ``root`` is Z: the weighted total squared error at unit sensitivity and unit variance is Z^2.
    ``variances`` are per marginal the variance of one cell at unit variance, in counts squared.
    """

    cliques: tuple[Clique, ...]
    cells: tuple[int, ...]
    weights: tuple[float, ...]
    root: float
    variances: tuple[float, ...]

    def cell_variances(self, rho: float) -> tuple[float, ...]:
        """Return per marginal the variance of one cell under ``rho``, in counts squared."""
        return tuple(v / (2 * rho) for v in self.variances)

    def rmse(self, rho: float) -> float:
        """Return the root mean squared error over all cells, in counts."""
        squares = sum(n * v for n, v in zip(self.cells, self.cell_variances(rho), strict=True))
        return math.sqrt(squares / sum(self.cells))

    def largest(self, rho: float) -> float:
        """Return M, in counts, so that one cell in expectation has an error above M."""
        spreads = [math.sqrt(v) for v in self.cell_variances(rho)]
        return largest_error(self.cells, spreads)


def largest_error(cells: Sequence[int], stddevs: Sequence[float]) -> float:
    """Return M with sum of cells * erfc(M / (sqrt(2) stddev)) = 1: one cell exceeds it.

    >>> round(largest_error([1000], [1.0]), 3)
    3.291
    """

    def exceeding(level: float) -> float:
        return sum(
            n * math.erfc(level / (math.sqrt(2) * s)) for n, s in zip(cells, stddevs, strict=True)
        )

    low, high = 0.0, 40.0 * max(stddevs)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeding(middle) > 1 else (low, middle)
    return high


def marginal_errors(
    domain: Mapping[str, int], cliques: Sequence[Clique], power: float = 0.0
) -> MarginalErrors:
    """Return the exact errors of the optimal strategy for marginals weighted n_S^-power."""
    sizes = tuple(math.prod(domain[a] for a in clique) for clique in cliques)
    weights = tuple(float(n) ** -power for n in sizes)
    order = {name: i for i, name in enumerate(domain)}
    spectrum: dict[Clique, float] = {}
    for clique, n, weight in zip(cliques, sizes, weights, strict=True):
        for subset in subsets(tuple(sorted(clique, key=order.__getitem__))):
            spectrum[subset] = spectrum.get(subset, 0.0) + weight**2 / n
    root = math.fsum(
        math.prod(domain[a] - 1 for a in subset) * math.sqrt(value)
        for subset, value in spectrum.items()
    )
    variances = tuple(_cell(domain, clique, order, spectrum, root) for clique in cliques)
    return MarginalErrors(tuple(cliques), sizes, weights, root, variances)


def best_power(domain: Mapping[str, int], cliques: Sequence[Clique]) -> float:
    """Return the exponent of ``POWERS`` with the smallest predicted largest error, any budget."""
    return min(POWERS, key=lambda g: marginal_errors(domain, cliques, g).largest(1.0))


def subsets(clique: Clique) -> list[Clique]:
    """Return all subsets of a clique, the empty one first, in clique order.

    >>> subsets(("a", "b"))
    [(), ('a',), ('b',), ('a', 'b')]
    """
    sizes = range(len(clique) + 1)
    return list(chain.from_iterable(combinations(clique, size) for size in sizes))


def _cell(
    domain: Mapping[str, int],
    clique: Clique,
    order: Mapping[str, int],
    spectrum: Mapping[Clique, float],
    root: float,
) -> float:
    """Return the variance of one cell of a marginal at unit variance."""
    clique = tuple(sorted(clique, key=order.__getitem__))
    n = math.prod(domain[a] for a in clique)
    parts = (
        math.prod(domain[a] - 1 for a in subset) / math.sqrt(spectrum[subset])
        for subset in subsets(clique)
    )
    return root / n * math.fsum(parts) / n
