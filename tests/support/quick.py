"""Plans of little search, for tests that ask what answers are and not how good plans are.

The same families of strategies are tried, and the best of them is measured; it is a little worse.
All tests have them but those of SEARCHED, which ask about plans, and who uses ``full_plans``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest import mock

from dpsql import learn, plan, search
from dpsql.learn import fixed
from dpsql.plan import answer_weights
from dpsql.search.one_attribute import gram_parts, hierarchy, low_rank_descent, opt0
from dpsql.search.strategy_cache import cached_choice
from dpsql.search.symmetry import opposite_cells, symmetric_descent
from dpsql.search.unions import joint, opt_m

STEPS, STARTS = 6, 2
PATIENCE = 4
EFFORT = 0.0999
"""Part of the effort; no other test asks for that, so that plans kept by it are these alone."""


SEARCHED = frozenset({"plan", "search", "strategy"})
"""Folders whose tests ask how good plans are."""

for _room in (search, plan, learn):
    for _found in pkgutil.walk_packages(_room.__path__, f"{_room.__name__}."):
        import_module(_found.name)  # first imported in a quick test, it would keep what is quick

DESCENDED = (opt0, symmetric_descent, low_rank_descent, gram_parts, hierarchy, joint)
CHOOSING = (answer_weights, fixed, opposite_cells)
_descend, _starts = opt0.minimise, opt0._default_restarts


def _minimise(*given: Any, maxiter: int, **more: Any) -> Any:
    return _descend(*given, maxiter=min(maxiter, STEPS), **more)


def _restarts(n: int) -> int:
    return min(STARTS, _starts(n))


def _choice(workload: Any, noise: Any, mechanism: str, effort: float = 1.0, *near: Any) -> Any:
    return cached_choice(workload, noise, mechanism, effort * EFFORT, *near)


QUICK: tuple[tuple[ModuleType, str, object], ...] = (
    *((module, "minimise", _minimise) for module in DESCENDED),
    (opt0, "_default_restarts", _restarts),
    (opt_m, "PATIENCE", PATIENCE),
    (opt_m, "PER_SET", 0),
    *((module, "cached_choice", _choice) for module in CHOOSING),
)
FULL = tuple((module, name, getattr(module, name)) for module, name, _ in QUICK)


@contextmanager
def quick_plans() -> Iterator[None]:
    """Descend in few steps from few starts, and hop on while that pays."""
    with _put(QUICK):
        yield


@contextmanager
def full_plans() -> Iterator[None]:
    """Search as users do."""
    with _put(FULL):
        yield


@contextmanager
def _put(parts: tuple[tuple[ModuleType, str, object], ...]) -> Iterator[None]:
    with ExitStack() as patched:
        for module, name, part in parts:
            patched.enter_context(mock.patch.object(module, name, part))
        yield
