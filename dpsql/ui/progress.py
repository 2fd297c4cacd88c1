"""A moving line on stderr for what takes longer than about a second; terminals only."""

from __future__ import annotations

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

    ``say`` changes what is shown; lines are cut to the width of the terminal.
    """

    def __init__(self, stream: TextIO, doing: str, delay: float = 1.0) -> None:
        self._stream, self._doing, self._delay = stream, doing, delay
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, doing: str) -> None:
        """Show what is being done now."""
        self._doing = doing

    def __enter__(self) -> Progress:
        if self._stream.isatty():
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
        wait, step, drawn = self._delay, 0, ""
        while not self._done.wait(wait):
            wait, step = 0.1, step + 1
            frame = (
                FRAMES[step % len(FRAMES)] if speaks_unicode(self._stream) else "|/-\\"[step % 4]
            )
            waited = f"{time.monotonic() - started:.0f} s"
            room = shutil.get_terminal_size().columns - len(waited) - 5
            last, drawn = len(drawn), f"{frame} {printable(self._doing)[:room]} {waited}"
            self._draw(f"\r{drawn}{' ' * (last - len(drawn))}")
        if drawn:
            self._draw("\r" + " " * len(drawn) + "\r")

    def _draw(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
