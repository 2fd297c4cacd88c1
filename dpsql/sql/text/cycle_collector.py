"""Python's search for cycles, which parsers do without, in any number of threads."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

from dpsql.forks import fresh, in_child
from dpsql.interrupts import AsyncInterrupts

P = ParamSpec("P")
T = TypeVar("T")

# The collector is one for the process: the last of the parsers that run at once turns it on.
_counting = fresh(Lock())
_parsers, _was_on = 0, False


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python from looking for cycles: parsers make many trees, all of which stay in use."""
    global _parsers, _was_on
    with _counting:
        _was_on = _was_on if _parsers else gc.isenabled()
        _parsers += 1
        gc.disable()
    try:
        yield
    finally:
        with _counting:
            _parsers = max(0, _parsers - 1)
            if _was_on and not _parsers:
                gc.enable()


def interruptible_anywhere(work: Callable[P, T]) -> Callable[P, T]:
    """Let another thread end a function at any bytecode: see ``AsyncInterrupts``.

    No cycles are looked for meanwhile: the end would come to what others do when they are let go.
    """

    @wraps(work)
    def ended(*given: P.args, **named: P.kwargs) -> T:
        with uncollected():
            within = AsyncInterrupts()
            try:
                with within:
                    return work(*given, **named)
            except KeyboardInterrupt:
                within.leave()
                raise

    return ended


def _none_parses() -> None:
    """The parsers of other threads are not in a child."""
    global _parsers
    if _parsers and _was_on:
        gc.enable()
    _parsers = 0


in_child(_none_parses)
