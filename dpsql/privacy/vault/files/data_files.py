"""The files that match a declared source, by their names alone: none is opened."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dpsql.catalog.catalog import KINDS, PACKED, is_stored, kind_of
from dpsql.files import ScratchFolder, real_paths
from dpsql.privacy.vault.data_engine import Unreadable, unavailable
from dpsql.privacy.vault.files.delta import LATER, LOG, find_delta, is_delta
from dpsql.privacy.vault.files.partitions import Values
from dpsql.privacy.vault.files.stores import (
    LOCAL,
    Copy,
    StoredObject,
    copy_objects,
    find_objects,
    list_folder,
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
    """The files of a source: their kind and paths, and the columns that are in none of them.

    ``told`` are the values of these columns in each file, as a log has them.
    Of ``objects`` in a store, paths are those of ``copies``.
    """

    kind: str
    paths: tuple[str, ...]
    apart: tuple[str, ...] = ()
    told: tuple[Values, ...] = ()
    objects: tuple[StoredObject, ...] = ()
    copies: tuple[Copy, ...] = ()


def find_source(
    source: str, table: str, version: str | None = None, is_stated: bool = True
) -> FoundFiles:
    """Return the files of a source, or of a version of a Delta table; objects are copied.

    Of objects that do not say when they were written the version has to be stated elsewhere.
    Raises: DataUnavailable (E_DATA), naming table and source.
    """
    if is_stored(source):
        return _find_stored(source, table, version, is_stated)
    if version is None:
        return FoundFiles(*find_files(source, table))
    found = find_delta(source, version, table)
    return FoundFiles("parquet", found.paths, found.apart, found.told)


def _find_stored(source: str, table: str, version: str | None, is_stated: bool) -> FoundFiles:
    try:
        kind = kind_of(source)
        apart: tuple[str, ...] = ()
        told: tuple[Values, ...] = ()
        if kind in LOCAL:
            raise Unreadable(f"a database of {kind} is read on a disk alone", "copy it there")
        if version is not None:
            kind = "parquet"
            objects, apart, told = _objects_of_delta(source, version, table)
        else:
            objects = find_objects(source)
        kinds = {kind, *(kind_of(each.address) for each in objects)}
        if len(kinds) != 1 or kind is None:
            hint = f"names end in one of {', '.join(ENDS)}"
            raise Unreadable("its objects are of no one known format, by their names", hint)
        copies = copy_objects(objects, is_stated)
    except Unreadable as error:
        unavailable(table, source, error.problem, error.hint)
    except OSError:
        unavailable(table, source, "its objects cannot be copied to this machine", NO_ROOM)
    return FoundFiles(kind, tuple(each.path for each in copies), apart, told, objects, copies)


NO_ROOM = "let TMPDIR name a folder that is yours, on a disk with room"


def _objects_of_delta(
    folder: str, version: str, table: str
) -> tuple[tuple[StoredObject, ...], tuple[str, ...], tuple[Values, ...]]:
    """Return the objects of a version of a Delta table, the columns in none, and their values.

    Raises: DataUnavailable, Unreadable, OSError.
    """
    inside = list_folder(folder)
    with copied_log(inside) as log:
        found = find_delta(log, version, table, is_local=False)
        names = [os.path.relpath(path, os.path.realpath(log)) for path in found.paths]
    if not {*names} <= inside.keys():
        raise Unreadable(f"files of version {version} have gone", LATER)
    return tuple(inside[name] for name in names), found.apart, found.told


@contextmanager
def copied_log(inside: Mapping[str, StoredObject]) -> Iterator[str]:
    """Have the log of a Delta table in a folder of this machine, for as long as it is read.

    Raises: Unreadable, OSError.
    """
    logs = {name: each for name, each in inside.items() if name.startswith(f"{LOG}/")}
    if not logs:
        raise Unreadable("no Delta table is there", f"a folder that holds {LOG}")
    with ScratchFolder("dpsql-log-") as folder:
        copies = copy_objects(list(logs.values()))
        for name, copy in zip(logs, copies, strict=True):
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(copy.path, path)
        yield str(folder)


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
    if not os.path.exists(source) and any(is_delta(os.path.dirname(path)) for path in paths):
        problem = "these are files of a Delta table, some of which hold rows that were deleted"
        unavailable(table, source, problem, 'source = { delta = "folder", version = 3 }')
    if not all(os.path.isfile(path) for path in paths):
        unavailable(table, source, "not a file", 'for a folder of files write "folder/*.parquet"')
    if not all(os.access(path, os.R_OK) for path in paths):
        unavailable(table, source, "permission denied")
    return paths
