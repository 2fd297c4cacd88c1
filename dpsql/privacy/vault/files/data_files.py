"""The files that match a declared source, by their names alone: none is opened."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpsql.catalog.catalog import KINDS, PACKED, is_stored, kind_of
from dpsql.files import real_paths
from dpsql.privacy.vault.data_engine import Unreadable, unavailable
from dpsql.privacy.vault.files.stores import (
    LOCAL,
    Copy,
    StoredObject,
    copy_objects,
    find_objects,
    list_folder,
)
from dpsql.privacy.vault.files.table_folders import (
    LATER,
    LocalFolder,
    StoredFolder,
    TableFolder,
    Version,
    VersionFiles,
)
from dpsql.records import dataclass

READABLE = {
    "parquet": "a Parquet file is written as a whole, and not encrypted",
    "csv": "a CSV file is UTF-8 text: a header of different names, then lines with as many commas",
    "duckdb": "a DuckDB file is of this version or an older one, and closed by what wrote it",
    "sqlite": "a SQLite database is closed by what wrote it",
    **dict.fromkeys(("spss", "stata", "sas"), "save the file again, without a password"),
    "sheet": "save the workbook again, without a password, as .xlsx or .ods",
    "arrow": "a file of Arrow is written as a whole",
    "orc": "an ORC file is written as a whole, and not encrypted",
    "json": "give a file of lines, each an object of JSON, in UTF-8",
}
"""Likely faults of a file that does not open, by its kind."""


ENDS = sorted(end for end in KINDS if not end.endswith(PACKED[1:]))
"""Ends of names of data files, but for those that are compressed."""


def match_files(source: str) -> tuple[str, ...]:
    """Return the real paths of what a source names, each once."""
    found = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    real = map(os.path.realpath, found) if len(found) == 1 else real_paths(found)
    return tuple(dict.fromkeys(real))


def find_files(source: str, table: str) -> tuple[str, tuple[str, ...]]:
    """Return the kind of the files of ``source`` and their real paths; none is opened.

    Raises: DataUnavailable (E_DATA), naming table and source.
    """
    paths = _find_paths(source, table)
    kinds = {kind_of(path) for path in paths}
    if len(kinds) != 1 or None in kinds or (kinds == {"duckdb"} and len(paths) > 1):
        problem = "not Parquet, CSV, compressed CSV, one DuckDB file, or another known format"
        unavailable(table, source, problem, f"names end in one of {', '.join(ENDS)}")
    kind, named = kinds.pop() or "", kind_of(source)
    if named not in (None, kind):  # what is said of rows that are left out goes by the name
        problem = f"its name says {named}, and it leads to {kind}"
        unavailable(table, source, problem, "name the file itself, or give the link its ending")
    return kind, paths


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a source: their kind and paths, and what a log says of those it ``listed``.

    Of ``objects`` in a store, paths are those of ``copies``.
    """

    kind: str
    paths: tuple[str, ...]
    listed: VersionFiles | None = None
    objects: tuple[StoredObject, ...] = ()
    copies: tuple[Copy, ...] = ()


def find_source(
    source: str, table: str, version: Version | None = None, is_stated: bool = True
) -> FoundFiles:
    """Return the files of a source, or of a version of a table with a log; objects are copied.

    Of objects that do not say when they were written the version has to be stated elsewhere.
    Raises: DataUnavailable (E_DATA), naming table and source.
    """
    if version is None and not is_stored(source):
        return FoundFiles(*find_files(source, table))
    try:
        if version is None:
            return _find_objects(source, is_stated)
        if is_stored(source):
            return _find_stored(source, version, table)
        found = _list_files(LocalFolder(source), version, table)
        paths = tuple(os.path.realpath(os.path.join(source, name)) for name in found.names)
        if not all(map(os.path.isfile, paths)):
            raise Unreadable(GONE.format(version.number), LATER)
        return FoundFiles("parquet", paths, found)
    except Unreadable as error:
        unavailable(table, source, error.problem, error.hint)
    except OSError:
        problem, hint = "its files cannot be read", "check that they are there, and yours to read"
        if is_stored(source):
            problem, hint = "its objects cannot be copied to this machine", NO_ROOM
    unavailable(table, source, problem, hint)


def _find_objects(source: str, is_stated: bool) -> FoundFiles:
    """Return copies of the objects that a source names. Raises: Unreadable, OSError."""
    kind = kind_of(source)
    if kind in LOCAL:
        raise Unreadable(f"a database of {kind} is read on a disk alone", "copy it there")
    objects = find_objects(source)
    if "*" in source:
        _refuse_logged_objects(objects)
    kinds = {kind, *(kind_of(each.address) for each in objects)}
    if len(kinds) != 1 or kind is None:
        hint = f"names end in one of {', '.join(ENDS)}"
        raise Unreadable("its objects are of no one known format, by their names", hint)
    copies = copy_objects(objects, is_stated)
    paths = tuple(each.path for each in copies)
    return FoundFiles(kind, paths, objects=objects, copies=copies)


def _find_stored(source: str, version: Version, table: str) -> FoundFiles:
    """Return copies of the files of a version. Raises: DataUnavailable, Unreadable, OSError."""
    folder = StoredFolder(source)
    found = _list_files(folder, version, table)
    if not {*found.names} <= folder.objects.keys():
        raise Unreadable(GONE.format(version.number), LATER)
    objects = tuple(folder.objects[name] for name in found.names)
    copies = copy_objects(objects)
    paths = tuple(each.path for each in copies)
    return FoundFiles("parquet", paths, found, objects, copies)


def _list_files(folder: TableFolder, version: Version, table: str) -> VersionFiles:
    from dpsql.privacy.vault.files.table_logs import FORMS  # most tables have no log

    return FORMS[version.form].list_files(folder, version.number, table)


GONE = "files of version {} have gone"
NO_ROOM = "let TMPDIR name a folder that is yours, on a disk with room"


def is_data_file(name: str) -> bool:
    """Say whether a file of a folder is data, by its name; one that is .txt is when it is named."""
    return kind_of(name) is not None and ".txt" not in Path(name).suffixes


def is_parquet(source: str) -> bool:
    """Say whether files match ``source`` and all are Parquet, by their names."""
    return {kind_of(path) for path in match_files(source)} == {"parquet"}


def _find_paths(source: str, table: str) -> tuple[str, ...]:
    paths = match_files(source)
    if not paths:
        unavailable(table, source, "there is no such file", "check `source` in the catalog")
    if not os.path.exists(source):
        _refuse_logged(source, table, paths)
    if not all(os.path.isfile(path) for path in paths):
        unavailable(table, source, "not a file", 'for a folder of files write "folder/*.parquet"')
    if not all(os.access(path, os.R_OK) for path in paths):
        unavailable(table, source, "permission denied")
    return paths


def _refuse_logged(source: str, table: str, paths: tuple[str, ...]) -> None:
    """Refuse files that a glob finds in the folder of a table with a log, or below it."""
    from dpsql.privacy.vault.files.table_logs import FORMS, log_in  # few tables are globs

    folders = {Path(path).parent for path in paths}
    above = sorted({*folders, *(each for folder in folders for each in folder.parents)})
    form = next((form for each in above if (form := log_in(str(each))) is not None), None)
    if form is not None:
        unavailable(table, source, *_of_a_log(form, FORMS[form].title))


def _refuse_logged_objects(objects: Sequence[StoredObject]) -> None:
    """Refuse objects that a pattern finds in the folder of a table with a log, or below it.

    Raises: Unreadable.
    """
    from dpsql.privacy.vault.files.table_logs import FORMS  # few tables are globs

    folders = {each.address.rpartition("/")[0] for each in objects}
    for folder in sorted({above for each in folders for above in _above(each)}):
        for name, form in FORMS.items():
            logged = list_folder(f"{folder}/{form.log}")
            if any(form.is_there(f"{form.log}/{each}") for each in logged):
                raise Unreadable(*_of_a_log(name, form.title))


def _above(folder: str) -> Iterator[str]:
    """The folder at an address and those above it, down to that of the bucket."""
    while folder.count("/") > 1:
        yield folder
        folder = folder.rpartition("/")[0]


def _of_a_log(form: str, title: str) -> tuple[str, str]:
    problem = f"these are files of {title}, some of which hold rows that are no more"
    return problem, f'source = {{ {form} = "folder", version = 3 }}'
