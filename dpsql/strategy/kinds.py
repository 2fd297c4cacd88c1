"""The kinds of strategies a plan may be made of, as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dpsql.algebra.operator import Integers
from dpsql.strategy.forecast import Forecast
from dpsql.strategy.product import Block, Strategy
from dpsql.strategy.queries import QueriesStrategy, QueryBlock
from dpsql.strategy.queries_solve import QueriesForecast
from dpsql.strategy.symmetric import OrbitBlock, SymmetricStrategy
from dpsql.strategy.symmetric_forecast import SymmetricForecast

AnyStrategy: TypeAlias = Strategy | SymmetricStrategy | QueriesStrategy
AnyBlock: TypeAlias = Block | OrbitBlock | QueryBlock
AnyForecast: TypeAlias = Forecast | SymmetricForecast | QueriesForecast


def decode_strategy(facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> AnyStrategy:
    """Return the strategy that its ``encode`` described.

    Raises ValueError, KeyError or TypeError for anything else.
    """
    kinds: dict[str, type[SymmetricStrategy] | type[QueriesStrategy]] = {
        "symmetric": SymmetricStrategy,
        "queries": QueriesStrategy,
    }
    return kinds.get(facts.get("kind", ""), Strategy).decode(facts, arrays)
