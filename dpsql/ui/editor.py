"""The user's editor, for statements too long for a line."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from dpsql.errors import UsageError, printable


def edit_text(text: str) -> str:
    """Return a text as it was left in the editor.

    Raises: UsageError (E_COMMAND) when there is no editor, or it fails: the text stays as it was.
    """
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    handle, name = tempfile.mkstemp(prefix="dpsql-", suffix=".sql")
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([*shlex.split(command), name], check=False)
        if done.returncode:
            raise _failed(command, f"it ended with status {done.returncode}")
        return path.read_text(encoding="utf-8").rstrip()
    except (OSError, ValueError) as error:
        raise _failed(command, (getattr(error, "strerror", None) or str(error)).lower()) from None
    finally:
        path.unlink(missing_ok=True)


def _failed(command: str, problem: str) -> UsageError:
    what = f"the editor {printable(command)} gave no text: {problem}"
    return UsageError("E_COMMAND", what, hint="set VISUAL or EDITOR")
