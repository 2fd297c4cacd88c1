"""Plans of little search, for tests that ask what answers are and not how good plans are.

The same families of strategies are tried, and the best of them is measured; it is a little worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from dpsql.learn import fixed
from dpsql.plan import weighing
from dpsql.search import few, hierarchy, joint, opt0, opt_m
from dpsql.search.cache import cached_choice

STEPS, STARTS = 6, 2
PATIENCE = 4
EFFORT = 0.0999
"""Part of the effort; no other test asks for that, so that plans kept by it are these alone."""


@contextmanager
def quick_plans() -> Iterator[None]:
    """Descend in few steps from few starts, and hop on while that pays."""
    descend, starts = opt0.minimise, opt0._default_restarts

    def steps(*given: Any, maxiter: int, **more: Any) -> Any:
        return descend(*given, maxiter=min(maxiter, STEPS), **more)

    def chosen(workload: Any, noise: Any, mechanism: str, effort: float = 1.0) -> Any:
        return cached_choice(workload, noise, mechanism, effort * EFFORT)

    with ExitStack() as patched:
        for module in (opt0, few, hierarchy, joint):
            patched.enter_context(mock.patch.object(module, "minimise", steps))
        patched.enter_context(
            mock.patch.object(opt0, "_default_restarts", lambda n: min(STARTS, starts(n)))
        )
        patched.enter_context(mock.patch.object(opt_m, "PATIENCE", PATIENCE))
        patched.enter_context(mock.patch.object(opt_m, "PER_SET", 0))
        for module in (weighing, fixed):
            patched.enter_context(mock.patch.object(module, "cached_choice", chosen))
        yield
