"""Quantiles and modes, and where they may lie, read off noisy counts of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.sql.compiled import Answer

ROUNDED = 1e-6
"""Part of a row that is taken for what rounding left."""


def read_rank(answer: Answer, counts: Floats, spreads: Floats, groups: int) -> list[Any]:
    """Return the quantile or mode of every group; NULL where the noisy total is below a half.

    Args:
        counts: (groups * values,) running totals over the values, plain ones for a mode.
        spreads: (groups * values,) halves of the widths of their intervals: an end of the interval
            of a quantile is read off them.
    """
    rank, shape = answer.rank, (groups, len(answer.values))
    assert rank is not None
    table = counts.reshape(shape)
    if rank.kind == "mode":
        return [_mode(row, answer.values) for row in table]
    place, interpolate = rank.quantile, rank.kind == "cont"
    if rank.end:
        facts = (answer.values, place, interpolate, answer.upto, rank.end)
        rows = zip(table, spreads.reshape(shape), strict=True)
        return [quantile_end(row, spread, *facts) for row, spread in rows]
    return [quantile(row, answer.values, place, interpolate, answer.upto) for row in table]


def _mode(row: Floats, values: tuple[Any, ...]) -> Any:
    best = int(np.argmax(row)) if len(row) else 0
    return values[best] if len(row) and min(row[best], row.sum()) >= 0.5 else None


def quantile(
    row: Floats,
    values: Sequence[Any],
    place: float,
    interpolate: bool,
    upto: Sequence[float] = (),
) -> Any:
    """Return the value at a quantile of a distribution given by noisy running totals.

    The totals are made monotone first: the mean of the least monotone sequence above and the
    largest below. Positions follow SQL: q (n - 1) interpolated, or the ceiling of q n.

    Args:
        row: (values,) the running totals.
        place: q, from 0 to 1.
        upto: the ends of bins that the values begin, whole numbers where rows have no others: rows
            are spread evenly within a bin.

    >>> quantile(np.array([1.0, 1.0, 2.0]), (10, 20, 30), 0.5, True)
    20.0
    >>> quantile(np.array([2.0, 4.0]), (0.0, 10.0), 0.5, True, (10.0, 20.0))
    10.0
    """
    if not len(row):
        return None
    totals, count = _monotone(row)
    if row[-1] < 0.5:
        return None
    if not interpolate:
        return values[_find(totals, _first_rank(place, count, False))]
    position = max(place * (count - 1), 0.0)
    # A place such as 0.29 * 100 is a little below the whole number that it is meant to be.
    lower = math.floor(position + 1e-9)
    ranks = (_first_rank(place, count, True), _last_rank(place, count, True))
    low, high = (_value(totals, values, rank, upto) for rank in ranks)
    return low + max(position - lower, 0.0) * (high - low)


def _monotone(row: Floats) -> tuple[Floats, float]:
    """Running totals that never fall, and the last of them."""
    above = np.maximum.accumulate(row)
    below = np.minimum.accumulate(row[::-1])[::-1]
    totals = np.maximum((above + below) / 2, 0)
    return totals, float(totals[-1])


def _first_rank(place: float, count: float, interpolate: bool) -> float:
    """The rank of the row that a quantile is, or of the first of the two that it lies between."""
    if interpolate:
        return math.floor(max(place * (count - 1), 0.0) + 1e-9) + 1
    # 1e-9 against places that rounding puts a little above a whole number.
    return max(math.ceil(place * count - 1e-9), 1)


def _last_rank(place: float, count: float, interpolate: bool) -> float:
    """The rank of the row that a quantile is, or of the second of the two."""
    if interpolate:
        return math.ceil(max(place * (count - 1), 0.0) - 1e-9) + 1
    return _first_rank(place, count, False)


def quantile_end(
    row: Floats,
    spread: Floats,
    values: Sequence[Any],
    place: float,
    interpolate: bool,
    upto: Sequence[float],
    end: int,
) -> Any:
    """Return the lower (-1) or the upper (1) end of an interval in which a quantile lies.

    What a total exceeds its share of the total of all by has an interval as well: a value is below
    the lower end if all of it is below zero, and the upper end is the first value from which on
    none of it is. The quantile itself lies between them. Without rows they are the first and last
    value.

    Args:
        row: (values,) the running totals.
        spread: (values,) halves of the widths of their intervals.
        place, interpolate, upto: as of ``quantile``.
        end: -1 or 1.

    >>> totals, spread = np.array([2.0, 5.0, 8.0, 10.0]), np.full(4, 1.0)
    >>> [quantile_end(totals, spread, (1, 2, 3, 4), 0.4, False, (), end) for end in (-1, 1)]
    [2, 3]
    """
    if not len(row) or not np.isfinite(spread).all():
        return None
    totals, count = _monotone(row)
    if row[-1] < 0.5:
        found = 0 if end < 0 else len(row) - 1
    else:
        wide = spread + place * spread[-1]
        wide[-1] = (1 - place) * spread[-1]  # the same noise is in both
        position = place * (count - 1) + (end > 0) if interpolate else place * count
        enough = max(position, 0.5) - ROUNDED
        if end < 0:
            reached = np.maximum.accumulate(row) + wide >= enough
            known = _find(totals, _first_rank(place, count, interpolate))
            found = min(int(np.argmax(reached)) if reached.any() else known, known)
        else:
            reached = np.minimum.accumulate(row[::-1])[::-1] - wide >= enough
            known = _find(totals, _last_rank(place, count, interpolate))
            found = max(int(np.argmax(reached)) if reached.any() else len(row) - 1, known)
    if end < 0 or not upto:
        return values[found]
    last = upto[found]
    return last - 1 if isinstance(last, int) else last


def _value(totals: Floats, values: Sequence[Any], rank: float, upto: Sequence[float]) -> float:
    """The value of the row of a rank; of f rows in a bin the j-th is at (j - 1/2) / f of it."""
    place = _find(totals, rank)
    start = float(values[place])
    if not upto:
        return start
    end, before = upto[place], float(totals[place - 1]) if place else 0.0
    share = min((rank - 0.5 - before) / max(float(totals[place]) - before, 1e-9), 1.0)
    value = start + share * (end - start)
    return float(min(math.floor(value), end - 1)) if isinstance(end, int) else value


def _find(totals: Floats, rank: float) -> int:
    """The first value up to which there are ``rank`` rows, half a row short at most."""
    return min(int(np.searchsorted(totals, rank - 0.5)), len(totals) - 1)
