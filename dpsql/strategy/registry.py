"""The kinds of strategies, by the name under which files know them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from dpsql.algebra.operator import Integers
from dpsql.strategy.base import Strategy

OWN = ("product", "queries", "separate", "symmetric")
"""Each is a module of this package, which registers it when it is imported."""

KINDS: dict[str, type[Strategy]] = {}
"""The kinds that are imported."""

S = TypeVar("S", bound=Strategy)


def register(kind: type[S]) -> type[S]:
    """Let a kind of strategy be read back from files by its name."""
    KINDS[kind.kind] = kind
    return kind


def decode_strategy(facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> Strategy:
    """Return the strategy that its ``encode`` described.

    ``arrays`` are those that ``encode`` returned, each of its own shape.
    Raises ValueError, KeyError or TypeError for anything else.
    """
    kind = facts.get("kind", "product")
    if kind in OWN and kind not in KINDS:
        import_module(f"dpsql.strategy.{kind}")  # most files have products alone
    return KINDS[kind].decode(facts, arrays)
