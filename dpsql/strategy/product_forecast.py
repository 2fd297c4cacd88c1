"""Forecast of a union of Kronecker blocks: uncorrelated components, one per set of attributes."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Floats, Operator
from dpsql.records import cached_property
from dpsql.strategy.axis import Axis, full_axis, residual_axis, unmeasured_axis
from dpsql.strategy.base import (
    Forecast,
    by_single_rows,
    check_variances,
    distinct,
    not_measured,
)
from dpsql.strategy.product_block import FEW, AttributeRows, ProductBlock
from dpsql.workload.workload import Product

if TYPE_CHECKING:
    from dpsql.strategy.component_precisions import Lattice
    from dpsql.strategy.structured_axis import StructuredAxis

CHUNK = 1 << 22
"""Numbers handled at once, 32 MiB, when many products are forecast together."""

MANY = 1 << 10
"""Sets of attributes within blocks from which on they are in one array, not looked up one by one:
sixteen attributes have 65,536, which took most of the planning of GROUP BY ROLLUP."""

REMEMBERED, SMALL = 1 << 22, 64
"""Numbers of what is remembered of factors, 32 MiB; and what one of few cells counts for."""


class ProductForecast(Forecast):
    """The exact generalised least squares of a strategy with given noise variances per block.

    Everything is derived from the integer rows that are measured, never from the real-valued
    strategy they approximate. A component is a set of attributes, written as a bit mask over
    ``domain``; components are uncorrelated and ``precision`` is that of their parts:
    lambda_c = sum over blocks M with c within M, of variance v_M, of prod 1/tau_i / v_M over i in
    M but not in c. The variance of the row (x)_i q_i is the sum over c of 1/lambda_c times
    prod q_i'Kt_i q_i over i in c, times prod (q_i'u_i)^2 over the others.
    Of one cell nothing sums to zero: no component is over those attributes, ``single``, of which a
    condition on a hundred columns has as many.
    Source: HDMM, section 7, extended to unions that share one matrix per attribute.
    """

    writes_intervals: ClassVar[bool] = False

    def __init__(
        self,
        tables: AttributeRows,
        blocks: Sequence[ProductBlock],
        variances: Sequence[float],
        integers: bool = False,
    ) -> None:
        self.integers = integers
        self.noise = check_variances(variances, len(blocks))
        self.tables, self.blocks, self.domain = tables, blocks, tables.domain
        self.bit = {name: 1 << i for i, name in enumerate(self.domain)}
        self.single = frozenset(
            n for n, size in self.domain.items() if size == 1 and _has_sum(tables, n)
        )
        self._within: dict[tuple[str, ...], Floats] = {}
        self._axes: dict[str, Axis | StructuredAxis] = {}
        self._parts: dict[tuple[str, Hashable], tuple[Floats, Floats, bool]] = {}
        self._added: dict[tuple[str, Hashable], tuple[float, float] | None] = {}
        self._whole: dict[tuple[str, int], tuple[Operator | None, bool]] = {}
        self._numbers = 0

    def axis(self, name: str) -> Axis | StructuredAxis:
        """Return the constants of one attribute."""
        if name not in self._axes:
            full, residual, size = self.tables.full, self.tables.residual, self.domain[name]
            if name in full:
                rows, mixed = full[name], name in residual
                if mixed and (residual[name] is not None or isinstance(rows, Structured)):
                    raise ValueError("explicit residual rows do not mix with full rows")
                if isinstance(rows, Structured):
                    from dpsql.strategy.structured import structured_axis  # of large domains

                    self._axes[name] = structured_axis(rows)
                else:
                    self._axes[name] = full_axis(size, rows, mixed)
                if not self._axes[name].total and any(
                    name not in block.attributes for block in self.blocks
                ):
                    raise ValueError(f"the rows of {name!r} do not answer its total")
            elif name in residual:
                self._axes[name] = residual_axis(size, residual[name])
            else:
                self._axes[name] = unmeasured_axis(size)
        return self._axes[name]

    def several(self, names: Iterable[str]) -> list[str]:
        """Return those of some attributes that components are over, in the same order."""
        return [name for name in names if name not in self.single]

    def mask(self, names: Iterable[str]) -> int:
        """Return those of some attributes that components are over, as a bit mask."""
        return sum([self.bit[name] for name in names if name not in self.single])

    def has_sum(self, name: str) -> bool:
        """Say whether there are components without an attribute: that is not single."""
        return name not in self.tables.full or self.axis(name).total > 0

    def numbers(self, name: str) -> int:
        """Return how many numbers of all components there are along an attribute."""
        n = self.domain[name]
        return n + (n > FEW and self.has_sum(name))

    def precisions(self, names: Sequence[str]) -> Floats:
        """Return the precision of all components within a set of attributes, (2,) for each.

        Those without the attribute come first; there are none of single attributes. Zero is that of
        components that no block measures. The result is not to be changed.
        """
        key = tuple(names)
        if key not in self._within:
            self._within[key] = self.precisions_with(self.several(names))
        return self._within[key]

    def precisions_with(self, names: Sequence[str], always: Collection[str] = ()) -> Floats:
        """Return the same of components with other attributes besides; none of all is single."""
        if self._lattice is None:
            masks = [self.mask(always)]
            for name in names:
                masks = [m for mask in masks for m in (mask, mask | self.bit[name])]
            found = [self.precision.get(mask, 0.0) for mask in masks]
            return np.array(found).reshape((2,) * len(names))
        return self._lattice.within(names, always)

    @cached_property
    def _lattice(self) -> Lattice | None:
        if sum(2 ** len(self.several(block.attributes)) for block in self.blocks) < MANY:
            return None
        from dpsql.strategy.component_precisions import precision_of_all  # few are of many columns

        return precision_of_all(self, self.tables.full)

    @cached_property
    def precision(self) -> dict[int, float]:
        """Return component to precision; components that no block measures are absent."""
        lattice: dict[tuple[int, int], float] = {}
        for block, variance in zip(self.blocks, self.noise, strict=True):
            key, precision = self.top(block, variance)
            lattice[key] = lattice.get(key, 0.0) + precision
        for name in self.several(self.tables.full):
            bit, total = self.bit[name], self.axis(name).total
            for (fixed, free), precision in list(lattice.items()):
                if free & bit:
                    below = (fixed, free & ~bit)
                    lattice[below] = lattice.get(below, 0.0) + precision * total
        out: dict[int, float] = {}
        for (fixed, free), precision in lattice.items():
            out[fixed | free] = out.get(fixed | free, 0.0) + precision
        return out

    def top(self, block: ProductBlock, variance: float) -> tuple[tuple[int, int], float]:
        """Return ((mask always resolved, mask of summable attributes), precision) of a block."""
        fixed, free, precision = 0, 0, 1 / variance
        for name in block.attributes:
            axis = self.axis(name)
            if name in self.single:
                precision *= axis.total
            elif name in block.residual:
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
        found = self._parts.get(key)
        if found is None:
            found = self.axis(name).parts(operator)
            self._make_room(name, found[0].size + found[1].size)
            self._parts[key] = found
        return found

    def is_whole(self, product: Product) -> bool:
        """True if the answers are sums of measured integers with whole weights.

        A function of the strategy alone: one block, each of whose axes gives the rows of the
        product with whole coefficients.
        """
        if not self.integers or len(self.blocks) != 1 or self.blocks[0].residual:
            return False
        names, factors = self.blocks[0].attributes, product.factors
        return all(self._gives(name, factors.get(name)) for name in names)

    def _gives(self, name: str, operator: Operator | None) -> bool:
        """Return ``is_whole`` of an attribute and a query factor, remembered by identity."""
        key = (name, id(operator))  # which is kept, so that no other has its identity
        known = self._whole.get(key)
        if known is None or known[0] is not operator:
            known = operator, self.axis(name).is_whole(operator)
            self._make_room(name, self.domain[name])
            self._whole[key] = known
        return known[1]

    def _make_room(self, name: str, numbers: int) -> None:
        """Let go of what is remembered of all factors where it becomes too much.

        A release that answers many statements, each of other factors, lives as long as a session,
        and those of a site share it: another thread may let go of it at any time.
        """
        self._numbers += SMALL + self.domain[name] + numbers
        if self._numbers > REMEMBERED:
            self._parts.clear()
            self._added.clear()
            self._whole.clear()
            self._numbers = SMALL + self.domain[name] + numbers

    def inverse_precisions(self, names: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return 1/precision and which are missing, for all subsets of names, shape (2,)*k.

        k counts the attributes that are not single.
        """
        found = self.precisions(names)
        missing = found <= 0
        with np.errstate(divide="ignore"):
            return np.where(missing, 0.0, 1 / found), missing

    def supports(self, product: Product) -> bool:
        """Say whether the strategy measures enough to answer every row of a product."""
        names = self.names(product)
        _, missing = self.inverse_precisions(names)
        axes = [(self.axis(name), product.factors[name]) for name in names]
        if not all(a.answers(f) for a, f in axes if not isinstance(a, Axis)):
            return False
        if not missing.any() and not any(isinstance(axis, Axis) for axis, _ in axes):
            return True
        parts = [self.parts(name, product.factors[name]) for name in names]
        if not all(answerable for _, _, answerable in parts):
            return False
        if not missing.any():
            return True
        needed = np.ones((1,) * 0, dtype=bool)
        for name, (means, spread, _) in zip(names, parts, strict=True):
            if name in self.single:
                needed = needed & bool(means.any())
            else:
                pair = np.array([bool(means.any()), bool(spread.any())])
                needed = needed[..., np.newaxis] & pair
        return not bool((needed & missing).any())

    def variance(self, product: Product) -> Floats:
        """Return the variance of every row of a product, flat and row-major.

        Raises ProgrammingError E_NOT_MEASURED where the strategy does not support it.
        """
        if not self.supports(product):
            raise not_measured(product)
        names = self.names(product)
        tensor, _ = self.inverse_precisions(names)
        out: Floats = tensor[np.newaxis]
        for name in names:
            means, spread, _ = self.parts(name, product.factors[name])
            out = self.crossed(out, name, means**2, spread)
        return out

    def crossed(self, out: Floats, name: str, means: Floats, spread: Floats) -> Floats:
        """Return numbers of rows by components, (rows, 2, ...), for each row of one more factor.

        Args:
            out: (rows, 2, ...), whose second axis is of ``name`` unless that is single.
            name: the attribute.
            means: (rows of the factor,), its part without the attribute.
            spread: (rows of the factor,), its part with it.
        """
        if name in self.single:
            mixed, rest = np.multiply.outer(out, means), out.shape[1:]
        else:
            mixed = np.multiply.outer(out[:, 0], means) + np.multiply.outer(out[:, 1], spread)
            rest = out.shape[2:]
        return np.moveaxis(mixed, -1, 1).reshape(-1, *rest)

    def total(self, product: Product) -> float:
        """Return the sum of the variances of all rows of a product, without forming them."""
        if not self.supports(product):
            raise not_measured(product)
        names = self.names(product)
        out, _ = self.inverse_precisions(names)
        for name in names:
            means2, spread = self._sums(name, product.factors[name])
            out = out * means2 if name in self.single else out[0] * means2 + out[1] * spread
        return float(out)

    def totals(self, products: Iterable[Product]) -> list[float]:
        """Return ``total`` of many products; those over as many attributes are worked out at once.

        Products over hierarchies, or over what is not measured in full, are taken one by one.
        """
        items = list(products)
        out = [0.0] * len(items)
        groups: dict[int, list[tuple[int, Floats, list[tuple[float, float]]]]] = {}
        scales = [1.0] * len(items)
        for j, product in enumerate(items):
            names = self.names(product)
            found = self.precisions(names)
            sums = [self._plain_sums(name, product.factors[name]) for name in names]
            known = [pair for pair in sums if pair is not None]
            if found.min() > 0 and len(known) == len(sums):
                if self.single:
                    pairs_of = dict(zip(names, known, strict=True))
                    alone = [pair[0] for name, pair in pairs_of.items() if name in self.single]
                    scales[j] = math.prod(alone)
                    known = [pairs_of[name] for name in self.several(names)]
                groups.setdefault(len(known), []).append((j, found, known))
            else:
                out[j] = self.total(product)
        for count, members in groups.items():
            values = 1 / np.stack([found for _, found, _ in members])
            pairs = np.array([known for _, _, known in members]).reshape(len(members), count, 2)
            for position in range(count):
                means2, spread = np.moveaxis(
                    pairs[:, position].reshape(-1, 2, *(1,) * (count - position - 1)), 1, 0
                )
                values = values[:, 0] * means2 + values[:, 1] * spread
            for (j, _, _), value in zip(members, values.tolist(), strict=True):
                out[j] = scales[j] * value
        return out

    def _plain_sums(self, name: str, operator: Operator) -> tuple[float, float] | None:
        """Return ``_sums``, remembered by content; None for hierarchies and what has no answer."""
        key = (name, operator.key)
        unknown = (math.nan, math.nan)
        found = self._added.get(key, unknown)
        if found is unknown:
            is_plain = isinstance(self.axis(name), Axis)
            has_answer = is_plain and self.parts(name, operator)[2]
            found = self._added[key] = self._sums(name, operator) if has_answer else None
        return found

    def _sums(self, name: str, operator: Operator) -> tuple[float, float]:
        axis = self.axis(name)
        if not isinstance(axis, Axis):
            return axis.sums(operator)
        means, spread, _ = self.parts(name, operator)
        return float(means @ means), float(spread.sum())

    def covariance(self, left: Product, right: Product) -> Floats:
        """Return the covariance of paired rows of two products.

        On each attribute both have the same number of rows, or one of them is Total.
        """
        from dpsql.strategy.product_pairs import covariance  # few answers are of several products

        return covariance(self, left, right)

    def paired(self, left: Product, right: Product) -> Floats:
        """Return the covariance of row r of one product with row r of the other.

        All factors have the same number of rows; row r of a product is the Kronecker product of
        their rows r. Both are rows of products that are supported.
        """
        from dpsql.strategy.product_pairs import paired  # few answers are of several products

        return paired(self, left, right)

    def variances(self, products: Iterable[Product]) -> list[Floats]:
        """Return ``variance`` of many products; one-row products are handled together."""
        return by_single_rows(products, self.variance, self._together)

    def _together(self, names: tuple[str, ...], products: list[Product]) -> Floats:
        step = max(1, CHUNK >> len(self.several(names)))
        starts = range(0, len(products), step)
        return np.concatenate([self._single_rows(names, products[i : i + step]) for i in starts])

    def _single_rows(self, names: tuple[str, ...], products: list[Product]) -> Floats:
        tensor, missing = self.inverse_precisions(names)
        values = np.broadcast_to(tensor, (len(products), *tensor.shape))
        needed = np.broadcast_to(missing, values.shape)
        answerable = True
        for name in names:
            operators, places = distinct([product.factors[name] for product in products])
            rows = [self.parts(name, operator) for operator in operators]
            means = np.array([r[0][0] for r in rows])[places]
            spread = np.array([r[1][0] for r in rows])[places]
            answerable &= all(r[2] for r in rows)
            if name in self.single:
                shape = (-1,) + (1,) * (values.ndim - 1)
                values = values * (means**2).reshape(shape)
                if missing.any():
                    needed = needed & (means != 0).reshape(shape)
                continue
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

    def names(self, product: Product) -> list[str]:
        """Return the attributes of a product in domain order."""
        return sorted(product.factors, key=self.bit.__getitem__)


def _has_sum(tables: AttributeRows, name: str) -> bool:
    """Say whether what is measured of an attribute of one cell, if anything, answers its sum."""
    rows = tables.full.get(name)
    return name not in tables.residual and (
        rows is None or bool(not isinstance(rows, Structured) and rows.any())
    )
