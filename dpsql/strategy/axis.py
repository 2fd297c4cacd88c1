"""Least-squares constants of one attribute, from the integer rows that are really measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity, Prefix
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Columns, Floats, Integers, Operator
from dpsql.algebra.ranges import AllRange, Ranges
from dpsql.algebra.weak_cache import WeakCache
from dpsql.records import dataclass, replace
from dpsql.strategy.inverse import RANK, STRUCTURED_FROM, inverse_of

Indices: TypeAlias = NDArray[np.int64]

REMEMBERED = 1 << 22
"""Numbers of the constants of matrices that are remembered, 32 MiB, or those of the latest.

Plans are compared, forecast, then solved with one matrix; inverting takes the cube of its size.
"""

SPARSE = 16
"""Cells for every pair of numbers of a query that are not zero from which only these are read."""

SPAN_TOLERANCE = 1e-7
"""Relative size below which the part of a query outside the row space counts as zero."""

LARGE = 1 << 12
"""Most cells for which matrices of cells by cells are formed, 128 MiB each."""

THIN = 16
"""Cells for every row from which nothing as large as cells by cells is formed, either."""

WRITTEN = 1 << 26
"""Most numbers of a query, half a GiB, that is compared with the row space."""

ZERO = 1e-9
"""Size below which the mean part of a query row counts as zero."""


CANCELLED = 1e-12
"""Size below which a spread, relative to the terms that it is the sum of, is their rounding."""

WHOLE = 1e-9
"""Tolerance, by rounding, of a coefficient that is a whole number."""

WHOLE_NUMBERS = 1 << 26
"""Most multiplications to find out whether coefficients are whole; beyond, they are not."""

APART = (Identity, Groups)
"""Operators whose columns have one entry at most."""

_latest: WeakCache[Axis] = WeakCache(REMEMBERED)
_latest_residual: WeakCache[Axis] = WeakCache(REMEMBERED)


@dataclass(frozen=True, slots=True)
class Axis:
    """The least-squares constants of one attribute, from the rows that are really measured.

    ``rows`` is None for the identity and its residual rows, ``inverse`` their pseudo-inverse.
    ``u`` is the normalised row sum of the inverse Gram K, ``Kt`` the covariance of the part that
    sums to zero (None for I - J/n). ``total`` is 1'K1 inverted, zero where the rows do not answer
    the sum of all cells. ``gain`` is the precision of residual rows relative to ``Kt``.
    ``row_space`` projects on what the rows can answer, None for everything. Few rows over many
    cells have ``half`` H (n, r) in place of Kt = HH', and ``basis`` V (n, r) in place of VV'.
    """

    size: int
    rows: Integers | None
    inverse: Floats | None
    u: Floats
    Kt: Floats | None
    total: float
    gain: float
    row_space: Floats | None
    half: Floats | None = None
    basis: Floats | None = None

    def parts(self, operator: Operator) -> tuple[Floats, Floats, bool]:
        """Return (Qu, diag(Q Kt Q'), answerable) of a query factor, per row."""
        if isinstance(operator, Identity):
            return self.u, self._cells(), self.row_space is None and self.basis is None
        means = np.asarray(operator.matmat(self.u[:, np.newaxis])[:, 0], dtype=np.float64)
        means = np.where(np.abs(means) > ZERO, means, 0.0)
        chosen = operator.index if isinstance(operator, Columns) else None
        if self.half is not None:
            raw = np.square(operator.matmat(self.half)).sum(axis=1)
            # Squares of residue: 1e-9 of the largest entry, well above what rounding leaves in
            # doubles.
            return means, np.where(raw > 1e-18 * raw.max(), raw, 0.0), self._spans(operator)
        if isinstance(operator, Groups):
            raw, scale = self._grouped_spread(operator)
            return means, np.where(raw > CANCELLED * scale, raw, 0.0), self._spans(operator)
        bounds = intervals_of(operator.op if isinstance(operator, Columns) else operator)
        if bounds is not None:
            raw, scale = self._interval_spread(*bounds, chosen)
        else:
            raw, scale = self._spread(np.asarray(operator.dense(), dtype=np.float64))
        return means, np.where(raw > CANCELLED * scale, raw, 0.0), self._spans(operator)

    def is_whole(self, operator: Operator | None) -> bool:
        """True if the measured rows give the rows of a factor with whole coefficients.

        None is the sum of all cells. Rows that take too many numbers count as not whole.
        """
        if self.inverse is None:
            return self.rows is None and (operator is None or operator.integer)
        if operator is None:
            return _are_whole(self.inverse.sum(axis=0))
        if isinstance(operator, Identity):
            return _are_whole(self.inverse)
        if operator.rows * self.inverse.size > WHOLE_NUMBERS:
            return False
        return _are_whole(np.asarray(operator.matmat(self.inverse), dtype=np.float64))

    def _cells(self) -> Floats:
        if self.half is not None:
            return np.asarray(np.square(self.half).sum(axis=1))
        if self.Kt is None:
            return np.full(self.size, 1 - 1 / self.size)
        return np.asarray(self.Kt.diagonal())

    def _spread(self, Q: Floats) -> tuple[Floats, Floats]:
        """Return diag(Q Kt Q') and the size of the terms it is the sum of."""
        scale = Q**2 @ self._cells()
        if self.Kt is None:
            return np.einsum("ij,ij->i", Q, Q) - Q.sum(axis=1) ** 2 / self.size, scale
        counts = np.count_nonzero(Q, axis=1)
        if self.size >= STRUCTURED_FROM and int(counts.max()) ** 2 * SPARSE <= self.size:
            return _few_spread(Q, counts, self.Kt), scale
        return np.einsum("ij,ij->i", Q @ self.Kt, Q), scale

    def _grouped_spread(self, operator: Groups) -> tuple[Floats, Floats]:
        """Return the spread of sums over disjoint classes of cells."""
        entries, inside = operator.entries().astype(np.float64), operator.labels >= 0
        labels = operator.labels[inside]

        def summed(values: Floats) -> Floats:
            found = np.bincount(labels, values[inside], minlength=operator.count)
            return found.astype(np.float64)

        scale = summed(entries**2 * self._cells())
        if self.Kt is None:
            return summed(entries**2) - summed(entries) ** 2 / self.size, scale
        alike = operator.labels[:, np.newaxis] == operator.labels
        return summed(entries * ((self.Kt * alike) @ entries)), scale

    def _interval_spread(
        self, lo: Indices, hi: Indices, chosen: Indices | None
    ) -> tuple[Floats, Floats]:
        """Return the spread of interval sums, of all cells or of chosen ones."""
        Kt = self.Kt
        if chosen is not None:
            order = np.argsort(chosen, kind="stable")
            lo, hi = (np.searchsorted(chosen[order], ends) for ends in (lo, hi))
            Kt = None if Kt is None else Kt[np.ix_(order, order)]
        length = (hi - lo).astype(np.float64)
        if Kt is None:
            return length * (1 - length / self.size), length
        size = self.size
        sums = np.zeros((size + 1, size + 1))
        sums[1:, 1:] = Kt.cumsum(axis=0).cumsum(axis=1)
        cells = np.concatenate([[0.0], Kt.diagonal().cumsum()])
        spread = sums[hi, hi] - sums[lo, hi] - sums[hi, lo] + sums[lo, lo]
        return spread, cells[hi] - cells[lo]

    def _spans(self, operator: Operator) -> bool:
        if self.row_space is None and self.basis is None:
            return True
        if self.basis is not None and operator.rows * operator.n > WRITTEN:
            return False
        Q = np.asarray(operator.dense(), dtype=np.float64)
        inside = Q
        if self.row_space is not None:
            inside = Q @ self.row_space
        elif self.basis is not None:
            inside = (Q @ self.basis) @ self.basis.T
        outside = np.abs(Q - inside)
        return bool((outside <= SPAN_TOLERANCE * (1 + np.abs(Q).max())).all())

    def cross(self, left: Operator | None, right: Operator | None) -> tuple[Floats, Floats]:
        """Return per pair of rows (q'u q''u, q'Kt q''); None is Total."""
        if left is None or right is None:
            other = left or right
            means = np.ones(1) if other is None else other.matmat(self.u[:, np.newaxis])[:, 0]
            return np.asarray(means, dtype=np.float64), np.zeros(len(means))
        if self.half is not None:
            return self._crossed_half(left, right)
        dots = _row_dots(left, right) if self.Kt is None else None
        if dots is not None:
            ones = np.ones((self.size, 1))
            product = left.matmat(ones)[:, 0] * right.matmat(ones)[:, 0]
            return product / self.size**2, dots - product / self.size
        if isinstance(left, Ranges) and isinstance(right, Ranges) and self.Kt is not None:
            return self._crossed_ranges(left, right)
        P = np.asarray(left.dense(), dtype=np.float64)
        Q = np.asarray(right.dense(), dtype=np.float64)
        centred = P - P.mean(axis=1, keepdims=True) if self.Kt is None else P @ self.Kt
        return (P @ self.u) * (Q @ self.u), np.einsum("ij,ij->i", centred, Q)

    def _crossed_half(self, left: Operator, right: Operator) -> tuple[Floats, Floats]:
        """Return the same from H; the rows of intervals are taken some at a time."""
        assert self.half is not None
        numbers = np.column_stack([self.u, self.half])
        step = max(1, WRITTEN // (8 * numbers.shape[1]))
        if not (isinstance(left, Ranges) and isinstance(right, Ranges)) or left.rows <= step:
            one, two = (op.matmat(numbers) for op in (left, right))
            return one[:, 0] * two[:, 0], np.einsum("ij,ij->i", one[:, 1:], two[:, 1:])
        found = [
            self._crossed_half(left.some(slice(i, i + step)), right.some(slice(i, i + step)))
            for i in range(0, left.rows, step)
        ]
        means, spread = (np.concatenate(part) for part in zip(*found, strict=True))
        return means, spread

    def _crossed_ranges(self, left: Ranges, right: Ranges) -> tuple[Floats, Floats]:
        """Return the same of intervals, from sums of Kt up to each cell."""
        assert self.Kt is not None
        u = self.u[:, np.newaxis]
        means = left.matmat(u)[:, 0] * right.matmat(u)[:, 0]
        if ((left.hi - left.lo == 1) & (right.hi - right.lo == 1)).all():
            return means, self.Kt[left.lo, right.lo]
        sums = np.zeros((self.size + 1, self.size + 1))
        sums[1:, 1:] = self.Kt.cumsum(axis=0).cumsum(axis=1)
        (a, b), (c, d) = (left.lo, left.hi), (right.lo, right.hi)
        return means, sums[b, d] - sums[a, d] - sums[b, c] + sums[a, c]


def _few_spread(Q: Floats, counts: Indices, Kt: Floats) -> Floats:
    """Return diag(Q Kt Q') of rows with few numbers that are not zero: as many as ``counts``."""
    row, cell = np.nonzero(Q)
    place = np.arange(len(row)) - np.repeat(counts.cumsum() - counts, counts)
    shape = len(Q), int(counts.max())
    cells, numbers = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    cells[row, place], numbers[row, place] = cell, Q[row, cell]
    pairs = Kt[cells[:, :, np.newaxis], cells[:, np.newaxis]]
    return np.asarray(np.einsum("rij,ri,rj->r", pairs, numbers, numbers))


def _labelled(operator: Identity | Groups) -> tuple[Indices, Floats]:
    """Return the row of every cell, -1 for none, and its entry there."""
    if isinstance(operator, Groups):
        return operator.labels, operator.entries().astype(np.float64)
    return np.arange(operator.n, dtype=np.int64), np.ones(operator.n)


def _row_dots(left: Operator, right: Operator) -> Floats | None:
    """Return the products of row r with row r, where none has to be written out."""
    if isinstance(right, APART) and not isinstance(left, APART):
        left, right = right, left
    bounds = intervals_of(right)
    if isinstance(left, APART) and (bounds is not None or isinstance(right, APART)):
        labels, entries = _labelled(left)
        own = np.maximum(labels, 0)
        if isinstance(right, APART):
            others, found = _labelled(right)
            entries = np.where(others == labels, entries * found, 0.0)
        elif bounds is not None:
            cells = np.arange(left.n)
            inside = (bounds[0][own] <= cells) & (cells < bounds[1][own])
            entries = np.where(inside, entries, 0.0)
        inside = labels >= 0
        return _binned(labels[inside], entries[inside], left.rows)
    lengths = intervals_of(left)
    if bounds is None or lengths is None:
        return None
    shared = np.minimum(bounds[1], lengths[1]) - np.maximum(bounds[0], lengths[0])
    return np.asarray(np.maximum(shared, 0), dtype=np.float64)


def _binned(labels: Indices, numbers: Floats, rows: int) -> Floats:
    return np.asarray(np.bincount(labels, numbers, rows), dtype=np.float64)


def _are_whole(numbers: Floats) -> bool:
    return bool((np.abs(numbers - np.rint(numbers)) < WHOLE).all())


def intervals_of(operator: Operator) -> tuple[Indices, Indices] | None:
    """Return the half-open intervals [lo, hi) whose sums the operator asks, if it does."""
    if isinstance(operator, Prefix):
        return np.zeros(operator.size, dtype=np.int64), np.arange(1, operator.size + 1)
    if isinstance(operator, Ranges):
        return operator.lo, operator.hi
    if isinstance(operator, AllRange):
        lo, last = np.triu_indices(operator.size)
        return lo.astype(np.int64), last.astype(np.int64) + 1
    return None


def full_axis(size: int, rows: Integers | None, mixed: bool) -> Axis:
    """Return the constants of an attribute measured with full rows.

    Those of the latest matrices are remembered for as long as these are in use.

    Args:
        size: n, the cells of the attribute.
        rows: (r, n); None for the identity.
        mixed: true if other blocks measure residual rows of the attribute.

    Raises: ValueError where ``mixed`` rows span the sum of all cells.
    """
    if rows is None:
        return _identity_axis(size)
    if mixed:
        return _full_axis(size, rows, mixed)
    return _remembered(_latest, rows, lambda: _full_axis(size, rows, mixed))


def _remembered(latest: WeakCache[Axis], rows: Integers, find: Callable[[], Axis]) -> Axis:
    """Return constants without their rows, which a cache would keep in use, and with them again."""
    count = 2 * min(rows.shape) * rows.shape[1]
    return replace(latest.of(rows, count, lambda: replace(find(), rows=None)), rows=rows)


def _full_axis(size: int, rows: Integers, mixed: bool) -> Axis:
    Q = rows.astype(np.float64)
    is_thin = size >= STRUCTURED_FROM and len(rows) * THIN <= size
    if (size > LARGE or is_thin) and not mixed:
        return _thin_axis(size, rows, Q)
    K, inverse, row_space = inverse_of(Q)
    ones = K.sum(axis=1)
    tau = float(ones.sum())
    if row_space is not None and np.abs(row_space.sum(axis=1) - 1).max() > SPAN_TOLERANCE:
        return Axis(size, rows, inverse, np.zeros(size), K, 0.0, 1.0, row_space)
    if mixed:
        raise ValueError("full and residual rows of one attribute meet only for the identity")
    Kt = K - np.outer(ones, ones) / tau
    return Axis(size, rows, inverse, ones / tau, Kt, 1 / tau, 1.0, row_space)


def _thin_axis(size: int, rows: Integers, Q: Floats) -> Axis:
    """Return the constants of few rows over many cells; nothing is as large as cells by cells."""
    if size > LARGE:
        values, vectors = np.linalg.eigh(Q @ Q.T)
        kept = values > 1e-13 * values[-1]  # squares of singular values: less is their rounding
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        V = Q.T @ (vectors / roots)
    else:
        left, singular, right = np.linalg.svd(Q, full_matrices=False)
        kept = singular > RANK * singular[0]
        roots, vectors, V = singular[kept], left[:, kept], right[kept].T
    half, inverse = V / roots, (V / roots) @ vectors.T
    w = half.sum(axis=0)
    tau = float(w @ w)
    if np.abs(V @ V.sum(axis=0) - 1).max() > SPAN_TOLERANCE:
        return Axis(size, rows, inverse, np.zeros(size), None, 0.0, 1.0, None, half, V)
    half, u = half - np.outer(half @ w, w) / tau, half @ w / tau
    basis = V if len(w) < size else None
    return Axis(size, rows, inverse, u, None, 1 / tau, 1.0, None, half, basis)


def residual_axis(size: int, rows: Integers | None) -> Axis:
    """Return the constants of an attribute that is measured with residual rows only.

    ``rows`` has shape (r, size); None is the identity less the total.
    """
    if rows is None:
        return _identity_axis(size)
    return _remembered(_latest_residual, rows, lambda: _residual_axis(size, rows))


def _residual_axis(size: int, rows: Integers) -> Axis:
    B = rows.astype(np.float64)
    left, singular, right = np.linalg.svd(B, full_matrices=True)
    rank = int((singular > RANK * singular[0]).sum())
    if rank < size - 1 and not rows.sum(axis=1).any():
        return _partial_axis(size, rows, B)
    null = right[-1]
    # The null vector has length one, so that its sum is at most the root of size: that is the
    # scale.
    if rank != size - 1 or abs(null.sum()) < 1e-9 * math.sqrt(size):
        raise ValueError("residual rows must leave exactly one direction, and not the total")
    u = null / null.sum()
    inverse = (right[:rank].T / singular[:rank]) @ left[:, :rank].T
    inverse = inverse - np.outer(u, inverse.sum(axis=0))
    return Axis(size, rows, inverse, u, inverse @ inverse.T, 0.0, 1.0, None)


def _partial_axis(size: int, rows: Integers, B: Floats) -> Axis:
    """Return the constants of residual rows that sum to zero and leave more than one direction."""
    K, inverse, row_space = inverse_of(B)
    spanned = 1 / size if row_space is None else row_space + 1 / size
    return Axis(size, rows, inverse, np.full(size, 1 / size), K, 0.0, 1.0, np.asarray(spanned))


def _identity_axis(size: int) -> Axis:
    u = np.full(size, 1 / size)
    return Axis(size, None, None, u, None, 1 / size, float(size) ** 2, None)


def unmeasured_axis(size: int) -> Axis:
    """Return the constants of an attribute that no block resolves: only its total is known."""
    u = np.full(size, 1 / size)
    return Axis(size, None, None, u, None, 0.0, 1.0, None)
