"""The least-squares estimate of whatever kind of strategy was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dpsql.answer.reconstruct import Estimate, reconstruct
from dpsql.answer.reconstruct_queries import QueriesEstimate, reconstruct_queries
from dpsql.answer.reconstruct_symmetric import SymmetricEstimate, reconstruct_symmetric
from dpsql.plan.plan import Part
from dpsql.plan.queries import QueriesStrategy
from dpsql.plan.strategy import Strategy

AnyEstimate: TypeAlias = Estimate | SymmetricEstimate | QueriesEstimate


def estimate(part: Part, values: Sequence[NDArray[Any]]) -> AnyEstimate:
    """Return what the noisy integers of a part say, one flat array per block.

    Cells are in rows, or privacy units: integers are divided by what one row adds to the block.
    """
    noise = part.forecast.noise
    rows = [v if u == 1 else v / u for v, u in zip(values, part.block_units, strict=True)]
    if isinstance(part.strategy, Strategy):
        return reconstruct(part.strategy, rows, noise, all(u == 1 for u in part.block_units))
    if isinstance(part.strategy, QueriesStrategy):
        return reconstruct_queries(part.strategy, rows, noise)
    return reconstruct_symmetric(part.strategy, rows, noise)
