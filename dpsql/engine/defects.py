"""Faults of dpsql itself: told by their kind and place, never by what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dpsql.engine.charges import Charges
from dpsql.errors import Error, InternalError, ProgrammingError, Span
from dpsql.records import replace

T = TypeVar("T")

HERE = Path(__file__).parent.parent
HINT = "this is a defect of dpsql; please report it with the statement"
SMALLER = "ask for fewer columns, cells or statements at once"


def told(work: Callable[[], T], charges: Charges, span: Callable[[], Span | None]) -> T:
    """Run ``work``; an unforeseen failure becomes a typed one that says what was charged.

    Raises: InternalError, from the failure where it is about public facts or noisy numbers alone
    (E_UNEXPECTED), without cause and context where it came through the membrane (E_INTERNAL);
    ProgrammingError (E_TOO_LARGE) where memory for public facts or noisy numbers ran out.
    Guarantee: no text of a failure inside the membrane is passed on. Interrupts pass through.
    """
    before = replace(charges)
    try:
        return work()
    except Error:
        raise
    except Exception as error:
        fault = error
    outcome = charges.since(before)
    if any(_is_private(each) for each in _chain(fault)):
        what = f"the request failed, details are withheld; {outcome}"
        raise InternalError("E_INTERNAL", what, span=span())
    if isinstance(fault, MemoryError):
        what = f"the request needs more memory than there is; {outcome}"
        raise ProgrammingError("E_TOO_LARGE", what, hint=SMALLER, span=span()) from None
    raise unexpected(fault, f"; {outcome}", span()) from fault


def unexpected(fault: Exception, outcome: str = "", span: Span | None = None) -> InternalError:
    """Return what is told of a fault: its kind and place, since its text could quote data."""
    place = next((f" in {path.name}, line {line}" for path, line in _places(fault)), "")
    what = f"dpsql failed unexpectedly: {type(fault).__name__}{place}{outcome}"
    return InternalError("E_UNEXPECTED", what, hint=HINT, span=span)


def _chain(fault: BaseException) -> Iterator[BaseException]:
    """A failure and all those that it came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [fault]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            waiting += (each.__cause__, each.__context__)
            yield each


def _is_private(fault: BaseException) -> bool:
    return any("privacy" in path.parts for path, _ in _places(fault))


def _places(fault: BaseException) -> Iterator[tuple[Path, int]]:
    """The files and lines of dpsql that a failure came through, innermost first."""
    found, trace = [], fault.__traceback__
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if path.is_relative_to(HERE):
            found.append((path.relative_to(HERE), trace.tb_lineno))
        trace = trace.tb_next
    return reversed(found)
