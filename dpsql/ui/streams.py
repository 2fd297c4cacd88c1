"""SQL texts as they come in, and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from dpsql.errors import UsageError, printable

SUMMARY = "summary.json"
"""The list of the files of results beside it."""

PARTIAL = ".dpsql-partial-"
"""Prefix of folders in which results are put together."""

PAID = "what was charged is stored: asked again it is free"
"""The hint where answers cannot be written that are there already."""


def is_command(text: str) -> bool:
    """Tell whether a line is a command of the prompt rather than SQL."""
    return text.lstrip().startswith((".", "\\"))


def split_input(text: str) -> list[str]:
    """Split a text into command lines and stretches of SQL, in order.

    A line is a command when it starts with ``.`` or a backslash where a statement could start.
    """
    from dpsql.dbapi.connection import split_script  # brings the engine, a second

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
    from dpsql.dbapi.connection import split_script

    statements, rest = split_script(text)
    words = [piece.split(None, 1)[0].upper() for piece in [*statements, rest] if piece.strip()]
    if collected is not None:
        return collected if "RUN" in words else 0
    return sum(word not in ("SET", "BEGIN", "RUN", "CANCEL", "ROLLBACK") for word in words)


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


def file_names(typed: str) -> list[str]:
    """The files and folders whose path starts with what was typed; hidden ones if that is asked.

    A name with a blank is quoted.
    """
    folder, start = os.path.split(typed.lstrip("'"))
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            found = sorted(e.name + "/" * e.is_dir() for e in entries if e.name.startswith(start))
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in found if start or not name.startswith(".")]
    return [f"'{path}'" if " " in path else path for path in paths if path.isprintable()]


def _refuse(path: Path, problem: str, hint: str | None = None) -> UsageError:
    return UsageError("E_OUTPUT", f"cannot write {printable(str(path))}: {problem}", hint=hint)


def _check_place(path: Path, force: bool, is_folder: bool) -> None:
    if "\0" in str(path):
        raise _refuse(path, "a name cannot hold a null character")
    if str(path) == "-":
        raise _refuse(path, "that is no file", hint="name one; what is shown goes to stdout")
    try:
        parent_exists, exists = path.parent.is_dir(), os.path.lexists(path)
    except OSError as error:
        raise _refuse(path, _reason(error)) from None
    if not parent_exists:
        raise _refuse(path, f"there is no folder {printable(str(path.parent))}")
    if exists and not force:
        if path.is_dir() != is_folder:
            raise _refuse(path, "it is not a folder" if is_folder else "it is a folder")
        raise _refuse(path, "it exists", hint="choose another name, or add --force to replace it")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or type(error).__name__).lower()


class _Reserved:
    """Common part: leaving the context without ``commit`` removes everything written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary: Path | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    def discard(self) -> None:
        """Remove what was written and not committed."""
        if self._temporary is not None:
            if self._temporary.is_dir():
                shutil.rmtree(self._temporary, ignore_errors=True)
            else:
                self._temporary.unlink(missing_ok=True)


class OutputFile(_Reserved):
    """One file; a temporary file beside it is created at once and renamed by ``commit``.

    Raises: UsageError when the place cannot be written or is taken and ``force`` is not set.
    """

    def __init__(self, path: Path, force: bool) -> None:
        super().__init__(path)
        _check_place(path, force, is_folder=False)
        if path.is_dir():
            raise _refuse(path, "it is a folder")
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        except OSError as error:
            raise _refuse(path, _reason(error)) from None
        os.close(handle)
        self._temporary = Path(name)

    def __enter__(self) -> OutputFile:
        return self

    def commit(self, data: bytes) -> None:
        """Write the content and give it its name."""
        assert self._temporary is not None
        try:
            self._temporary.write_bytes(data)
            self._temporary.chmod(0o666 & ~_umask())
            self._temporary.replace(self.path)
        except OSError as error:
            raise _refuse(self.path, _reason(error), PAID) from None
        self._temporary = None


class OutputDirectory(_Reserved):
    """A folder of results, assembled beside its final place and renamed by ``commit``.

    With ``force``, an existing folder keeps files that dpsql did not write; the results of an
    earlier run, as listed in its ``summary.json``, are replaced. Whenever that ends, all of the
    earlier results are there or all of the new ones; where both have a name, one file or the other.
    """

    def __init__(self, path: Path, force: bool) -> None:
        super().__init__(path)
        _check_place(path, force, is_folder=True)
        if os.path.lexists(path) and not path.is_dir():
            raise _refuse(path, "it is not a folder")
        self._existing = path.is_dir()
        place = path if self._existing else path.parent
        try:
            self._temporary = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=place))
        except OSError as error:
            raise _refuse(path, _reason(error)) from None

    def __enter__(self) -> OutputDirectory:
        return self

    def write(self, name: str, data: bytes) -> None:
        """Add one file."""
        assert self._temporary is not None
        try:
            (self._temporary / name).write_bytes(data)
        except OSError as error:
            raise _refuse(self.path / name, _reason(error), PAID) from None

    def commit(self) -> None:
        """Give the folder its name, or move its files into the existing folder."""
        assert self._temporary is not None
        try:
            if self._existing:
                self._replace_files(self._temporary)
            else:
                self._temporary.chmod(0o777 & ~_umask())
                self._temporary.rename(self.path)
                self._temporary = None
        except OSError as error:
            raise _refuse(self.path, _reason(error), PAID) from None

    def _replace_files(self, temporary: Path) -> None:
        """Give files their names; then no earlier one is left, and the summary is of these.

        As long as it is the earlier summary, the next run knows what to remove.
        """
        names = {file.name for file in temporary.iterdir()}
        ended = [each for each in self.path.glob(f"{PARTIAL}*") if each != temporary]
        before = {name for folder in (self.path, *ended) for name in written_before(folder)}
        for name in sorted(names - {SUMMARY}):
            (temporary / name).replace(self.path / name)
        for gone in before - names:
            (self.path / gone).unlink(missing_ok=True)
        for name in names & {SUMMARY}:
            (temporary / name).replace(self.path / name)
        for folder in ended:  # of runs that were killed in the middle of this
            if (folder / SUMMARY).exists():
                shutil.rmtree(folder, ignore_errors=True)


def written_before(folder: Path) -> list[str]:
    """Return the result files that the summary of an earlier run lists."""
    names: list[str] = []
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        names = [str(statement["file"]) for statement in summary["statements"]]
    return [name for name in names if re.fullmatch(r"\d{3,}_\w+\.\w+", name)]


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
