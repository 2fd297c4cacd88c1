"""Least squares of measured queries of which most rows are those of one large block.

With B the rows in units of their noise, an answer to q is c'y, c the shortest with B'c = q. Rows of
the large block are independent and their Gram is a Kronecker product, so that their coefficients
follow from those of all other rows, and nothing larger than these by all queries is formed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Floats
from dpsql.records import cached_property, dataclass
from dpsql.strategy.base import Forecast, check_variances
from dpsql.strategy.queries_forecast import OUTSIDE, rowwise_kron
from dpsql.strategy.query_block import QueryBlock, dense_rows
from dpsql.workload.workload import Product

SINGULAR = 1e-9
"""Relative size below which what other rows add to those of the large block counts as nothing."""

Rows = Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class SolvedRows:
    """The coefficients of all rows but the large block's for queries, shape (rows, queries).

    ``shared`` are the inner products of the rows and the queries as the large block sees them,
    ``within`` those with what the coefficients add up to.
    """

    rest: Floats
    shared: Floats
    within: Floats
    is_exact: bool


class LargeQueriesForecast(Forecast):
    """Exact generalised least squares of measured queries, the largest block eliminated.

    Inner products of rows are taken in three ways: of themselves, of their projections on the
    span of the large block, and of what they are multiples of there.
    """

    def __init__(
        self, domain: Mapping[str, int], blocks: Sequence[QueryBlock], variances: Sequence[float]
    ) -> None:
        self.noise = check_variances(variances, len(blocks))
        self.domain, self.blocks = domain, blocks
        self.used = [n for n in domain if any(n in block.attributes for block in blocks)]
        self.large = max(range(len(blocks)), key=lambda i: blocks[i].rows)
        self._rest = [
            (dict(zip(block.attributes, dense_rows(block), strict=True)), variance**-0.5)
            for i, (block, variance) in enumerate(zip(blocks, self.noise, strict=True))
            if i != self.large
        ]
        self._known: dict[tuple[object, ...], SolvedRows] = {}
        self._spreads: dict[tuple[object, ...], tuple[Floats, bool]] = {}

    @cached_property
    def _views(self) -> dict[str, tuple[Floats, Floats]]:
        """Per attribute the maps to projections on the large block, and to its multiples."""
        block = self.blocks[self.large]
        own = dict(zip(block.attributes, dense_rows(block), strict=True))
        out = {}
        for name, n in self.domain.items():
            M = own.get(name, np.ones((1, n))) / n**0.5
            values, vectors = np.linalg.eigh(M @ M.T)
            if values[0] <= SINGULAR * values[-1]:
                raise ValueError(f"rows of {name!r} of the largest block are not independent")
            projected = (vectors / np.sqrt(values)).T @ M
            multiples = (vectors / values) @ vectors.T @ M
            out[name] = (projected / n**0.5, multiples / n**0.5)
        return out

    def _seen(self, factors: Rows, way: int) -> Rows:
        """Return the rows of a product as they are (0), projected (1) or as multiples (2)."""
        out = {}
        for name, n in self.domain.items():
            rows = factors.get(name, np.ones((1, n)))
            out[name] = rows / n**0.5 if way == 0 else rows @ self._views[name][way - 1].T
        return out

    def _cross(self, factors: Rows, way: int, paired: bool = False) -> Floats:
        """Return the inner products of all other rows and those of a product, (rows, queries)."""
        seen, ours = self._seen(factors, way), self._ours[way]
        found: Floats = self._scales[:, np.newaxis]
        for name in self.domain:
            if name not in self.used and name not in factors:
                continue  # inner products of totals are one
            part = (ours[name] @ seen[name].T)[self._places_of[name]]
            found = found * part if paired else rowwise_kron(found, part)
        return np.asarray(found)

    @cached_property
    def _scales(self) -> Floats:
        """The scale (rows,) of every row that is not of the large block."""
        counts = [math.prod(len(rows) for rows in own.values()) for own, _ in self._rest]
        scales = np.array([scale for _, scale in self._rest], dtype=np.float64)
        return np.repeat(scales, np.array(counts, dtype=np.int64))

    @cached_property
    def _ours(self) -> list[Rows]:
        """Return, in each way, the rows of all other blocks on every attribute."""
        joined = {}
        for name, n in self.domain.items():
            rows = [own.get(name, np.ones((1, n))) for own, _ in self._rest]
            joined[name] = np.concatenate([np.zeros((0, n)), *rows])
        return [self._seen(joined, way) for way in range(3)]

    @cached_property
    def _places_of(self) -> dict[str, NDArray[np.intp]]:
        """Return which of these rows each row of a product is made from."""
        out: dict[str, list[NDArray[np.intp]]] = {name: [] for name in self.domain}
        first = dict.fromkeys(self.domain, 0)
        for own, _ in self._rest:
            counts = tuple(len(own[name]) if name in own else 1 for name in self.domain)
            places = np.unravel_index(np.arange(math.prod(counts)), counts)
            for name, count, place in zip(self.domain, counts, places, strict=True):
                out[name].append(first[name] + place)
                first[name] += count
        none = np.zeros(0, dtype=np.intp)
        return {name: np.concatenate([none, *found]) for name, found in out.items()}

    def _norms(self, left: Rows, right: Rows, way: int, paired: bool = False) -> Floats:
        """Return the inner products of paired rows of two products."""
        one, two = self._seen(left, way), self._seen(right, way)
        out: Floats = np.ones(1)
        for name in self.domain:
            size = (one[name] * two[name]).sum(axis=1)
            out = np.asarray(out * size if paired else np.kron(out, size))
        return out

    @cached_property
    def _gram(self) -> tuple[Floats, Floats]:
        """Return of all other rows the Grams of what lies outside of the large block, and in it."""
        scales = np.multiply.outer(self._scales, self._scales)
        ways = [scales.copy(), scales.copy(), self._variance * scales]
        for found, ours in zip(ways, self._ours, strict=True):
            for name in self.used:
                places = self._places_of[name]
                found *= (ours[name] @ ours[name].T)[places[:, np.newaxis], places]
        return ways[0] - ways[1], ways[2]

    @property
    def _variance(self) -> float:
        return self.noise[self.large]

    @cached_property
    def _inverses(self) -> tuple[Floats, Floats, Floats]:
        """Return the pseudo-inverse of the first Gram, its null space, and the inverse in that."""
        outside, inside = self._gram
        size = np.concatenate(
            [s * self._norms(own, own, 0) ** 0.5 for own, s in self._rest] or [[]]
        )
        size = np.where(size > 0, size, 1.0)
        scaled = outside / size / size[:, np.newaxis]
        values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
        kept = values > SINGULAR
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        null = vectors[:, ~kept] / size[:, np.newaxis]
        free = null.T @ null + null.T @ inside @ null
        return inverse / size / size[:, np.newaxis], null, np.asarray(np.linalg.inv(free))

    def _solve(self, factors: Rows, paired: bool = False) -> SolvedRows:
        outside = self._cross(factors, 0, paired) - self._cross(factors, 1, paired)
        shared = self._variance * self._cross(factors, 2, paired)
        inverse, null, free = self._inverses
        rest = inverse @ outside
        norms = [self._norms(factors, factors, way, paired) for way in (0, 1)]
        left = norms[0] - norms[1] - np.einsum("ij,ij->j", outside, rest)
        within = self._gram[1] @ rest
        if null.size:
            more = free @ (null.T @ (shared - within - rest))
            rest, within = rest + null @ more, within + (self._gram[1] @ null) @ more
        return SolvedRows(rest, shared, within, bool((left <= OUTSIDE * norms[0]).all()))

    def _rows_of(self, product: Product) -> dict[str, Floats]:
        names = [name for name in self.domain if name in product.factors]
        return {n: np.asarray(product.factors[n].dense(), dtype=np.float64) for n in names}

    def _solved(self, product: Product) -> SolvedRows:
        key = self._key(product)
        if key not in self._known:
            self._known[key] = self._solve(self._rows_of(product))
        return self._known[key]

    def _key(self, product: Product) -> tuple[object, ...]:
        return tuple((n, product.factors[n].key) for n in self.domain if n in product.factors)

    def supports(self, product: Product) -> bool:
        """Say whether what is measured is enough to answer every row of a product."""
        return self._spread(product)[1]

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product. Raises ProgrammingError E_NOT_MEASURED."""
        self.check(product)
        return self._spread(product)[0]

    def _spread(self, product: Product) -> tuple[Floats, bool]:
        """Return the variance of every row of a product, and whether all can be answered.

        With r the coefficients that lie outside of the large block, G the second Gram and s what
        the null space N sees of the rest, it is |own|^2 + r'(Gr + r - 2 shared) - s'Fs, F the
        inverse of N'(G + I)N: of most queries nothing lies outside.
        """
        key = self._key(product)
        if key not in self._spreads:
            rows = self._rows_of(product)
            own, projected, multiples = (self._norms(rows, rows, way) for way in range(3))
            slope = self._variance * self._cross(rows, 2)
            variances, left = self._variance * multiples, own - projected
            if (left > OUTSIDE * own).any():
                outside = self._cross(rows, 0) - self._cross(rows, 1)
                rest = self._inverses[0] @ outside
                left = left - np.einsum("ij,ij->j", outside, rest)
                pulled = self._gram[1] @ rest + rest
                variances = variances + np.einsum("ij,ij->j", rest, pulled - 2 * slope)
                slope = slope - pulled
            variances = variances - np.square(self._free.T @ slope).sum(axis=0)
            self._spreads[key] = np.asarray(variances), bool((left <= OUTSIDE * own).all())
        return self._spreads[key]

    @cached_property
    def _free(self) -> Floats:
        """Return the null space times a root of the inverse in it, shape (rows, null)."""
        _, null, free = self._inverses
        return np.asarray(null @ np.linalg.cholesky((free + free.T) / 2))

    def _joined(self, one: SolvedRows, two: SolvedRows, own: Floats) -> Floats:
        """Return c'd for paired coefficients c and d: c1'd1 of the large block, and c2'd2."""
        crossed = one.rest * two.shared + two.rest * one.shared
        within = one.rest * (two.within + two.rest)
        return np.asarray(self._variance * own + (within - crossed).sum(axis=0))

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        for product in (left, right):
            self.check(product)
        names = [n for n in self.domain if n in left.factors or n in right.factors]
        counts = [max(p.factors[n].rows for p in (left, right) if n in p.factors) for n in names]
        sides = []
        for product in (left, right):
            places = self._places(product, names, counts)
            solved = self._solved(product)
            rest, shared = solved.rest[:, places], solved.shared[:, places]
            sides.append(SolvedRows(rest, shared, solved.within[:, places], True))
        one, two = (self._repeated(product, names, counts) for product in (left, right))
        return self._joined(sides[0], sides[1], self._norms(one, two, 2))

    def _places(
        self, product: Product, names: Sequence[str], counts: Sequence[int]
    ) -> NDArray[np.intp]:
        """Return which row of a product stands for every row of a pair."""
        own = [product.factors[n].rows if n in product.factors else 1 for n in names]
        places = np.arange(math.prod(own)).reshape(own or (1,))
        return np.asarray(np.broadcast_to(places, counts or (1,)).reshape(-1))

    def _repeated(self, product: Product, names: Sequence[str], counts: Sequence[int]) -> Rows:
        rows = self._rows_of(product)
        out = {}
        for name, count in zip(names, counts, strict=True):
            found = rows.get(name, np.ones((1, self.domain[name])))
            out[name] = np.broadcast_to(found, (count, found.shape[1]))
        return out

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other.

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """
        rows = [self._rows_of(product) for product in (left, right)]
        one, two = (self._solve(each, paired=True) for each in rows)
        return self._joined(one, two, self._norms(rows[0], rows[1], 2, paired=True))

    def read(self, product: Product, measured: Floats) -> Floats:
        """Return the answers to a product from all numbers, in units of their noise.

        Args:
            measured: (rows,) of all blocks, one after the other.
        """
        self.check(product)
        counts = [block.rows for block in self.blocks]
        parts = np.split(measured, np.cumsum(counts)[:-1])
        own = [len(self._views[name][1]) for name in self.domain]
        table = (parts.pop(self.large) * self._variance**0.5).reshape(own)
        fitted = [s * self._fitted(rows, table) for rows, s in self._rest]
        rest = np.concatenate(parts or [np.zeros(0)]) - np.concatenate(fitted or [np.zeros(0)])
        fit = self._fitted(self._rows_of(product), table)
        return np.asarray(fit + self._solved(product).rest.T @ rest)

    def _fitted(self, factors: Rows, table: Floats) -> Floats:
        """Return what the large block alone says of a product, nearest in its span."""
        seen = self._seen(factors, 2)
        scaled = [seen[name] for name in self.domain]
        return np.asarray(kron_apply(scaled, table)).reshape(-1)
