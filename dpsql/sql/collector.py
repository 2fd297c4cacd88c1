"""Python's search for cycles, which parsers do without, in any number of threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_counting = threading.Lock()
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
            _parsers -= 1
            if _was_on and not _parsers:
                gc.enable()
