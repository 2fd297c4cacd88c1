"""Lossless coarsening: merge the cells that no query of a workload tells apart."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity, IdentityTotal, Prefix
from dpsql.algebra.groups import Groups
from dpsql.algebra.operator import Columns, Operator
from dpsql.algebra.ranges import AllRange, Ranges
from dpsql.records import dataclass
from dpsql.workload.workload import Product, Workload

DISTINCT = (Identity, IdentityTotal, Prefix, AllRange)
"""Operators whose columns all differ and none of which is zero."""


MANY = 16
"""Times as many rows as columns from which on columns are worked through, rather than rows."""

NEAR = 1 << 20
"""Difference of whole numbers in a column below which they are taken as they are."""


@dataclass(frozen=True, slots=True)
class Coarsening:
    """A smaller workload with the same answers, and where each original cell went.

    ``classes[a]`` has shape (n_a,): the coarse cell of every original cell, or -1 for a cell that
    no answer counts. A coarse attribute with such cells is pinned in the workload.
    """

    workload: Workload
    classes: dict[str, NDArray[np.int64]]


def coarsen(workload: Workload, keep: Collection[str] = (), *, drop: bool = True) -> Coarsening:
    """Merge cells whose columns agree in every factor; drop cells that no answer counts.

    Error and optimum are unchanged: one column per class of any strategy still answers the
    workload and cannot raise sensitivity, and columns can be duplicated back. Cells are dropped
    only where every product has the same factor, so that fixing that attribute loses nothing.

    Args:
        keep: attributes that stay as they are.
        drop: without it cells that no answer counts are a class of their own.

    Source: HDMM, section 8 (workload-aware domain reduction).

    >>> w = Workload({"age": 5}, [{"age": [1, 1, 0, 0, 0]}, {"age": [1, 1, 1, 0, 0]}])
    >>> coarse = coarsen(w)
    >>> coarse.classes["age"].tolist(), coarse.workload.products[1].factors["age"].dense().tolist()
    ([0, 0, 1, -1, -1], [[1, 1]])
    """
    index = workload.index
    active = int((index >= 0).any(axis=0).sum())
    classes: dict[str, NDArray[np.int64]] = {}
    taken: dict[tuple[str, Hashable], Operator] = {}
    domain, pinned = dict(workload.domain), set(workload.pinned)
    for i, name in enumerate(workload.attributes):
        column, factors = index[:, i], workload.factors[i]
        if not factors:  # as most columns of a wide table
            classes[name], domain[name] = np.zeros(domain[name], dtype=np.int64), 1
            continue
        may_drop = drop and bool((column >= 0).all()) and (active == 1 or len(set(column)) == 1)
        if name in keep:
            labels = np.arange(domain[name], dtype=np.int64)
        else:
            labels = label_cells(factors, domain[name], may_drop)
        representatives = np.unique(labels, return_index=True)[1][int((labels < 0).any()) :]
        classes[name] = labels
        if len(representatives) == domain[name]:
            continue
        domain[name] = len(representatives)
        if (labels < 0).any():
            pinned.add(name)
        for factor in workload.factors[i]:
            taken[name, factor.key] = factor.take_columns(representatives)
    products = [
        Product({a: taken.get((a, f.key), f) for a, f in product.factors.items()}, product.weight)
        for product in workload.products
    ]
    return Coarsening(Workload(domain, products, pinned=pinned), classes)


def is_distinct(factor: Operator) -> bool:
    """Say whether all columns are known to differ without forming them."""
    if isinstance(factor, Columns):
        return is_distinct(factor.op) and len(set(factor.index.tolist())) == factor.n
    return isinstance(factor, DISTINCT)


def tell_apart(factor: Operator) -> NDArray[Any]:
    """Return few rows that tell apart the columns of an operator, zero where a column is zero."""
    if not isinstance(factor, Groups | Ranges):
        return np.asarray(factor.dense())
    if isinstance(factor, Groups):
        entries = factor.entries()
        rows = np.where(entries != 0, factor.labels + 1, 0)
        return rows[None] if factor.weights is None else np.stack([rows, entries])
    edges = np.unique(np.concatenate([factor.lo, factor.hi]))
    covered = factor.column_l1() != 0
    return np.where(covered, np.searchsorted(edges, np.arange(factor.n), side="right"), 0)[None]


def label_rows(columns: NDArray[Any]) -> NDArray[np.int64]:
    """Return the class of every row, (rows,), those alike together, numbered by first occurrence.

    >>> label_rows(np.array([[2.0, 1.0], [0.0, 0.0], [2.0, 1.0], [-0.0, 0.0]])).tolist()
    [0, 1, 0, 1]
    """
    rows, count = columns.shape
    if rows > MANY * count > MANY:
        columns = _numbered(columns)[:, np.newaxis]
    elif count > 1:
        # Bytes are told apart much quicker than rows are sorted; zero has one sign then.
        classes: dict[bytes, int] = {}
        texts = (each.tobytes() for each in np.ascontiguousarray(columns + 0))
        return np.array([classes.setdefault(text, len(classes)) for text in texts], dtype=np.int64)
    _, first, inverse = np.unique(columns, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return np.asarray(rank[inverse.reshape(-1)], dtype=np.int64)


def _numbered(columns: NDArray[Any]) -> NDArray[np.int64]:
    """Return a number (rows,) for every row of columns (rows, m), equal where rows are equal."""
    found, most = np.zeros(len(columns), dtype=np.int64), 1
    for column in (columns + 0).T:
        low, high = column.min(), column.max()
        if high - low < NEAR and (column == np.rint(column)).all():
            own, count = (column - low).astype(np.int64), int(high - low) + 1
        else:
            own = np.unique(column, return_inverse=True)[1].reshape(-1)
            count = int(own.max()) + 1
        if most * count > 1 << 62:
            found = np.unique(found, return_inverse=True)[1].reshape(-1)
            most = int(found.max()) + 1
        found, most = found * count + own, most * count
    return found


def label_cells(factors: tuple[Operator, ...], size: int, may_drop: bool) -> NDArray[np.int64]:
    """Return the class of every cell, numbered by first occurrence, -1 where dropped.

    Args:
        factors: of one attribute, each (rows, size).
        size: cells of the attribute.
        may_drop: drop cells that are zero in all rows, unless all are.
    """
    if not factors:
        return np.zeros(size, dtype=np.int64)
    if any(is_distinct(factor) for factor in factors):
        return np.arange(size, dtype=np.int64)
    columns = np.concatenate([tell_apart(factor) for factor in factors]).T
    labels = label_rows(columns)
    zero = ~columns.any(axis=1)
    if may_drop and zero.any() and not zero.all():
        gap = labels[zero][0]
        labels = np.where(zero, -1, labels - (labels > gap))
    return labels
