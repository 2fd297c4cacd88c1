"""Ctrl-C: it waits while a charge becomes a stored release, and it is never taken for a fault.

Python raises KeyboardInterrupt in the main thread, at any bytecode; libraries swallow it, or turn
it into an error of their own. While a statement runs, a handler stands in front of the one that
was there: it notes every SIGINT, keeps it back where it has to wait, and passes it on otherwise.
A SIGTERM that has a handler in Python, as in the ``dpsql`` command, waits in the same way.

Other threads get no signals: a statement there runs under a ``Cancellation``, which another thread
may ask for. It is raised where ``check`` is called, and waits in the same sections. Work on a text
alone, which shares nothing with other sessions, ends under ``AsyncInterrupts`` at any bytecode, as
in the main thread, so that nothing in it has to look.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any, TypeVar

from dpsql.forks import in_child

AGAIN = 0.05
"""Seconds after which work outside of Python that has not ended is told so again."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Piece = TypeVar("Piece")
Found = TypeVar("Found")


class _Guard:
    """The handler, and what it has seen.

    ``passed`` counts the signals that raised something, ``answered`` those of them that have had
    their effect; while ``holding``, one is kept back, and ``waiting`` is its number.
    """

    __slots__ = ("answered", "before", "holding", "passed", "waiting")

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        self.passed = self.answered = self.waiting = 0
        self.holding = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.waiting = number if self.holding else 0
        if self.holding:
            return
        try:
            self.before[number](number, frame)
        except BaseException:
            self.passed += 1
            raise

    def stand_in_front(self) -> bool:
        """Take the places of handlers in Python; say whether any was taken just now."""
        taken = False
        for number in SIGNALS:
            found = signal.getsignal(number)
            if callable(found) and not isinstance(found, _Guard):
                self.before[number] = found
                signal.signal(number, self)
                taken = True
        return taken

    def step_back(self) -> None:
        """Give the places back."""
        for number in SIGNALS:
            if isinstance(signal.getsignal(number), _Guard):
                signal.signal(number, self.before[number])

    def deliver(self) -> None:
        """Pass on the signal that has waited, if one has. Raises: KeyboardInterrupt."""
        if self.waiting and not self.holding:
            self(self.waiting, sys._getframe())


_guard = _Guard()


def _nothing_waits() -> None:
    """Let signals reach a child whose parent's main thread keeps them back."""
    _guard.step_back()
    _guard.holding, _guard.waiting = False, 0


in_child(_nothing_waits)
_threads = threading.local()


class Cancellation:
    """The wish that a statement in this thread end; another thread may ask for it.

    Within ``with``, ``check`` raises KeyboardInterrupt in this thread once it was asked for.
    ``ending`` is called where work outside of Python runs, which looks for nothing itself.
    """

    __slots__ = (
        *("_again", "_anywhere", "_asked", "_ended", "_ending", "_lock", "_thread", "_thrown"),
        "holding",
    )

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._ending: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._again: threading.Thread | None = None
        self._ended = threading.Event()
        self._thread = 0
        self._anywhere = False
        self._thrown: threading.Event | None = None
        self.holding = False

    def ask(self) -> None:
        """Ask for it, from any thread."""
        self._asked.set()
        with self._lock:
            if self._end() and self._again is None:
                self._again = threading.Thread(target=self._end_on, daemon=True)
                self._again.start()
            if self._anywhere and self._thrown is None:
                self._thrown = threading.Event()
                threading.Thread(target=self._throw_on, args=(self._thrown,), daemon=True).start()
                _throw(self._thread)  # last, since it may arrive here

    def _end(self) -> bool:
        """End work outside of Python, if such is under way; say whether it is."""
        if self._ending is None or self.holding:
            return False
        self._ending()
        return True

    def _end_on(self) -> None:
        """End it until it is ended: DuckDB forgets what it is told before it runs."""
        while not self._ended.wait(AGAIN):
            with self._lock:
                if not self._end():
                    return

    def _throw_on(self, over: threading.Event) -> None:
        """Throw it until it is over: the end of a generator that is let go of swallows it."""
        pause = AGAIN
        while not over.wait(pause):
            with self._lock:
                if self._thrown is not over:  # what was thrown came before ``over`` was set
                    return
                _throw(self._thread)
            pause *= 2

    def anywhere(self, ends: bool) -> bool:
        """Say whether it ends this thread at any bytecode from now on; return what was before.

        Guarantee: one that was thrown before, and has not arrived, does not arrive any more.
        """
        with self._lock:  # nothing is called within: what was thrown cannot arrive half way
            before, self._anywhere = self._anywhere, ends
            thrown, self._thrown = self._thrown, None
        if thrown is not None:
            with suppress(KeyboardInterrupt):
                thrown.set()
                for _ in range(3):
                    _let_arrive()
        return before

    def arrived(self) -> None:
        """Note that it was raised at some bytecode: nobody need raise it again."""
        self._asked.clear()

    @contextmanager
    def ended_by(self, ending: Callable[[], None]) -> Iterator[None]:
        """Call ``ending`` once it is asked for while what is within runs, and never after."""
        self.check()
        with self._lock:
            self._ending = ending
        try:
            yield
        finally:
            with self._lock:
                self._ending, again, self._again = None, self._again, None
            if again is not None:
                self._ended.set()
                again.join()
                self._ended.clear()

    def check(self) -> None:
        """Raise it, once, where it need not wait. Raises: KeyboardInterrupt."""
        if self._asked.is_set() and not self.holding:
            self._asked.clear()
            raise KeyboardInterrupt

    def __enter__(self) -> Cancellation:
        _threads.cancellation = self
        self._thread = threading.get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.anywhere(False)
        finally:
            self._ending, _threads.cancellation = None, None


def _cancellation() -> Cancellation | None:
    """Return the cancellation of the statement which runs in this thread."""
    found: Cancellation | None = getattr(_threads, "cancellation", None)
    return found


def _throw(thread: int) -> None:
    """Raise KeyboardInterrupt in another thread, where it next calls a function or repeats.

    Python could take it back, but goes on for ever then where it is traced.
    """
    import ctypes  # few statements are ended so

    kind = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)


def _let_arrive() -> None:
    """Call a function, which is where an exception of another thread arrives."""


class AsyncInterrupts:
    """Within, another thread ends what runs at any bytecode; where not ``ends``, where it looks.

    It is for what shares nothing with others that could be left half done: no lock in Python, no
    state of a session but what is written whole, and no collection of cycles, which would run what
    others have to do at their end (``dpsql.sql.text.cycle_collector.interruptible_anywhere``).
    Raises: KeyboardInterrupt, at the beginning and at the end if it was asked for before.
    """

    __slots__ = ("_asked", "_ends", "_outer")

    def __init__(self, ends: bool = True) -> None:
        self._asked, self._ends, self._outer = _cancellation(), ends, False

    def __enter__(self) -> None:
        if self._asked is None:
            return
        try:
            self._outer = self._asked.anywhere(self._ends)
            self._asked.check()
        except KeyboardInterrupt:
            self._asked.anywhere(False)
            raise

    def leave(self) -> None:
        """Let it end nothing from now on that is not around this: the end may come to the exit."""
        if self._asked is not None:
            self._asked.anywhere(self._outer)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._asked is not None:
            self._asked.anywhere(self._outer)
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                self._asked.arrived()
            self._asked.check()


class HelperThreads:
    """Threads that work for this one: once it has left, for whatever reason, they end at a check.

    Raises: KeyboardInterrupt, in them alone.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = threading.Event()

    def __enter__(self) -> HelperThreads:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()

    def do(self, work: Callable[[Piece], Found], piece: Piece) -> Found:
        """Do a piece of its work, in another thread."""
        _threads.helpers = self
        try:
            return work(piece)
        finally:
            _threads.helpers = None

    def check(self) -> None:
        """Raise KeyboardInterrupt where the thread has left that the work is for."""
        if self._left.is_set():
            raise KeyboardInterrupt


def ended_by(ending: Callable[[], None]) -> AbstractContextManager[None]:
    """A way for another thread to end work outside of Python; in the main one it ends by itself.

    Raises: KeyboardInterrupt, where that was asked for before.
    """
    asked = _cancellation()
    return nullcontext() if asked is None else asked.ended_by(ending)


def _is_here() -> bool:
    """Signals come to the main thread alone: elsewhere nothing has to be done."""
    return threading.current_thread() is threading.main_thread()


class InterruptWatch:
    """Around one statement: what was interrupted is known, whatever became of the exception.

    Every interrupt before it has had its effect.
    """

    __slots__ = ("_first", "_here")

    def __enter__(self) -> InterruptWatch:
        self._here, self._first = _is_here(), False
        if self._here:
            _guard.holding, _guard.waiting = False, 0
            answer()
            self._first = _guard.stand_in_front()
        return self

    def __exit__(self, *_: object) -> None:
        if self._first:
            _guard.step_back()

    @property
    def interrupted(self) -> bool:
        """True if an interrupt was raised here that had no effect so far."""
        return self._here and _guard.passed > _guard.answered


class HoldInterrupts:
    """Within, an interrupt waits: it is raised at the end of the outermost such section.

    Raises: KeyboardInterrupt, at the end.
    """

    __slots__ = ("_asked", "_first", "_here", "_outer")

    def __enter__(self) -> None:
        self._here, self._first, self._outer = _is_here(), False, _guard.holding
        self._asked = _cancellation()
        if self._asked is not None:
            self._outer, self._asked.holding = self._asked.holding, True
        elif self._here:
            self._first = _guard.stand_in_front()
            _guard.holding = True

    def __exit__(self, *_: object) -> None:
        if self._asked is not None:
            self._asked.holding = self._outer
            return  # raised by the next ``check``
        if not self._here:
            return
        _guard.holding = self._outer
        try:
            _guard.deliver()
        finally:
            if self._first:
                _guard.step_back()


class AllowInterrupts:
    """A part of a section that holds interrupts back which they may end at once.

    Raises: KeyboardInterrupt, at the beginning if one has waited.
    """

    __slots__ = ("_asked", "_here", "_outer")

    def __enter__(self) -> None:
        self._here, self._outer = _is_here(), _guard.holding
        self._asked = _cancellation()
        if self._asked is not None:
            self._outer, self._asked.holding = self._asked.holding, False
            try:
                self._asked.check()
            except BaseException:
                self._asked.holding = self._outer
                raise
        elif self._here:
            try:
                _guard.holding = False
                _guard.deliver()
            except BaseException:
                _guard.holding = self._outer
                raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._asked is not None:
            self._asked.holding = self._outer
        elif self._here:
            _guard.holding = self._outer
            if kind is None:
                answer()


def is_cancellable() -> bool:
    """True if another thread may ask for the end of what this one does."""
    return _cancellation() is not None


def retry_until(succeeds: Callable[[], bool]) -> None:
    """Try something again and again until it succeeds, after ever longer pauses.

    Raises: KeyboardInterrupt, within .05 s of being asked to end.
    """
    pause = 0.001
    while True:
        check()
        if succeeds():
            return
        time.sleep(pause)
        pause = min(1.5 * pause, AGAIN)


class InterruptibleLock:
    """Hold a lock; who waits for it in a thread may be asked to end meanwhile.

    In the main thread, where an interrupt comes at any bytecode, it is the lock alone: Python ends
    that wait. Raises: KeyboardInterrupt, for who waits.
    """

    __slots__ = ("_lock",)

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not is_cancellable():
            self._lock.acquire()
            return
        while not self._lock.acquire(timeout=AGAIN):
            check()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def answer() -> None:
    """Note that the interrupts so far have had their effect, such as an early end of a run."""
    if _is_here():
        _guard.answered = _guard.passed


def check() -> None:
    """Raise an interrupt once more that a library has swallowed, or one that was asked for.

    Long searches call it now and then. Raises: KeyboardInterrupt.
    """
    helpers: HelperThreads | None = getattr(_threads, "helpers", None)
    if helpers is not None:
        helpers.check()
    asked = _cancellation()
    if asked is not None:
        asked.check()
    if _is_here() and _guard.passed > _guard.answered:
        raise KeyboardInterrupt
