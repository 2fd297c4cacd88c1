"""Delta tables in folders: which Parquet files are a version of one, as its log says.

The log is read, no row is. Files that hold rows which the version has deleted are refused by what
the table declares of itself, and not by whether there are any.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

from dpsql.privacy.vault.data_engine import NESTED, unavailable
from dpsql.privacy.vault.files.table_folders import LATER, LocalFolder, TableFolder, VersionFiles
from dpsql.records import dataclass

LOG = "_delta_log"
"""The folder within that of a table which makes it one of Delta."""
READ = {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint", "variantType", "variantType-preview"}
"""Features of a table with which the rows of a version are all rows of its files, as stored."""
FAMILIES = {
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "timestamp"),
    **{each: each for each in ("date", "boolean", "decimal")},
}
"""Families of columns by the types of a log; others are texts."""


def is_delta(folder: str) -> bool:
    """Say whether a folder is that of a Delta table."""
    return os.path.isdir(os.path.join(folder, LOG))


@dataclass(frozen=True, slots=True)
class DeltaVersion:
    """One version of a Delta table: the real paths of its files, and what its log says of rows.

    ``apart`` are the columns that are in no file, and ``told`` their values in each file.
    ``schema`` is that of the rows, in the JSON that Delta and Spark share.
    """

    paths: tuple[str, ...]
    apart: tuple[str, ...]
    told: tuple[tuple[str | None, ...], ...]
    schema: str

    @property
    def families(self) -> dict[str, str]:
        """The families of all columns, as the log has their types."""
        types = {each["name"]: each["type"] for each in json.loads(self.schema)["fields"]}
        return {
            name: FAMILIES.get(kind.partition("(")[0], "text") if isinstance(kind, str) else NESTED
            for name, kind in types.items()
        }


def find_delta(folder: str, version: str, table: str, is_local: bool = True) -> DeltaVersion:
    """Return what the log of a Delta table says of a version.

    Unless it ``is_local``, only the log of the table is in the folder, and none of its rows.

    Raises: DataUnavailable (E_DATA), naming table and folder.
    """
    if find_spec("deltalake") is None:  # asks without importing it
        problem = "Delta tables are read by the package deltalake, which is missing"
        unavailable(table, folder, problem, "pip install 'dpsql[delta]'")
    if not is_delta(folder):
        unavailable(table, folder, "no Delta table is there", f"a folder that holds {LOG}")
    found = _open(folder, version, table)
    _refuse_features(found, folder, table)
    paths = sorted(map(os.path.realpath, _paths(found, folder)))
    if is_local and not all(os.path.isfile(path) for path in paths):
        unavailable(table, folder, f"files of version {version} have gone", LATER)
    if not paths:
        unavailable(table, folder, f"version {version} has no file, and none says what it holds")
    apart = tuple(found.metadata().partition_columns)
    told = _partitions(found, folder, apart) if apart else {}
    if apart and not told.keys() >= {*paths}:
        unavailable(table, folder, "its files lie outside its folder", "copy the table as a whole")
    values = tuple(told.get(path, ()) for path in paths)
    return DeltaVersion(tuple(paths), apart, values, found.schema().to_json())


def _partitions(found: Any, folder: str, names: Sequence[str]) -> dict[str, tuple[str | None, ...]]:
    """Return what the log says of the columns of some names, by the real path of each file."""
    facts = found.get_add_actions(flatten=True)
    paths = [os.path.join(folder, unquote(each)) for each in facts.column("path").to_pylist()]
    columns = [facts.column(f"partition.{name}").to_pylist() for name in names]
    rows = (tuple(map(_text, row)) for row in zip(*columns, strict=True))
    return dict(zip(map(os.path.realpath, paths), rows, strict=True))


def _text(value: object) -> str | None:
    """A value of the log as text in the usual spelling."""
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def list_delta(folder: TableFolder, number: str, table: str) -> VersionFiles:
    """Return the files of a version. Raises: DataUnavailable, Unreadable, OSError."""
    with folder.whole(LOG) as log:
        found = find_delta(log, number, table, isinstance(folder, LocalFolder))
        root = os.path.realpath(log)
        names = tuple(os.path.relpath(path, root) for path in found.paths)
    told = tuple(dict(zip(found.apart, values, strict=True)) for values in found.told)
    return VersionFiles(names, found.families, told)


def newest_version(folder: TableFolder, table: str) -> int:
    """Return the number of the last version, for a draft. Raises: DataUnavailable."""
    with folder.whole(LOG) as log:
        return int(_open(log, None, table).version())


def _open(folder: str, version: str | None, table: str) -> Any:
    # only for Delta tables: it is an extra, and takes a quarter of a second
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        number = None if version is None else int(version)
        return DeltaTable(folder, version=number)
    except (DeltaError, OSError, ValueError):
        pass  # what it says may hold values, which are in the log as statistics
    problem = f"it has no version {version}, or its log cannot be read"
    unavailable(table, folder, problem, "check `version` in the catalog")


def _paths(found: Any, folder: str) -> list[str]:
    """The files of a version: of the folder's own name, blanks and the like are encoded there."""
    root = urlsplit(found.table_uri).path
    return [
        os.path.join(folder, uri.removeprefix(root)) if uri.startswith(root) else uri
        for uri in found.file_uris()
    ]


def _refuse_features(found: Any, folder: str, table: str) -> None:
    """Refuse a version whose files say something else than its rows."""
    mapping = found.metadata().configuration.get("delta.columnMapping.mode", "none")
    features = {*(found.protocol().reader_features or ())} - READ
    if mapping == "none":
        features.discard("columnMapping")
    if not features and mapping == "none":
        return
    named = ", ".join(sorted(features)) or "columnMapping"
    hint = "drop the feature, write the rows to a table without it, or read it in Spark"
    unavailable(table, folder, f"the Delta table has {named}, which files alone do not show", hint)
