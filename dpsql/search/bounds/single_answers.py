"""Lower bounds on the error of one answer asked alone, which other answers cannot make less.

A strategy that answers more answers this one too, so the bound holds within every workload, and
the bounds of several answers add up. All are weighted singular value bounds: for weights D of the
cells, no strategy of unit L2 sensitivity has a total squared error below S^2 / sum(D), S the sum
of the singular values of W D^(1/2). With D a product over the attributes they multiply, so one is
found for each factor by itself; weights of zero leave cells out, all but one of those alike.
Source: Li and Miklau, "Optimal error of query sets under the differentially-private matrix
mechanism", with weights of the cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce

import numpy as np

from dpsql.algebra.blocks import AllRange, Identity, Prefix, Total
from dpsql.algebra.operator import Array, Floats, Operator
from dpsql.search.bounds.singular_values import operator_bound
from dpsql.search.one_attribute.dual import optimise
from dpsql.workload.cells import Nodes
from dpsql.workload.layout import Layout, Place

NUMBERS = 1 << 18
"""Most entries of rows that are written out: milliseconds."""

WEIGHED, SPECTRAL = 48, 256
"""Most cells of which the best weights are approached, and of which singular values are found."""

STEPS, GAP = 8, 1e-2
"""Most steps towards the best weights, and the relative gap that is close enough."""

CLOSED = (Identity, Total, Prefix, AllRange)
"""Factors whose singular values are known."""

SAFETY = 1e-9
"""Relative part by which a bound is lowered, far above what is lost in rounding."""


def bound_alone(layout: Layout, place: Place) -> float | None:
    """Return a lower bound on the unit error of an answer asked alone, None where none is known.

    Its total squared error, unweighted, by any strategy of unit sensitivity at unit noise. Which
    answers have one is a matter of their sizes.
    """
    if layout.padded:
        return None
    reading = layout.products[place]
    names = dict.fromkeys(name for _, product in reading for name in product.factors)
    used = {name: [product.factors.get(name) for _, product in reading] for name in names}
    apart = {name: found for name, found in used.items() if len(set(found)) > 1}
    bound = 1 - SAFETY
    for name, (first, *_) in used.items():
        if name not in apart and first is not None:
            bound *= factor_bound(_attained(layout, name, first))
    scales = [scale for scale, _ in reading]
    bound *= _summed_bound(layout, apart, scales) if apart else sum(scales) ** 2
    return bound or None


def _summed_bound(
    layout: Layout, apart: Mapping[str, Sequence[Operator | None]], scales: Sequence[float]
) -> float:
    """Return the bound of a sum over the attributes that its terms differ in; 0 if too large."""
    domain, terms = layout.workload.domain, list(zip(*apart.values(), strict=True))
    counts = {tuple(1 if f is None else f.rows for f in term) for term in terms}
    cells = math.prod(domain[name] for name in apart)
    if len(counts) > 1 or math.prod(max(counts)) * cells * len(terms) > NUMBERS:
        return 0.0
    total: Floats = np.zeros((1, 1))
    for scale, term in zip(scales, terms, strict=True):
        each = [
            _attained(layout, name, Total(domain[name]) if factor is None else factor).dense()
            for name, factor in zip(apart, term, strict=True)
        ]
        total = total + scale * reduce(np.kron, each)
    return rows_bound(total)


def _attained(layout: Layout, name: str, factor: Operator) -> Operator:
    """Return a factor on the cells that rows can be in: nodes between two ends are in no row."""
    resolution = layout.resolutions[name]
    if not isinstance(resolution, Nodes) or resolution.degree == 1:
        return factor
    between = np.arange(3 * resolution.intervals) % 3 == 1
    rest = np.zeros(factor.n - len(between), dtype=bool)
    return factor.take_columns(np.flatnonzero(~np.concatenate([between, rest])))


@lru_cache(maxsize=512)
def factor_bound(factor: Operator) -> float:
    """Return a lower bound on the unit error of one factor, 0 where it would take too long.

    >>> factor_bound(Identity(5)), factor_bound(Total(5)), round(factor_bound(Prefix(2)), 3)
    (5.0, 1.0, 2.618)
    """
    if isinstance(factor, Identity):
        return float(factor.n)
    if factor.rows * factor.n <= NUMBERS:
        return rows_bound(factor.dense())
    return operator_bound(factor) if isinstance(factor, CLOSED) else 0.0


def rows_bound(rows: Array) -> float:
    """Return a lower bound on the unit error of rows (m, n) that are written out.

    Every row alone has at least the square of its largest entry as error; more is known where
    the distinct columns are few.
    """
    kept = np.unique(rows[:, rows.any(axis=0)].T.astype(np.float64), axis=0).T
    single = float(np.square(kept).max(axis=1).sum()) if kept.size else 0.0
    if np.count_nonzero(kept) <= len(kept) or kept.shape[1] > SPECTRAL or len(kept) == 1:
        return single
    gram = kept.T @ kept
    if len(gram) <= WEIGHED:
        return max(single, optimise(gram, tol=GAP, maxiter=STEPS).lower)
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0))
    return max(single, float(roots.sum()) ** 2 / len(gram))
