"""Limits on the work and memory of a search: from public sizes, never time or free memory.

What is counted are products of numbers. They depend on what is asked and on ``effort`` alone, so
that a plan can be made again. Where the count is used up, a search returns the best that it has
found. Every search has a part of the whole to itself: what one takes is not taken from another,
whichever others there are. Only what a request may take in all is shared: past that, no search goes
on. What needs more memory than there is ``room`` for is not begun.

Linear algebra has one thread but for large matrices. The libraries under numpy and scipy give a
product of a few hundred rows to all cores, and let each of them spin until the next one comes:
where something else ran on the cores, a search took up to ten times the CPU seconds by that.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

from dpsql.forks import fresh
from dpsql.records import dataclass

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

SELECTION = 1.2e11
"""Products of numbers of which each family that is searched for has a part, for effort 1: all take
ten to twenty seconds on an ordinary core. The largest published workloads that were tried take
7.5e10 together."""

PLANNING = 2e11
"""The same of which each step has a part that weighs answers anew, or compares families."""

IN_ALL = 4e11
"""The same of all that is planned for a request, for effort 1, but for steps that are under way."""

BRIEF = 0.05
"""Effort up to which searches are brief: what they find is to be compared with, and within a per
cent of the standard error that others come to."""

LEAST_EFFORT = 0.1
"""Effort below which planning may do as much as for this."""

SECOND = 1e10
"""Products of numbers in a second where they are those of large matrices."""

ROOM = 1 << 32
"""Bytes that matrices of one search may take together, unless there are fewer for a request. Plans
depend on the machine only where that is so."""

SMALL = 32
"""Cells of all columns together whose search is over before threads of it could be in the way."""

LARGE, MOST = 2048, 1 << 12
"""Rows of matrices that gain by several threads; columns of more cells have none."""

EIGEN = 3.0
"""Work of the eigenvectors of a symmetric matrix, in cubes of its size."""


@dataclass(slots=True)
class WorkDone:
    """The work done, of what may be done, and the bytes that may be held at once.

    ``is_cut`` where something was left undone for the work, ``is_tight`` where for the memory.
    """

    most: float
    done: float = 0.0
    is_cut: bool = False
    room: float = ROOM
    is_tight: bool = False


@dataclass(slots=True)
class Ceiling:
    """The work done of a request in all, and the most that it may become."""

    most: float
    done: float = 0.0


class Listener(Protocol):
    """A listener to work while it is done, which decides nothing."""

    def begin(self, most: float) -> None:
        """Planning begins, which may do so many products of numbers."""

    def add(self, amount: float) -> None:
        """Count so many more products as done."""

    def end(self) -> None:
        """Planning has ended, or failed."""


@dataclass(frozen=True, slots=True)
class _Threads:
    """The number of threads before, and whether the caller sets those of the whole process."""

    most: int
    sets_all: bool


T = TypeVar("T")

_meter: ContextVar[WorkDone | None] = ContextVar("dpsql_meter", default=None)
_ceiling: ContextVar[Ceiling | None] = ContextVar("dpsql_ceiling", default=None)
_listener: ContextVar[Listener | None] = ContextVar("dpsql_listener", default=None)
_threads: ContextVar[_Threads | None] = ContextVar("dpsql_threads", default=None)
"""The threads of linear algebra before it was limited to one thread; None where it is not."""
_setting = fresh(Lock())
"""Had by the thread that sets the number of threads of the whole process."""


def work_of(most: float, effort: Fraction) -> float:
    """The work that planning may do for an effort, where effort 1 may do ``most``."""
    return most * max(LEAST_EFFORT, float(effort))


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Let a listener hear of the work inside."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def metered(most: float, memory: float = ROOM) -> Iterator[WorkDone]:
    """Count what is done inside, by itself; it counts for what is around it as well.

    What is inside has no more room than what is around it.
    """
    meter = WorkDone(most, room=min(memory, room()))
    with _counting(meter):
        yield meter


@contextmanager
def portion(part: float) -> Iterator[WorkDone]:
    """Let what is inside do a part of what may be done around it, whatever else was done there."""
    with metered(_portion(part)) as meter:
        yield meter


@contextmanager
def noted() -> Iterator[WorkDone]:
    """Note what is done inside, which may do what may be done around it, and no less.

    >>> with metered(8.0) as around:
    ...     spend(5.0)
    ...     with noted() as inside:
    ...         spend(1.0)
    ...         left()
    2.0
    >>> inside.done, around.done
    (1.0, 6.0)
    """
    around = _meter.get()
    if around is None:
        with metered(math.inf) as meter:
            yield meter
        return
    before = around.done
    meter = WorkDone(around.most, before, room=around.room)
    with _counting(meter):
        yield meter
    meter.done -= before


@contextmanager
def limited(most: float) -> Iterator[None]:
    """Let what is inside take so many products of numbers in all, however it is parted."""
    token = _ceiling.set(Ceiling(most))
    try:
        yield
    finally:
        _ceiling.reset(token)


@contextmanager
def share(part: float) -> Iterator[None]:
    """Let what is inside take a part of what is left in all; the rest is for what follows.

    >>> with limited(8.0), metered(100.0):
    ...     with share(0.5):
    ...         spend(1.0)
    ...         left()
    ...     left()
    3.0
    7.0
    """
    ceiling = _ceiling.get()
    if ceiling is None:
        yield
        return
    most = ceiling.most
    ceiling.most = ceiling.done + part * max(0.0, most - ceiling.done)
    try:
        yield
    finally:
        ceiling.most = most


def within(part: float, found: Iterator[T]) -> Iterator[T]:
    """Yield what a search does, which may do a part of what may be done around it.

    >>> with metered(8.0):
    ...     def searched():
    ...         while may_go_on():
    ...             spend(1.0)
    ...             yield left()
    ...     list(within(0.5, searched()))
    [3.0, 2.0, 1.0, 0.0]
    """
    meter = WorkDone(_portion(part), room=room())
    while True:
        with _counting(meter):
            each = next(found, None)
        if each is None:
            return
        yield each


def _portion(part: float) -> float:
    meter = _meter.get()
    return math.inf if meter is None else part * meter.most


@contextmanager
def _counting(meter: WorkDone) -> Iterator[None]:
    around, listener, before = _meter.get(), _listener.get(), meter.done
    token = _meter.set(meter)
    if listener is not None and around is None:
        listener.begin(meter.most)
    try:
        yield
    finally:
        _meter.reset(token)
        if around is not None:
            around.done += meter.done - before
            around.is_cut |= meter.is_cut
            around.is_tight |= meter.is_tight
        elif listener is not None:
            listener.end()


def spend(amount: float, is_cut: bool = False, is_tight: bool = False) -> None:
    """Count some work, of something that may have been cut short itself.

    Args:
        amount: products of numbers.
        is_cut, is_tight: as of ``WorkDone``.
    """
    meter, listener, ceiling = _meter.get(), _listener.get(), _ceiling.get()
    if ceiling is not None:
        ceiling.done += amount
    if meter is not None:
        meter.done += amount
        meter.is_cut |= is_cut
        meter.is_tight |= is_tight
    if meter is not None and listener is not None:
        listener.add(amount)


def left() -> float:
    """Return how much may still be done, infinite where nobody counts."""
    meter = _meter.get()
    return math.inf if meter is None else min(meter.most - meter.done, left_in_all())


def left_in_all() -> float:
    """Return how much may still be done of a request, infinite where nobody counts."""
    ceiling = _ceiling.get()
    return math.inf if ceiling is None else ceiling.most - ceiling.done


def may_go_on(part: float = 1.0) -> bool:
    """Say whether there is work left of a part; where there is none, what asks is cut short."""
    meter = _meter.get()
    if meter is None or (meter.done < part * meter.most and left_in_all() > 0):
        return True
    meter.is_cut = True
    return False


def may_begin() -> bool:
    """Say whether a request may be searched for any further; where not, what asks is cut short."""
    if left_in_all() > 0:
        return True
    spend(0.0, is_cut=True)
    return False


def has_work(amount: float) -> bool:
    """Say whether a search may do so much at once; where it may not, it goes without."""
    meter = _meter.get()
    if meter is None or amount <= meter.most:
        return True
    meter.is_cut = True
    return False


def room() -> float:
    """Return how many bytes a search may hold at once."""
    meter = _meter.get()
    return ROOM if meter is None else meter.room


def has_room(size: float) -> bool:
    """Say whether so many bytes may be held at once; where they may not, a search goes without.

    >>> with metered(1.0, memory=1e9) as meter:
    ...     has_room(1e8), has_room(1e10), meter.is_tight
    (True, False, True)
    """
    if size <= room():
        return True
    meter = _meter.get()
    if meter is not None:
        meter.is_tight = True
    return False


def one_thread(domains: Iterable[Mapping[str, int]]) -> AbstractContextManager[object]:
    """Let linear algebra have one thread inside, but for what is inside ``threads_for``.

    Nothing is limited where all columns of these domains are small, or where one domain is a large
    column alone. Where libraries know one number for the whole process, it is the first thread of
    those that are inside at once which sets it, and takes it back; the others change nothing: what
    they found is not what there was.
    """
    known = [tuple(domain.values()) for domain in domains]
    if any(len(sizes) == 1 and LARGE <= sizes[0] <= MOST for sizes in known):
        return nullcontext()
    if all(math.prod(sizes) <= SMALL for sizes in known):
        return nullcontext()
    return _limited()


@contextmanager
def _limited() -> Iterator[None]:
    around = _threads.get()
    is_first = around is None and _setting.acquire(blocking=False)
    try:
        sets_all = is_first or (around is not None and around.sets_all)
        most = max(_most_threads(sets_all), 1 if around is None else around.most)
        token = _threads.set(_Threads(most, sets_all))
        try:
            with _to(1, sets_all):
                yield
        finally:
            _threads.reset(token)
    finally:
        if is_first:
            _setting.release()


@contextmanager
def threads_for(size: int) -> Iterator[None]:
    """Give work on large matrices the threads that there were before ``one_thread``.

    ``size`` is how many rows they have. Outside of ``one_thread`` nothing changes.
    """
    had = _threads.get()
    with nullcontext() if had is None else _to(had.most if size >= LARGE else 1, had.sets_all):
        yield


def _to(count: int, sets_all: bool) -> AbstractContextManager[object]:
    limit: AbstractContextManager[object] = _set_here(sets_all).limit(limits=count, user_api="blas")
    return limit


def _most_threads(sets_all: bool) -> int:
    found = _set_here(sets_all).info()
    return max((each["num_threads"] for each in found if each["user_api"] == "blas"), default=1)


def _set_here(sets_all: bool) -> ThreadpoolController:
    """The libraries whose number this thread may set: of all, or those with one for each thread."""
    found = _libraries("scipy.linalg" in sys.modules)
    return found if sets_all else found.select(threading_layer="openmp")


@lru_cache(maxsize=2)
def _libraries(with_scipy: bool) -> ThreadpoolController:
    """The libraries that are loaded, which are more once scipy's is: to find them takes 5 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
