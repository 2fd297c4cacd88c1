"""The least-squares constants of structured rows, by their kind."""

from __future__ import annotations

from functools import lru_cache

from dpsql.algebra.decayed_sums import Fading
from dpsql.algebra.levels import Levels, Structured
from dpsql.strategy.fading_axis import FadingAxis
from dpsql.strategy.structured_axis import StructuredAxis
from dpsql.strategy.tree_axis import TreeAxis

SMALL, OF_SMALL, OF_LARGE = 1 << 17, 6, 2
"""Cells up to which a column is small, and how many of both kinds are remembered."""


def structured_axis(rows: Structured) -> StructuredAxis:
    """Return the constants of structured rows, remembered: a plan is forecast, then solved."""
    return (_of_small if rows.size <= SMALL else _of_large)(rows)


@lru_cache(maxsize=OF_SMALL)
def _of_small(rows: Structured) -> StructuredAxis:
    return _axis(rows)


@lru_cache(maxsize=OF_LARGE)
def _of_large(rows: Structured) -> StructuredAxis:
    return _axis(rows)


def _axis(rows: Structured) -> StructuredAxis:
    match rows:
        case Levels():
            return TreeAxis(rows)
        case Fading():
            return FadingAxis(rows)
    raise ValueError(f"no such rows are known: {type(rows).__name__}")
