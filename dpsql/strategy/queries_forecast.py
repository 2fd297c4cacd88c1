"""Least squares of measured queries: exact errors of everything that they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.records import cached_property, dataclass
from dpsql.strategy.base import Forecast, by_single_rows, check_variances, paired_rows
from dpsql.strategy.query_block import QueryBlock, dense_rows
from dpsql.workload.workload import Product

SINGULAR = 1e-10
"""Relative size below which an eigenvalue counts as zero: some query is a sum of others."""

OUTSIDE = 1e-7
"""Relative size of the part of a query that no measured ones add up to, above which it counts."""

CHUNK = 1 << 22
"""Most inner products of rows and queries at a time, 32 MiB."""


class QueriesForecast(Forecast):
    """Exact generalised least squares of measured queries with given noise variances per block.

    With the rows B, scaled to unit noise, and any positive weights of the cells, here equal ones
    that sum to one, the answer to q is c'y with c = (B B')^+ B q, of variance c'c, where q is a
    combination of the rows. Nothing larger than the number of rows squared is formed.

    A query about one of 1e9 cells is as long as 3e-5 of one about all: which rows are sums of
    others is seen where all are scaled to equal length. What that leaves of the coefficients along
    combinations N that are zero, N'B = 0, is taken away, which makes them the shortest.
    """

    def __init__(
        self, domain: Mapping[str, int], blocks: Sequence[QueryBlock], variances: Sequence[float]
    ) -> None:
        self.noise = check_variances(variances, len(blocks))
        self.domain, self.blocks = domain, blocks
        self._stacks = _stacked_blocks(blocks, variances)
        self._order = np.argsort(np.concatenate([stack.places for stack in self._stacks]))
        self._known: dict[tuple[object, ...], tuple[Floats, bool]] = {}

    @cached_property
    def inverse(self) -> Floats:
        """Return the pseudo-inverse of B B', shape (rows, rows)."""
        crossed = [self._cross(s.rows, s.is_paired) / s.scale.T for s in self._stacks]
        gram = np.concatenate(crossed, axis=1)[:, self._order]
        size = np.sqrt(gram.diagonal())[:, np.newaxis]
        size = np.where(size > 0, size, 1.0)  # a query may ask for nothing
        values, vectors = np.linalg.eigh((gram + gram.T) / (2 * size * size.T))
        kept = values > SINGULAR * values[-1]
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / (size * size.T)
        if kept.all():
            return np.asarray(inverse)
        null = np.linalg.qr(vectors[:, ~kept] / size)[0]
        shortened = inverse - null @ (null.T @ inverse)
        return np.asarray(shortened - (shortened @ null) @ null.T)

    def _cross(self, factors: Mapping[str, Floats], paired: bool = False) -> Floats:
        """Return B Q', shape (rows, queries), of the rows of a product, or of its rows in pairs."""
        out = []
        for stack in self._stacks:
            crossed: Floats = np.ones((1, 1))
            for name, n in self.domain.items():
                ours, theirs = stack.rows.get(name), factors.get(name)
                if ours is None and theirs is None:
                    continue
                ours = np.ones((1, n)) if ours is None else ours
                theirs = np.ones((1, n)) if theirs is None else theirs
                crossed = _JOINS[stack.is_paired, paired](crossed, ours @ theirs.T / n)
            rows = np.broadcast_to(crossed, (len(stack.places), crossed.shape[1]))
            out.append(rows / stack.scale)
        return np.asarray(np.concatenate(out)[self._order])

    def _solve(self, factors: Mapping[str, Floats], paired: bool) -> tuple[Floats, bool]:
        """Return the coefficients of queries, shape (rows, queries), and whether they are exact."""
        cross = self._cross(factors, paired)
        found = self.inverse @ cross
        sizes = [np.square(rows).sum(axis=1) / self.domain[name] for name, rows in factors.items()]
        norms: Floats = np.ones(1)
        for size in sizes:
            norms = np.asarray(norms * size if paired else np.outer(norms, size).ravel())
        outside = norms - np.einsum("ij,ij->j", cross, found)
        return found, bool((outside <= OUTSIDE * norms).all())

    def coefficients(self, product: Product) -> tuple[Floats, bool]:
        """Return what to multiply scaled measurements by, per row, and whether that is exact."""
        names = [name for name in self.domain if name in product.factors]
        key = tuple((name, product.factors[name].key) for name in names)
        if key not in self._known:
            rows = {n: np.asarray(product.factors[n].dense(), dtype=np.float64) for n in names}
            self._known[key] = self._solve(rows, False)
        return self._known[key]

    def supports(self, product: Product) -> bool:
        """Say whether what is measured is enough to answer every row of a product."""
        return self.coefficients(product)[1]

    def exact(self, product: Product) -> Floats:
        """Return the coefficients. Raises ProgrammingError E_NOT_MEASURED without support."""
        self.check(product)
        return self.coefficients(product)[0]

    def read(self, product: Product, measured: Floats) -> Floats:
        """Return the answers to a product from all numbers, in units of their noise.

        Args:
            measured: (rows,) of all blocks, one after the other.
        """
        return np.asarray(self.exact(product).T @ measured)

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major."""
        return np.asarray(np.square(self.exact(product)).sum(axis=0))

    def variances(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``variance`` of many products; one-row products are handled together."""
        return by_single_rows(products, self.variance, self._together)

    def _together(self, names: tuple[str, ...], products: list[Product]) -> Floats:
        step = max(1, CHUNK // len(self._order))
        starts = range(0, len(products), step)
        return np.concatenate([self._single_rows(names, products[i : i + step]) for i in starts])

    def _single_rows(self, names: tuple[str, ...], products: list[Product]) -> Floats:
        rows = {n: np.concatenate([p.factors[n].dense() for p in products]) for n in names}
        found, is_exact = self._solve({n: np.asarray(r, np.float64) for n, r in rows.items()}, True)
        if not is_exact:
            for product in products:
                self.check(product)
        return np.asarray(np.square(found).sum(axis=0))

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        return paired_rows(self.domain, (left, right), (self.exact(left).T, self.exact(right).T))

    def between(self, left: Product, right: Product) -> Floats:
        """Return the covariance of every row of a product with every row of another."""
        return np.asarray(self.exact(left).T @ self.exact(right))

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other.

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """
        sides = []
        for product in (left, right):
            rows = {n: np.asarray(f.dense(), dtype=np.float64) for n, f in product.factors.items()}
            sides.append(self._solve(rows, True)[0])
        return np.asarray((sides[0] * sides[1]).sum(axis=0))


@dataclass(frozen=True, slots=True)
class _Stack:
    """A block, or all blocks of one row over the same attributes: their rows in pairs.

    ``places`` says which rows of all they are, ``scale`` is their noise, shape (rows, 1).
    """

    rows: Mapping[str, Floats]
    places: NDArray[np.intp]
    scale: Floats
    is_paired: bool


def _stacked_blocks(blocks: Sequence[QueryBlock], variances: Sequence[float]) -> list[_Stack]:
    ends = np.cumsum([block.rows for block in blocks])
    groups: dict[tuple[str, ...] | int, list[int]] = {}
    for j, block in enumerate(blocks):
        groups.setdefault(block.attributes if block.rows == 1 else j, []).append(j)
    out = []
    for members in groups.values():
        rows = [dense_rows(blocks[j]) for j in members]
        names = blocks[members[0]].attributes
        places = np.concatenate([np.arange(ends[j] - blocks[j].rows, ends[j]) for j in members])
        scale = np.repeat([variances[j] ** 0.5 for j in members], [blocks[j].rows for j in members])
        stacked = {n: np.concatenate([each[k] for each in rows]) for k, n in enumerate(names)}
        out.append(_Stack(stacked, places, scale[:, np.newaxis], len(members) > 1))
    return out


def _kron(left: Floats, right: Floats) -> Floats:
    """Return the Kronecker product of two matrices; numpy's own takes ten times as long."""
    product = left[:, np.newaxis, :, np.newaxis] * right[np.newaxis, :, np.newaxis]
    return np.asarray(product.reshape(len(left) * len(right), -1))


def columnwise(left: Floats, right: Floats) -> Floats:
    """Return the Kronecker product of every column of one with that of the other.

    From (m, columns) and (n, columns) to (m n, columns), rows of the first slowest.
    """
    product = left[:, np.newaxis] * right[np.newaxis]
    return np.asarray(product.reshape(-1, product.shape[-1]))


def rowwise_kron(left: Floats, right: Floats) -> Floats:
    """Return the Kronecker product of every row of one with that of the other.

    Args:
        left, right: (m, k) and (m, l); the result is (m, k l).
    """
    product = left[:, :, np.newaxis] * right[:, np.newaxis]
    return np.asarray(product.reshape(len(product), left.shape[1] * right.shape[1]))


_JOINS: Mapping[tuple[bool, bool], Callable[[Floats, Floats], Floats]] = {
    (False, False): _kron,
    (False, True): columnwise,
    (True, False): rowwise_kron,
    (True, True): np.multiply,
}
"""Joins of the parts of inner products, by whether rows and whether queries are in pairs."""
