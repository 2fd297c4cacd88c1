"""Hierarchies of intervals for attributes of very many cells: branching and weights of levels.

Where the runs of a level are of equal length, the inverse Gram has the differences between levels
as eigenspaces: the error is a sum over levels of what the workload asks there, over what is
measured there and below. That is what is searched over; what is reported is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpsql.algebra.levels import Levels, Structured
from dpsql.algebra.operator import Floats, Operator
from dpsql.records import dataclass, field
from dpsql.search.one_attribute.decayed_totals import fading_rows
from dpsql.search.one_attribute.interval_energy import SAMPLE, drawn, energy, remember_steps
from dpsql.search.one_attribute.opt0 import minimise
from dpsql.search.problem import Base, Problem
from dpsql.search.unions.joint import realise
from dpsql.search.unions.opt_kron import best_identities
from dpsql.search.work_limit import spend
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.structured import structured_axis

BRANCHINGS = (2, 3, 5, 6, 7, 10, 12)
"""Numbers of children that are tried; of two, levels without a share make four, eight and more."""

SHARE = 2e-3
"""Part of the largest share below which a level is not measured."""

BITS = 10
"""Bits of the largest weight: half a unit of it costs less than a millionth of the error."""

STARTS = 4
"""Shares from which a search over them starts."""

FADES = (0.5, 0.35)
"""Powers with which running totals fade: the best for them alone, and where cells are asked too."""

SEVERAL = 1 << 17
"""Most cells for which several powers are tried."""

STEPS, GAIN = 12, 1e-3
"""Most changes of a branching, and the relative gain below which there is no other."""


@dataclass(frozen=True, slots=True)
class AxisWorkload:
    """The factors of one attribute with the weights of their squared errors, and of the total."""

    operators: tuple[Operator, ...]
    weights: tuple[float, ...]
    total: float
    known: dict[int, float] = field(default_factory=dict, compare=False)
    """Energies by the number of runs."""

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return self.operators[0].n

    def sampled(self) -> AxisWorkload:
        """Return what its energy is found from: few of very many intervals, each for more."""
        operators, weights = list(self.operators), list(self.weights)
        for i, operator in enumerate(operators):
            few = drawn(operator)
            if few is not None:
                operators[i] = few
                weights[i] *= operator.rows / SAMPLE
        return AxisWorkload(tuple(operators), tuple(weights), self.total)

    def error(self, base: Base) -> float:
        """Return the weighted error of what is asked under rows of unit sensitivity."""
        assert base.tables is not None
        assert base.total is not None
        t, r = base.tables
        errors = t / base.total + r
        return float(errors @ np.array([*self.weights, self.total]))

    def energy(self, count: int) -> float:
        """Return tr(G P), P the projection on what is constant in each of so many runs."""
        if count not in self.known:
            remember_steps(self.operators, count)
            pairs = zip(self.operators, self.weights, strict=True)
            found = sum(w * energy(op, count) for op, w in pairs)
            self.known[count] = found + self.total * self.size
        return self.known[count]


@dataclass(frozen=True, slots=True)
class WeightedLevels:
    """Numbers of runs with the best shares of the budget (L1, or squared L2), and their error."""

    counts: tuple[int, ...]
    shares: Floats
    error: float


def best_levels(asked: AxisWorkload, noise: Noise) -> Levels:
    """Return the hierarchy of least expected error for what is asked of an attribute.

    Source: Hay et al. 2010 and Qardaji et al. 2013 for hierarchies and their branching; weights of
    levels by descent on the error of least squares.
    """
    n, asked = asked.size, asked.sampled()
    found = [weigh(asked, counts_of(n, branching), noise) for branching in BRANCHINGS]
    best = min(found, key=lambda each: each.error)
    best = _adjusted(asked, _without_idle(asked, best, noise), noise)
    roots = best.shares if law(noise).norm == 1 else np.sqrt(best.shares)
    whole = np.maximum(1, np.rint(roots / roots.max() * 2**BITS)).astype(int)
    return Levels(n, best.counts, tuple(whole.tolist()))


def counts_of(n: int, branching: int) -> tuple[int, ...]:
    """Return the numbers of runs, level by level, down to the cells.

    >>> counts_of(30, 3)
    (1, 3, 9, 30)
    """
    counts = [1]
    while counts[-1] * branching * 3 < n * 2:
        counts.append(counts[-1] * branching)
    return (*counts, n) if n > 1 else (1,)


def weigh(asked: AxisWorkload, counts: tuple[int, ...], noise: Noise) -> WeightedLevels:
    """Return the best shares of levels: the root has one when it is worth it.

    Args:
        asked: the workload on the attribute.
        counts: the numbers of runs, level by level, down to the cells.
    """
    energies = np.array([asked.energy(count) for count in counts])
    # Energies grow with finer levels; a difference below zero is rounding.
    own = np.maximum(np.diff(energies, prepend=0.0), 0.0)
    lengths = asked.size / np.array(counts, dtype=np.float64)
    if law(noise).norm == 2:
        return WeightedLevels(counts, *_best_shares(own, lengths))

    def log_error(roots: Floats) -> tuple[float, Floats]:
        # What is measured of the differences at a level is its own rows and all that are finer.
        shares = np.square(roots)
        precision = (np.square(shares) * lengths)[::-1].cumsum()[::-1]
        if not precision[-1] > 0:
            return math.inf, np.zeros_like(roots)
        parts = own / precision
        budget, total = float(shares.sum()), float(parts.sum())
        gradient = -shares * lengths * (parts / precision).cumsum() / total + 1 / budget
        return math.log(total) + 2 * math.log(budget), gradient * 4 * roots

    # Not convex under Laplace noise: several starts, the same in every run.
    rng = np.random.default_rng(0)
    starts = [np.ones(len(counts)), *(rng.random(len(counts)) for _ in range(STARTS - 1))]
    found = [minimise(log_error, s, ftol=1e-10, maxiter=400, signed=True) for s in starts]
    value, roots = min(found, key=lambda pair: pair[0])
    shares = np.square(roots)
    return WeightedLevels(counts, np.asarray(shares / shares.sum()), math.exp(value))


def _best_shares(own: Floats, lengths: Floats) -> tuple[Floats, float]:
    """Return the optimal shares of levels under Gaussian noise, and their error.

    The error is the sum of ``own`` over precisions, which fall from level to level and cost what
    their level adds to runs. Levels whose optimum would rise are pooled, and then it is exact.
    Source: isotonic regression by pooling adjacent violators.

    >>> shares, error = _best_shares(np.array([9.0, 1.0]), np.array([2.0, 1.0]))
    >>> shares.round(6).tolist(), round(error, 6)
    ([0.5, 0.5], 8.0)
    """
    cost = np.diff(1 / lengths, prepend=0.0)
    pools: list[tuple[float, float, int]] = []
    for asked, price in zip(own.tolist(), cost.tolist(), strict=True):
        pool = asked, price, 1
        while pools and pools[-1][0] * pool[1] < pool[0] * pools[-1][1]:
            before = pools.pop()
            pool = pool[0] + before[0], pool[1] + before[1], pool[2] + before[2]
        pools.append(pool)
    precision = np.repeat(
        [math.sqrt(a / price) for a, price, _ in pools], [size for _, _, size in pools]
    )
    shares = -np.diff(precision, append=0.0) / lengths
    return shares / shares.sum(), math.fsum(math.sqrt(a * price) for a, price, _ in pools) ** 2


def _without_idle(asked: AxisWorkload, found: WeightedLevels, noise: Noise) -> WeightedLevels:
    """Return it without the levels that have next to no share; the cells stay."""
    kept = found.shares >= SHARE * found.shares.max()
    kept[-1] = True
    counts = tuple(count for count, keep in zip(found.counts, kept, strict=True) if keep)
    return found if kept.all() else weigh(asked, counts, noise)


def _adjusted(asked: AxisWorkload, found: WeightedLevels, noise: Noise) -> WeightedLevels:
    """Return it with one branching after the other changed by one, while that gains."""
    for _ in range(STEPS):
        tried = [weigh(asked, counts, noise) for counts in _neighbours(found.counts)]
        better = min(tried, key=lambda each: each.error, default=found)
        if better.error > found.error * (1 - GAIN):
            break
        found = better
    return found


def _neighbours(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the numbers of runs with one branching larger or smaller, but for the cells'.

    >>> _neighbours((2, 6, 30))
    [(1, 3, 30), (3, 9, 30), (2, 4, 30), (2, 8, 30)]
    """
    inner = counts[:-1]
    branchings = [b // a for a, b in zip((1, *inner), inner, strict=False)]
    out = []
    for place, branching in enumerate(branchings):
        for other in (branching - 1, branching + 1):
            changed = [*branchings[:place], other, *branchings[place + 1 :]]
            runs = np.cumprod(changed).tolist()
            if other > (place > 0) and runs[-1] < counts[-1]:
                out.append((*runs, counts[-1]))
    return out


def base_of(operators: Sequence[Operator], rows: Structured, noise: Noise) -> Base:
    """Return a hierarchy with its tables and total at unit sensitivity, as ``FactorSet.tables``.

    Args:
        operators: the factors of the attribute.
        rows: the hierarchy.
    """
    axis, cost = structured_axis(rows), law(noise).squared(float(rows.norm(law(noise).norm)))
    spend(sum(axis.work(operator) for operator in operators))
    axis.prepare(operators)
    sums = np.array([axis.sums(operator) for operator in operators])
    tables = np.append(sums[:, 0], 1.0), np.append(sums[:, 1] * cost, 0.0)
    return Base(rows, tables, axis.total / cost)


def with_hierarchies(problem: Problem, *, small: bool) -> Problem | None:
    """Return the problem with hierarchies in place of the cells of large attributes.

    ``small`` ones may have them too. None where only cells and totals are asked of them.
    """
    chosen = [i for i, f in enumerate(problem.factors) if (small or f.large) and not f.asks_cells]
    if not chosen:
        return None
    found = Problem(problem.workload, problem.noise)
    for i in chosen:
        found.factors[i].base = best_base(_asked(problem, i), problem.noise)
    return found


def best_base(asked: AxisWorkload, noise: Noise) -> Base:
    """Return the hierarchy of least expected error, or sums that fade where these have less."""
    found = [base_of(asked.operators, best_levels(asked, noise), noise)]
    if law(noise).norm == 2:
        found += fading_bases(asked, noise)
    return min(found, key=asked.error)


def _asked(problem: Problem, i: int) -> AxisWorkload:
    """Return what is asked of one attribute, each factor as often as the others' cells say."""
    index, weights = problem.components.index, problem.components.weights2.copy()
    for j, factors in enumerate(problem.factors):
        if j != i:
            weights *= np.append(factors.frobenius, float(factors.n))[index[:, j]]
    operators, which = problem.factors[i].operators, index[:, i]
    asked = which >= 0
    shares = np.bincount(which[asked], weights[asked], minlength=len(operators))
    return AxisWorkload(operators, tuple(shares.tolist()), float(weights[~asked].sum()))


def hierarchy_candidates(problem: Problem, limit: int) -> Iterator[ProductStrategy]:
    """Yield the best union of cells and hierarchies of the attributes, one block per support."""
    yield realise(problem, *best_identities(problem, limit), "tree")


def fading_bases(asked: AxisWorkload, noise: Noise) -> list[Base]:
    """Return running totals that fade, where all that is asked can be forecast for them."""
    powers = FADES if asked.size <= SEVERAL else FADES[:1]
    found = []
    for power in powers:
        rows = fading_rows(asked.size, power)
        if all(structured_axis(rows).answers(each) for each in asked.operators):
            found.append(base_of(asked.operators, rows, noise))
    return found
