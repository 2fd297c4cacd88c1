"""Cells drawn from a distribution with less variance than independent draws."""

from __future__ import annotations

import numpy as np

from dpsql.adaptive.handle import Floats, Integers


def draw_cells(weights: Floats, k: int, rng: np.random.Generator) -> Integers:
    """Return k cell numbers in random order; cell j occurs floor or ceil of k * weight times.

    The fractional parts are drawn systematically: one uniform offset, equal steps.

    >>> np.bincount(draw_cells(np.array([0.5, 0.5]), 4, np.random.default_rng(0))).tolist()
    [2, 2]
    """
    weights = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    steps = np.cumsum(weights / weights.sum()) * k
    steps[-1] = k
    ends = np.minimum(np.floor(steps + rng.random()), k).astype(np.int64)
    ends[-1] = k
    counts = np.diff(ends, prepend=0)
    return rng.permutation(np.repeat(np.arange(weights.size), counts)).astype(np.int64)
