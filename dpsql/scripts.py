"""Workloads in files: where FOR WORKLOAD 'queries.sql' finds its statements."""

from __future__ import annotations

from pathlib import Path

from dpsql.errors import UsageError, printable
from dpsql.sql.lexemes import Fragment, split_statements
from dpsql.sql.synthetic import Creation

MOST_BYTES = 4 * 1024 * 1024


def workload_of(creation: Creation) -> tuple[Fragment, ...]:
    """The statements that a synthetic table is for; a file is read from the working directory.

    Only ``.sql`` files are read, since errors quote what they complain about.
    Raises: UsageError (E_INPUT).
    """
    if creation.file is None:
        return creation.workload
    path = Path(creation.file)
    if path.suffix.lower() != ".sql":
        raise _unreadable(path, "a workload is a .sql file")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _unreadable(path, f"it is over {MOST_BYTES // 1024**2} MiB")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8") from None
    except (OSError, ValueError):
        raise _unreadable(path, "no such file, or no right to read it") from None
    statements = tuple(split_statements(text))
    if not statements:
        raise _unreadable(path, "it has no statement")
    return statements


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        "E_INPUT",
        f"the workload {printable(path.name)!r} cannot be used: {why}",
        hint="FOR WORKLOAD 'queries.sql', relative to the working directory",
    )
