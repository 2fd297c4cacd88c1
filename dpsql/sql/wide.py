"""Groups of a column with many cells as rows that are never written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import AllRange, Prefix, Ranges
from dpsql.algebra.groups import EXPLICIT, grouped
from dpsql.algebra.operator import Operator
from dpsql.catalog import Column
from dpsql.errors import ProgrammingError
from dpsql.plan.terms import normalise
from dpsql.sql.group import Axis
from dpsql.sql.query import Running

MAX_DENSE = 1 << 24
"""Most numbers in an explicit matrix of ranges."""


@dataclass(frozen=True, slots=True)
class Wide:
    """Rows over the items of a column, what to multiply them by, and their largest number."""

    operator: Operator
    scale: float = 1.0
    largest: float = 1.0


def wide_rows(
    axis: Axis,
    running: Running | None,
    mask: NDArray[np.bool_] | None,
    numbers: NDArray[Any] | None,
) -> Wide | None:
    """Return the rows of an axis where they would be many numbers and need not be written out.

    None for few numbers, and for groups that neither are apart nor follow each other.
    """
    if axis.labels is None or len(axis.groups) * len(axis.labels) <= EXPLICIT:
        return None
    if axis.apart(running):
        labels = axis.labels if mask is None else np.where(mask, axis.labels, -1)
        if numbers is None:
            return Wide(grouped(labels, len(axis.groups)))
        used = np.where(labels < 0, 0, numbers)
        weights, scale = normalise(used)
        operator = grouped(labels, len(axis.groups), weights)
        return Wide(operator, scale, float(np.abs(used).max(initial=0)))
    bounds = axis.intervals(running)
    if bounds is None or numbers is not None or not (mask is None or mask.all()):
        return None
    lo, hi = bounds
    if not lo.any() and np.array_equal(hi, np.arange(1, len(axis.labels) + 1)):
        return Wide(Prefix(len(hi)))
    return Wide(Ranges(len(axis.labels), lo, hi))


def all_ranges(column: Column, mask: NDArray[np.bool_] | None) -> Operator:
    """Return all ranges of the cells of a column. Raises: ProgrammingError (E_TOO_LARGE)."""
    if mask is not None and not mask.all():
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"all ranges of {column.name} under a condition on it are too many",
            hint=f"at most {MAX_DENSE:,} numbers; leave the condition out",
        )
    return AllRange(column.size)
