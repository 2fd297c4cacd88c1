"""Greedy comparison strategies that adapt to the workload: GreedyH and DataCube."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as cartesian

import numpy as np

from dpsql.algebra import marginals
from dpsql.algebra.blocks import Dense, Identity, IdentityTotal, Total
from dpsql.algebra.operator import Floats, Operator
from dpsql.algebra.ranges import split_interval
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.workload import Workload

SHARES = np.arange(1, 101) / 100
"""Weights GreedyH tries for the rows below a node; the node itself keeps the rest."""
ATTRIBUTE_LIMIT = 18
"""Most attributes for which arrays over all sets of attributes are formed."""


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


def data_cube_error(workload: Workload, noise: Noise) -> float | None:
    """Return the error of DataCube for a union of marginals, None for any other workload.

    A subset of the requested marginals is measured with equal noise. Starting from those that no
    other one contains, the marginal is added that most lowers the predicted error when every
    request is summed up from the smallest measured marginal containing it; the error returned is
    that of least squares on the subset chosen.

    Source: Ding, Winslett, Han, Li, "Differentially private data cubes", section 4, with the
    total instead of the largest predicted error.
    """
    sizes = list(workload.domain.values())
    requests = _requested_marginals(workload)
    if requests is None or len(sizes) > ATTRIBUTE_LIMIT:
        return None
    chosen = _choose_marginals(requests, sizes)
    theta2, u = np.zeros((2,) * len(sizes)), np.zeros((2,) * len(sizes))
    for inside in chosen:
        theta2[inside] = 1
    for inside, weight2 in requests.items():
        u[inside] = weight2
    traces = marginals.eigenvalues(u, sizes) * marginals.dimensions(sizes)
    norm2 = law(noise).squared(len(chosen))
    return norm2 * marginals.marginal_error(theta2, traces, sizes)


def _requested_marginals(workload: Workload) -> dict[tuple[int, ...], float] | None:
    """Return the squared weight of every requested marginal; [I; 1'] factors request two."""
    found: dict[tuple[int, ...], float] = {}
    for product in workload.products:
        options = []
        for name in workload.attributes:
            operator = product.factors.get(name)
            kinds = {type(None): (0,), Total: (0,), Identity: (1,), IdentityTotal: (0, 1)}
            if type(operator) not in kinds:
                return None
            options.append(kinds[type(operator)])
        for inside in cartesian(*options):
            found[inside] = found.get(inside, 0.0) + product.weight**2
    return found


def _choose_marginals(
    requests: dict[tuple[int, ...], float], sizes: list[int]
) -> list[tuple[int, ...]]:
    sets = np.array(sorted(requests))
    cells = np.prod(np.where(sets == 1, np.array(sizes, dtype=np.float64), 1.0), axis=1)
    covers = (sets[:, None] >= sets[None]).all(axis=2)
    measured = covers.sum(axis=0) == 1
    source = np.where(covers, cells[:, None], np.inf)
    best = source[measured].min(axis=0)
    while not measured.all():
        totals = np.minimum(best, source).sum(axis=1)
        totals[measured] = np.inf
        added, count = int(np.argmin(totals)), int(measured.sum())
        if (count + 1) ** 2 * totals[added] >= count**2 * best.sum():
            break
        measured[added] = True
        best = np.minimum(best, source[added])
    return [tuple(inside) for inside in sets[measured].tolist()]
