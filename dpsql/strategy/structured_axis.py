"""Least-squares constants of an attribute whose rows are structured: never formed, nor inverted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from dpsql.algebra.blocks import Identity, IdentityTotal
from dpsql.algebra.groups import Groups
from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Columns, Floats, Operator
from dpsql.algebra.piecewise_rows import PiecewiseRows, pieces_of, some_rows, together
from dpsql.algebra.ranges import AllRange
from dpsql.algebra.weak_cache import WeakCache
from dpsql.records import cached_property
from dpsql.strategy.axis import CANCELLED, ZERO, Indices, intervals_of

T = TypeVar("T")

REMEMBERED = 1 << 20
"""Rows whose constants are kept: factors are planned, forecast and answered."""

RUNS = 1 << 21
"""Ends of the runs of classes of cells that are kept, 16 MiB."""

_latest_runs: WeakCache[tuple[Indices, Indices] | None] = WeakCache(RUNS)

STEPS = 8
"""Most steps of a row whose variance is found from those of intervals between two of them."""

TOGETHER = 1 << 12
"""Most rows of a factor that is taken together with others."""

PER_INTERVAL = 40.0
"""Work of one interval at one level, in products of numbers."""

CHUNK = 1 << 20
"""Intervals, or numbers of explicit rows, that are handled at once: a few arrays of 8 MiB."""


class StructuredAxis(ABC):
    """The least-squares constants of one attribute, as those of ``Axis``.

    ``u`` is the normalised row sum of the inverse Gram K, ``tau`` is 1'K1; all cells are answered.
    """

    gain = 1.0

    def __init__(self, rows: Structured, u: Floats, tau: float) -> None:
        self.rows, self.size = rows, rows.size
        self.u, self.tau, self.total = u, tau, 1 / tau
        self._known: dict[Hashable, tuple[Floats, Floats]] = {}

    @abstractmethod
    def _intervals(self, lo: Indices, hi: Indices) -> tuple[Floats, Floats, Floats]:
        """Return per interval its covariance with the total, its variance, and its scale."""

    @abstractmethod
    def _explicit(self, Q: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the same of explicit rows, shape (rows, n)."""

    @abstractmethod
    def solve(self, tensor: Floats, position: int) -> Floats:
        """Return the least squares of noisy rows along one axis: their sum, then the rest.

        The rest is what the cells differ by from their part of the sum.

        Args:
            tensor: one entry per row along the axis; the result has n + 1.
            position: the axis, from 0.
        """

    def _grouped(
        self, labels: Indices, entries: Floats, count: int
    ) -> tuple[Floats, Floats, Floats]:
        """Return the same of sums over disjoint classes of cells, each times its entry."""
        return self._by_rows(Groups(labels, count, entries))

    @property
    def count(self) -> int:
        """Return how many numbers are measured."""
        return self.rows.rows

    def is_whole(self, operator: Operator | None) -> bool:
        """False: the measured rows never give the rows of a factor with whole coefficients."""
        return False

    def parts(self, operator: Operator) -> tuple[Floats, Floats, bool]:
        """Return (Qu, diag(Q Kt Q'), answerable) of a query factor, per row."""
        if not self.answers(operator):
            return np.zeros(operator.rows), np.zeros(operator.rows), False
        means, spread = self._parts(operator)
        return np.where(np.abs(means) > ZERO, means, 0.0), spread, True

    def answers(self, operator: Operator) -> bool:
        """Say whether the rows of a factor can be forecast in reasonable time."""
        return True

    def _parts(self, operator: Operator) -> tuple[Floats, Floats]:
        """Return (Qu, diag(Q Kt Q')), remembered for the latest factors."""
        known = self._known.get(operator.key)
        if known is None:
            known = self._found(operator)
            self._remember(operator, known)
        return known

    def work(self, operator: Operator) -> float:
        """Return about how many products of numbers it takes to forecast the rows of a factor."""
        return PER_INTERVAL * (self.size if isinstance(operator, AllRange) else operator.rows)

    def prepare(self, operators: Iterable[Operator]) -> None:
        """Find the constants of many factors at once: passes over levels take as long for one."""
        intervals: list[tuple[Operator, tuple[Indices, Indices]]] = []
        steps: list[tuple[Operator, PiecewiseRows]] = []
        for operator in {each.key: each for each in operators}.values():
            if operator.rows > TOGETHER or operator.key in self._known:
                continue
            bounds = interval_bounds(operator)
            if bounds is not None:
                intervals.append((operator, bounds))
            elif not isinstance(operator, Groups) and (pieces := few_pieces(operator)) is not None:
                steps.append((operator, pieces))
        for some in _in_chunks(intervals):
            lo, hi = (np.concatenate([bounds[end] for _, bounds in some]) for end in (0, 1))
            self._keep([operator for operator, _ in some], self._centred(*self._intervals(lo, hi)))
        for part in _in_chunks(steps):
            rows = self._of_steps(together([pieces for _, pieces in part]))
            self._keep([operator for operator, _ in part], self._centred(*rows))

    def _keep(self, operators: Sequence[Operator], found: tuple[Floats, Floats]) -> None:
        """Remember the constants of all rows of some factors, one factor after the other."""
        ends = np.cumsum([operator.rows for operator in operators])[:-1]
        pairs = zip(*(np.split(part, ends) for part in found), strict=True)
        for operator, (means, spread) in zip(operators, pairs, strict=True):
            self._remember(operator, (means, spread))

    def _remember(self, operator: Operator, found: tuple[Floats, Floats]) -> None:
        sizes = sum(len(means) for means, _ in list(self._known.values()))
        for oldest in [*self._known]:  # another thread may let go of it as well
            if sizes + len(found[0]) <= REMEMBERED:
                break
            sizes -= sum(len(means) for means in self._known.pop(oldest, ())[:1])
        self._known[operator.key] = found

    def _found(self, operator: Operator) -> tuple[Floats, Floats]:
        bounds = interval_bounds(operator)
        if bounds is not None:
            starts = range(0, max(1, len(bounds[0])), CHUNK)
            found = [self._intervals(*(b[i : i + CHUNK] for b in bounds)) for i in starts]
        elif isinstance(operator, Groups):
            labels, entries = operator.labels, operator.entries().astype(np.float64)
            found = [self._grouped(labels, entries, operator.count)]
        else:
            found = [self._by_steps(operator) or self._by_rows(operator)]
        sums, variances, scale = (np.concatenate(part) for part in zip(*found, strict=True))
        return self._centred(sums, variances, scale)

    def _centred(self, sums: Floats, variances: Floats, scale: Floats) -> tuple[Floats, Floats]:
        spread = variances - sums**2 / self.tau
        return sums / self.tau, np.where(spread > CANCELLED * scale, spread, 0.0)

    def _by_steps(self, operator: Operator) -> tuple[Floats, Floats, Floats] | None:
        """Return the same of rows of few steps, None where there are more."""
        pieces = few_pieces(operator)
        return None if pieces is None else self._of_steps(pieces)

    def _of_steps(self, pieces: PiecewiseRows) -> tuple[Floats, Floats, Floats]:
        """Return the same of rows of pieces.

        With T_h the sum of the cells before h, a row is the sum of c_k T_h(k) over its steps, the
        heights c_k add up to zero, and its variance is -c_k c_l Var(T_h(k) - T_h(l)), summed over
        pairs k < l.
        """
        row, cell, height = pieces.changes()
        rows = pieces.rows
        from_first = self._intervals(np.zeros_like(cell), cell)[0]
        sums = np.zeros(rows) + np.bincount(row, height * from_first, rows)
        variances, scale = np.zeros(rows), np.zeros(rows)
        for apart in range(1, np.bincount(row).max(initial=1)):
            k = np.flatnonzero(row[apart:] == row[:-apart])
            weights = -height[k] * height[k + apart]
            _, between, size = self._intervals(cell[k], cell[k + apart])
            variances += np.bincount(row[k], weights * between, rows)
            scale += np.bincount(row[k], np.abs(weights) * size, rows)
        return sums, variances, scale

    def _by_rows(self, operator: Operator) -> tuple[Floats, Floats, Floats]:
        """Return the same of any rows, written out a few at a time."""
        step = max(1, CHUNK // self.size)
        found = [
            self._explicit(some_rows(operator, i, step)) for i in range(0, operator.rows, step)
        ]
        sums, variances, scale = (np.concatenate(part) for part in zip(*found, strict=True))
        return sums, variances, scale

    def cross(self, left: Operator | None, right: Operator | None) -> tuple[Floats, Floats]:
        """Return per pair of rows (q'u q''u, q'Kt q''); None is Total."""
        if left is None or right is None:
            other = left or right
            means = np.ones(1) if other is None else self._parts(other)[0]
            return means, np.zeros(len(means))
        one, two = interval_bounds(left), interval_bounds(right)
        if one is not None and two is not None:
            return self._paired(one, two)
        found = [np.empty((2, 0))]
        step = max(1, CHUNK // self.size)
        for start in range(0, left.rows, step):
            P, Q = some_rows(left, start, step), some_rows(right, start, step)
            (a, v, _), (b, w, _) = self._explicit(P), self._explicit(Q)
            both = self._explicit(P + Q)[1]
            found.append(np.array([a * b / self.tau**2, (both - v - w) / 2 - a * b / self.tau]))
        means, spread = np.concatenate(found, axis=1)
        return means, spread

    def _paired(
        self, one: tuple[Indices, Indices], two: tuple[Indices, Indices]
    ) -> tuple[Floats, Floats]:
        """Return the same of intervals: four intervals between their ends have the covariance."""
        (a, b), (c, d) = one, two
        first, second = self._intervals(a, b)[0], self._intervals(c, d)[0]
        covariance = np.zeros(len(a))
        for x, y, sign in ((a, d, 1), (b, c, 1), (a, c, -1), (b, d, -1)):
            variance = self._intervals(np.minimum(x, y), np.maximum(x, y))[1]
            covariance += sign / 2 * variance
        return first * second / self.tau**2, covariance - first * second / self.tau

    def sums(self, operator: Operator) -> tuple[float, float]:
        """Return the sums of Qu squared and of diag(Q Kt Q') over all rows of a factor."""
        if isinstance(operator, AllRange):
            return self._all_ranges
        means, spread = self._parts(operator)
        return float(means @ means), float(spread.sum())

    @cached_property
    def _all_ranges(self) -> tuple[float, float]:
        """Return ``sums`` of all ranges: the entries of their Gram are (i + 1)(n - j), i <= j."""
        rank = np.arange(1, self.size + 1, dtype=np.float64)
        own = rank * self.u
        before = own.cumsum() - own
        means2 = float(((self.size + 1 - rank) * self.u) @ (2 * before + own))
        return means2, max(0.0, self._of_all_ranges() - means2 * self.tau)

    @abstractmethod
    def _of_all_ranges(self) -> float:
        """Return the sum of the variances of all ranges."""

    def _split(self, cells: Floats) -> Floats:
        """Return [sum, what is left of each cell without its part of it] along the middle axis."""
        sums = cells.sum(axis=1, keepdims=True)
        cells -= self.u[:, np.newaxis] * sums
        return np.concatenate([sums, cells], axis=1)


def interval_bounds(operator: Operator) -> tuple[Indices, Indices] | None:
    """Return the half-open intervals [lo, hi) of cells whose sums are asked, if they are such."""
    if isinstance(operator, Identity | IdentityTotal):
        cells = np.arange(operator.n, dtype=np.int64)
        if isinstance(operator, Identity):
            return cells, cells + 1
        return np.append(cells, 0), np.append(cells + 1, operator.n)
    if isinstance(operator, Columns):
        found = interval_bounds(operator.op)
        if found is None or (np.diff(operator.index) <= 0).any():
            return None
        lo, hi = (np.searchsorted(operator.index, each) for each in found)
        return lo, np.maximum(lo, hi)
    if isinstance(operator, Groups) and operator.weights is None:
        return _latest_runs.of(operator, 2 * operator.count, lambda: _runs(operator))
    return intervals_of(operator)


def _runs(operator: Groups) -> tuple[Indices, Indices] | None:
    """Return the cells of every class where each is one run of them."""
    labels = operator.labels
    start = np.flatnonzero(np.diff(labels, prepend=-1))
    run = labels[start]
    end = np.append(start[1:], len(labels))[run >= 0]
    start, run = start[run >= 0], run[run >= 0]
    if len(run) > operator.count or np.bincount(run, minlength=1).max() > 1:
        return None
    lo, hi = np.zeros((2, operator.count), dtype=np.int64)
    lo[run], hi[run] = start, end
    return lo, hi


def few_pieces(operator: Operator) -> PiecewiseRows | None:
    """Return rows as pieces, None where they have too many steps."""
    pieces = pieces_of(operator)
    return None if pieces is None or len(pieces.row) > STEPS * operator.rows else pieces


def _in_chunks(found: Sequence[tuple[Operator, T]]) -> Iterator[list[tuple[Operator, T]]]:
    """Yield factors, so many at once that their rows are no more than are handled at once."""
    some: list[tuple[Operator, T]] = []
    for each in found:
        if some and sum(operator.rows for operator, _ in some) + each[0].rows > CHUNK:
            yield some
            some = []
        some.append(each)
    if some:
        yield some
