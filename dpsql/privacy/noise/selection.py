"""Choosing among public candidates by private integer scores, with exact samplers.

Each function spends exactly the epsilon it is given. How many rounds a sampler takes depends on
the scores, so run time is not hidden; candidates and their number are public.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np

from dpsql.errors import InternalError
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.exponential_bounds import UniformReal, exp_bounds
from dpsql.privacy.noise.samplers import Integers, discrete_laplace, uniform_below


def exponential_mechanism(bits: Bits, scores: Sequence[int], epsilon: Fraction, spread: int) -> int:
    """Return index i with probability proportional to exp(epsilon * scores[i] / spread).

    ``spread`` is a + b when one unit moves every score by an amount in [-a, b]: twice the
    sensitivity in general, the sensitivity itself for counts.
    Guarantee: epsilon-DP, and epsilon^2/8-zCDP (Cesar and Rogers 2021). Source: McSherry and
    Talwar 2007.
    """
    _some(scores)
    return _peel(bits, scores, _amount(epsilon / _positive(spread)), 1)[0]


def top_choices(
    bits: Bits, scores: Integers, epsilon: Fraction, spread: int, count: int
) -> list[int]:
    """Return ``count`` different indices, each drawn by the exponential mechanism from the rest.

    Scores of int64 are below 2^61 in magnitude.
    Every draw has chances proportional to exp(epsilon * score / spread), with epsilon / spread
    rounded down to 20 bits; equal scores have equal chances.
    Guarantee: each draw is epsilon-DP and epsilon^2/8-zCDP. Source: McSherry and Talwar 2007;
    Durfee and Rogers 2019 (without replacement).
    """
    if not 0 < count <= _some(scores):
        raise _misused()
    # Few bits keep the exact exponentials short; rounded down, no more than epsilon is spent.
    return _peel(bits, scores, _round_down(_amount(epsilon) / _positive(spread)), count)


def _peel(bits: Bits, scores: Sequence[int] | Integers, eta: Fraction, count: int) -> list[int]:
    """Return ``count`` different indices; each draw from the rest has chances exp(eta * score).

    Equal scores are one group: it is drawn with the weight of one, rounded up to 64 bits, times
    its number, and then kept by a coin that makes up for the rounding.
    """
    ranked = _whole(scores)
    order = np.argsort(-ranked, kind="stable")
    levels, starts, counts = np.unique(-ranked[order], return_index=True, return_counts=True)
    left: list[int] = counts.tolist()
    chosen: list[int] = []
    best, bounds = -1, list[tuple[int, int]]()
    for _ in range(count):
        first = next(group for group, size in enumerate(left) if size)
        # Weights are relative to the best that is left: to one far above, all of them would be next
        # to nothing, and nearly every draw would be thrown away.
        if best < 0 or int(levels[first] - levels[best]) * eta > 1:
            best = first
            gaps = [(int(q) - int(levels[best])) * eta.numerator for q in levels]
            bounds = [exp_bounds(max(gap, 0), eta.denominator, 64) for gap in gaps]
        ends = list(accumulate(n * high for n, (_, high) in zip(left, bounds, strict=True)))
        while True:
            drawn = int(uniform_below(bits, ends[-1], 1)[0])
            group = bisect_right(ends, drawn)
            low, high = bounds[group]
            place, word = divmod(ends[group] - 1 - drawn, high)
            uniform = UniformReal(bits, word, 64)
            if word < low or uniform.is_below_exp(gaps[group], eta.denominator):
                break
        left[group] -= 1
        place += int(starts[group])
        last = int(starts[group]) + left[group]
        chosen.append(int(order[place]))
        order[place] = order[last]
    return chosen


def _round_down(value: Fraction) -> Fraction:
    """Return the largest dyadic of 20 significant bits that is not above a positive value.

    >>> _round_down(Fraction(1, 3)) <= Fraction(1, 3), _round_down(Fraction(3, 4))
    (True, Fraction(3, 4))
    """
    shift = 20 - value.numerator.bit_length() + value.denominator.bit_length()
    scale = Fraction(2) ** shift
    return Fraction(int(value * scale)) / scale


def above_threshold(
    bits: Bits, scores: Sequence[int], threshold: int, epsilon: Fraction, down: int, up: int
) -> int | None:
    """Return the first index whose noisy score reaches the noisy threshold, None without one.

    One unit moves every score by an amount in [-down, up]; both noises are drawn once.
    Guarantee: epsilon-DP with scales that satisfy max(down, up)/threshold scale + (down + up)/
    query scale = epsilon: moving the threshold by ``up`` and the winner by ``down + up`` maps a
    run to its neighbour. Source: Lyu, Su and Li 2017, asymmetric form.
    """
    threshold_scale, query_scale = svt_scales(epsilon, down, up)
    level = threshold + int(discrete_laplace(bits, threshold_scale, 1)[0])
    noise = discrete_laplace(bits, query_scale, len(scores))
    for index, (score, z) in enumerate(zip(scores, noise, strict=True)):
        if int(score) + int(z) >= level:
            return index
    return None


def svt_scales(epsilon: Fraction, down: int, up: int) -> tuple[Fraction, Fraction]:
    """Return the scales of threshold and query noise that spend epsilon with least variance.

    They stand as the cube roots of max(down, up) and down + up.

    >>> [float(s) for s in svt_scales(Fraction(1), 0, 1)]
    [2.0, 2.0]
    """
    if min(down, up) < 0:
        raise _misused()
    shift, spread = _positive(max(down, up)), down + up
    # 20 more bits of the roots. Any ratio keeps the guarantee: ``factor`` makes the sum exact.
    root_shift, root_spread = (_cube_root(n << 60) for n in (shift, spread))
    factor = (Fraction(shift, root_shift) + Fraction(spread, root_spread)) / _amount(epsilon)
    return factor * root_shift, factor * root_spread


def _whole(scores: Sequence[int] | Integers) -> Integers:
    """Return scores as they are where they are int64, else as Python integers: no score decides."""
    if isinstance(scores, np.ndarray) and scores.dtype == np.int64:
        return scores
    return np.array(scores, dtype=object)


def _cube_root(n: int) -> int:
    """Return the integer cube root of n, rounded down.

    >>> _cube_root(27), _cube_root(63)
    (3, 3)
    """
    low, high = 0, 1 << (n.bit_length() // 3 + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= n else (low, middle - 1)
    return low


def _some(scores: Sequence[int] | Integers) -> int:
    if len(scores) == 0:
        raise _misused()
    return len(scores)


def _positive(number: int) -> int:
    if not isinstance(number, int) or number < 1:
        raise _misused()
    return number


def _amount(value: Fraction) -> Fraction:
    if not isinstance(value, Fraction) or value <= 0:
        raise _misused()
    return value


def _misused() -> InternalError:
    return InternalError("E_INTERNAL", "a selection needs candidates and positive parameters")
