"""Where a long run tells how it goes on in a notebook: one line that changes, above the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def progress() -> Callable[[str], None] | None:
    """What hears of a long run; None outside a notebook."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    if found is None or not hasattr(found, "kernel"):
        return None
    return Line().tell


class Line:
    """A line of output that is replaced by the next one."""

    def __init__(self) -> None:
        self._handle: Any = None

    def tell(self, text: str) -> None:
        """Show a line in place of the last one."""
        from IPython.display import display  # there: this is a notebook

        if self._handle is None:
            self._handle = display({"text/plain": text}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update({"text/plain": text}, raw=True)
