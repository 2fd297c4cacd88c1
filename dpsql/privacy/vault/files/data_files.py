"""The files that match a declared source, by their names alone: none is opened."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from dpsql.catalog.catalog import KINDS, PACKED, kind_of
from dpsql.files import real_paths
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.privacy.vault.files.delta import is_delta

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
