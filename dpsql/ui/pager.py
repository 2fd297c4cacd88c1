"""A pager: a program that shows a long text on the screen, page by page."""

from __future__ import annotations

import os
import shlex
import shutil
import signal

from dpsql.errors import UsageError, printable, text_width

DEFAULT = "less -S -R -F -X"
"""Long lines are scrolled sideways, colours stay, and what fits on the screen is only printed."""


def pager_command() -> str:
    """Return the pager of the environment."""
    return os.environ.get("DPSQL_PAGER") or os.environ.get("PAGER") or DEFAULT


def needs_pager(text: str) -> bool:
    """Tell whether a text is longer or wider than the screen."""
    size = shutil.get_terminal_size()
    lines = text.split("\n")
    return len(lines) > size.lines or any(text_width(line) > size.columns for line in lines)


def show_paged(text: str, command: str) -> None:
    """Show a text in a pager and wait until it ends; leaving it early is no error.

    Raises: UsageError (E_COMMAND) when the pager cannot be run.
    """
    import subprocess  # 1.2 ms, of which most commands have no use

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
    try:
        words = shlex.split(command)
        done = subprocess.run(words, input=text.encode(), check=False)
        problem = "" if done.returncode != 127 else "it is not there"
    except (OSError, ValueError, IndexError) as error:
        problem = (getattr(error, "strerror", None) or str(error)).lower()
    finally:
        signal.signal(signal.SIGINT, before)
    if problem:
        what = f"the pager {printable(command)} cannot be run: {problem}"
        raise UsageError("E_COMMAND", what, hint=".pager off, or .pager 'less -S'")
