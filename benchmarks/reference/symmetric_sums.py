"""All marginals of up to k attributes under Gaussian noise, planned by size and not by set.

Components over attributes of the same sizes get the same noise, so the closed form of the residual
planner needs one number per multiset of sizes: elementary symmetric sums replace the enumeration
of marginals, whose number grows with the k-th power of the number of attributes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """The components over attributes of given sizes: how many, and their noise variance.

    ``sizes`` is sorted; ``variance`` is sigma^2 of one component at unit budget, where the squared
    L2 sensitivities over the variances sum to one.
    """

    sizes: tuple[int, ...]
    count: int
    variance: float


def plan_all_marginals(sizes: Sequence[int], k: int) -> tuple[tuple[Level, ...], float]:
    """Return the levels and the least total variance of all marginals of up to k attributes.

    ``sizes`` are those of the attributes, all at least two; every marginal has weight one. The
    total variance equals the singular value bound, so no strategy has less.

    Raises ValueError where a size is below two or k below zero.

    Source: ResidualPlanner, closed form for the sum of variances; HDMM, Theorem 12 for the bound.

    >>> levels, total = plan_all_marginals([10] * 100, 3)
    >>> [(len(level.sizes), level.count) for level in levels]
    [(0, 1), (1, 100), (2, 4950), (3, 161700)]
    """
    if k < 0 or min(sizes, default=2) < 2:
        raise ValueError("sizes are at least two and k is not negative")
    classes = sorted(Counter(sizes).items())
    found = []
    for chosen in _choices([count for _, count in classes], min(k, len(sizes))):
        used = sum(chosen)
        rest = [(n, count - c) for (n, count), c in zip(classes, chosen, strict=True)]
        price = math.prod((1 - 1 / n) ** c for (n, _), c in zip(classes, chosen, strict=True))
        cells = math.prod((n - 1) ** c for (n, _), c in zip(classes, chosen, strict=True))
        asked = cells * sum(_symmetric_sums(rest, k - used))
        count = math.prod(math.comb(m, c) for (_, m), c in zip(classes, chosen, strict=True))
        members = tuple(n for (n, _), c in zip(classes, chosen, strict=True) for _ in range(c))
        found.append((members, count, price, asked))
    root = sum(count * math.sqrt(asked * price) for _, count, price, asked in found)
    levels = [
        Level(members, count, root * math.sqrt(price / asked))
        for members, count, price, asked in found
    ]
    return tuple(sorted(levels, key=lambda level: (len(level.sizes), level.sizes))), root**2


def _choices(counts: Sequence[int], k: int) -> Iterator[tuple[int, ...]]:
    """Yield how many attributes of each size a component has, at most k together."""
    if not counts:
        yield ()
        return
    for first in range(min(counts[0], k) + 1):
        for others in _choices(counts[1:], k - first):
            yield (first, *others)


def _symmetric_sums(classes: Sequence[tuple[int, int]], k: int) -> list[float]:
    """Return the elementary symmetric sums e_0..e_k of 1/n over attributes, grouped by size."""
    sums = [1.0] + [0.0] * k
    for n, count in classes:
        terms = [math.comb(count, j) * n**-j for j in range(min(count, k) + 1)]
        sums = [
            sum(terms[j] * sums[s - j] for j in range(min(s, len(terms) - 1) + 1))
            for s in range(k + 1)
        ]
    return sums
