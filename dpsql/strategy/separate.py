"""A strategy of blocks with matrices of their own, which agree on what they have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import KronRows
from dpsql.algebra.operator import Integers
from dpsql.records import dataclass
from dpsql.strategy.base import Block, Keep, Strategy, array_digest, decode_domain, digest_of
from dpsql.strategy.consistency_constraints import classes_of
from dpsql.strategy.noise_law import Noise, is_law
from dpsql.strategy.quantise import column_norm, rank_of
from dpsql.strategy.registry import register
from dpsql.strategy.separate_forecast import SeparateEstimate, SeparateForecast


@dataclass(frozen=True, slots=True)
class SeparateBlock(Block):
    """A Kronecker product of a matrix per attribute, None for the identity.

    Columns of a matrix that differ are independent: it tells classes of cells apart, or not.
    ``sizes`` are the cells of the attributes; ``share`` is of epsilon under Laplace and of rho
    under Gaussian noise.
    """

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    matrices: tuple[Integers | None, ...]
    share: Fraction

    @property
    def integer_rows(self) -> KronRows:
        """Return the rows of every attribute."""
        return KronRows(self.matrices, self.sizes)


@register
@dataclass(frozen=True, slots=True)
class SeparateStrategy(Strategy):
    """Blocks over a domain, each with matrices of its own; shares sum to exactly one.

    Guarantee: sensitivities are exact integers of the rows that are measured, so noise scales
    from ``scales`` cost at most the amount given, in exact rational arithmetic.
    """

    kind: ClassVar[str] = "separate"
    has_marginals: ClassVar[bool] = True

    domain: Mapping[str, int]
    blocks: tuple[SeparateBlock, ...]
    noise: Noise
    method: str = "separate"

    def __post_init__(self) -> None:
        order = list(self.domain)
        if not is_law(self.noise) or len(self.blocks) < 2:
            raise ValueError("there are several blocks, and a noise law")
        if sum(b.share for b in self.blocks) != 1 or any(b.share <= 0 for b in self.blocks):
            raise ValueError("the shares of a strategy are positive and sum to 1")
        for block in self.blocks:
            if list(block.attributes) != sorted(block.attributes, key=order.index):
                raise ValueError(f"block {block.attributes} is not in domain order")
            for name, n, rows in zip(block.attributes, block.sizes, block.matrices, strict=True):
                fits = rows is None or (rows.dtype == np.int64 and rows.shape[1] == n)
                if self.domain[name] != n or not fits:
                    raise ValueError(f"the rows of {name!r} are not integers over its cells")
                if rows is not None and not has_independent_columns(rows):
                    raise ValueError(f"the columns of {name!r} are neither equal nor independent")

    def sensitivity(self, block: SeparateBlock) -> int:
        """Return the exact L1 (Laplace) or squared L2 (Gaussian) sensitivity of a block's rows."""
        return math.prod(column_norm(m, self.noise) for m in block.matrices if m is not None)

    def forecast(self, variances: Sequence[float], integers: bool = False) -> SeparateForecast:
        """Return the exact errors of every answer, for the noise variance of each block."""
        blocks = [dict(zip(b.attributes, b.matrices, strict=True)) for b in self.blocks]
        return SeparateForecast(self.domain, blocks, variances)

    def solve(self, values: Sequence[NDArray[Any]], forecast: Any) -> SeparateEstimate:
        """Return the least-squares estimate of a release.

        Args:
            values: per block its noisy integers, flat.
            forecast: that of this strategy at the noise that was drawn.
        """
        found: SeparateEstimate = forecast.solve(values)
        return found

    def describe(self, keep: Keep) -> dict[str, Any]:
        """Return plain facts; ``keep`` stores an array by name."""
        blocks = [
            [
                list(block.attributes),
                [None if rows is None else keep(rows) for rows in block.matrices],
                str(block.share),
            ]
            for block in self.blocks
        ]
        return {"blocks": blocks}

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> SeparateStrategy:
        """Return the strategy that ``encode`` described.

        Args:
            facts: as ``encode`` returned them.
            arrays: the integer rows that it kept, by name.
        """
        domain = decode_domain(facts)
        blocks = tuple(
            SeparateBlock(
                tuple(attributes),
                tuple(domain[name] for name in attributes),
                tuple(None if name is None else arrays[name] for name in names),
                Fraction(share),
            )
            for attributes, names, share in facts["blocks"]
        )
        return cls(domain, blocks, facts["noise"], facts["method"])

    def fingerprint(self) -> str:
        """Return a hex digest of everything that is measured and of the noise law."""
        text: list[object] = ["separate", list(self.domain.items()), self.noise]
        for block in self.blocks:
            rows = [None if m is None else (m.shape, array_digest(m)) for m in block.matrices]
            text.append((block.attributes, rows, str(block.share)))
        return digest_of(text)


def has_independent_columns(rows: Integers) -> bool:
    """Say whether the distinct columns of a matrix are independent.

    Args:
        rows: (r, n).

    >>> has_independent_columns(np.array([[1, 1, 0], [0, 0, 1]]))
    True
    >>> has_independent_columns(np.array([[1, 2]]))
    False
    """
    classes = np.unique(classes_of(rows), return_index=True)[1]
    return rank_of(rows[:, classes]) == len(classes)
