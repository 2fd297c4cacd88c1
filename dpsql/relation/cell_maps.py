"""Columns whose cells follow from those of others: which maps of cells there can be.

Guarantee: a map is public, and gives a row a cell by the row's own cells alone; so a row with one
more column is a row of the same unit, and units have as many rows as before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import printable
from dpsql.relation.unit_local import MapRows

MOST_CELLS = 1 << 22
"""Combinations of cells that one condition lists, a byte each."""
MOST_NUMBERED = 1 << 62
"""Combinations of cells of which some are listed: each has a number."""
CELLS = "<i4"
"""The type in which the cells of a column that follows from others are written."""
VALUES = "<f8"
"""The type of its values where it has no cells."""


def fault_of(mapped: MapRows, sizes: Sequence[int]) -> tuple[str, str] | None:
    """Return the fault of a map of combinations of so many cells, and what would be right."""
    if mapped.column.domain is None:
        return _fault_of_values(mapped, sizes)
    cells, whole = np.frombuffer(mapped.cells, CELLS), math.prod(sizes)
    count = whole if mapped.listed is None else _count_listed(mapped, sizes)
    if len(cells) > MOST_CELLS or len(cells) != count:
        return "a column of these cells", f"at most {MOST_CELLS:,} combinations, each once"
    if mapped.column.bounds is not None:
        return f"{printable(mapped.column.name)!r} with bounds beside cells", "leave out bounds"
    if cells.min(initial=0) < 0 or cells.max(initial=0) > mapped.column.size:
        return "a cell that is not declared", "declare all of them"
    return None


def _fault_of_values(mapped: MapRows, sizes: Sequence[int]) -> tuple[str, str] | None:
    """Return the fault of a map of combinations of so many cells to numbers within bounds."""
    column, whole = mapped.column, math.prod(sizes)
    name = printable(column.name)
    if column.bounds is None or mapped.listed is not None:
        return f"{name!r} without cells", "declare a domain or bounds for it"
    if whole > MOST_CELLS or len(mapped.cells) != whole * np.dtype(VALUES).itemsize:
        return "a column of these values", f"at most {MOST_CELLS:,} combinations, each once"
    values = np.frombuffer(mapped.cells, VALUES)
    known, (low, high) = values[~np.isnan(values)], column.bounds
    if len(known) < len(values) and not column.null:
        return f"{name!r} with NULL", "declare it with null = true"
    if ((known < float(low)) | (known > float(high))).any():
        return "a value that is not within the bounds", "wider ones"
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
    """Count the combinations listed; None where they are not of these cells, or some twice."""
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
