"""Covariances of the answers to two products, from the forecast of a union of Kronecker blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.strategy.axis import Axis
from dpsql.workload.workload import Product

if TYPE_CHECKING:
    from dpsql.strategy.structured_axis import StructuredAxis


class HasPrecision(Protocol):
    """The part of a union's forecast that is read here: its precision for every component."""

    domain: Mapping[str, int]

    @property
    def single(self) -> Collection[str]:
        """Attributes of one cell."""

    def check(self, product: Product) -> None:
        """Raise ProgrammingError E_NOT_MEASURED where a product is not supported."""

    def inverse_precisions(self, names: Sequence[str]) -> tuple[Floats, Any]:
        """Return the variance of all components within a set of attributes, (2, ...)."""

    def axis(self, name: str) -> Axis | StructuredAxis:
        """Return the constants of the rows of an attribute."""

    def crossed(self, out: Floats, name: str, means: Floats, spread: Floats) -> Floats:
        """Return numbers of rows by components for each row of one more factor.

        Args: as of ``ProductForecast.crossed``.
        """


def covariance(forecast: HasPrecision, left: Product, right: Product) -> Floats:
    """Return the covariance of paired rows of two products, (rows,).

    Args:
        left, right: on each attribute both have the same number of rows, or one of them is Total.
    """
    names = [n for n in forecast.domain if n in left.factors or n in right.factors]
    both = Product({n: left.factors.get(n) or right.factors[n] for n in names})
    forecast.check(left)
    forecast.check(right)
    tensor, _ = forecast.inverse_precisions(list(both.factors))
    out: Floats = tensor[np.newaxis]
    for name in both.factors:
        means, spread = forecast.axis(name).cross(left.factors.get(name), right.factors.get(name))
        out = forecast.crossed(out, name, means, spread)
    return out


def paired(forecast: HasPrecision, left: Product, right: Product) -> Floats:
    """Return the covariance of row r of one product with row r of the other, (rows,).

    Args:
        left, right: supported products with as many rows in every factor; row r of a product is
            the Kronecker product of their rows r.
    """
    names = [n for n in forecast.domain if n in left.factors or n in right.factors]
    tensor, _ = forecast.inverse_precisions(names)
    out: Floats = tensor[np.newaxis]
    for name in names:
        means, spread = forecast.axis(name).cross(left.factors.get(name), right.factors.get(name))
        if name in forecast.single:
            out = out * means.reshape((-1,) + (1,) * (out.ndim - 1))
            continue
        shape = (-1,) + (1,) * (out.ndim - 2)
        out = out[:, 0] * means.reshape(shape) + out[:, 1] * spread.reshape(shape)
    return out
