"""Columns whose cells follow from those of others: which maps of cells there can be.

Guarantee: a map is public, and gives a row a cell by the row's own cells alone; so a row with one
more column is a row of the same unit, and units have as many rows as before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.unit_local import MapRows
from dpsql.errors import printable

MOST_CELLS = 1 << 22
"""Combinations of cells that one condition lists, a byte each."""
MOST_NUMBERED = 1 << 62
"""Combinations of cells of which some are listed: each has a number."""
CELLS = "<i4"
"""How the cells of a column are written that follows from others."""


def fault_of(mapped: MapRows, sizes: Sequence[int]) -> tuple[str, str] | None:
    """What is wrong with a map of combinations of so many cells, and what would be right."""
    cells, whole = np.frombuffer(mapped.cells, CELLS), math.prod(sizes)
    count = whole if mapped.listed is None else _count_listed(mapped, sizes)
    if len(cells) > MOST_CELLS or len(cells) != count:
        return "a column of these cells", f"at most {MOST_CELLS:,} combinations, each once"
    if mapped.column.domain is None or mapped.column.bounds is not None:
        return f"{printable(mapped.column.name)!r} without cells", "declare a domain for it"
    if cells.min(initial=0) < 0 or cells.max(initial=0) > mapped.column.size:
        return "a cell that is not declared", "declare all of them"
    return None


def numbered(mapped: MapRows, sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the numbers of the listed combinations of so many cells, the last column fastest.

    The result has shape (combinations,).
    """
    assert mapped.listed is not None
    found = np.frombuffer(mapped.listed, CELLS).reshape(-1, len(mapped.of)).astype(np.int64)
    steps = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
    return np.asarray(found @ np.array(steps, dtype=np.int64))


def _count_listed(mapped: MapRows, sizes: Sequence[int]) -> int | None:
    """How many combinations are listed; None where they are not of these cells, or some twice."""
    assert mapped.listed is not None
    if not sizes or math.prod(sizes) >= MOST_NUMBERED or not mapped.column.null:
        return None
    cells = np.frombuffer(mapped.listed, CELLS)
    if len(cells) % len(sizes):
        return None
    rows = cells.reshape(-1, len(sizes))
    if (rows < 0).any() or (rows >= np.array(sizes)).any():
        return None
    numbers = numbered(mapped, sizes)
    return len(numbers) if len(np.unique(numbers)) == len(numbers) else None
