"""Public numbers of an adaptive mechanism as whole numbers, so that scores are exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError

WEIGHT_BITS = 10
"""Bits of the largest weight of a candidate."""
SCORES = 2**61 - 1
"""The largest magnitude of a score, which makes room for differences of two in int64."""
CLIP = float(2**40)
"""Numbers of larger magnitude are cut to it."""


def whole_weights(weights: Sequence[Fraction] | None, size: int) -> list[int]:
    """Round weights to whole numbers of at most WEIGHT_BITS bits, in proportion.

    >>> whole_weights([Fraction(1), Fraction(1, 2)], 2), whole_weights(None, 2)
    ([1024, 512], [1, 1])
    """
    if weights is None:
        return [1] * size
    largest = max(weights, default=Fraction(0))
    if len(weights) != size or largest <= 0 or min(weights) < 0:
        raise misused()
    top = 1 if min(weights) == largest else 2**WEIGHT_BITS
    return [round(Fraction(weight) * top / largest) for weight in weights]


def whole_penalties(penalties: Sequence[float] | None, size: int) -> list[int]:
    """Round penalties to whole numbers.

    >>> whole_penalties([0.4, 2.6], 2)
    [0, 3]
    """
    if penalties is None:
        return [0] * size
    found = whole_answers(np.asarray(penalties, dtype=np.float64))
    if found.size != size:
        raise misused()
    return [int(each) for each in found]


def whole_answers(answers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round public numbers to whole ones, flat. Raises: InternalError unless they are finite.

    >>> whole_answers(np.array([1.4, -2.6])).tolist()
    [1, -3]
    """
    found = np.asarray(answers, dtype=np.float64).ravel()
    if not np.isfinite(found).all():
        raise misused()
    return np.rint(np.clip(found, -CLIP, CLIP)).astype(np.int64)


def whole_lists(
    answers: Sequence[NDArray[np.float64]], sizes: Sequence[int]
) -> list[NDArray[np.int64]]:
    """Round lists of public numbers to whole ones. Raises: InternalError unless sizes are right.

    >>> [each.tolist() for each in whole_lists([np.array([0.6]), np.array([1.0, 2.4])], [1, 2])]
    [[1], [1, 2]]
    """
    flat = [np.ravel(each) for each in answers]
    if [each.size for each in flat] != list(sizes):
        raise misused()
    together = whole_answers(np.concatenate(flat))
    ends = np.cumsum(sizes).tolist()
    return [together[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def cut_score(score: int) -> int:
    """Return a score within SCORES: cutting brings those of neighbours no further apart.

    >>> cut_score(-3), cut_score(10**30) == SCORES
    (-3, True)
    """
    return min(max(score, -SCORES), SCORES)


def root_down(value: Fraction) -> Fraction:
    """Return a fraction whose square is at most a positive value, and nearly it.

    >>> root_down(Fraction(9, 4)), root_down(Fraction(2)) ** 2 <= 2
    (Fraction(3, 2), True)
    """
    shift = max(0, 80 - value.numerator.bit_length() + value.denominator.bit_length()) // 2 + 1
    return Fraction(math.isqrt((value.numerator << 2 * shift) // value.denominator), 1 << shift)


def misused() -> InternalError:
    """Return the error for a look that cannot be taken."""
    return InternalError("E_INTERNAL", "a look was asked for in a way that makes no sense")
