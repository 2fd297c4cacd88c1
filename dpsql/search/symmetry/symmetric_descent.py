"""Descent over combinations of queries that treat those alike which are: from many starts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.records import dataclass, replace
from dpsql.search.one_attribute.distinct_queries import LowRank
from dpsql.search.one_attribute.low_rank_descent import CHANGES, SEED, STAGES, STRICT, Bounds
from dpsql.search.one_attribute.opt0 import minimise
from dpsql.search.symmetry.symmetric_queries import SymmetricPart, SymmetricQueries
from dpsql.search.work_limit import BRIEF, may_go_on

STARTS, FEWEST = 4, 2
"""Starts for effort 1, and at least: queries by themselves, then such as are near at random."""

LEVELS = (*STAGES, (3e-6, 2048))
"""As those of combinations without kinds, and sharper at the end: steps are cheap."""

FIRST, FINISHED = 2, 2
"""Stages that every start has; the best one has those after, and the next where bounds are missed.
"""

BEYOND = 1.004
"""Ratio of a variance to its bound that counts as within: bounds are as much below limits."""

STEPS, LAST_STEPS = 300, 2000
"""Most steps of one of the first stages, and of a later one."""

LULL, LAST_LULL = 1e-5, 1e-6
"""Least gain of ten steps in the log of an error for which they go on, in these stages."""

TOL = 1e-9
"""Least gain of one step, likewise."""

OVERHEAD = 2e6
"""Overhead of a step beside its products of numbers, in these."""


@dataclass(frozen=True, slots=True)
class BasisCombination:
    """Combinations of the basis, (rows, rank), and their weighted error at a unit budget.

    ``worst`` is the largest mean variance relative to its bound, 0 without bounds.
    """

    matrix: Floats
    error: float
    worst: float


def descend_alike(
    few: LowRank, alike: SymmetricQueries, effort: float = 1.0, bounds: Bounds | None = None
) -> BasisCombination:
    """Return combinations of the least error under Laplace noise that is found.

    Args:
        effort: scales the number of starts.
        bounds: limits of mean variances at a unit budget; they may be missed.

    Source: LRM (Yuan et al. 2012) asks for the optimum over all combinations.
    """
    few = in_sizes(few, alike)
    if bounds is not None:
        bounds = Bounds(bounds.shares * alike.sizes**2, bounds.limits)
    loss = _AlikeLoss(few, alike, bounds)
    found: list[Floats] = []
    for start in _starts(few, alike, effort, bounds):
        if not found or may_go_on():
            found.append(_descended(loss, start, LEVELS[:FIRST], STEPS, LULL))
    ended: list[Floats] = []
    for start in sorted(found, key=loss.merit)[:FINISHED]:
        ended.append(_descended(loss, start, LEVELS[FIRST:], LAST_STEPS, LAST_LULL))
        if loss.worst(ended[-1]) <= BEYOND:
            break
    best = min(ended, key=loss.merit)
    error, worst = loss.merit(best), loss.worst(best)
    return BasisCombination(best[alike.kinds] @ few.coefficients, error / max(1.0, worst), worst)


def _starts(
    few: LowRank, alike: SymmetricQueries, effort: float, bounds: Bounds | None
) -> Iterator[Floats]:
    """Yield numbers for every kind: the queries, by what they weigh, and such as are near."""
    size = np.abs(few.queries).max(axis=1)
    scales = [np.cbrt(few.weights2 / size), 1 / size]
    if bounds is not None:
        scales[1] = np.sqrt((bounds.shares / bounds.limits[:, np.newaxis]).max(axis=0))
    rng = np.random.default_rng(SEED)
    for number in range(1 if effort <= BRIEF else max(FEWEST, round(STARTS * effort))):
        start = np.zeros(alike.size)
        sums = np.bincount(alike.sorts, scales[number % len(scales)])
        start[alike.diagonal] = sums / np.bincount(alike.sorts)
        if number >= len(scales):
            change = CHANGES[number % len(CHANGES)] * start.max()
            start += change * alike.spread * rng.standard_normal(alike.size)
        yield start


def in_sizes(few: LowRank, alike: SymmetricQueries) -> LowRank:
    """Return the same queries over their sizes: whatever their units are, steps are the same."""
    sizes = alike.sizes[:, np.newaxis]
    weights2 = few.weights2 * alike.sizes**2
    return replace(
        few,
        queries=few.queries / sizes,
        weights2=weights2,
        coefficients=few.coefficients / sizes,
    )


def _descended(
    loss: _AlikeLoss, start: Floats, stages: Sequence[tuple[float, int]], most: int, lull: float
) -> Floats:
    """Return what some stages come to."""
    spread, cost, found = loss.alike.spread, loss.alike.cost + OVERHEAD, start

    def scaled(numbers: Floats) -> tuple[float, Floats]:
        value, slope = loss(numbers * spread)
        return value, slope * spread

    for smooth, power in stages:
        found = found / loss.norm(found)
        loss.sharpen(smooth, power, found)
        _, found = minimise(
            scaled,
            found / spread,
            ftol=TOL,
            maxiter=most,
            signed=True,
            cornered=True,
            cost=cost,
            lull=lull,
        )
        found = found * spread
    return np.asarray(found / loss.norm(found))


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of what treats alike queries alike, as two matrices that numbers are multiplied by.

    ``rows`` (k r, kinds) gives its rows over the queries in it, of ``shape`` (k, r), and ``asked``
    (sorts, r r) what variances add up of the inverse of their Gram, in all copies.
    """

    rows: Floats
    shape: tuple[int, int]
    asked: Floats

    @classmethod
    def of(cls, part: SymmetricPart) -> _Block:
        """The matrices of a part."""
        rows = np.einsum("kjt,jr->krt", part.kinds, part.root)
        asked = part.copies * part.asked.reshape(len(part.asked), -1)
        shape = (rows.shape[0], rows.shape[1])
        return cls(np.ascontiguousarray(rows.reshape(-1, rows.shape[2])), shape, asked)


@dataclass
class _AlikeLoss:
    """The log of the smoothed error of numbers for every kind, with its gradient.

    As that of combinations without kinds: mean variances beyond bounds count as squares.
    """

    few: LowRank
    alike: SymmetricQueries
    bounds: Bounds | None
    smooth: float = 0.0
    power: int = 1
    rounded: float = 0.0

    def __post_init__(self) -> None:
        sorts, few = self.alike.sorts, self.few
        self.sizes = np.bincount(sorts).astype(np.float64)
        self.weights = np.bincount(sorts, few.weights2)
        self.shares = np.zeros((0, len(self.sizes)))
        if self.bounds is not None:
            shares = [np.bincount(sorts, each) for each in self.bounds.shares]
            self.shares = np.array(shares) / self.bounds.limits[:, np.newaxis]
        lengths = np.diff(np.append(self.alike.starts, len(self.alike.forms)))
        self.column = np.repeat(np.arange(len(lengths)), lengths)
        self.parts = [_Block.of(part) for part in self.alike.parts]

    def sharpen(self, smooth: float, power: int, numbers: Floats) -> None:
        """Round corners by so much, of which bounds take no notice where the norm is one."""
        self.smooth, self.power = smooth, power
        self.rounded = self._smoothed(numbers)[0]

    def norm(self, numbers: Floats) -> float:
        """Return the largest L1 norm of a column."""
        sizes = self.alike.counts * np.abs(self.alike.forms @ numbers)
        return float(np.add.reduceat(sizes, self.alike.starts).max())

    def merit(self, numbers: Floats) -> float:
        """Return the error, corners and all, times what variances are beyond their bounds."""
        variances, _ = self._variances(numbers)
        variances = variances * self.norm(numbers) ** 2
        total = float(self.weights @ variances)
        if not (total > 0 and (variances > 0).all()):
            return math.inf
        return total * max(1.0, self.worst(numbers))

    def worst(self, numbers: Floats) -> float:
        """Return the largest mean variance relative to its bound, 0 without bounds."""
        variances, _ = self._variances(numbers)
        return float((self.shares @ variances).max(initial=0.0)) * self.norm(numbers) ** 2

    def _smoothed(self, numbers: Floats) -> tuple[float, Floats]:
        """Return the log of the square of the largest smoothed norm, and half its derivative."""
        alike = self.alike
        values = alike.forms @ numbers
        size = np.sqrt(values * values + self.smooth**2)
        columns = np.add.reduceat(alike.counts * size, alike.starts)
        largest = float(columns.max())
        powers = (columns / largest) ** (self.power - 1)
        sum_of = float(powers @ columns) / largest
        values *= alike.counts / size * (powers / (largest * sum_of))[self.column]
        value = 2 * (math.log(largest) + math.log(sum_of) / self.power)
        return value, np.asarray(values @ alike.forms)

    def _variances(self, numbers: Floats) -> tuple[Floats, list[tuple[Floats, Floats]]]:
        """Return the variance of a query of each sort, and per part its rows and their inverse."""
        out = np.zeros(len(self.sizes))
        found = []
        for block in self.parts:
            rows = (block.rows @ numbers).reshape(block.shape)
            try:
                inverse = np.asarray(np.linalg.inv(rows.T @ rows), dtype=np.float64)
            except np.linalg.LinAlgError:
                return np.full(len(out), np.inf), []
            found.append((rows, inverse))
            out += block.asked @ inverse.ravel()
        return out / self.sizes, found

    def __call__(self, numbers: Floats) -> tuple[float, Floats]:
        variances, parts = self._variances(numbers)
        total = float(self.weights @ variances)
        if not 0 < total < math.inf or not (variances > 0).all():
            return math.inf, np.zeros_like(numbers)
        norm, slope = self._smoothed(numbers)
        shares = self.shares * math.exp(norm - self.rounded)
        ratios = shares @ variances
        beyond = np.maximum(ratios - 1, 0)
        by_variance = (self.weights / total + 2 * STRICT * beyond @ shares) / self.sizes
        slope *= 2 + 4 * STRICT * float(beyond @ ratios)
        for block, (rows, inverse) in zip(self.parts, parts, strict=True):
            asked = (by_variance @ block.asked).reshape(inverse.shape)
            slope -= (2 * rows @ (inverse @ asked @ inverse)).ravel() @ block.rows
        return norm + math.log(total) + STRICT * float(beyond @ beyond), slope
