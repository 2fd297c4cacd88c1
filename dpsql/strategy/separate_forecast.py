"""Least squares of blocks with matrices of their own: tables that are made to agree.

Every block is an estimate of a table by itself. Where several know the same part of it, least
squares under the condition that these are equal is the estimate of all blocks together. Of large
tables small parts agree first, up to a limit on their numbers; what is beyond it each block knows
by itself, and a product is answered by the block that knows it best.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.kron import kron_apply
from dpsql.algebra.operator import Floats
from dpsql.records import cached_property, dataclass
from dpsql.strategy.base import Estimate, Forecast, check_variances
from dpsql.strategy.consistency_constraints import Matrices
from dpsql.strategy.consistent_tables import agreed_tables, key_of, pseudo_inverse
from dpsql.strategy.separate_table import BlockTable
from dpsql.workload.workload import Product

CHUNK = 1 << 22
"""Numbers handled at once, 32 MiB, when the errors of many rows are forecast."""


class SeparateForecast(Forecast):
    """The exact generalised least squares of blocks with matrices of their own.

    With C the conditions that tables agree, K = (x)K_i v the covariance of a table by its block
    alone and H = C K C', a query q of one block has the variance q'Kq - g'H^+ g, g = C K q.
    """

    def __init__(
        self, domain: Mapping[str, int], blocks: Sequence[Matrices], variances: Sequence[float]
    ) -> None:
        self.noise = check_variances(variances, len(blocks))
        self.domain = domain
        self.agreed = agreed_tables(domain, blocks)
        self.tables, self.sides = self.agreed.tables, self.agreed.sides
        self.count = self.agreed.count
        self._homes: dict[Hashable, int] = {}

    @cached_property
    def inverse(self) -> Floats:
        """Return H^+."""
        H = np.zeros((self.count, self.count))
        for v, each in zip(self.noise, self.agreed.spreads, strict=True):
            H += v * each
        scale = 1 / np.sqrt(np.diag(H))
        scaled = scale[:, np.newaxis] * H * scale
        found = pseudo_inverse(scaled, self.agreed.are_independent)
        return scale[:, np.newaxis] * found * scale

    def home(self, product: Product) -> int:
        """Return the block that answers a product best by itself; -1 where none answers it."""
        key = key_of(product)
        if key not in self._homes:
            able = [b for b, table in enumerate(self.tables) if _answers(table, product)]
            self._homes[key] = min(able, key=lambda b: self._alone(b, product), default=-1)
        return self._homes[key]

    def supports(self, product: Product) -> bool:
        """Say whether some block tells enough cells apart to answer every row of a product."""
        return self.home(product) >= 0

    def _alone(self, b: int, product: Product) -> float:
        """Return the sum of the variances of all rows of a product from one block alone."""
        return self.noise[b] * self.agreed.alone(b, product)

    def _conditional(self, b: int, queries: Iterable[Floats], paired: bool = False) -> Floats:
        """Return g = C K q per query, shape (conditions, queries)."""
        crossed = self.tables[b].crossed(list(queries), paired)
        return self.noise[b] * self.sides[b].put(crossed)

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major.

        Raises ProgrammingError E_NOT_MEASURED where the strategy does not support it.
        """
        return self.covariance(product, product)

    def total(self, product: Product) -> float:
        """Return the sum of the variances of all rows of a product, without forming them."""
        self.check(product)
        b = self.home(product)
        shared = float(np.vdot(self.inverse, self.agreed.gram(b, product)))
        return self._alone(b, product) - self.noise[b] ** 2 * shared

    def parts(self, products: Iterable[tuple[Product, float]]) -> Floats:
        """Return how much of the error of products is due to the noise of each block, (blocks,).

        Products come with their squared weights. The parts sum to the error.
        """
        out = np.zeros(len(self.tables))
        gram = np.zeros((self.count, self.count))
        for product, weight2 in products:
            b = self.home(product)
            g = weight2 * self.noise[b] ** 2 * self.agreed.gram(b, product)
            gram += g
            out[b] += weight2 * self._alone(b, product) - 2 * float(np.vdot(self.inverse, g))
        middle = self.inverse @ gram @ self.inverse
        for b, (v, spread) in enumerate(zip(self.noise, self.agreed.spreads, strict=True)):
            out[b] += v * float(np.vdot(middle, spread))
        return out

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        self.check(left)
        self.check(right)
        both = {**left.factors, **right.factors}
        names = [name for name in self.domain if name in both]
        counts = [
            max(p.factors[n].rows if n in p.factors else 1 for p in (left, right)) for n in names
        ]
        most = max(1, CHUNK // max(1, self.count))
        found = [
            self._covered(left, right, dict(zip(names, piece, strict=True)))
            for piece in _pieces([slice(0, count) for count in counts], most)
        ]
        return np.concatenate([part.ravel() for part in found])

    def _covered(self, left: Product, right: Product, piece: Mapping[str, slice]) -> Floats:
        """Return the covariance of some paired rows, with one axis per attribute."""
        sides = []
        for product in (left, right):
            b = self.home(product)
            found = self.tables[b].rows_of(product.factors)
            rows = {n: m[piece[n]] if len(m) > 1 else m for n, m in found.items()}
            shape = [len(rows.get(name, [0])) for name in piece]
            sides.append((b, rows, self._conditional(b, rows.values()).reshape(-1, *shape)))
        (b, ours, g), (other, theirs, h) = sides
        solved = (self.inverse @ h.reshape(self.count, -1)).reshape(h.shape)
        out = -np.asarray((g * solved).sum(axis=0))
        if b != other:
            return out
        alone: Floats = np.full((1,) * len(piece), self.noise[b])
        for name in ours:
            values = self._between_rows(b, name, ours[name], theirs[name])
            after = list(piece)[list(piece).index(name) + 1 :] if name in piece else list(piece)
            alone = alone * values.reshape(-1, *(1,) * len(after))
        return np.asarray(out + alone)

    def _between_rows(self, b: int, name: str, left: Floats, right: Floats) -> Floats:
        """Return q'K r for paired rows of an attribute of a block."""
        K = self.tables[b].inverses[self.tables[b].names.index(name)]
        return np.asarray(((left @ K) * right).sum(axis=1))

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other.

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """
        b, other = self.home(left), self.home(right)
        ours = self.tables[b].rows_of(left.factors)
        theirs = self.tables[other].rows_of(right.factors)
        g = self._conditional(b, ours.values(), paired=True)
        h = self._conditional(other, theirs.values(), paired=True)
        out: Floats = -np.asarray((g * (self.inverse @ h)).sum(axis=0))
        if b == other:
            alone: Floats = np.full(1, self.noise[b])
            for name in ours:
                alone = alone * self._between_rows(b, name, ours[name], theirs[name])
            out = out + alone
        return out

    def solve(self, values: Sequence[NDArray[Any]]) -> SeparateEstimate:
        """Return the estimate of measured values, (rows,) of each block."""
        fitted = [table.fitted(each) for table, each in zip(self.tables, values, strict=True)]
        missed = np.zeros(self.count)
        for table, side, each in zip(self.tables, self.sides, fitted, strict=True):
            missed += side.put(table.read(each))
        # Lagrange's multipliers of the conditions: each table moves along the covariance of its own
        # noise, which is the least move of all of them that makes them agree.
        pull = self.inverse @ missed
        out = []
        for b, table in enumerate(self.tables):
            moved = table.spread(self.sides[b].take(pull))
            out.append(np.asarray(fitted[b] - self.noise[b] * table.smoothed(moved)))
        return SeparateEstimate(self, tuple(out))


def _answers(table: BlockTable, product: Product) -> bool:
    factors = product.factors
    return set(factors) <= set(table.names) and all(table.knows(n, f) for n, f in factors.items())


def _pieces(ranges: Sequence[slice], most: int) -> Iterator[list[slice]]:
    """Yield all combinations of rows in parts of at most so many, in row-major order."""
    sizes = [each.stop - each.start for each in ranges]
    if math.prod(sizes) <= most:
        yield list(ranges)
        return
    axis = next(k for k, size in enumerate(sizes) if size > 1)
    low, high = ranges[axis].start, ranges[axis].stop
    middle = (low + high) // 2
    for part in (slice(low, middle), slice(middle, high)):
        yield from _pieces([*ranges[:axis], part, *ranges[axis + 1 :]], most)


@dataclass(frozen=True, slots=True)
class SeparateEstimate(Estimate):
    """The estimate of a release: a table over classes per block, with the forecast of errors."""

    forecast: SeparateForecast
    tables: tuple[Floats, ...]

    def answer(self, product: Product) -> Floats:
        """Return the answers to a product, flat and row-major over its factors' rows.

        Raises ProgrammingError E_NOT_MEASURED where the release does not support it.
        """
        self.forecast.check(product)
        b = self.forecast.home(product)
        factors = self.forecast.tables[b].readers_of(product.factors)
        return np.asarray(kron_apply(factors, self.tables[b])).ravel()
