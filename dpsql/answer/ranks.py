"""Quantiles and modes read off noisy counts of an ordered domain: post-processing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.sql.compiled import Answer

Column = NDArray[np.float64]


def read_rank(answer: Answer, counts: Column, groups: int) -> list[Any]:
    """The quantile or mode of every group; NULL where the noisy total is below a half.

    ``counts`` has shape (groups * values,): running totals over the values, plain ones for a mode.
    """
    assert answer.rank is not None
    table = counts.reshape(groups, len(answer.values))
    if answer.rank.kind == "mode":
        return [_mode(row, answer.values) for row in table]
    interpolate = answer.rank.kind == "cont"
    return [quantile(row, answer.values, answer.rank.quantile, interpolate) for row in table]


def _mode(row: Column, values: tuple[Any, ...]) -> Any:
    best = int(np.argmax(row)) if len(row) else 0
    return values[best] if len(row) and row[best] >= 0.5 else None


def quantile(row: Column, values: tuple[Any, ...], place: float, interpolate: bool) -> Any:
    """The value at a quantile of a distribution given by noisy running totals.

    The totals are made monotone first: the mean of the least monotone sequence above and the
    largest below. Positions follow SQL: q (n - 1) interpolated, or the ceiling of q n.

    >>> quantile(np.array([1.0, 1.0, 2.0]), (10, 20, 30), 0.5, True)
    20.0
    """
    if not len(row):
        return None
    above = np.maximum.accumulate(row)
    below = np.minimum.accumulate(row[::-1])[::-1]
    totals = np.maximum((above + below) / 2, 0)
    count = float(totals[-1])
    if count < 0.5:
        return None
    if not interpolate:
        return values[_find(totals, max(math.ceil(place * count - 1e-9), 1))]
    position = max(place * (count - 1), 0.0)
    lower = math.floor(position + 1e-9)
    low, high = (float(values[_find(totals, k + 1)]) for k in (lower, math.ceil(position - 1e-9)))
    return low + max(position - lower, 0.0) * (high - low)


def _find(totals: Column, rank: float) -> int:
    """The first value up to which there are ``rank`` rows, half a row short at most."""
    return min(int(np.searchsorted(totals, rank - 0.5)), len(totals) - 1)
