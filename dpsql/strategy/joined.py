"""Least squares of several strategies that measured the same rows, each with noise of its own.

Each is an estimate by itself. Where several know the same numbers, least squares under the
condition that these are equal is the estimate of all together: no answer has a larger variance than
from its own strategy, and all that is told of these numbers agrees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.records import cached_property, dataclass
from dpsql.strategy.base import Estimate, Forecast, paired_rows, take_rows
from dpsql.strategy.consistent_tables import pseudo_root
from dpsql.workload.workload import Product

CHUNK = 1 << 22
"""Numbers handled at once, 32 MiB."""


@dataclass(frozen=True, slots=True)
class SharedNumbers:
    """Numbers as one strategy tells them: the rows of a product, and which of these each is."""

    product: Product
    order: tuple[int, ...]


Shared = Mapping[int, SharedNumbers]
"""Numbers that several strategies tell, by the places of these."""


class AgreeingStrategies:
    """The exact generalised least squares of strategies, under the condition that they agree.

    With C the conditions, K the covariance by each strategy alone and H = C K C', a query q of one
    strategy has the variance q'Kq - g'H^+ g, with g = C K q.
    """

    def __init__(self, forecasts: Sequence[Forecast], shared: Sequence[Shared]) -> None:
        self.own = tuple(forecasts)
        self.told: list[list[tuple[SharedNumbers, list[tuple[int, float]]]]] = [
            [] for _ in forecasts
        ]
        self.count = 0
        for each in shared:
            (first, told), *others = each.items()
            starts = [self.count + k * len(told.order) for k in range(len(others))]
            self.told[first].append((told, [(start, 1.0) for start in starts]))
            for start, (place, one) in zip(starts, others, strict=True):
                self.told[place].append((one, [(start, -1.0)]))
            self.count += len(others) * len(told.order)

    @cached_property
    def forecasts(self) -> tuple[Forecast, ...]:
        """The forecast of each strategy beside the others; its own where it shares nothing."""
        return tuple(
            JoinedForecast(self, place) if told else own
            for place, (own, told) in enumerate(zip(self.own, self.told, strict=True))
        )

    @cached_property
    def root(self) -> Floats:
        """R of H^+ = R R', shape (conditions, rank)."""
        H = np.zeros((self.count, self.count))
        for place, told in enumerate(self.told):
            for one, slots in told:
                self._put(H, self.moved(place, one.product)[list(one.order)], slots)
        scale = 1 / np.sqrt(np.diag(H))
        return scale[:, np.newaxis] * pseudo_root(scale[:, np.newaxis] * H * scale)

    def moved(self, place: int, product: Product) -> Floats:
        """C K q of every row of a product of a strategy, shape (rows, conditions)."""
        out = np.zeros((product.rows, self.count))
        for told, slots in self.told[place]:
            found = self.own[place].between(product, told.product)[:, list(told.order)]
            self._put(out.T, found.T, slots)
        return out

    def moved_pairs(self, place: int, product: Product) -> Floats:
        """Return ``moved`` of a product whose row r is made of the rows r of its factors."""
        rows = max((factor.rows for factor in product.factors.values()), default=1)
        out = np.zeros((rows, self.count))
        for told, slots in self.told[place]:
            found = _crossed_pairs(self.own[place], product, told.product, rows)
            self._put(out.T, found[:, list(told.order)].T, slots)
        return out

    def _put(self, out: Floats, rows: Floats, slots: Sequence[tuple[int, float]]) -> None:
        for start, sign in slots:
            out[start : start + len(rows)] += sign * rows

    def estimates(self, alone: Sequence[Estimate]) -> list[Estimate]:
        """Estimates of all strategies together, by those of each alone."""
        missed = np.zeros(self.count)
        for told, estimate in zip(self.told, alone, strict=True):
            for one, slots in told:
                self._put(missed, estimate.answer(one.product)[list(one.order)], slots)
        pull = self.root @ (missed @ self.root)
        return [
            JoinedEstimate(forecast, estimate, pull)
            if isinstance(forecast, JoinedForecast)
            else estimate
            for forecast, estimate in zip(self.forecasts, alone, strict=True)
        ]


class JoinedForecast(Forecast):
    """The forecast of one strategy of several that are estimated together."""

    def __init__(self, joined: AgreeingStrategies, place: int) -> None:
        self.joined, self.place = joined, place
        self.own = joined.own[place]
        self.domain, self.noise = self.own.domain, self.own.noise

    def supports(self, product: Product) -> bool:
        """Say whether the strategy measures enough to answer every row of a product."""
        return self.own.supports(product)

    def gained(self, product: Product) -> Floats:
        """R'C K q of every row of a product, shape (rows, rank): what the others tell of it."""
        return np.asarray(self.joined.moved(self.place, product) @ self.joined.root)

    def beside(self, product: Product) -> Floats:
        """Return what other strategies tell of every row of a product, shape (rows, rank)."""
        return np.concatenate([self.gained(part) for part in self.pieces(product)])

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major.

        Raises ProgrammingError E_NOT_MEASURED where the strategy does not support it.
        """
        return self._less(self.own.variance(product), product)

    def variances(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``variance`` of many products."""
        items = list(products)
        pairs = zip(self.own.variances(items), items, strict=True)
        return [self._less(variance, product) for variance, product in pairs]

    def _less(self, variance: Floats, product: Product) -> Floats:
        found = [np.square(self.gained(part)).sum(axis=1) for part in self.pieces(product)]
        return np.asarray(np.maximum(variance - np.concatenate(found), 0.0))

    def total(self, product: Product) -> float:
        """Return the sum of the variances of all rows of a product."""
        return self.totals([product])[0]

    def totals(self, products: Iterable[Product]) -> list[float]:
        """Return ``total`` of many products."""
        items = list(products)
        return [
            max(0.0, total - sum(float(np.square(self.gained(p)).sum()) for p in self.pieces(item)))
            for total, item in zip(self.own.totals(items), items, strict=True)
        ]

    def pieces(self, product: Product) -> Iterable[Product]:
        """Return a product in parts of so many rows as are handled at once, in their order."""
        names = [name for name in self.domain if name in product.factors]
        if product.rows * self.joined.count <= CHUNK:
            return [product]
        name = next(n for n in names if product.factors[n].rows > 1)
        factor = product.factors[name]
        halves = np.array_split(np.arange(factor.rows), 2)
        return [
            part
            for rows in halves
            for part in self.pieces(Product({**product.factors, name: take_rows(factor, rows)}))
        ]

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        sides = self.beside(left), self.beside(right)
        shared = paired_rows(self.domain, (left, right), sides)
        return np.asarray(self.own.covariance(left, right) - shared)

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other.

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """
        sides = [
            self.joined.moved_pairs(self.place, each) @ self.joined.root for each in (left, right)
        ]
        shared = (sides[0] * sides[1]).sum(axis=1)
        return np.asarray(self.own.paired(left, right) - shared)


class JoinedEstimate(Estimate):
    """The estimate of one strategy of several that are estimated together."""

    __slots__ = ("forecast", "own", "pull")

    forecast: JoinedForecast

    def __init__(self, forecast: JoinedForecast, own: Estimate, pull: Floats) -> None:
        self.forecast, self.own, self.pull = forecast, own, pull

    def answer(self, product: Product) -> Floats:
        """Return the answers to a product, flat and row-major over its factors' rows.

        Raises ProgrammingError E_NOT_MEASURED where the release does not support it.
        """
        return self._moved(self.own.answer(product), product)

    def answers(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``answer`` of many products."""
        items = list(products)
        pairs = zip(self.own.answers(items), items, strict=True)
        return [self._moved(answer, product) for answer, product in pairs]

    def _moved(self, answer: Floats, product: Product) -> Floats:
        joined, place = self.forecast.joined, self.forecast.place
        found = [joined.moved(place, part) @ self.pull for part in self.forecast.pieces(product)]
        return np.asarray(answer - np.concatenate(found))


def _crossed_pairs(forecast: Forecast, product: Product, other: Product, rows: int) -> Floats:
    """The covariance of rows that are made of the rows r of factors with all rows of a product."""
    names = [name for name in forecast.domain if name in other.factors]
    sizes = [other.factors[name].rows for name in names] or [1]
    count = math.prod(sizes)
    places = dict(zip(names, np.unravel_index(np.arange(count), sizes), strict=False))
    out = np.zeros((rows, count))
    most = max([1, *(forecast.domain[n] for n in {*names, *product.factors})])
    step = max(1, CHUNK // (count * max(most, 1 << len(forecast.domain))))
    for start in range(0, rows, step):
        some = np.arange(start, min(rows, start + step))
        left = {n: take_rows(f, np.repeat(some, count)) for n, f in product.factors.items()}
        right = {n: take_rows(other.factors[n], np.tile(at, len(some))) for n, at in places.items()}
        if not left and not right:
            found = forecast.covariance(product, other)
        else:
            found = forecast.paired(Product(left), Product(right))
        out[some] = found.reshape(-1, count)
    return out
