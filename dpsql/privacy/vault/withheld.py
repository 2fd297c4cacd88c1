"""Nothing of a failure inside the vault is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dpsql.errors import InternalError, is_interrupt

T = TypeVar("T")


def sealed(work: Callable[[], T]) -> T:
    """Run ``work``; whatever it raises becomes one constant error that carries no trace of it.

    Guarantee: text, cause and context of the error are independent of the data. Ctrl-C stays one.
    """
    try:
        return work()
    except Exception as error:
        interrupted = is_interrupt(error)
    if interrupted:
        raise KeyboardInterrupt
    raise InternalError("E_INTERNAL", "the table could not be counted; details are withheld")
