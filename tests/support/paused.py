"""A long run that waits in the middle, so that others can be seen not to."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from dpsql.learn.task import run_task

WAIT = 30.0
"""Seconds after which a test gives up."""


class Paused:
    """A run of the task that waits, after its looks have begun, until it is told to go on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        run: Callable[..., object] = run_task

        def paused(*given: object) -> object:
            self.begun.set()
            assert self.go.wait(WAIT)
            return run(*given)

        patch.setattr("dpsql.engine.learn.run_task", paused)
