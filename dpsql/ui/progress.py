"""A line on stderr for what takes longer than about a second; only where it can be redrawn."""

from __future__ import annotations

import os
import shutil
import threading
import time
from types import TracebackType
from typing import TextIO

from dpsql.errors import printable
from dpsql.ui.tell import speaks_unicode

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Progress:
    """Context manager: after ``delay`` seconds, shows what is being done and for how long.

    ``say`` changes what is shown; lines are cut to the width of the terminal, drawn only when they
    change, at most once a second for the same thing, and erased at the end.
    """

    def __init__(self, stream: TextIO, doing: str, delay: float = 1.0) -> None:
        self._stream, self._doing, self._delay = stream, doing, delay
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, doing: str) -> None:
        """Show what is being done now."""
        self._doing = doing

    def __enter__(self) -> Progress:
        if self._stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
            self._thread = threading.Thread(target=self._animate, daemon=True)
            self._thread.start()
        return self

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
