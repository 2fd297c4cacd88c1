"""Sessions held while one request is answered: one of each server, with one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from dpsql.records import dataclass, field

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HeldSessions:
    """The open resources of a request, by what tells them apart, and how all are closed."""

    found: dict[Hashable, Any] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)


_HELD: ContextVar[HeldSessions | None] = ContextVar("held", default=None)


@contextmanager
def one_snapshot() -> Iterator[None]:
    """Keep open, until the end, whatever is opened by :func:`held` meanwhile."""
    if _HELD.get() is not None:
        yield
        return
    held_here = HeldSessions()
    token = _HELD.set(held_here)
    try:
        with held_here.stack:
            yield
    finally:
        _HELD.reset(token)


def held(
    key: Hashable, open_it: Callable[[], AbstractContextManager[T]]
) -> AbstractContextManager[T]:
    """Return what was opened under a key within :func:`one_snapshot`, opened now if it was not.

    >>> opened = []
    >>> def session():
    ...     opened.append("session")
    ...     return nullcontext(len(opened))
    >>> with one_snapshot():
    ...     with held("a", session) as one, held("a", session) as other:
    ...         print(one, other)
    1 1
    """
    here = _HELD.get()
    if here is None:
        return open_it()
    if key not in here.found:
        here.found[key] = here.stack.enter_context(open_it())
    found: T = here.found[key]
    return nullcontext(found)
