"""Rows of many cells that change at few of them, as pieces of one entry each.

A condition on a column of 100,000 values has a handful of pieces. What a hierarchy asks of such a
row follows from the runs in which a piece begins, and its variance from those of intervals between
the cells where pieces begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.algebra.blocks import Dense
from dpsql.algebra.levels import edges_of
from dpsql.algebra.operator import Floats, Operator
from dpsql.records import dataclass

Indices = npt.NDArray[np.int64]

FEW = 16
"""Cells to a piece, on average, from which rows are taken for pieces."""

NUMBERS = 1 << 22
"""Numbers of explicit rows that are handled at once, 32 MiB."""


@dataclass(frozen=True, slots=True)
class PiecewiseRows:
    """Rows of n cells: of every piece the row, the cell where it begins, and its entry.

    All three have shape (pieces,). Rows are in order, and so are the pieces of each, of which the
    first begins at cell 0.
    """

    n: int
    row: Indices
    start: Indices
    entry: Floats

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return int(self.row[-1]) + 1 if len(self.row) else 0

    def energies(self, count: int) -> Floats:
        """Return of every row the sum over runs of (sum in the run)^2 / length of the run.

        There are ``count`` runs, of nearly equal length. A run within one piece has the sum of the
        squares of its cells, so that only the runs differ in which a piece begins.

        >>> rows = PiecewiseRows(4, np.array([0, 0]), np.array([0, 1]), np.array([1.0, 3]))
        >>> rows.energies(2).tolist()
        [26.0]
        """
        lengths = np.diff(np.append(self.start, self.n))
        lengths[lengths <= 0] += self.n  # the last piece of a row goes to the last cell
        before = self._before(self.entry * lengths), self._before(np.square(self.entry) * lengths)
        whole = np.bincount(self.row, np.square(self.entry) * lengths, self.rows)
        edges = edges_of(self.n, count)
        run = np.searchsorted(edges, self.start, side="right") - 1
        broken = np.unique((self.row * count + run)[edges[run] != self.start])
        row, run = np.divmod(broken, count)
        length = edges[run + 1] - edges[run]
        sums, squares = (
            self._until(row, edges[run + 1], entries, sums)
            - self._until(row, edges[run], entries, sums)
            for entries, sums in zip((self.entry, np.square(self.entry)), before, strict=True)
        )
        parts = squares - np.square(sums) / length
        return np.asarray(whole - np.bincount(row, parts, self.rows), dtype=np.float64)

    def changes(self) -> tuple[Indices, Indices, Floats]:
        """Return the row, the cell and the height of every step down of a row, from zero to zero.

        A row is the sum of its steps, each times all cells before it; the heights add up to zero.

        >>> PiecewiseRows(4, np.array([0, 0]), np.array([0, 1]), np.array([0.0, 3])).changes()
        (array([0, 0]), array([1, 4]), array([-3.,  3.]))
        """
        last = np.append(self.row[1:] != self.row[:-1], True)
        rows = np.concatenate([self.row, self.row[last]])
        cells = np.concatenate([self.start, np.full(self.rows, self.n)])
        left = np.where(self.start == 0, 0.0, np.append(0.0, self.entry[:-1]))
        heights = np.concatenate([left - self.entry, self.entry[last]])
        order = np.lexsort((cells, rows))
        order = order[heights[order] != 0]
        return rows[order], cells[order], heights[order]

    def _before(self, of_pieces: Floats) -> Floats:
        """Return the sum of what is in a row's pieces before each."""
        sums = np.concatenate([[0.0], of_pieces.cumsum()[:-1]])
        first = np.searchsorted(self.row, np.arange(self.rows))
        return np.asarray(sums - sums[first][self.row])

    def _until(self, row: Indices, cell: Indices, entries: Floats, before: Floats) -> Floats:
        """Return the sums of rows up to a cell each."""
        keys = self.row * (self.n + 1) + self.start
        piece = np.searchsorted(keys, row * (self.n + 1) + cell, side="right") - 1
        return np.asarray(before[piece] + entries[piece] * (cell - self.start[piece]))


@lru_cache(maxsize=256)
def pieces_of(operator: Operator) -> PiecewiseRows | None:
    """Return the rows of an operator as pieces, None where these are many.

    >>> from dpsql.algebra.blocks import Dense
    >>> pieces_of(Dense(np.repeat([[0, 1, 0]], 40, axis=1))).start.tolist()
    [0, 40, 80]
    """
    rows, starts, entries = [], [], []
    step, most, found = max(1, NUMBERS // operator.n), operator.rows * operator.n / FEW, 0
    for first in range(0, operator.rows, step):
        some = some_rows(operator, first, step)
        begins = np.ones(some.shape, dtype=np.bool_)
        np.not_equal(some[:, 1:], some[:, :-1], out=begins[:, 1:])
        row, start = np.nonzero(begins)
        found += len(row)
        if found > most:
            return None
        rows.append(first + row)
        starts.append(start)
        entries.append(some[row, start])
    return PiecewiseRows(
        operator.n, np.concatenate(rows), np.concatenate(starts), np.concatenate(entries)
    )


def some_rows(operator: Operator, start: int, step: int) -> Floats:
    """Return some rows of an operator, (up to ``step``, n).

    Args:
        start: the first of them, from 0.
        step: most rows; fewer at the end.
    """
    if isinstance(operator, Dense):
        return np.asarray(operator.matrix[start : start + step], dtype=np.float64)
    stop = min(start + step, operator.rows)
    unit = np.zeros((operator.rows, stop - start))
    unit[np.arange(start, stop), np.arange(stop - start)] = 1
    return np.asarray(operator.rmatmat(unit), dtype=np.float64).T


def together(parts: Sequence[PiecewiseRows]) -> PiecewiseRows:
    """Return the rows of all parts, one part after the other."""
    before = np.cumsum([0, *(part.rows for part in parts)])
    rows = [part.row + first for part, first in zip(parts, before, strict=False)]
    return PiecewiseRows(
        parts[0].n,
        np.concatenate(rows),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.entry for part in parts]),
    )
