"""Forecast: the exact variance of every answer of a strategy, from public facts only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Operator
from dpsql.errors import ProgrammingError
from dpsql.strategy.axis import Axis, full_axis, residual_axis, unmeasured_axis
from dpsql.strategy.noise_law import law
from dpsql.strategy.product import Block, Strategy
from dpsql.workload.workload import Product

if TYPE_CHECKING:
    from dpsql.strategy.kinds import AnyStrategy

CHUNK = 1 << 22
"""Numbers handled at once when many products are forecast together."""


def noise_variances(strategy: AnyStrategy, scales: Sequence[Fraction]) -> tuple[float, ...]:
    """Return per block the variance of one measured number, for the scales of ``strategy``."""
    variance = law(strategy.noise).variance
    return tuple(variance(float(scale)) for scale in scales)


class Forecast:
    """The exact generalised least squares of a strategy with given noise variances per block.

    Everything is derived from the integer rows that are measured, never from the real-valued
    strategy they approximate. A component is a set of attributes, written as a bit mask over
    ``strategy.domain``; components are uncorrelated and ``precision`` is that of their parts.
    Source: HDMM, section 7, extended to unions that share one matrix per attribute.
    """

    def __init__(self, strategy: Strategy, variances: Sequence[float]) -> None:
        if len(variances) != len(strategy.blocks) or not all(v > 0 for v in variances):
            raise ValueError("one positive variance per block is needed")
        self.strategy = strategy
        self.noise = tuple(float(v) for v in variances)
        self.bit = {name: 1 << i for i, name in enumerate(strategy.domain)}
        self._axes: dict[str, Axis] = {}
        self._parts: dict[tuple[str, Hashable], tuple[Floats, Floats, bool]] = {}

    def axis(self, name: str) -> Axis:
        """Return the constants of one attribute."""
        if name not in self._axes:
            strategy, size = self.strategy, self.strategy.domain[name]
            if name in strategy.full:
                rows, mixed = strategy.full[name], name in strategy.residual
                if mixed and strategy.residual[name] is not None:
                    raise ValueError("explicit residual rows do not mix with full rows")
                self._axes[name] = full_axis(size, rows, mixed)
                if not self._axes[name].total and any(
                    name not in block.attributes for block in strategy.blocks
                ):
                    raise ValueError(f"the rows of {name!r} do not answer its total")
            elif name in strategy.residual:
                self._axes[name] = residual_axis(size, strategy.residual[name])
            else:
                self._axes[name] = unmeasured_axis(size)
        return self._axes[name]

    @cached_property
    def precision(self) -> dict[int, float]:
        """Return component to precision; components that no block measures are absent."""
        lattice: dict[tuple[int, int], float] = {}
        for block, variance in zip(self.strategy.blocks, self.noise, strict=True):
            key, precision = self._top(block, variance)
            lattice[key] = lattice.get(key, 0.0) + precision
        for name in self.strategy.full:
            bit, total = self.bit[name], self.axis(name).total
            for (fixed, free), precision in list(lattice.items()):
                if free & bit:
                    below = (fixed, free & ~bit)
                    lattice[below] = lattice.get(below, 0.0) + precision * total
        out: dict[int, float] = {}
        for (fixed, free), precision in lattice.items():
            out[fixed | free] = out.get(fixed | free, 0.0) + precision
        return out

    def _top(self, block: Block, variance: float) -> tuple[tuple[int, int], float]:
        """Return ((mask always resolved, mask of summable attributes), precision) of a block."""
        fixed, free, precision = 0, 0, 1 / variance
        for name in block.attributes:
            axis = self.axis(name)
            if name in block.residual:
                fixed |= self.bit[name]
                precision *= axis.gain
            elif axis.total == 0:
                fixed |= self.bit[name]
            else:
                free |= self.bit[name]
        return (fixed, free), precision

    def parts(self, name: str, operator: Operator) -> tuple[Floats, Floats, bool]:
        """Return (Qu, diag(Q Kt Q'), answerable) of a query factor, remembered by content."""
        key = (name, operator.key)
        if key not in self._parts:
            self._parts[key] = self.axis(name).parts(operator)
        return self._parts[key]

    def inverse_precisions(self, names: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return 1/precision and which are missing, for all subsets of names, shape (2,)*k."""
        masks = [0]
        for name in names:
            masks = [m for mask in masks for m in (mask, mask | self.bit[name])]
        found = np.array([self.precision.get(mask, 0.0) for mask in masks])
        missing = found <= 0
        with np.errstate(divide="ignore"):
            inverse = np.where(missing, 0.0, 1 / found)
        shape = (2,) * len(names)
        return inverse.reshape(shape), missing.reshape(shape)

    def supports(self, product: Product) -> bool:
        """Say whether the strategy measures enough to answer every row of a product."""
        names = self.names(product)
        parts = [self.parts(name, product.factors[name]) for name in names]
        if not all(answerable for _, _, answerable in parts):
            return False
        _, missing = self.inverse_precisions(names)
        if not missing.any():
            return True
        needed = np.ones((1,) * 0, dtype=bool)
        for means, spread, _ in parts:
            pair = np.array([bool(means.any()), bool(spread.any())])
            needed = needed[..., np.newaxis] & pair
        return not bool((needed & missing).any())

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major.

        Raises ProgrammingError E_NOT_MEASURED where the strategy does not support it.
        """
        names = self.check(product)
        tensor, _ = self.inverse_precisions(names)
        out: Floats = tensor[np.newaxis]
        for name in names:
            means, spread, _ = self.parts(name, product.factors[name])
            mixed = np.multiply.outer(out[:, 0], means**2) + np.multiply.outer(out[:, 1], spread)
            out = np.moveaxis(mixed, -1, 1).reshape(-1, *out.shape[2:])
        return out

    def total(self, product: Product) -> float:
        """Return the sum of the variances of all rows of a product, without forming them."""
        names = self.check(product)
        out, _ = self.inverse_precisions(names)
        for name in names:
            means, spread, _ = self.parts(name, product.factors[name])
            out = out[0] * float(means @ means) + out[1] * float(spread.sum())
        return float(out)

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        names = [n for n in self.strategy.domain if n in left.factors or n in right.factors]
        both = Product({n: left.factors.get(n) or right.factors[n] for n in names})
        self.check(left)
        self.check(right)
        tensor, _ = self.inverse_precisions(list(both.factors))
        out: Floats = tensor[np.newaxis]
        for name in both.factors:
            means, spread = self.axis(name).cross(left.factors.get(name), right.factors.get(name))
            mixed = np.multiply.outer(out[:, 0], means) + np.multiply.outer(out[:, 1], spread)
            out = np.moveaxis(mixed, -1, 1).reshape(-1, *out.shape[2:])
        return out

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other.

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """
        names = [n for n in self.strategy.domain if n in left.factors or n in right.factors]
        tensor, _ = self.inverse_precisions(names)
        out: Floats = tensor[np.newaxis]
        for name in names:
            means, spread = self.axis(name).cross(left.factors.get(name), right.factors.get(name))
            shape = (-1,) + (1,) * (out.ndim - 2)
            out = out[:, 0] * means.reshape(shape) + out[:, 1] * spread.reshape(shape)
        return out

    def variances(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``variance`` of many products; one-row products are handled together."""
        items = list(products)
        out: list[Floats] = [np.empty(0)] * len(items)
        for names, members in group_single_rows(items).items():
            for start in range(0, len(members), max(1, CHUNK >> len(names))):
                chunk = members[start : start + max(1, CHUNK >> len(names))]
                values = self._single_rows(names, [items[j] for j in chunk])
                for j, value in zip(chunk, values, strict=True):
                    out[j] = np.array([value])
        for j, product in enumerate(items):
            if not len(out[j]):
                out[j] = self.variance(product)
        return out

    def _single_rows(self, names: tuple[str, ...], products: list[Product]) -> Floats:
        tensor, missing = self.inverse_precisions(names)
        values = np.broadcast_to(tensor, (len(products), *tensor.shape))
        needed = np.broadcast_to(missing, values.shape)
        answerable = True
        for name in names:
            rows = [self.parts(name, product.factors[name]) for product in products]
            means = np.array([r[0][0] for r in rows])
            spread = np.array([r[1][0] for r in rows])
            answerable &= all(r[2] for r in rows)
            shape = (-1,) + (1,) * (values.ndim - 2)
            values = values[:, 0] * (means**2).reshape(shape) + values[:, 1] * spread.reshape(shape)
            if missing.any():
                needed = (needed[:, 0] & (means != 0).reshape(shape)) | (
                    needed[:, 1] & (spread > 0).reshape(shape)
                )
        if not answerable or (missing.any() and needed.any()):
            for product in products:
                self.check(product)
        return np.asarray(values)

    def check(self, product: Product) -> list[str]:
        if not self.supports(product):
            raise ProgrammingError(
                "E_NOT_MEASURED",
                f"the release does not measure enough to answer over {list(product.factors)}",
                hint="ask for it in the same workload",
            )
        return self.names(product)

    def names(self, product: Product) -> list[str]:
        """Return the attributes of a product in domain order."""
        return sorted(product.factors, key=self.bit.__getitem__)


def group_single_rows(products: Sequence[Product]) -> dict[tuple[str, ...], list[int]]:
    """Return attribute set to the positions of the one-row products over it."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for j, product in enumerate(products):
        if all(operator.rows == 1 for operator in product.factors.values()):
            groups.setdefault(tuple(product.factors), []).append(j)
    return groups
