"""SQL texts: where they come from, and where commands stand between the statements."""

from __future__ import annotations

import sys
from pathlib import Path

from dpsql.errors import UsageError, printable


def is_command(text: str) -> bool:
    """Tell whether a line is a command of the prompt rather than SQL."""
    return text.lstrip().startswith((".", "\\"))


def split_input(text: str) -> list[str]:
    """Split a text into command lines and stretches of SQL, in order.

    A line is a command when it starts with ``.`` or a backslash where a statement could start.
    """
    from dpsql.dbapi import split_script

    pieces: list[str] = []
    buffer = ""
    for line in text.splitlines(keepends=True):
        if is_command(line) and not (buffer and split_script(buffer)[1].strip()):
            pieces += [buffer, line.strip()]
            buffer = ""
        else:
            buffer += line
    return [piece for piece in [*pieces, buffer] if is_command(piece) or any(split_script(piece))]


def count_results(text: str, collected: int | None) -> int:
    """Count the results that a text will bring, given the size of an open workload.

    >>> count_results("SET epsilon = 1; SELECT 1; SHOW budget", None)
    2
    """
    from dpsql.dbapi import split_script

    statements, rest = split_script(text)
    words = [piece.split(None, 1)[0].upper() for piece in [*statements, rest] if piece.strip()]
    if collected is not None:
        return collected if "RUN" in words else 0
    return sum(word not in ("SET", "BEGIN", "RUN") for word in words)


def read_text(path: str) -> str:
    """Read an SQL file, or stdin for ``-``.

    Raises: UsageError when it cannot be read or is not UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is not UTF-8"
    except (OSError, ValueError) as error:
        problem = (getattr(error, "strerror", None) or str(error)).lower()
    raise UsageError("E_INPUT", f"cannot read {printable(path)}: {problem}")
