"""Two-sided geometric noise: how often a die of m sides misses, less how often another does.

P(z) is proportional to (1 - 1/m)^|z|, so P(z) / P(z + 1) is at most m / (m - 1), whose logarithm is
at most 1 / (m - 1). With m - 1 the scale, rounded up, the cost is at most sensitivity / scale.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.noise.samplers import uniform_below
from dpsql.strategy.noise_law import NoiseLaw


def variance(scale: float) -> float:
    """Twice the variance of the number of misses."""
    sides = ceil(scale) + 1
    return 2.0 * sides * (sides - 1)


LAW = NoiseLaw("geometric", norm=1, rate=Fraction(1), variance=variance, interval=2.1184)


def draw(bits: Any, scale: Fraction, size: int) -> NDArray[np.int64]:
    """Independent noise of a scale, shape (size,)."""
    sides = ceil(scale) + 1
    return _misses(bits, sides, size) - _misses(bits, sides, size)


def _misses(bits: Any, sides: int, size: int) -> NDArray[np.int64]:
    count = np.zeros(size, dtype=np.int64)
    rolling = np.arange(size)
    while rolling.size:
        rolling = rolling[uniform_below(bits, sides, rolling.size) != 0]
        count[rolling] += 1
    return count
