"""Narration: what goes to stderr, and what a stream can show."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from dpsql.errors import Error, printable, printable_lines
from dpsql.ui.grid import floor_text

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Result


def tell(text: str) -> None:
    """Write narration to stderr, of which everything is seen."""
    _write(printable_lines(text))


def tell_error(error: Error) -> None:
    """Write an error to stderr."""
    _write(describe_error(error, sys.stderr))


def _write(text: str) -> None:
    """Write to stderr, in ASCII where it has nothing better."""
    if not speaks_unicode(sys.stderr):
        text = text.translate({0x3B5: "epsilon", 0x3B4: "delta", 0xB1: "+/-", 0xB7: "-"})
    print(text, file=sys.stderr)


def tell_note(text: str) -> None:
    """Write a note to stderr, dim on a terminal."""
    dim = sys.stderr.isatty() and colour_wanted()
    note = f"note: {printable(text)}"
    _write(f"\x1b[2m{note}\x1b[0m" if dim else note)


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
    width = shutil.get_terminal_size().columns if stream.isatty() else 80
    lines = [printable(line) for line in error.told(width).split("\n")]
    return ("\x1b[31merror:\x1b[0m " if red else "error: ") + "\n".join(lines)


def colour_wanted() -> bool:
    """Tell whether the environment admits colour."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def speaks_unicode(stream: TextIO) -> bool:
    """Tell whether a stream is encoded as UTF-8."""
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


LONGEST_SILENCE = 60.0
"""Seconds after which a log is told again that work goes on."""

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Progress:
    """Context manager: after ``delay`` seconds, shows what is being done and for how long.

    ``say`` changes what is shown; lines are cut to the width of the terminal, drawn only when they
    change, at most once a second for the same thing, and erased at the end. A stream that is no
    terminal gets a line of its own after ``every`` seconds, and then each time twice as late, so
    that a log stays short.
    """

    def __init__(self, stream: TextIO, doing: str, delay: float = 1.0, every: float = 5.0) -> None:
        self._stream, self._doing, self._delay, self._every = stream, doing, delay, every
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, doing: str) -> None:
        """Show what is being done now."""
        self._doing = doing

    def __enter__(self) -> Progress:
        fancy = self._stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        work = self._animate if fancy else self._log
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        return self

    def _log(self) -> None:
        """Write a line now and then; a stream that is closed meanwhile is let be."""
        started, wait = time.monotonic(), self._every
        while not self._done.wait(wait):
            seconds = time.monotonic() - started
            with contextlib.suppress(OSError, ValueError):
                self._draw(f"{printable(self._doing)} ({seconds:.0f} s so far)\n")
            wait = min(max(wait, seconds), LONGEST_SILENCE)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _animate(self) -> None:
        started = time.monotonic()
        wait, drawn = self._delay, ""
        frames = FRAMES if speaks_unicode(self._stream) else "|/-\\"
        while not self._done.wait(wait):
            wait, seconds = 0.1, int(time.monotonic() - started)
            waited = f"{seconds} s"
            room = max(0, shutil.get_terminal_size().columns - len(waited) - 5)
            text = f"{frames[seconds % len(frames)]} {printable(self._doing)[:room]} {waited}"
            if text != drawn:
                self._draw(f"\r{text}{' ' * (len(drawn) - len(text))}")
                drawn = text
        if drawn:
            self._draw("\r" + " " * len(drawn) + "\r")

    def _draw(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
