"""The queries of a workload as the rows that are measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Array, Integers, Operator
from dpsql.search.bounds.singular_values import cells_bound
from dpsql.search.work_limit import has_room
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.product import ProductStrategy, assemble
from dpsql.strategy.product_block import estimated
from dpsql.strategy.query_block import MOST_ROWS, QueryBlock
from dpsql.workload.workload import Product, Workload

if TYPE_CHECKING:
    from dpsql.search.problem import Problem
    from dpsql.strategy.queries import QueriesStrategy

COPIES = 6
"""Arrays of all rows of queries, or of their inner products, that are alive at once."""

MOST_CROSSED = 1 << 24
"""Most pairs of a query row of the largest block and one of another, where rows are many."""

MOST_CELLS = 2048
"""Most cells of an attribute there."""

MOST_NUMBERS = 1 << 22
"""Most numbers in the rows of one attribute, 32 MiB."""

WEIGHTS = 65_520
"""The largest weight of a block after rounding: every number up to ten divides it."""


ROWS_LIMIT = 1 << 22
"""Largest explicit matrix (entries, 32 MiB) for which the workload itself is tried."""

BINARY_PLACES = 16
"""Binary places of the rows of a workload that can be measured themselves."""

MOST_MULTIPLES, MOST_PARTS, MOST_SIZES = 2.0**24, 64, 4096
"""Limits on numbers of rows: their ratio to the least of them, the parts that is cut in, and how
many different ones there are."""

EXACT = 1e-14
"""Relative difference of a number from a whole multiple that is rounding."""

ROUNDED_BITS, ROUNDED_CELLS = 22, 4096
"""Bits of rows that are no whole numbers, where they are measured themselves; and most cells."""

ALWAYS = 1 << 10
"""Most cells for which they are tried though queries are half as many or more: beyond, their
inverse takes seconds. With q >= n / 2 sets of w cells on average, some cell is in s >= w / 2 of
them: noise on each query has 2 s^2 (Laplace) where each cell by itself gives 2 w, never more, since
sets that share no cells are cells themselves. Gaussian noise has s against w, so up to half is
left to the other families here; one workload was looked at."""

UNEVEN = 1 << 12
"""Largest ratio of one of these rows to another: beyond, small ones drown."""


def workload_rows(problem: Problem) -> Iterator[ProductStrategy]:
    """Yield the distinct query rows as a strategy, for one product or one attribute."""
    if problem.d > 1 and len(problem.components.weights2) > 1:
        return
    rows: dict[str, Integers | None] = {}
    for name, factors in zip(problem.names, problem.factors, strict=True):
        operators = [op for op in factors.operators if op.rows * op.n <= ROWS_LIMIT]
        if len(operators) < len(factors.operators):
            return
        if not has_room(8 * COPIES * sum(op.rows * op.n for op in operators)):
            return
        stacked = np.concatenate([op.dense() for op in operators])
        if (problem.components.index < 0).any():
            stacked = np.concatenate([stacked, np.ones((1, factors.n), dtype=stacked.dtype)])
        if factors.n > ALWAYS and 2 * len(stacked) > factors.n:
            return
        distinct = np.unique(stacked, axis=0)
        whole = _scaled(distinct)
        if not np.array_equal(whole, np.rint(whole)) or np.abs(whole).max() >= 2.0**53:
            if problem.d == 1 and factors.n <= ROUNDED_CELLS:
                rounded = {name: _rounded(distinct)}
                weights = {problem.names: 1.0}
                domain = problem.workload.domain
                yield assemble(domain, rounded, weights, problem.noise, "workload")
            return
        integers: Integers = whole[distinct.any(axis=1)].astype(np.int64)
        sizes = np.abs(integers).max(axis=1)
        if sizes.max() > UNEVEN * sizes.min():
            return
        rows[name] = integers // max(1, int(np.gcd.reduce(integers, axis=None)))
    domain = problem.workload.domain
    yield assemble(domain, rows, {problem.names: 1.0}, problem.noise, "workload")


def _scaled(rows: Array) -> NDArray[np.float64]:
    """Return rows with as many binary places as count, infinite where they are too large."""
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(rows.astype(np.float64), BINARY_PLACES))


def _rounded(rows: NDArray[np.float64]) -> Integers:
    """Return rows rounded to many bits, and each cell faintly: it answers what rounding left."""
    scaled = np.rint(rows / np.abs(rows).max() * 2.0**ROUNDED_BITS).astype(np.int64)
    faint = np.eye(rows.shape[1], dtype=np.int64) << ROUNDED_BITS // 2
    return np.concatenate([scaled[scaled.any(axis=1)], faint])


def count_cells(
    workload: Workload, noise: Noise, limit: int
) -> tuple[ProductStrategy, float] | None:
    """Return the count of every cell, and its error, where no query adds any cells up.

    Nothing can be better, and no table of any factor is formed to see it. None where it is not so.

    Args:
        limit: most cells and sums over them; None where there are more.
    """
    pairs = zip(workload.attributes, workload.factors, strict=True)
    names = tuple(name for name, factors in pairs if factors)
    sizes = [workload.domain[name] for name in names]
    if (workload.pinned and len(names) > 1) or estimated(sizes) > limit:
        return None
    error = cells_bound(workload)
    if not error:
        return None
    return assemble(workload.domain, {}, {names: 1.0}, noise, "identity"), error


def measure_queries(workload: Workload, noise: Noise) -> QueriesStrategy | None:
    """Return the products of a workload as a strategy; None where they are many or not whole.

    Products that are asked several times are measured once, with the sum of their weights.
    """
    if not are_few(workload.products, workload.domain):
        return None
    found: dict[tuple[object, ...], tuple[dict[str, Integers | None], float]] = {}
    known: dict[int, tuple[Integers | None, float] | None] = {}
    for product in workload.products:
        factors: dict[str, Integers | None] = {}
        scale = product.weight
        for name, factor in product.factors.items():
            if id(factor) not in known:
                known[id(factor)] = _whole(factor)
            whole = known[id(factor)]
            if whole is None:
                return None
            factors[name] = whole[0]
            scale *= whole[1]
        key = tuple((n, None if m is None else (m.shape, m.tobytes())) for n, m in factors.items())
        found[key] = (factors, found.get(key, (factors, 0.0))[1] + scale)
    power = law(noise).norm
    largest = max(scale for _, scale in found.values())
    domain = workload.domain
    blocks = tuple(
        QueryBlock(
            tuple(factors),
            tuple(domain[name] for name in factors),
            tuple(factors.values()),
            max(1, round(WEIGHTS * (scale / largest) ** power)),
        )
        for factors, scale in found.values()
    )
    weights = math.gcd(*(block.weight for block in blocks))
    blocks = tuple(
        QueryBlock(b.attributes, b.sizes, b.matrices, b.weight // weights) for b in blocks
    )
    from dpsql.strategy.queries import QueriesStrategy  # most requests have something better

    return QueriesStrategy(domain, blocks, noise)


def are_few(
    products: Sequence[Product], domain: Mapping[str, int], known: dict[int, bool] | None = None
) -> bool:
    """True if least squares of the queries is feasible: one large block is eliminated.

    Args:
        domain: the cells of every attribute.
        known: which factors have independent rows, by their identity; new ones are put here.
    """
    rows = sum(product.rows for product in products)
    if rows <= MOST_ROWS:
        return True
    largest = max(products, key=lambda product: product.rows)
    rest = rows - largest.rows
    known = {} if known is None else known
    return (
        rest <= MOST_ROWS
        and rest * rows <= MOST_CROSSED
        and max(domain[name] for product in products for name in product.factors) <= MOST_CELLS
        and has_room(8 * COPIES * rest * rows)
        and all(_are_independent(factor, known) for factor in largest.factors.values())
    )


def _are_independent(factor: Operator, known: dict[int, bool]) -> bool:
    if isinstance(factor, Identity):
        return True
    if id(factor) not in known:
        fits = factor.rows <= factor.n
        known[id(factor)] = fits and np.linalg.matrix_rank(factor.dense()) == factor.rows
    return known[id(factor)]


def _whole(factor: Operator) -> tuple[Integers | None, float] | None:
    """Return whole rows and what one of theirs is of the factor's, None where there are none."""
    if isinstance(factor, Identity):
        return None, 1.0
    if factor.rows * factor.n > MOST_NUMBERS:
        return None
    dense = factor.dense()
    scaled = _scaled(dense)
    if not np.array_equal(scaled, np.rint(scaled)) or np.abs(scaled).max() >= 2.0**40:
        return _multiples(dense)
    rows: Integers = scaled.astype(np.int64)
    divisor = max(1, int(np.gcd.reduce(rows, axis=None)))
    return np.ascontiguousarray(rows // divisor), divisor / 2**BINARY_PLACES


def _multiples(rows: Array) -> tuple[Integers, float] | None:
    """Return rows as multiples of a fraction, and that; None where there is none.

    >>> rows, one = _multiples(np.array([[-0.1, 0.0, 0.25]]))
    >>> rows.tolist(), round(one, 9)
    ([[-2, 0, 5]], 0.05)
    """
    sizes = np.unique(np.abs(rows[rows != 0])).astype(np.float64)
    if not 0 < len(sizes) <= MOST_SIZES or sizes[-1] > MOST_MULTIPLES * sizes[0]:
        return None
    for parts in range(1, MOST_PARTS + 1):
        one = float(sizes[0]) / parts
        if (np.abs(sizes / one - np.rint(sizes / one)) <= EXACT * sizes / one).all():
            whole = np.rint(rows / one).astype(np.int64)
            divisor = int(np.gcd.reduce(whole, axis=None))
            return np.ascontiguousarray(whole // divisor), one * divisor
    return None
