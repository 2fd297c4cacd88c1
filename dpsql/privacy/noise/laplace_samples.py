"""Exact discrete Laplace samples from half a word each, or one, by the inverse of the law.

-scale log U of a uniform real U, rounded down, is a count with P(X >= k) = exp(-k / scale). Of U
some bits are drawn. Floating point says where -scale log U lies, within more than 2^4 times all
rounding errors and what the bits that are not drawn could change; where that is on one side of
every whole number, it decides. All other lanes are continued: those of half a word by half a word
more, and then bit by bit in exact arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.exponential_bounds import UniformReal

FEWEST, MOST = Fraction(1, 1 << 10), Fraction(1 << 33)
"""Scales between which one lane in a thousand, or fewer, is left to exact arithmetic."""

HALVES = Fraction(1 << 22)
"""Scales up to which half a word decides all but one lane in twenty."""

SHORT, UNIFORM = 31, 63
"""Bits of half a word, and of a word, that are those of the uniform real; the last is the sign."""

LEAST = 2.0**-16
"""Uniform numbers below this are left to exact arithmetic: bits not drawn would matter."""

ERROR = 2.0**-45
"""Half of the enclosure, beside one and the logarithm, which is at most 11.1.

A logarithm within 4 units in the last place is off by 2^-50 of itself, its argument, the scale and
their product by 2^-53 each, and bits that are not drawn after a word change it by at most 2^-47.
Those after half a word change it by less than 2^-31 / U, which is added.
"""


def is_invertible(scale: Fraction) -> bool:
    """True if samples of a scale are drawn by inversion."""
    return FEWEST <= scale <= MOST


def laplace_by_inversion(bits: Bits, scale: Fraction, lanes: int) -> NDArray[np.int64]:
    """Return at most ``lanes`` draws with P(y) proportional to exp(-|y| / scale), int64.

    A count gets a sign, and one of the two zeros is thrown away.
    """
    drawn: NDArray[Any] = bits.halves(lanes) if scale <= HALVES else bits.words(lanes)
    one = drawn.dtype.type(1)
    size = magnitudes(bits, drawn >> one, scale, 8 * drawn.itemsize - 1)
    flip = -(drawn & one).astype(np.int64)
    signed: NDArray[np.int64] = (size ^ flip) - flip
    twice = (size | ~flip) == 0
    return signed[~twice] if twice.any() else signed


def magnitudes(
    bits: Bits, starts: NDArray[Any], scale: Fraction, width: int = UNIFORM
) -> NDArray[np.int64]:
    """Return the counts of uniform reals that start with so many bits, shape (lanes,).

    ``starts`` are uint32 for a width of SHORT bits, uint64 for one of UNIFORM bits.
    """
    times, unit = float(scale), 2.0**-width
    uniform = starts.view(starts.dtype.name[1:]) * unit
    is_open = uniform < LEAST
    np.maximum(uniform, LEAST, out=uniform)
    undrawn = times * unit / uniform if width == SHORT else 0.0
    found = np.log(uniform, out=uniform)
    found *= -times
    slack = found + times
    slack *= ERROR
    slack += undrawn
    below = np.floor(found)
    # Open is a lane where a whole number may lie within the enclosure: its fraction is within slack
    # of 0 or of 1. All in place, since lanes are many.
    found -= below
    found -= 0.5
    np.abs(found, out=found)
    found += slack
    is_open |= found >= 0.5
    size: NDArray[np.int64] = below.astype(np.int64)
    lanes = np.flatnonzero(is_open)
    if width == SHORT and lanes.size:
        # The 31 bits stay and 32 are appended: drawing anew where it was close would shift the law.
        longer = starts[lanes].astype(np.uint64) << np.uint64(32) | bits.halves(lanes.size)
        size[lanes] = magnitudes(bits, longer, scale)
        return size
    for lane in lanes:
        size[lane] = exact_magnitude(UniformReal(bits, int(starts[lane]), UNIFORM), scale)
    return size


def exact_magnitude(uniform: UniformReal, scale: Fraction) -> int:
    """Return the whole number at or below -scale log U, by integer comparisons alone."""
    # 53 significant bits are what a double holds: the guess below is right or next to right.
    while uniform.word.bit_length() < UNIFORM - 10:
        uniform.extend()
    logarithm = uniform.width * math.log(2) - math.log(uniform.word)
    count = max(0, math.floor(logarithm * float(scale)))
    while count > 0 and not _reaches(uniform, count, scale):
        count -= 1
    while _reaches(uniform, count + 1, scale):
        count += 1
    return count


def _reaches(uniform: UniformReal, count: int, scale: Fraction) -> bool:
    return uniform.is_below_exp(count * scale.denominator, scale.numerator)
