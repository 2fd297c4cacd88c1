"""A kind of strategy as somebody would add it: rows on one attribute, solved densely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Total
from dpsql.algebra.integer_rows import IntegerRows, KronRows
from dpsql.algebra.operator import Floats, Integers
from dpsql.strategy.base import Block, Estimate, Forecast, Keep, Strategy, digest_of
from dpsql.strategy.noise_law import Noise, law
from dpsql.strategy.registry import register
from dpsql.workload.workload import Product


@dataclass(frozen=True, slots=True)
class RunningBlock(Block):
    """The sums of so many cells next to each other, of all cells of an attribute."""

    attributes: tuple[str, ...]
    size: int
    width: int
    share: Fraction = Fraction(1)

    @property
    def integer_rows(self) -> IntegerRows:
        """Return the rows, shape (size, size)."""
        step = np.subtract.outer(np.arange(self.size), np.arange(self.size))
        rows = ((step >= 0) & (step < self.width)).astype(np.int64)
        return KronRows((rows,), (self.size,))


@register
@dataclass(frozen=True, slots=True)
class RunningSums(Strategy):
    """One block of sums over neighbours."""

    kind: ClassVar[str] = "running sums"

    domain: Mapping[str, int]
    blocks: tuple[RunningBlock, ...]
    noise: Noise
    method: str = "running sums"

    def sensitivity(self, block: RunningBlock) -> int:
        """Return how many sums a cell is in."""
        return block.width

    def forecast(self, variances: Sequence[float], integers: bool = False) -> RunningForecast:
        """Return the errors of dense least squares."""
        return RunningForecast(self.domain, self.blocks[0], variances[0])

    def solve(self, values: Sequence[NDArray[Any]], forecast: Any) -> RunningEstimate:
        """Return the answers of dense least squares."""
        return RunningEstimate(forecast, forecast.inverse @ np.asarray(values[0], dtype=np.float64))

    def describe(self, keep: Keep) -> dict[str, Any]:
        """Return the width; the rest is in the domain."""
        return {"width": self.blocks[0].width}

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> RunningSums:
        """Return the strategy of a width."""
        ((name, size),) = facts["domain"]
        return running_sums(name, size, facts["width"], facts["noise"])

    def fingerprint(self) -> str:
        """Return a digest of all there is."""
        return digest_of((self.kind, sorted(self.domain.items()), self.blocks, self.noise))


def running_sums(name: str, size: int, width: int, noise: Noise) -> RunningSums:
    """Return the strategy for one attribute."""
    law(noise)
    return RunningSums({name: size}, (RunningBlock((name,), size, width),), noise)


class RunningForecast(Forecast):
    """Errors from the pseudo-inverse of the rows."""

    def __init__(self, domain: Mapping[str, int], block: RunningBlock, variance: float) -> None:
        self.domain, self.noise = domain, (variance,)
        ((rows,), _) = (block.factors.values(), None)
        assert rows is not None
        self.inverse = np.linalg.pinv(rows.astype(np.float64))

    def rows(self, product: Product) -> Floats:
        """Return the rows of a product over the cells."""
        ((name, size),) = self.domain.items()
        return np.asarray((product.factors.get(name) or Total(size)).dense(), dtype=np.float64)

    def supports(self, product: Product) -> bool:
        """Say that the rows, of full rank, answer everything about the attribute."""
        return set(product.factors) <= set(self.domain)

    def variance(self, product: Product) -> Floats:
        """Return the variances of all rows."""
        self.check(product)
        return self.paired(product, product)

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariances of paired rows."""
        return self.paired(left, right)

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariances of rows in pairs."""
        one, two = (self.rows(each) @ self.inverse for each in (left, right))
        return np.asarray(self.noise[0] * (one * two).sum(axis=1))


@dataclass(frozen=True, slots=True)
class RunningEstimate(Estimate):
    """The cells of least squares."""

    forecast: RunningForecast
    cells: Floats

    def answer(self, product: Product) -> Floats:
        """Return the answers to a product."""
        self.forecast.check(product)
        return self.forecast.rows(product) @ self.cells
