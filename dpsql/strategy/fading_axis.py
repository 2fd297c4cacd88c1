"""Least-squares constants of an attribute that is measured by running totals that fade."""

from __future__ import annotations

import math

import numpy as np

from dpsql.algebra.decayed_sums import Fading
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Floats, Operator
from dpsql.algebra.ranges import AllRange
from dpsql.algebra.weak_cache import WeakCache
from dpsql.strategy.axis import Indices
from dpsql.strategy.structured_axis import StructuredAxis, few_pieces, interval_bounds

WORK = 1 << 29
"""Most multiplications to forecast the rows of one factor, seconds of them."""

FEW = 4
"""Intervals of one width up to which each has its sum by itself."""

REMEMBERED = 1 << 12
"""Factors whose widths are not counted again."""

_widths: WeakCache[int] = WeakCache(REMEMBERED)

AT_ONCE = 1 << 22
"""Numbers that are transformed at once, 32 MiB."""


class FadingAxis(StructuredAxis):
    """The least-squares constants of one attribute, from how running totals fade.

    Rows are triangular and the same for every cell: so is their inverse, of which the first
    column is a power series, one over that of the rows. With G its running totals, the running
    total up to h has variance sum of G_k^2, k < h, and two of them, d apart, share the sum of
    G_k G_(k + d) over the shorter one.

    Source: Fichtenberger, Henzinger, Upadhyay 2023, section 3 (factors of running totals).
    """

    def __init__(self, rows: Fading) -> None:
        self.inverse = reciprocal(np.asarray(rows.coefficients, dtype=np.float64))
        self.totals = self.inverse.cumsum()
        squares = np.square(self.totals).cumsum()
        self.squares: Floats = np.concatenate([[0.0], squares])
        sums = multiply_series(self.totals[::-1], self.inverse)
        self.sums_before: Floats = np.concatenate([[0.0], sums.cumsum()])
        super().__init__(rows, sums / sums.sum(), float(self.squares[-1]))

    def answers(self, operator: Operator) -> bool:
        """Say whether the rows of a factor can be forecast in reasonable time.

        Classes that leave cells out count as if they were written out: with many of them, one
        matrix for all answers is several times worse than parts, of which these are another.
        """
        is_open = isinstance(operator, Groups) and bool((operator.labels < 0).any())
        if is_open or interval_bounds(operator) is None:
            return operator.rows * self.size * math.log2(self.size + 1) <= WORK
        return self.work(operator) <= WORK

    def work(self, operator: Operator) -> float:
        """Return about how many products of numbers it takes to forecast the rows of a factor."""
        if isinstance(operator, AllRange):
            return float(self.size) ** 2
        bounds = interval_bounds(operator)
        if bounds is not None:
            widths = _widths.of(operator, 1, lambda: _count_widths(*bounds))
            return float((widths + 1) * self.size)
        each = math.log2(self.size + 1)
        if not isinstance(operator, Groups) and (pieces := few_pieces(operator)) is not None:
            each = min(each, (len(pieces.row) / pieces.rows) ** 2)
        return operator.rows * self.size * each

    def _intervals(self, lo: Indices, hi: Indices) -> tuple[Floats, Floats, Floats]:
        """Return per interval its covariance with the total, its variance, and its scale."""
        scale = self.squares[hi] + self.squares[lo]
        shared = np.zeros(len(lo))
        inner = np.flatnonzero((lo > 0) & (lo < hi))
        widths, which = np.unique((hi - lo)[inner], return_inverse=True)
        ends = np.bincount(which, minlength=len(widths)).cumsum()
        groups = np.split(inner[np.argsort(which, kind="stable")], ends[:-1])
        for width, members in zip(widths.tolist(), groups, strict=False):
            if len(members) <= FEW:
                for member in members.tolist():
                    first = self.totals[: lo[member]]
                    shared[member] = first @ self.totals[width : width + len(first)]
                continue
            products = self.totals[: self.size - width] * self.totals[width:]
            shared[members] = products.cumsum()[lo[members] - 1]
        variances = np.where(lo < hi, scale - 2 * shared, 0.0)
        return self.sums_before[hi] - self.sums_before[lo], variances, scale

    def _of_all_ranges(self) -> float:
        """Return the sum of the variances of all ranges: each is the difference of two totals."""
        times = self.size - np.arange(self.size)
        earlier = self.totals.cumsum() - self.totals
        return float(self.size * self.squares.sum() - 2 * (self.totals * earlier) @ times)

    def _explicit(self, Q: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the same of explicit rows, shape (rows, n)."""
        spread = multiply_series(Q[:, ::-1], self.inverse)[:, ::-1]
        variances = np.square(spread).sum(axis=1)
        return Q @ np.diff(self.sums_before), variances, variances

    def solve(self, tensor: Floats, position: int) -> Floats:
        """Return the least squares of noisy rows along one axis: their sum, then the rest.

        Args:
            tensor: noisy numbers, those of this attribute's rows on one axis.
            position: of that axis.
        """
        before, after = tensor.shape[:position], tensor.shape[position + 1 :]
        columns = np.moveaxis(tensor, position, -1).reshape(-1, self.size)
        step = max(1, AT_ONCE // self.size)
        parts = [
            multiply_series(columns[i : i + step], self.inverse)
            for i in range(0, len(columns), step)
        ]
        cells = np.concatenate(parts).reshape(math.prod(before), -1, self.size).swapaxes(1, 2)
        return self._split(np.ascontiguousarray(cells)).reshape(*before, self.size + 1, *after)


def _count_widths(lo: Indices, hi: Indices) -> int:
    return len(np.unique((hi - lo)[lo > 0]))


def multiply_series(numbers: Floats, series: Floats) -> Floats:
    """Return the product of power series along the last axis, as many terms as there are numbers.

    Args:
        numbers: (..., n).
        series: (n,) or longer.

    >>> multiply_series(np.array([1.0, 1.0, 0.0]), np.array([1.0, 2.0, 3.0])).round(9).tolist()
    [1.0, 3.0, 5.0]
    """
    n = numbers.shape[-1]
    length = 1 << (2 * n - 1).bit_length()
    product = np.fft.rfft(numbers, length) * np.fft.rfft(series[:n], length)
    return np.asarray(np.fft.irfft(product, length)[..., :n])


def reciprocal(series: Floats) -> Floats:
    """Return as many terms of one over a power series, by Newton's method.

    Args:
        series: (n,), whose first term is not zero.

    >>> reciprocal(np.array([2.0, 2.0, 0.0])).round(9).tolist()
    [0.5, -0.5, 0.5]
    """
    n, found = len(series), np.array([1 / series[0]])
    while len(found) < n:
        more = min(n, 2 * len(found))
        padded = np.concatenate([found, np.zeros(more - len(found))])
        error = -multiply_series(padded, series[:more])
        error[0] += 2
        found = multiply_series(padded, error)
    return found
