"""Partition selection by the number of units of a key: exact chances, weights and thresholds.

A key that nobody has is never released, and one that a single unit has with a chance of at most
delta. All of it is public: functions of epsilon or rho, delta and the number of keys of a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.privacy.noise.tail_bounds import exp_below, gaussian_tail, laplace_tail
from dpsql.strategy.base import round_up
from dpsql.strategy.noise_law import GAUSSIAN, Noise, law

CHANCE_BITS = 160
"""Chances are multiples of 2^-160: less than delta by a factor of 2^110."""
WEIGHT_BITS = 20
"""A unit of weight; 1 / sqrt(degree) is rounded down to a multiple of one part in 2^20."""
LEAST_EPSILON = Fraction(1, 10**4)
"""Of each key of a unit: then some 300,000 counts have chances of their own, found in a second."""
MOST_STEPS = 1 << 21
"""Most counts with chances of their own, several times those of LEAST_EPSILON."""


@lru_cache(maxsize=8)
def chances(epsilon: Fraction, delta: Fraction) -> tuple[int, ...]:
    """Return the chances of 0, 1, 2, ... units, in parts of 2^160, up to the first that is certain.

    They are the largest that (epsilon, delta)-DP allows, rounded down step by step: with exp
    rounded down as well, p(n + 1) <= e p(n) + d and 1 - p(n) <= e (1 - p(n + 1)) + d hold exactly.
    Where the number of steps is whole it is a truncated geometric variable above a threshold.
    Raises: InternalError for an epsilon of which there would be too many.
    Source: Desfontaines, Voss, Gipson and Mandayam 2020, Theorem 1.

    >>> [round(p / 2**160, 4) for p in chances(Fraction(1), Fraction(1, 100))][:6]
    [0.0, 0.01, 0.0372, 0.1111, 0.3119, 0.7506]
    """
    whole, growth = 1 << CHANCE_BITS, exp_below(epsilon)
    num, den = growth.numerator, growth.denominator
    part = delta.numerator * whole // delta.denominator
    found = [0]
    while found[-1] < whole:
        if len(found) > MOST_STEPS or part == 0:
            raise InternalError("E_INTERNAL", "epsilon is too small to find keys")
        last = found[-1]
        rest = max(0, whole - last - part)
        from_above = whole + (-rest * den // num if rest else 0)
        found.append(min(last * num // den + part, from_above, whole))
    return tuple(found)


def weight(degree: int) -> int:
    """Return what a unit of so many keys adds to each: 2^20 / sqrt(degree), rounded down.

    >>> weight(1), weight(4), all(n * weight(n) ** 2 <= 4**WEIGHT_BITS for n in range(1, 2000))
    (1048576, 524288, True)
    """
    return isqrt((1 << 2 * WEIGHT_BITS) // degree)


def weights(degrees: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the weights of units of so many keys, any number of them at once.

    Doubles are exact here: roots that are not whole lie 2^-21 and more from those that are.

    Args:
        degrees: (units,), how many keys each has; 1 and more.

    >>> weights(np.array([1, 3, 4])).tolist() == [weight(1), weight(3), weight(4)]
    True
    """
    return np.sqrt((1 << 2 * WEIGHT_BITS) // degrees).astype(np.int64)


def variance(rho: Fraction) -> Fraction:
    """Return the variance of the noise on weights; squares of what a unit adds sum to at most 1."""
    return round_up(GAUSSIAN.scale(1 << 2 * WEIGHT_BITS, rho))


@lru_cache(maxsize=32)
def threshold(rho: Fraction, delta: Fraction, most: int) -> int:
    """Return the least weight that is released: keys of one unit reach it with chance delta.

    A unit has up to ``most`` keys; those that it alone has, up to m of them, each weigh
    ``weight(m)``, and each may be released with a chance of delta / m.
    """
    sigma2 = variance(rho)
    return max(
        # The weight falls with the degree and so does the chance: first and last bound a whole
        # range.
        weight(low) + _exceeded(lambda t: gaussian_tail(sigma2, t), delta / high)
        for low, high in _degrees(most)
    )


@lru_cache(maxsize=32)
def count_threshold(noise: Noise, scale: Fraction, delta: Fraction, most: int) -> int:
    """Return the least noisy count that is shown: new keys of one unit reach it with chance delta.

    Those are up to ``most`` keys that it alone has, each of count one; the noise is Laplace or
    Gaussian of a scale.

    >>> count_threshold("laplace", Fraction(1), Fraction(1, 100), 1)
    6
    """
    tail = laplace_tail if law(noise).is_pure else gaussian_tail
    return 1 + _exceeded(lambda t: tail(scale, t), delta / most)


def _degrees(most: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of degrees up to the largest; those from 32 on that are looked at together.

    >>> list(_degrees(2)), list(_degrees(34))[-2:], len(list(_degrees(10**6)))
    ([(1, 1), (2, 2)], [(32, 33), (34, 34)], 353)
    """
    low = 1
    while low <= most:
        high = min(low + low // 32, most) if low >= 32 else low
        yield low, high
        low = high + 1


def _exceeded(tail: Callable[[int], Fraction], chance: Fraction) -> int:
    """Return the least t >= 1 whose tail, an upper bound of P(Z >= t), is at most a chance."""
    low, high = 1, 2
    while tail(high) > chance:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if tail(middle) <= chance:
            high = middle
        else:
            low = middle + 1
    return high
