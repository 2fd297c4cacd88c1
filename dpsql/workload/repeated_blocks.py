"""Attributes of which every cell has the same problem of its own: the rest is planned once for all.

The total squared error is tr(G (A'A)^-1) with G the Gram matrix of all weighted queries. Where G is
H x D with D diagonal over one attribute, no query brings its cells together. The columns of a
strategy in one cell of it are a strategy for that cell's part of G, no more sensitive, and whatever
else was measured tells nothing about that part: the least error is the sum over cells of the least
error of H times an entry of D. The best strategy of H, measured in every cell, has that error and
costs no more, since a row is in one cell. So nothing is lost, whatever norm noise is for.

A grouping column that every answer has is one; so are the nodes of a mean, which asks for a count
and for a sum less the middle of the bounds: (1, 1) and (-1, 1) are of equal length and orthogonal.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from dpsql.algebra.blocks import Dense, Identity, Total
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Floats, Operator
from dpsql.workload.workload import Product, Workload

FEW_CELLS = 64
"""Most cells of an attribute of which Gram matrices are formed to see whether it is one."""

CLOSE = 1e-12
"""Part of the largest number of such a matrix below which others are rounding."""


def resolved(workload: Workload) -> Workload:
    """Return the workload with the attributes pinned whose cells have the same problem each.

    Of one active attribute there is nothing to gain.

    >>> rows = [[1, 1]], [[-1, 1]]
    >>> asked = [{"g": "identity", "x": each} for each in rows]
    >>> sorted(resolved(Workload({"g": 5, "x": 2}, asked)).pinned)
    ['g', 'x']
    >>> uneven = [{"g": "identity", "x": each} for each in ([[1, 1]], [[0, 1]])]
    >>> sorted(resolved(Workload({"g": 5, "x": 2}, uneven)).pinned)
    ['g']
    """
    if sum(map(bool, workload.factors)) < 2:
        return workload
    names = {name for name in workload.attributes if is_resolved(workload, name)}
    if names <= workload.pinned:
        return workload
    totals = {name: Total(workload.domain[name]) for name in names}
    products = [Product({**totals, **p.factors}, p.weight) for p in workload.products]
    return Workload(workload.domain, products, pinned=names | workload.pinned)


def is_resolved(workload: Workload, name: str) -> bool:
    """True if every cell of an attribute has the same problem, but for a factor of its own."""
    place = workload.attributes.index(name)
    factors, column = workload.factors[place], workload.index[:, place]
    if not factors:
        return False
    if (column < 0).any():
        factors = (*factors, Total(workload.domain[name]))  # it is the last, as an index of -1 is
    if len(factors) == 1 and factors[0].column_l2sq().min() > 0 and adds_nothing(factors[0]):
        return True
    if workload.domain[name] > FEW_CELLS or not any(map(has_signs, factors)):
        return False
    grams = [np.asarray(factor.gram(), dtype=np.float64) for factor in factors]
    sums: dict[Hashable, Floats] = {}
    others = np.delete(workload.index, place, axis=1)
    for key, own, weight2 in zip(others.tolist(), column, workload.weights2, strict=True):
        sums[tuple(key)] = sums.get(tuple(key), 0.0) + weight2 * grams[own]
    if not all(map(is_diagonal, sums.values())):
        return False
    found = [gram / np.trace(gram) for gram in sums.values()]
    return all(np.allclose(gram, found[0], rtol=1e-9) for gram in found)


def adds_nothing(op: Operator) -> bool:
    """True if every row of a factor is a multiple of one cell."""
    if isinstance(op, Dense):
        return int(np.count_nonzero(op.matrix, axis=1).max()) <= 1
    return isinstance(op, Identity) or (isinstance(op, Groups) and op.alone)


def has_signs(op: Operator) -> bool:
    """True if a factor has negative entries, as sums less the middle of bounds have."""
    return isinstance(op, Dense) and bool((op.matrix < 0).any())


def is_diagonal(gram: Floats) -> bool:
    """True if a Gram matrix (n, n) is, but for rounding, diagonal with a positive diagonal."""
    diagonal = gram.diagonal()
    apart = np.abs(gram - np.diag(diagonal)).max()
    return bool(diagonal.min() > 0 and apart <= CLOSE * diagonal.max())
