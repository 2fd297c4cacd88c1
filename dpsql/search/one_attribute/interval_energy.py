"""Fraction of the workload's squared norm on vectors that are constant on each of k equal runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.algebra.blocks import Identity
from dpsql.algebra.groups import Groups
from dpsql.algebra.levels import edges_of
from dpsql.algebra.operator import Floats, Operator
from dpsql.algebra.piecewise_rows import NUMBERS, PiecewiseRows, pieces_of, some_rows, together
from dpsql.algebra.ranges import AllRange, Ranges
from dpsql.algebra.weak_cache import WeakCache
from dpsql.strategy.axis import Indices
from dpsql.strategy.structured_axis import interval_bounds

EASY = (Identity, AllRange)
"""Factors whose energy needs no list of their rows."""

SAMPLE = 1 << 15
"""Intervals of a factor that are drawn to search with, where there are more than twice as many."""

COUNTS, REMEMBERED, DRAWN = 100, 1 << 18, 1 << 21
"""About how many numbers of runs are tried for the same queries, results that are kept, and ends of
intervals that were drawn, 16 MiB."""

_energies: WeakCache[dict[int, float]] = WeakCache(REMEMBERED)
_samples: WeakCache[Ranges | None] = WeakCache(DRAWN)


def drawn(operator: Operator) -> Ranges | None:
    """Return few of very many intervals, the same for all searches; None where they are few."""
    if isinstance(operator, EASY):
        return None
    return _samples.of(operator, 2 * SAMPLE, lambda: _sample(operator))


def _sample(operator: Operator) -> Ranges | None:
    bounds = interval_bounds(operator) if operator.rows > 2 * SAMPLE else None
    if bounds is None:
        return None
    chosen = np.random.default_rng(0).choice(len(bounds[0]), SAMPLE, replace=False)
    return Ranges(operator.n, bounds[0][chosen], bounds[1][chosen])


def remember_steps(operators: Sequence[Operator], count: int) -> None:
    """Find what rows of few pieces have of ``energy`` at once, where it is not known."""
    found: list[tuple[dict[int, float], PiecewiseRows]] = []
    for operator in operators:
        if isinstance(operator, (*EASY, Groups)):
            continue
        known = _energies.of(operator, COUNTS, dict)
        if count not in known and interval_bounds(operator) is None:
            pieces = pieces_of(operator)
            found += [] if pieces is None else [(known, pieces)]
    if found:
        parts = [pieces for _, pieces in found]
        first = np.cumsum([0, *(pieces.rows for pieces in parts[:-1])])
        sums = np.add.reduceat(together(parts).energies(count), first)
        for (known, _), each in zip(found, sums.tolist(), strict=True):
            known[count] = each


def energy(operator: Operator, count: int) -> float:
    """Return the sum over runs of |Q 1_v|^2 / length, for so many runs of nearly equal length.

    Remembered: weights of the same queries are changed over and over again.

    >>> energy(Identity(6), 3), energy(AllRange(2), 1)
    (3.0, 3.0)
    """
    known = _energies.of(operator, COUNTS, dict)
    if count not in known:
        known[count] = _energy(operator, count)
    return known[count]


def _energy(operator: Operator, count: int) -> float:
    edges = edges_of(operator.n, count)
    lengths = np.diff(edges).astype(np.float64)
    if isinstance(operator, Identity):
        return float(count)
    if isinstance(operator, AllRange):
        return _of_all_ranges(operator.n, edges, lengths)
    bounds = interval_bounds(operator)
    if bounds is not None:
        return _of_intervals(*bounds, edges, lengths)
    if isinstance(operator, Groups):
        return _of_groups(operator, edges, lengths)
    out, step = 0.0, max(1, NUMBERS // operator.n)
    for start in range(0, operator.rows, step):
        sums = np.add.reduceat(some_rows(operator, start, step), edges[:-1], axis=1)
        out += float((np.square(sums) / lengths).sum())
    return out


def run_of(cells: Indices, edges: Indices) -> Indices:
    """Return the run that each cell is in.

    >>> run_of(np.arange(5), edges_of(5, 3)).tolist(), edges_of(5, 3).tolist()
    ([0, 1, 1, 2, 2], [0, 1, 3, 5])
    """
    return np.asarray(((cells + 1) * (len(edges) - 1) - 1) // edges[-1])


def _of_all_ranges(n: int, edges: Indices, lengths: Floats) -> float:
    rank = np.arange(1, n + 1, dtype=np.float64)
    rest = n + 1 - rank
    sums = np.concatenate([[0.0], rank.cumsum()])
    before = sums[:-1] - np.repeat(sums[edges[:-1]], lengths.astype(np.int64))
    squares = np.add.reduceat(rest * (2 * before + rank), edges[:-1])
    return float((squares / lengths).sum())


def _of_intervals(lo: Indices, hi: Indices, edges: Indices, lengths: Floats) -> float:
    """Return the energy of interval sums: whole runs, and the parts of two runs at the ends."""
    lo, hi = lo[lo < hi], hi[lo < hi]
    a, b = run_of(lo, edges), run_of(hi - 1, edges)
    same = a == b
    inside = np.square((hi - lo)[same]) / lengths[a[same]]
    left = np.square((edges[a + 1] - lo)[~same]) / lengths[a[~same]]
    right = np.square((hi - edges[b])[~same]) / lengths[b[~same]]
    sums = np.concatenate([[0.0], lengths.cumsum()])
    whole = (sums[b] - sums[np.minimum(a + 1, b)])[~same]
    return float(inside.sum() + left.sum() + right.sum() + whole.sum())


def _of_groups(operator: Groups, edges: Indices, lengths: Floats) -> float:
    cells = np.flatnonzero(operator.labels >= 0)
    node = run_of(cells, edges)
    pairs = node * operator.count + operator.labels[cells]
    found, inverse = np.unique(pairs, return_inverse=True)
    sums = np.bincount(inverse, operator.entries()[cells])
    return float((np.square(sums) / lengths[found // operator.count]).sum())
