"""Files by grant: SQL names files of one folder, which whoever connects has chosen, or none.

A statement may come from anyone. It never says by itself what is read or written on this machine,
nor learns which files there are: outside the folder every name is refused in the same words.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import engine_of
from dpsql.errors import Error, InternalError, ProgrammingError, UsageError, printable
from dpsql.files import read_regular
from dpsql.records import dataclass
from dpsql.sql.text.lexemes import Fragment, split_statements

if TYPE_CHECKING:
    from dpsql.sql.text.synthetic import Creation

OF_A_CREATION = ("E_UNKNOWN_TABLE", "E_STATEMENT", "E_EPSILON", "E_DELTA", "E_SETTING")
"""Codes of what may be wrong about CREATE SYNTHETIC TABLE itself, whatever its workload."""

MOST_BYTES = 4 * 1024 * 1024
"""Size of a workload in a file: 64 statements of the longest kind."""


@dataclass(frozen=True, slots=True)
class GrantedFiles:
    """The folder whose files SQL may name, a real path; None grants nothing."""

    folder: Path | None = None

    def find(self, name: str) -> Path:
        """Return the path of a file named by SQL; it need not be there.

        Raises: UsageError (E_FILES), in the same words whatever lies outside the folder.
        """
        if self.folder is None:
            raise UsageError(
                "E_FILES",
                "SQL is granted no folder to read or write files in",
                hint="connect(..., files=FOLDER) or dpsql --files FOLDER; not one with data in it",
            )
        given = PurePath(name)
        if "\0" not in name and ".." not in given.parts:
            path = self.folder / given
            if path.is_relative_to(self.folder) and path != self.folder:
                real = Path(os.path.realpath(path))
                if real.is_relative_to(self.folder):
                    return real
        raise UsageError(
            "E_FILES",
            f"the file {printable(name)!r} is not in the folder that SQL is granted",
            hint=f"name a file of {printable(str(self.folder))}, without .. and links out of it",
        )


NOTHING = GrantedFiles()


def grant(folder: object, catalog: Catalog, anchors: Path) -> GrantedFiles:
    """Grant a folder to SQL; None grants nothing.

    Raises: UsageError (E_FILES) unless it is a folder without sources, catalog and anchors.
    """
    if folder is None:
        return NOTHING
    try:
        real = Path(os.path.realpath(folder))  # type: ignore[call-overload]
        problem = None if real.is_dir() else "it is no folder"
    except (TypeError, ValueError, OSError):
        raise UsageError("E_FILES", "files= takes the path of a folder") from None
    problem = problem or next(_reasons(real, catalog, anchors), None)
    if problem is not None:
        where = printable(str(folder))
        hint = "make a folder of its own for workloads and drawn rows"
        raise UsageError("E_FILES", f"SQL cannot be granted {where}: {problem}", hint=hint)
    return GrantedFiles(real)


def grant_here(catalog: Catalog, anchors: Path) -> GrantedFiles:
    """Grant the working directory to whoever sits there, where that may be."""
    try:
        return grant(os.getcwd(), catalog, anchors)
    except (UsageError, OSError):
        return NOTHING


def workload_of(creation: Creation, granted: GrantedFiles) -> tuple[Fragment, ...]:
    """The statements that a synthetic table is for; a file is read from the granted folder.

    Raises: UsageError (E_INPUT, E_FILES).
    """
    if creation.file is None:
        return creation.workload
    path = granted.find(creation.file)
    if path.suffix.lower() != ".sql":
        raise _unreadable(path, "a workload is a .sql file")
    try:
        text = read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8") from None
    except (OSError, ValueError):
        raise _unreadable(path, "no such file, or no right to read it") from None
    statements = tuple(split_statements(text))
    if not statements:
        raise _unreadable(path, "it has no statement")
    return statements


@contextmanager
def unquoted(creation: Creation, own: Collection[str] = ()) -> Iterator[None]:
    """Tell what is wrong in the file of a workload by its place alone: errors quote no file.

    Errors with codes of ``own`` that point at no text are about the statement itself.
    """
    try:
        yield
    except InternalError as error:
        if creation.file is not None:
            error.span = None
        raise
    except Error as error:
        if creation.file is None or (error.span is None and error.code in own):
            raise
        code, span = error.code, error.span
    else:
        return
    place = "" if span is None else " at line {}, column {}".format(*span.position())
    raise ProgrammingError(
        code,
        f"the workload {printable(Path(creation.file).name)!r} is refused{place}",
        hint="ask the statement there by itself to see why; nothing of a file is quoted",
    )


def _reasons(folder: Path, catalog: Catalog, anchors: Path) -> Iterator[str]:
    """Yield reasons not to grant a folder: what lies in it, or would with one file more."""
    if _is_within(catalog.path, folder):
        yield "the catalog lies in it, with its ledger and releases"
    if _is_within(anchors, folder) or _is_within(folder, anchors):
        yield "the anchor of the ledger lies in it"
    for table in catalog.tables.values():
        if _holds(folder, table.source):
            yield f"the source of table {table.name!r} lies in it"


def _holds(folder: Path, source: str) -> bool:
    if engine_of(source):
        place = source.partition("://")[2]
        return place.startswith("/") and _is_within(Path(place), folder)
    if os.path.lexists(source) or not glob.has_magic(source):
        return _is_within(Path(source), folder)
    fixed = Path(_before_pattern(source))
    matched = glob.glob(source, recursive=True)
    return (
        _is_within(fixed, folder)
        or _is_within(folder, fixed)
        or any(_is_within(Path(each), folder) for each in matched)
    )


def _before_pattern(source: str) -> str:
    """The folder in which every match of a pattern lies.

    >>> _before_pattern("/data/2024-*/part?.parquet")
    '/data'
    """
    parts = PurePath(source).parts
    count = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return str(PurePath(*parts[:count]))


def _is_within(path: Path, folder: Path) -> bool:
    """True if a path, or what it leads to, is the folder or lies in it."""
    real = Path(os.path.realpath(path))
    parent = Path(os.path.realpath(path.parent)) / path.name
    return real.is_relative_to(folder) or parent.is_relative_to(folder)


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        "E_INPUT",
        f"the workload {printable(path.name)!r} cannot be used: {why}",
        hint="FOR WORKLOAD 'queries.sql', a file of the folder that SQL is granted",
    )
