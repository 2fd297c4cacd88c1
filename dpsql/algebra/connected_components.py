"""Parts: cells that no row brings together with others, and algebra that goes part by part."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Array, Floats, Integers

APART_FROM, MOST_FILLED = 128, 2
"""Cells from which parts are looked for, and of which rows: half of their numbers are zeros."""

MOST_OF_PART = 32
"""Most cells of a part that is handled together with all others of its size."""

RANK = 1e-10
"""Relative size below which a singular value counts as zero."""


def parts_of(pattern: Array) -> Integers | None:
    """Return which part each cell is in, None where all are one part, or hardly apart.

    ``pattern`` is a Gram (n, n), or rows (m, n): what is not zero in a row of it is together.
    """
    n = pattern.shape[1]
    if n < APART_FROM:
        return None
    joined = pattern != 0
    if np.count_nonzero(joined) * MOST_FILLED > joined.size:
        return None
    labels = connected(joined)
    return labels if labels.any() else None


def connected(joined: NDArray[np.bool_]) -> Integers:
    """Return which part each cell is in, (n,), from what every row has together, (m, n).

    >>> connected(np.array([[True, False, True], [False, True, False]])).tolist()
    [0, 1, 0]
    """
    n = joined.shape[1]
    labels, count = np.full(n, -1), 0
    for first in range(n):
        if labels[first] >= 0:
            continue
        reached = np.array([first])
        while len(reached):
            labels[reached] = count
            rows = joined[:, reached].any(axis=1)
            reached = np.flatnonzero(joined[rows].any(axis=0) & (labels < 0))
        count += 1
    return labels


def are_small(labels: Integers | None) -> bool:
    """True if the largest part of the cells has several of them, and few.

    Args:
        labels: (n,) the part of each cell; None where all are one part.
    """
    return labels is not None and 1 < int(np.bincount(labels).max()) <= MOST_OF_PART


def cells_of(labels: Integers) -> list[Integers]:
    """Return the cells of every part, from the part of each cell (n,)."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def by_size(labels: Integers) -> list[Integers]:
    """Return the cells of all parts of a size together, (parts, cells) for each size.

    Args:
        labels: (cells,), the number of the part of every cell.

    >>> [cells.tolist() for cells in by_size(np.array([0, 1, 0, 2, 2]))]
    [[[0, 2], [3, 4]], [[1]]]
    """
    sizes: dict[int, list[Integers]] = {}
    for cells in cells_of(labels):
        sizes.setdefault(len(cells), []).append(cells)
    return [np.array(parts) for parts in sizes.values()]


def inverse_of_parts(Q: Floats) -> tuple[Floats, Floats] | None:
    """Return (Q'Q)^-1 (n, n) and its product with Q' (n, m) for rows Q (m, n) of small parts.

    None where cells are not in small parts, or rows of one do not tell all of its cells.
    """
    labels = parts_of(Q)
    if labels is None or not are_small(labels):
        return None
    inverse, right = np.zeros((Q.shape[1],) * 2), np.zeros(Q.shape[::-1])
    for cells, rows in _blocks(Q, labels):
        if rows.shape[1] < cells.shape[1]:
            return None
        block = Q[rows[:, :, np.newaxis], cells[:, np.newaxis]]
        left, singular, turned = np.linalg.svd(block, full_matrices=False)
        if not (singular[:, -1] > RANK * singular[:, 0]).all():
            return None
        half = turned.transpose(0, 2, 1) / singular[:, np.newaxis]
        inverse[cells[:, :, np.newaxis], cells[:, np.newaxis]] = half @ half.transpose(0, 2, 1)
        right[cells[:, :, np.newaxis], rows[:, np.newaxis]] = half @ left.transpose(0, 2, 1)
    return inverse, right


def gram_of_parts(Q: Floats, weights: Floats, labels: Integers) -> Floats:
    """Return Q' diag(weights) Q (n, n) of rows Q (m, n) whose cells are in parts.

    Args:
        Q: (m, n), zero where a row and a cell are in different parts.
        weights: (m,).
        labels: (n,) the part of each cell.
    """
    out = np.zeros((Q.shape[1],) * 2)
    for cells, rows in _blocks(Q, labels):
        block = Q[rows[:, :, np.newaxis], cells[:, np.newaxis]]
        weighted = block * weights[rows][:, :, np.newaxis]
        out[cells[:, :, np.newaxis], cells[:, np.newaxis]] = block.transpose(0, 2, 1) @ weighted
    return out


def _blocks(Q: Floats, labels: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield the cells (parts, k) and rows (parts, r) of all parts of a shape; rows may be none."""
    used = np.flatnonzero(Q.any(axis=1))
    owner = labels[(Q[used] != 0).argmax(axis=1)]
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(labels.max() + 2))
    shapes: dict[tuple[int, int], list[tuple[Integers, Integers]]] = {}
    for part, cells in enumerate(cells_of(labels)):
        rows = used[order[ends[part] : ends[part + 1]]]
        shapes.setdefault((len(cells), len(rows)), []).append((cells, rows))
    for pairs in shapes.values():
        yield np.array([cells for cells, _ in pairs]), np.array([rows for _, rows in pairs])
