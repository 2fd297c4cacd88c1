"""Exact discrete Laplace and discrete Gaussian samples, many at a time, from random bits.

Everything random is decided by integer comparisons, or by bounds in floating point that leave to
them what they cannot tell. Lanes (array positions) that are not yet decided go round again;
arithmetic that could pass 2^62 is done on Python integers instead, by the same code on arrays of
objects. Source: Canonne, Kamath and Steinke 2020, Algorithms 1-3; ``privacy.inversion``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import gcd, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.plugins import plugged
from dpsql.errors import InternalError
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.exponential_bounds import UniformReal, inverse_e_word
from dpsql.privacy.noise.laplace_samples import is_invertible, laplace_by_inversion
from dpsql.strategy.noise_law import GAUSSIAN, LAPLACE, Noise, law, unusable

Integers = NDArray[Any]
"""An array of int64, or of Python integers where int64 could be too narrow."""
Lanes = NDArray[np.bool_]

_SAFE = 2**62
"""Whole numbers below this can be added, doubled and compared within int64."""
_BLOCK = 1 << 15
"""Lanes drawn at a time, a quarter MiB for each array of them: what a core keeps near itself."""


def discrete_laplace(bits: Bits, scale: Fraction, size: int) -> Integers:
    """Return independent Z with P(Z = z) proportional to exp(-|z| / scale), shape (size,).

    The array is int64 when every |Z| < 2^62, else of Python integers.
    Raises: InternalError E_INTERNAL unless scale is a positive fraction.
    """
    _require(scale)
    return _fill(size, lambda lanes: _two_sided(bits, scale, lanes))


def discrete_gaussian(bits: Bits, sigma2: Fraction, size: int) -> Integers:
    """Return independent Z with P(Z = z) proportional to exp(-z^2 / (2 sigma2)), shape (size,).

    The array is int64 when every |Z| < 2^62, else of Python integers.
    Raises: InternalError E_INTERNAL unless sigma2 is a positive fraction.
    """
    _require(sigma2)
    a, b = sigma2.numerator, sigma2.denominator
    root = isqrt(a // b)
    t = root if root * root * b == a else root + 1
    return _fill(size, lambda lanes: _gaussian(bits, a, b, t, lanes))


Sampler = Callable[[Bits, Fraction, int], Integers]
"""Bits, a scale and a size give independent integers of a law, shape (size,)."""

SAMPLERS: dict[Noise, Sampler] = {LAPLACE.name: discrete_laplace, GAUSSIAN.name: discrete_gaussian}

GROUP = "dpsql.noise_samplers"
"""The entry points by which other packages add the samplers of their noise laws."""

TRIED, TRIED_SCALE = 1000, Fraction(64)
"""Draws by which a sampler is tried; the standard error of their variance is about 7 %."""


_tried: dict[Noise, Sampler] = {}


def sampler(name: Noise, bits: Callable[[], Bits] = Bits) -> Sampler:
    """Return what draws the noise of a law; an installed one is tried at first, on bits of its own.

    Raises: OperationalError (E_NOISE) for an installed one that is not what its law says.
    Guarantee: draws are independent of the data, whole, and as many as were asked for. That an
    installed one has the distribution of its law is the word of whoever installed it.
    """
    if name in SAMPLERS:
        return SAMPLERS[name]
    if name not in _tried:
        _tried[name] = _installed(name, bits())
    return _tried[name]


def _installed(name: Noise, bits: Bits) -> Sampler:
    found = plugged(GROUP, name, unusable)
    if not callable(found):
        raise unusable(name, f"there is no sampler in {GROUP}")
    draw: Sampler = found

    def drawn(bits: Bits, scale: Fraction, size: int) -> Integers:
        return _whole(draw(bits, scale, size), size)

    try:
        tried = drawn(bits, TRIED_SCALE, TRIED)
    except Exception:
        raise unusable(name, "its sampler does not return whole numbers") from None
    size = float(np.square(tried.astype(np.float64)).mean())
    told = law(name).variance(float(TRIED_SCALE))
    # Four times is far beyond a standard error of 7 %: no sampler of the law is refused by chance.
    if not told / 4 < size < 4 * told:
        raise unusable(name, "its sampler does not have the variance of its law")
    return drawn


def _whole(drawn: object, size: int) -> Integers:
    """Return the draws of an installed sampler, as int64 or Python integers."""
    found = np.asarray(drawn)
    is_whole = found.dtype.kind == "i" or all(type(each) is int for each in found.flat)
    if found.shape != (size,) or not is_whole:
        raise InternalError("E_INTERNAL", "a sampler does not return whole numbers")
    return found if found.dtype == object else found.astype(np.int64)


def uniform_below(bits: Bits, n: int, size: int) -> Integers:
    """Return independent uniform integers in [0, n), shape (size,)."""
    if n > _SAFE:
        return _uniform_wide(bits, n, size)
    width = (n - 1).bit_length()
    if width == 0:
        return np.zeros(size, dtype=np.int64)
    # Numbers of n and more are drawn again: a remainder modulo n would favour the small ones.
    shift = np.uint64(64 - width)
    drawn = (bits.words(size) >> shift).view(np.int64)
    redo = np.flatnonzero(drawn >= n) if n != 1 << width else np.zeros(0, dtype=np.int64)
    while redo.size:
        again = (bits.words(redo.size) >> shift).view(np.int64)
        drawn[redo] = again
        redo = redo[again >= n]
    return drawn


def bern_exp(bits: Bits, num: Integers, den: int) -> Lanes:
    """Return coins that are true with probability exp(-num / den), 0 <= num <= den, like num.

    A run of trials with chances num/den, num/(2 den), ... ends at an odd place this often.
    ``num`` is (lanes,), int64 or Python integers.
    """
    odd = np.ones(num.size, dtype=np.bool_)
    lanes = np.flatnonzero(uniform_below(bits, den, num.size) < num)
    place = 1
    while lanes.size:
        place += 1
        odd[lanes] ^= True
        lanes = lanes[uniform_below(bits, den * place, lanes.size) < num[lanes]]
    return odd


def bern_exp_one(bits: Bits, size: int) -> Lanes:
    """Return coins that are true with probability exp(-1), shape (size,).

    A uniform real is below 1/e when it is at their first differing 64-bit digit.
    """
    digit = np.uint64(inverse_e_word(0))
    drawn = bits.words(size)
    below = drawn < digit
    tied = np.flatnonzero(drawn == digit)
    index = 1
    while tied.size:
        digit = np.uint64(inverse_e_word(index))
        drawn = bits.words(tied.size)
        below[tied] = drawn < digit
        tied = tied[drawn == digit]
        index += 1
    return below


def exp_coins(bits: Bits, num: Integers, den: int) -> Lanes:
    """Return coins that are true with probability exp(-num / den), num >= 0.

    ``num`` is (lanes,), int64 or Python integers.
    """
    whole, rest = num // den, num % den
    accepted = bern_exp(bits, rest, den)
    lanes = np.flatnonzero(accepted & (whole > 0))
    left = whole[lanes]
    while lanes.size:
        success = bern_exp_one(bits, lanes.size)
        accepted[lanes[~success]] = False
        going = success & (left > 1)
        lanes, left = lanes[going], left[going] - 1
    return accepted


def geometric_e(bits: Bits, size: int) -> Integers:
    """Return counts V >= 0 with P(V >= v) = exp(-v), shape (size,)."""
    count = np.zeros(size, dtype=np.int64)
    lanes = np.flatnonzero(bern_exp_one(bits, size))
    while lanes.size:
        count[lanes] += 1
        lanes = lanes[bern_exp_one(bits, lanes.size)]
    return count


def _require(parameter: Fraction) -> None:
    if not isinstance(parameter, Fraction) or parameter <= 0:
        raise InternalError("E_INTERNAL", "a noise law needs a positive fraction as its scale")


def _fill(size: int, draw: Callable[[int], Integers]) -> Integers:
    """Return the first ``size`` values of batches drawn until there are enough."""
    parts: list[Integers] = [np.zeros(0, dtype=np.int64)]
    need = size
    while need > 0:
        # A Gaussian keeps about three of four draws: a third more is mostly enough at once.
        part = draw(min(need + need // 3 + 16, _BLOCK))[:need]
        parts.append(part)
        need -= part.size
    drawn: Integers = np.concatenate(parts)
    fits = drawn.dtype == object and all(abs(z) < _SAFE for z in drawn)
    return drawn.astype(np.int64) if fits else drawn


def _two_sided(bits: Bits, scale: Fraction, lanes: int) -> Integers:
    """Return at most ``lanes`` draws with P(y) proportional to exp(-|y| / scale)."""
    if is_invertible(scale):
        return laplace_by_inversion(bits, scale, lanes)
    return _laplace(bits, scale.numerator, scale.denominator, lanes)


def _laplace(bits: Bits, t: int, s: int, lanes: int) -> Integers:
    """Return at most ``lanes`` draws with P(y) proportional to exp(-|y| s / t).

    U + t V has P(x) proportional to exp(-x / t) when U in [0, t) is kept with exp(-U / t) and V
    is geometric; its quotient by s gets a sign, and one of the two zeros is thrown away.
    """
    u = uniform_below(bits, t, lanes)
    u = u[bern_exp(bits, u, t)]
    v = geometric_e(bits, u.size)
    # U + t V could wrap in int64: V has no largest value.
    if s >= _SAFE or t * (int(v.max(initial=0)) + 1) >= _SAFE:
        u, v = u.astype(object), v.astype(object)
    y: Integers = (u + t * v) // s
    # Zero would come with either sign, twice as often as it should: one of the two is dropped.
    negative = bits.flips(y.size)
    kept = ~(negative & (y == 0))
    return np.asarray(np.where(negative, -y, y)[kept])


def _gaussian(bits: Bits, a: int, b: int, t: int, lanes: int) -> Integers:
    """Return at most ``lanes`` draws with P(y) proportional to exp(-y^2 b / (2 a)).

    A Laplace draw of scale t is kept with probability exp(-(|y| t b - a)^2 / (2 a b t^2)).
    """
    y = _two_sided(bits, Fraction(t), lanes)
    common = gcd(a, t * b)
    slope, offset = t * b // common, a // common
    den = 2 * offset * slope * t
    if y.dtype == object or a << 60 < b:
        return y[exp_coins(bits, (np.abs(y.astype(object)) * slope - offset) ** 2, den)]
    return y[_accept_by_enclosure(bits, np.abs(y), slope, offset, den)]


def _accept_by_enclosure(bits: Bits, size: Integers, slope: int, offset: int, den: int) -> Lanes:
    """Return coins as exp_coins does, deciding nearly all of them by bounds in floating point.

    A uniform real starts with 32 bits. The bounds are more than 2^4 times wider than every rounding
    error in them, and than what other bits change; what is between them is continued bit by bit in
    exact arithmetic.
    """
    starts = bits.halves(size.size)
    # Exact: a double holds 32 bits and a power of two.
    drawn = starts * 2.0**-32
    centre, twice_variance = offset / slope, den / slope**2
    chance = np.exp(-np.minimum((size - centre) ** 2 / twice_variance, 1000.0))
    # 2^-46 is 2^7 roundings of a double, 2^-28 is 2^4 times what the bits not drawn change.
    error = chance * (1.0 + (size + centre) ** 2 / twice_variance) * 2.0**-46 + 2.0**-28
    accepted = drawn < chance - error
    for lane in np.flatnonzero(~accepted & (drawn <= chance + error)):
        num = (int(size[lane]) * slope - offset) ** 2
        accepted[lane] = UniformReal(bits, int(starts[lane]), 32).is_below_exp(num, den)
    return accepted


def _uniform_wide(bits: Bits, n: int, size: int) -> Integers:
    """Return uniform_below for n of any length, as Python integers."""
    width = (n - 1).bit_length()
    parts = -(-width // 64)
    drawn = np.zeros(size, dtype=object)
    redo = np.arange(size)
    while redo.size:
        again = np.zeros(redo.size, dtype=object)
        for _ in range(parts):
            again = (again << 64) | bits.words(redo.size).astype(object)
        again >>= 64 * parts - width
        drawn[redo] = again
        redo = redo[again >= n]
    return drawn
