"""Strategies from the literature, to be compared with: H2, HB, the wavelet and DataCube."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product as cartesian

import numpy as np

from dpsql.algebra import marginals
from dpsql.algebra.blocks import Haar, Hierarchy, Identity, IdentityTotal, Total
from dpsql.algebra.operator import Floats, Operator
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.published_variance import unit_variance
from dpsql.workload.workload import Workload

ATTRIBUTE_LIMIT = 18
"""Most attributes for which arrays over all sets of attributes are formed."""


def strategy_error(strategy: Operator, workload: Operator, noise: Noise) -> float:
    """Return the error of an explicit strategy of full column rank for one attribute."""
    norm = strategy.l1 if law(noise).norm == 1 else strategy.l2sq
    norm2 = law(noise).squared(float(norm))
    return norm2 * float(np.trace(np.linalg.solve(strategy.gram(), workload.gram())))


def published_rmse(error: float, rows: int, noise: Noise) -> float:
    """Return the root mean squared error at epsilon 1 and delta 1e-6, as published tables do."""
    return math.sqrt(unit_variance(noise, 1.0, 1e-6) * error / rows)


def hierarchy(n: int) -> Operator:
    """Return H2: a binary tree of intervals with its root.

    Source: Hay et al., "Boosting the accuracy of differentially private histograms".
    """
    return Hierarchy(n, 2)


def best_hierarchy(n: int) -> Operator:
    """Return HB: a tree without its root whose branching suits all ranges of n cells.

    Source: Qardaji, Yang, Li, "Understanding hierarchical methods", section 4.
    """

    def cost(b: int) -> float:
        height = _height(n, b)
        return (b - 1) * height**3 - 2 * (b + 1) * height**2 / 3

    best = min(range(2, n + 1), key=cost, default=n)
    return Identity(n) if best >= n else Hierarchy(n, best, root=False)


def _height(n: int, branching: int) -> int:
    """Return ceil(log_b n) in integers."""
    height, reach = 0, 1
    while reach < n:
        height, reach = height + 1, reach * branching
    return height


STRATEGIES: dict[str, Callable[[int], Operator]] = {
    "Identity": Identity,
    "H2": hierarchy,
    "HB": best_hierarchy,
    "Wavelet": Haar,
}
"""Strategies of one attribute that depend on its size only, by their published names.

Wavelet: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms".
"""


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
    return norm2 * marginal_error(theta2, traces, sizes)


def marginal_error(theta2: Floats, traces: Floats, sizes: Sequence[int]) -> float:
    """Return tr(V G(theta^2)^+), infinite when G(theta^2) does not support V.

    It is in squared counts, for noise of variance one.

    Args:
        theta2: (2,) * d, the squared weight of the marginal over each set.
        traces: (2,) * d, the trace of V on each common eigenspace.
        sizes: the cells of each of the d attributes.

    Source: HDMM, section 8, Theorem 11, in O(d 2^d).
    """
    values = marginals.eigenvalues(theta2, sizes)
    asked = traces > 1e-13 * traces.max()
    if (values[asked] <= 0).any():
        return float("inf")
    return float((traces[asked] / values[asked]).sum())


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
