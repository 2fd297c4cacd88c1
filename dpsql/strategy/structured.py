"""The least-squares constants of structured rows, by their kind."""

from __future__ import annotations

from functools import lru_cache

from dpsql.algebra.fading import Fading
from dpsql.algebra.levels import Levels, Structured
from dpsql.strategy.fading_axis import FadingAxis
from dpsql.strategy.structured_axis import StructuredAxis
from dpsql.strategy.tree_axis import TreeAxis


@lru_cache(maxsize=2)
def structured_axis(rows: Structured) -> StructuredAxis:
    """Return the constants of structured rows, remembered: a plan is forecast, then solved."""
    match rows:
        case Levels():
            return TreeAxis(rows)
        case Fading():
            return FadingAxis(rows)
    raise ValueError(f"no such rows are known: {type(rows).__name__}")
