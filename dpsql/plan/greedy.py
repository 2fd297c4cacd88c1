"""GreedyH: a tree of intervals whose weights adapt to a workload."""

from __future__ import annotations

import numpy as np

from dpsql.algebra.blocks import Dense
from dpsql.algebra.operator import Floats, Operator
from dpsql.algebra.ranges import split_interval
from dpsql.records import dataclass

SHARES = np.arange(1, 101) / 100
"""Weights GreedyH tries for the rows below a node; the node itself keeps the rest."""


@dataclass(frozen=True, slots=True)
class _Subtree:
    """The weighted rows of a node: (lo, hi, weight); t = T 1 for the inverse Gram T; 1't.

    ``error`` is the estimated error of the queries below, ``spread`` is ||V t||^2.
    """

    rows: list[tuple[int, int, float]]
    t: Floats
    kappa: float
    error: float
    spread: float


def greedy_hierarchy(gram: Floats) -> Operator:
    """Return GreedyH: a binary tree of intervals, weighted bottom-up for a workload Gram.

    Args:
        gram: (n, n), of the workload.

    Source: Li, Hay, Miklau, Wang, "A data- and workload-aware algorithm for range queries under
    differential privacy" (DAWA), section 4.2.
    """
    n = len(gram)
    kept = [row for row in _subtree(gram, 0, n, 0).rows if row[2] > 0]
    matrix = np.zeros((len(kept), n))
    for row, (lo, hi, weight) in zip(matrix, kept, strict=True):
        row[lo:hi] = weight
    return Dense(matrix)


def _subtree(V: Floats, lo: int, hi: int, depth: int) -> _Subtree:
    block = V[:, lo:hi]
    if (block == block[:, :1]).all():
        length = hi - lo
        spread = float(block[:, 0] @ block[:, 0])
        return _Subtree([(lo, hi, 1.0)], np.full(length, 1 / length), 1.0, spread, spread)
    children = [_subtree(V, a, b, depth + 1) for a, b in split_interval(lo, hi, 2)]
    t = np.concatenate([child.t for child in children])
    kappa = sum(child.kappa for child in children)
    error = sum(child.error for child in children)
    image = block @ t
    whole, parts = float(image @ image), sum(child.spread for child in children)
    g = 2 ** (-depth / 2)
    q = g * (1 - SHARES) ** 2
    costs = (error - ((whole - parts) * g + parts) * q / (SHARES**2 + kappa * q)) / SHARES**2
    best = int(np.argmin(costs))
    p = float(SHARES[best])
    rows = [(a, b, p * weight) for child in children for a, b, weight in child.rows]
    shrink = p**2 + kappa * (1 - p) ** 2
    return _Subtree(
        [(lo, hi, 1 - p), *rows], t / shrink, kappa / shrink, float(costs[best]), whole / shrink**2
    )
