"""Different whole numbers, and which of them each one is: without sorting where they lie close."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.privacy.vault.data_engine import Counts, Flags

CLOSE = 4
"""Numbers that lie between the least and the largest, for each one there is, up to which they are
marked instead of sorted: a million take 10 ms, and 90 ms to be sorted."""


def lie_close(values: Counts) -> bool:
    """Say whether values (n,) lie so close together that they are better marked than sorted."""
    return not len(values) or int(values.max()) - int(values.min()) < CLOSE * len(values)


def find_distinct(values: Counts) -> tuple[Counts, Counts]:
    """Return the different values in order, and the place of every one among them, both (n,).

    >>> [each.tolist() for each in find_distinct(np.array([7, 5, 7]))]
    [[5, 7], [1, 0, 1]]
    """
    if not len(values):
        return values, np.zeros(0, dtype=np.int64)
    if not lie_close(values):
        found, places = np.unique(values, return_inverse=True)
        return found, places.astype(np.int64)
    low, high = int(values.min()), int(values.max())
    marks = np.zeros(high - low + 1, dtype=np.bool_)
    marks[values - low] = True
    places = np.cumsum(marks) - 1
    return np.flatnonzero(marks) + low, places[values - low]


def number_closely(values: Sequence[Counts], known: Sequence[Flags]) -> tuple[list[Counts], int]:
    """Return numbers that are equal where known values are, and one more than the largest.

    ``values`` are those of several tables, (n,) each. Some numbers below the largest may be
    nobody's; values that are not known have any.
    """
    some = [v if k.all() else v[k] for v, k in zip(values, known, strict=True)]
    some = [each for each in some if len(each)]
    if not some:
        return [np.zeros(len(each), dtype=np.int64) for each in values], 1
    low, high = min(int(each.min()) for each in some), max(int(each.max()) for each in some)
    if high - low < CLOSE * sum(map(len, values)):
        pairs = zip(values, known, strict=True)
        return [v - low if k.all() else np.where(k, v - low, 0) for v, k in pairs], high - low + 1
    distinct, places = find_distinct(np.concatenate(values))
    return np.split(places, np.cumsum([len(each) for each in values])[:-1]), len(distinct)
