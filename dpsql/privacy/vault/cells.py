"""Exact counts from integer codes: mixed-radix cell numbers and one bincount per chunk."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.privacy.vault.base import Classes, Codes, Counts

CHUNK = 1 << 18
OUTSIDE = -(1 << 48)


def count_cells(codes: Sequence[Codes], classes: Sequence[Classes], rows: int) -> Counts:
    """Count rows per combination of classes; rows with a cell of class -1 are left out.

    ``codes`` holds one array of ``rows`` cell numbers per attribute. Every row is looked at
    whatever the classes are. Shape of the result: ``max(class) + 1`` per attribute.

    >>> codes = [np.array([0, 1, 2, 1], np.uint8), np.array([0, 0, 1, 1], np.uint8)]
    >>> count_cells(codes, [np.array([0, 1, -1]), np.array([0, 1])], 4)
    array([[1, 0],
           [1, 1]])
    """
    shape = tuple(int(each.max(initial=-1)) + 1 for each in classes)
    total = math.prod(shape)
    if not shape:
        return np.array(rows, dtype=np.int64)
    counts: Counts | None = None
    lookups = _lookups(classes, shape)
    step = max(CHUNK, total)
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        cells = lookups[0][codes[0][chunk]]
        for code, lookup in zip(codes[1:], lookups[1:], strict=True):
            cells += lookup[code[chunk]]
        found = np.bincount(cells[cells >= 0], minlength=total)
        counts = found if counts is None else np.add(counts, found, out=counts)
    return (np.zeros(total, dtype=np.int64) if counts is None else counts).reshape(shape)


def _lookups(classes: Sequence[Classes], shape: tuple[int, ...]) -> list[Classes]:
    """Return per attribute what each of its cells adds to the number of the combined cell."""
    lookups, stride = [], 1
    for each, size in zip(reversed(classes), reversed(shape), strict=True):
        lookups.append(np.where(each < 0, OUTSIDE, each.astype(np.int64) * stride))
        stride *= size
    return lookups[::-1]
