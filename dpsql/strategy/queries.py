"""A strategy that measures queries themselves: noise for the cell that most of them share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.largest_cell import worst_cell
from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass, field
from dpsql.strategy.base import (
    Estimate,
    Keep,
    Strategy,
    array_digest,
    decode_domain,
    digest_of,
    round_up,
)
from dpsql.strategy.noise_law import Noise, is_law, law
from dpsql.strategy.queries_forecast import QueriesForecast
from dpsql.strategy.query_block import MOST_ROWS, QueryBlock
from dpsql.strategy.registry import register
from dpsql.strategy.woodbury import LargeQueriesForecast
from dpsql.workload.workload import Product


@register
@dataclass(frozen=True, slots=True)
class QueriesStrategy(Strategy):
    """Blocks with rows of their own whose sensitivity is that of all of them together.

    Guarantee: noise is for the cell in which the weighted column norms of all blocks have the
    largest sum, an exact integer or one that is never less, so that all blocks together cost at
    most the amount given, in exact rational arithmetic.
    """

    kind: ClassVar[str] = "queries"
    is_joint: ClassVar[bool] = True

    domain: Mapping[str, int]
    blocks: tuple[QueryBlock, ...]
    noise: Noise
    method: str = "queries"
    _joint: list[int] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        order = list(self.domain)
        if not is_law(self.noise) or not self.blocks:
            raise ValueError("queries have rows, and a noise law")
        for block in self.blocks:
            if list(block.attributes) != sorted(block.attributes, key=order.index):
                raise ValueError(f"block {block.attributes} is not in domain order")
            if block.weight < 1 or block.share != 1:
                raise ValueError("weights are whole and positive, and shares one")
            for name, n, rows in zip(block.attributes, block.sizes, block.matrices, strict=True):
                fits = rows is None or (rows.dtype == np.int64 and rows.shape[1] == n)
                if self.domain[name] != n or not fits:
                    raise ValueError(f"the rows of {name!r} are not integers over its cells")

    def joint(self) -> int:
        """Return the largest weighted sum of column norms."""
        if not self._joint:
            norms = [block_norms(block, self.noise) for block in self.blocks]
            self._joint.append(joint_norm(self.domain, norms, [b.weight for b in self.blocks]))
        return self._joint[0]

    def sensitivity(self, block: QueryBlock) -> Fraction:
        """Return the sensitivity of all blocks together, over the weight of one."""
        return Fraction(self.joint(), block.weight)

    def scales(
        self,
        amount: Fraction,
        rows_per_unit: int = 1,
        multipliers: Sequence[int] | None = None,
    ) -> tuple[Fraction, ...]:
        """Return per block the Laplace scale, or the Gaussian sigma squared, for a total cost.

        Guarantee: rounded up, so the joint cost of all blocks is at most ``amount``: a block whose
        sensitivity is larger has as much more noise, and costs what it did.
        """
        reach = self.check_amount(amount, rows_per_unit)
        base = round_up(law(self.noise).scale(reach * self.joint(), amount))
        pairs = zip(self.blocks, multipliers or [1] * len(self.blocks), strict=True)
        return tuple(base * times / block.weight for block, times in pairs)

    def forecast(
        self, variances: Sequence[float], integers: bool = False
    ) -> QueriesForecast | LargeQueriesForecast:
        """Return the exact errors of every answer, for the noise variance of each block."""
        if sum(block.rows for block in self.blocks) > MOST_ROWS:
            return LargeQueriesForecast(self.domain, self.blocks, variances)
        return QueriesForecast(self.domain, self.blocks, variances)

    def solve(self, values: Sequence[NDArray[Any]], forecast: Any) -> QueriesEstimate:
        """Return the least-squares estimate of a release of queries.

        Args:
            values: per block its noisy integers, flat.
            forecast: that of this strategy at the noise that was drawn.
        """
        parts = [
            np.asarray(value).astype(np.float64) / variance**0.5
            for value, variance in zip(values, forecast.noise, strict=True)
        ]
        return QueriesEstimate(forecast, np.concatenate(parts))

    def describe(self, keep: Keep) -> dict[str, Any]:
        """Return plain facts; ``keep`` stores an array by name."""
        blocks = [
            [
                list(block.attributes),
                [None if rows is None else keep(rows) for rows in block.matrices],
                block.weight,
            ]
            for block in self.blocks
        ]
        return {"blocks": blocks}

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> QueriesStrategy:
        """Return the strategy that ``encode`` described.

        Args:
            facts: as ``encode`` returned them.
            arrays: the integer rows that it kept, by name.
        """
        domain = decode_domain(facts)
        blocks = tuple(
            QueryBlock(
                tuple(attributes),
                tuple(domain[name] for name in attributes),
                tuple(None if name is None else arrays[name] for name in names),
                int(weight),
            )
            for attributes, names, weight in facts["blocks"]
        )
        return cls(domain, blocks, facts["noise"], facts["method"])

    def fingerprint(self) -> str:
        """Return a hex digest of everything that is measured and of the noise law."""
        text: list[object] = ["queries", list(self.domain.items()), self.noise]
        for block in self.blocks:
            rows = [None if m is None else (m.shape, array_digest(m)) for m in block.matrices]
            text.append((block.attributes, rows, block.weight))
        return digest_of(text)


def block_norms(block: QueryBlock, noise: Noise) -> dict[str, NDArray[Any]]:
    """Return per attribute the L1 or squared L2 norm of every column, as Python integers."""
    out: dict[str, NDArray[Any]] = {}
    for name, rows in zip(block.attributes, block.matrices, strict=True):
        if rows is not None:
            out[name] = law(noise).powers(rows.astype(object)).sum(axis=0)
    return out


def joint_norm(
    domain: Mapping[str, int], norms: Sequence[Mapping[str, NDArray[Any]]], weights: Sequence[int]
) -> int:
    """Return the largest sum, over cells, of weights times the products of column norms.

    Args:
        domain: the cells of every attribute.
        norms: of each query the norms (cells,) along the attributes that it has.
        weights: of each query its whole weight.
    """
    tables = []
    for name, n in domain.items():
        if any(name in each for each in norms):
            ones = np.ones(n, dtype=object)
            tables.append(np.array([each.get(name, ones) for each in norms], dtype=object))
    start = np.array(weights, dtype=object)
    bound = sum(
        weight * math.prod(int(column.max()) for column in each.values())
        for weight, each in zip(weights, norms, strict=True)
    )
    # No sum over a cell exceeds the bound, so that int64 is exact, and a hundred times faster.
    if bound < 2**62:
        tables, start = [t.astype(np.int64) for t in tables], start.astype(np.int64)
    return max(1, int(worst_cell(tables, start)[0]))


@dataclass(frozen=True, slots=True)
class QueriesEstimate(Estimate):
    """The estimate of a release: queries in units of their noise, with the forecast of errors."""

    forecast: QueriesForecast | LargeQueriesForecast
    measured: Floats

    def answer(self, product: Product) -> Floats:
        """Return the answers to a product, flat and row-major over its factors' rows.

        Raises ProgrammingError E_NOT_MEASURED where the release does not support it.
        """
        return self.forecast.read(product, self.measured)
