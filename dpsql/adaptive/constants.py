"""The declared constants of the mechanisms: a run is paid for with them, and with no others."""

from __future__ import annotations

import importlib

MODULES = {
    "mwem": ("mwem", "replay", "schedule", "settings", "start"),
    "rap": ("rap", "schedule"),
    "marginals": ("backends", "marginals", "mixture"),
    "matrix": ("backends", "fixed", "mixture", "schedule"),
    "matrix+projection": ("backends", "fixed", "mixture", "schedule"),
}
"""Where the constants of each mechanism are."""


def constants_of(mechanism: str) -> tuple[tuple[str, str], ...]:
    """Return the constants that a mechanism runs with, by module and name, as text."""
    found = []
    for each in MODULES[mechanism]:
        module = importlib.import_module(f"dpsql.adaptive.{each}")
        values = sorted((name, repr(value)) for name, value in vars(module).items())
        found += [(f"{each}.{name}", text) for name, text in values if name.isupper()]
    return tuple(found)
