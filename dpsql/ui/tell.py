"""Narration: what goes to stderr, and what a stream can show."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from dpsql.errors import Error, printable
from dpsql.ui.numbers import floor_text

if TYPE_CHECKING:
    from dpsql.dbapi import Result


def tell(text: str) -> None:
    """Write a line of narration to stderr, in ASCII where stderr has nothing better."""
    if not speaks_unicode(sys.stderr):
        text = text.translate({0x3B5: "epsilon", 0x3B4: "delta", 0xB1: "+/-", 0xB7: "-"})
    print(text, file=sys.stderr)


def tell_note(text: str) -> None:
    """Write a note to stderr, dim on a terminal."""
    dim = sys.stderr.isatty() and colour_wanted()
    note = f"note: {printable(text)}"
    tell(f"\x1b[2m{note}\x1b[0m" if dim else note)


def tell_cost(results: list[Result]) -> None:
    """Tell on stderr what the requests that brought these results cost, each once."""
    costs = [(result.receipt, result.cost) for result in results if result.cost is not None]
    paid = dict.fromkeys(pair for pair in costs if not pair[1].free)
    for _, cost in paid:
        delta = f", δ {floor_text(cost.delta)}" if cost.delta else ""
        tell(f"charged ε {floor_text(cost.epsilon)}{delta} ({printable(cost.noise)})")
    if costs and not paid:
        tell("free: answered from what was already released")


def describe_error(error: Error, stream: TextIO) -> str:
    """Return the text of an error, escaped line by line, its first word red on a terminal."""
    red = stream.isatty() and colour_wanted()
    lines = [printable(line) for line in str(error).split("\n")]
    return ("\x1b[31merror:\x1b[0m " if red else "error: ") + "\n".join(lines)


def colour_wanted() -> bool:
    """Tell whether the environment admits colour."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def speaks_unicode(stream: TextIO) -> bool:
    """Tell whether a stream is encoded as UTF-8."""
    return (stream.encoding or "").lower().replace("-", "") == "utf8"
