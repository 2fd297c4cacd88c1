"""The kinds of strategies a plan may be made of, as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dpsql.plan.forecast import Forecast
from dpsql.plan.queries import QueriesStrategy, QueryBlock
from dpsql.plan.queries_forecast import QueriesForecast
from dpsql.plan.strategy import Block, Integers, Strategy
from dpsql.plan.symmetric_forecast import SymmetricForecast
from dpsql.plan.symmetric_strategy import OrbitBlock, SymmetricStrategy

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
