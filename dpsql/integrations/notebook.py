"""Progress of a long run in a notebook: one line that changes, above the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def progress() -> Callable[[str], None] | None:
    """Return the listener to a long run; None outside a notebook."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    if found is None or not hasattr(found, "kernel"):
        return None
    return Line(found.events).tell


class Line:
    """A line of output that is replaced by the next one, and is gone when its cell has run."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self._handle: Any = None

    def tell(self, text: str) -> None:
        """Show a line in place of the last one of this cell."""
        from IPython.display import display  # there: this is a notebook

        if self._handle is None:
            self._events.register("post_run_cell", self.end)
            self._handle = display({"text/plain": text}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update({"text/plain": text}, raw=True)

    def end(self, result: object = None) -> None:
        """Take the line away: the next cell has one of its own."""
        self._events.unregister("post_run_cell", self.end)
        handle, self._handle = self._handle, None
        handle.update({"text/plain": ""}, raw=True)
