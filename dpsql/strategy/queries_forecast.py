"""Least squares of measured queries: exact errors of everything that they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.strategy.base import Forecast, check_variances
from dpsql.strategy.query_block import QueryBlock, dense_rows
from dpsql.workload.workload import Product

SINGULAR = 1e-10
"""Relative size below which an eigenvalue counts as zero: some query is a sum of others."""

OUTSIDE = 1e-7
"""Relative size of the part of a query that no measured ones add up to, above which it counts."""


class QueriesForecast(Forecast):
    """Exact generalised least squares of measured queries with given noise variances per block.

    With the rows B, scaled to unit noise, and any positive weights of the cells, here equal ones
    that sum to one, the answer to q is c'y with c = (B B')^+ B q, of variance c'c, where q is a
    combination of the rows. Nothing larger than the number of rows squared is formed.
    """

    def __init__(
        self, domain: Mapping[str, int], blocks: Sequence[QueryBlock], variances: Sequence[float]
    ) -> None:
        self.noise = check_variances(variances, len(blocks))
        self.domain, self.blocks = domain, blocks
        self._rows = [dense_rows(block) for block in blocks]
        self._known: dict[tuple[object, ...], tuple[Floats, bool]] = {}

    @cached_property
    def inverse(self) -> Floats:
        """Return the pseudo-inverse of B B', shape (rows, rows)."""
        names = [block.attributes for block in self.blocks]
        products = [
            dict(zip(n, rows, strict=True)) for n, rows in zip(names, self._rows, strict=True)
        ]
        gram = np.concatenate([self._cross(each) for each in products], axis=1)
        scale = np.concatenate(
            [np.full(b.rows, v**-0.5) for b, v in zip(self.blocks, self.noise, strict=True)]
        )
        gram *= scale
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        kept = values > SINGULAR * values[-1]
        return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T)

    def _cross(self, factors: Mapping[str, Floats], paired: bool = False) -> Floats:
        """Return B Q', shape (rows, queries), of the rows of a product, or of its rows in pairs."""
        out = []
        join = columnwise if paired else np.kron
        for block, rows, variance in zip(self.blocks, self._rows, self.noise, strict=True):
            own = dict(zip(block.attributes, rows, strict=True))
            parts = [np.ones((1, 1))]
            for name, n in self.domain.items():
                ours, theirs = own.get(name), factors.get(name)
                if ours is None and theirs is None:
                    continue
                ours = np.ones((1, n)) if ours is None else ours
                theirs = np.ones((1, n)) if theirs is None else theirs
                parts.append(ours @ theirs.T / n)
            crossed: Floats = parts[0]
            for part in parts[1:]:
                crossed = np.asarray(join(crossed, part))
            out.append(crossed / variance**0.5)
        return np.concatenate(out)

    def _solve(self, factors: Mapping[str, Floats], paired: bool) -> tuple[Floats, bool]:
        """Return the coefficients of queries, shape (rows, queries), and whether they are exact."""
        cross = self._cross(factors, paired)
        found = self.inverse @ cross
        sizes = [np.square(rows).sum(axis=1) / self.domain[name] for name, rows in factors.items()]
        norms: Floats = np.ones(1)
        for size in sizes:
            norms = np.asarray(norms * size if paired else np.kron(norms, size))
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
        """Return the answers to a product from all numbers, in units of their noise."""
        return np.asarray(self.exact(product).T @ measured)

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major."""
        return np.asarray(np.square(self.exact(product)).sum(axis=0))

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        names = [n for n in self.domain if n in left.factors or n in right.factors]
        sides = []
        for product in (left, right):
            sizes = [product.factors[n].rows if n in product.factors else 1 for n in names]
            found = self.exact(product)
            sides.append(found.reshape(len(found), *sizes))
        return np.asarray((sides[0] * sides[1]).sum(axis=0)).reshape(-1)

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


def columnwise(left: Floats, right: Floats) -> Floats:
    """Return the Kronecker product of every column of one with that of the other.

    From (m, columns) and (n, columns) to (m n, columns), rows of the first slowest.
    """
    product = left[:, np.newaxis] * right[np.newaxis]
    return np.asarray(product.reshape(-1, product.shape[-1]))
