"""Reconstruction from queries that were measured themselves: what their sums must agree on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.plan.queries import QueriesStrategy
from dpsql.plan.queries_forecast import QueriesForecast
from dpsql.plan.workload import Product

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class QueriesEstimate:
    """What a release says: measured queries in units of their noise, and the forecast of errors."""

    forecast: QueriesForecast
    measured: Floats

    def is_whole(self, product: Product) -> bool:
        """Whether the answers are known to be whole: least squares has fractions."""
        return False

    def answer(self, product: Product) -> Floats:
        """Return the answers to a product, flat and row-major over its factors' rows.

        Raises ProgrammingError E_NOT_MEASURED where the release does not support it.
        """
        return np.asarray(self.forecast.check(product).T @ self.measured)

    def answers(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``answer`` of many products."""
        return [self.answer(product) for product in products]


def reconstruct_queries(
    strategy: QueriesStrategy, values: Sequence[NDArray[Any]], variances: Sequence[float]
) -> QueriesEstimate:
    """Return the least-squares estimate of a release of queries.

    ``values`` are the noisy numbers of each block, ``variances`` the noise variance of one.
    """
    parts = [
        np.asarray(value).astype(np.float64) / variance**0.5
        for value, variance in zip(values, variances, strict=True)
    ]
    return QueriesEstimate(strategy.forecast(variances), np.concatenate(parts))
