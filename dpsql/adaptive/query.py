"""Public facts of candidates: attributes, sizes, sensitivities, ranges, expected noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np

from dpsql.adaptive.handle import Candidate, Noise
from dpsql.algebra.blocks import Identity
from dpsql.plan.workload import Product


def marginal(domain: Mapping[str, int], attributes: Iterable[str]) -> Candidate:
    """Return the candidate that asks for the whole marginal on some attributes.

    >>> rows(marginal({"a": 2, "b": 3}, ["b", "a"]))
    6
    """
    wanted = set(attributes)
    return (Product({a: Identity(n) for a, n in domain.items() if a in wanted}),)


def attributes_of(candidate: Candidate) -> tuple[str, ...]:
    """Return the attributes a candidate depends on, each once."""
    return tuple(dict.fromkeys(a for product in candidate for a in product.factors))


def is_marginal(candidate: Candidate) -> bool:
    """Say whether a candidate asks for a whole marginal."""
    return len(candidate) == 1 and all(
        isinstance(op, Identity) for op in candidate[0].factors.values()
    )


def rows(candidate: Candidate) -> int:
    """Return the number of answers."""
    return candidate[0].rows


def norm(candidate: Candidate, noise: Noise) -> float:
    """Return the L1 (Laplace) or squared L2 (Gaussian) sensitivity for one row.

    Exact for one product, and for disjoint products.
    """
    return max(
        float(
            math.prod(op.l1 if noise == "laplace" else op.l2sq for op in product.factors.values())
        )
        for product in candidate
    )


def spans(candidate: Candidate) -> tuple[float, float]:
    """Return the least and the largest coefficient of any cell, as a pair.

    >>> spans(marginal({"a": 2}, ["a"]))
    (0.0, 1.0)
    """
    if is_marginal(candidate):
        return (0.0, 1.0) if candidate[0].factors else (1.0, 1.0)
    found = []
    for product in candidate:
        low, high = 1.0, 1.0
        for op in product.factors.values():
            if isinstance(op, Identity):
                ends = (0.0, 1.0)
            else:
                dense = op.dense()
                ends = (float(np.min(dense)), float(np.max(dense)))
            corners = [low * ends[0], low * ends[1], high * ends[0], high * ends[1]]
            low, high = min(corners), max(corners)
        found.append((low, high))
    if len(found) == 1:
        return found[0]
    return min(0.0, *(low for low, _ in found)), max(0.0, *(high for _, high in found))


def expected_noise(size: float, noise: Noise, amount: Fraction) -> float:
    """Return the expected absolute noise of one answer whose candidate has norm ``size``."""
    if noise == "laplace":
        return size / float(amount)
    return math.sqrt(2 / math.pi) * math.sqrt(size / (2 * float(amount)))
