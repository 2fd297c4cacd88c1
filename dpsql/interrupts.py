"""Ctrl-C: it waits while a charge becomes a stored release, and it is never taken for a fault.

Python raises KeyboardInterrupt in the main thread, at any bytecode; libraries swallow it, or turn
it into an error of their own. While a statement runs, a handler stands in front of the one that
was there: it notes every SIGINT, keeps it back where it has to wait, and passes it on otherwise.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any


class _Sigint:
    """The handler, and what it has seen.

    ``passed`` counts the interrupts that were raised, ``answered`` those of them that have had
    their effect; while ``holding``, one is kept back, and ``waiting`` says that one came.
    """

    __slots__ = ("answered", "before", "holding", "passed", "waiting")

    def __init__(self) -> None:
        self.before: Any = None
        self.passed = self.answered = 0
        self.holding = self.waiting = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.waiting = self.holding
        if self.holding:
            return
        try:
            self.before(number, frame)
        except BaseException:
            self.passed += 1
            raise

    def stand_in_front(self) -> bool:
        """Take the place of a handler in Python; say whether that was done just now."""
        found = signal.getsignal(signal.SIGINT)
        if isinstance(found, _Sigint) or not callable(found):
            return False
        self.before = found
        signal.signal(signal.SIGINT, self)
        return True

    def step_back(self) -> None:
        """Give the place back."""
        if isinstance(signal.getsignal(signal.SIGINT), _Sigint):
            signal.signal(signal.SIGINT, self.before)

    def deliver(self) -> None:
        """Pass on the interrupt that has waited, if one has. Raises: KeyboardInterrupt."""
        if self.waiting and not self.holding:
            self(signal.SIGINT, sys._getframe())


_sigint = _Sigint()


def _is_here() -> bool:
    """Signals come to the main thread alone: elsewhere nothing has to be done."""
    return threading.current_thread() is threading.main_thread()


class Watched:
    """Around one statement: what was interrupted is known, whatever became of the exception.

    Every interrupt before it has had its effect.
    """

    __slots__ = ("_first", "_here")

    def __enter__(self) -> Watched:
        self._here, self._first = _is_here(), False
        if self._here:
            _sigint.holding = _sigint.waiting = False
            answer()
            self._first = _sigint.stand_in_front()
        return self

    def __exit__(self, *_: object) -> None:
        if self._first:
            _sigint.step_back()

    @property
    def interrupted(self) -> bool:
        """Whether an interrupt was raised here that had no effect so far."""
        return self._here and _sigint.passed > _sigint.answered


class Held:
    """Within, an interrupt waits: it is raised at the end of the outermost such section.

    Raises: KeyboardInterrupt, at the end.
    """

    __slots__ = ("_first", "_here", "_outer")

    def __enter__(self) -> None:
        self._here, self._first, self._outer = _is_here(), False, _sigint.holding
        if self._here:
            self._first = _sigint.stand_in_front()
            _sigint.holding = True

    def __exit__(self, *_: object) -> None:
        if not self._here:
            return
        _sigint.holding = self._outer
        try:
            _sigint.deliver()
        finally:
            if self._first:
                _sigint.step_back()


class Allowed:
    """A part of a section that holds interrupts back which they may end at once.

    Raises: KeyboardInterrupt, at the beginning if one has waited.
    """

    __slots__ = ("_here", "_outer")

    def __enter__(self) -> None:
        self._here, self._outer = _is_here(), _sigint.holding
        if self._here:
            try:
                _sigint.holding = False
                _sigint.deliver()
            except BaseException:
                _sigint.holding = self._outer
                raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._here:
            _sigint.holding = self._outer
            if kind is None:
                answer()


def answer() -> None:
    """Note that the interrupts so far have had their effect, such as an early end of a run."""
    if _is_here():
        _sigint.answered = _sigint.passed


def check() -> None:
    """Raise an interrupt once more that a library has swallowed. Raises: KeyboardInterrupt."""
    if _is_here() and _sigint.passed > _sigint.answered:
        raise KeyboardInterrupt
