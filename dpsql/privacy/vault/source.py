"""Where rows come from: files that match a declared source, their schema and fingerprint.

Schema facts are the curator's: they are checked before any budget is spent, and values are never
read here beyond the header line of a CSV file.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import duckdb

from dpsql.errors import DataUnavailable, InternalError

KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".duckdb": "duckdb",
    ".db": "duckdb",
}
DATABASE_FILES = ("", ".wal", ".wal.recovery", ".wal.checkpoint")
MAX_HEADER = 1 << 20
CSV_OPTIONS = (
    "header = true, quote = '\"', escape = '\"', nullstr = '', auto_detect = false, "
    "ignore_errors = true, strict_mode = false, parallel = false, hive_partitioning = false"
)
LOCKED = (
    "allowed_paths",
    "lock_configuration",
    "enable_external_access",
    "autoload_known_extensions",
    "autoinstall_known_extensions",
    "allow_community_extensions",
    "python_enable_replacements",
)


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a table, one kind, and the (name, DuckDB type) of their columns.

    The columns of CSV files are all text and are called f0, f1, ... in SQL.
    """

    declared: str
    kind: str
    paths: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    table: str = ""

    def find(self, name: str) -> int | None:
        """Return the position of a column: the exact name, else a unique match without case."""
        names = [column for column, _ in self.columns]
        if name in names:
            return names.index(name)
        near = [i for i, each in enumerate(names) if each.casefold() == name.casefold()]
        return near[0] if len(near) == 1 else None

    def column_sql(self, position: int) -> str:
        """Return the quoted name under which :meth:`relation_sql` offers a column."""
        return f'"f{position}"' if self.kind == "csv" else quote(self.columns[position][0])

    def relation_sql(self) -> tuple[str, list[list[str]]]:
        """Return a FROM item and its parameters."""
        if self.kind == "duckdb":
            return f"source.main.{quote(self.table)}", []
        if self.kind == "parquet":
            return "read_parquet(?, hive_partitioning = false)", [list(self.paths)]
        types = ", ".join(f"'f{i}': 'VARCHAR'" for i in range(len(self.columns)))
        delim = f"delim = {literal(_delimiter(self.paths[0]))}"
        return f"read_csv(?, columns = {{{types}}}, {delim}, {CSV_OPTIONS})", [list(self.paths)]

    def fingerprint(self) -> str:
        """Hash paths, sizes, modification times and schema.

        Files that appear or go are seen too. Raises: OSError if a file goes meanwhile.
        """
        paths = _match(self.declared)
        logs = tuple(path + ".wal" for path in paths if os.path.exists(path + ".wal"))
        facts = [_file_facts(path) for path in paths + logs]
        text = json.dumps([facts, self.columns])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def quote(name: str) -> str:
    """Quote an identifier.

    >>> quote('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a string literal.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def open_source(connection: duckdb.DuckDBPyConnection, source: str, table: str) -> Source:
    """Find the files of ``source``, read their schema and allow the connection nothing else.

    Raises: DataUnavailable (E_DATA), naming table and source.
    """
    paths = _find_paths(source, table)
    kinds = {_kind(path) for path in paths}
    if len(kinds) != 1 or None in kinds or (kinds == {"duckdb"} and len(paths) > 1):
        unavailable(table, source, "not Parquet, CSV, compressed CSV or one DuckDB file")
    kind = kinds.pop() or ""
    try:
        if kind == "duckdb":
            connection.execute(f"ATTACH {literal(paths[0])} AS source (READ_ONLY)")
        harden(connection, paths)
        return _read_schema(connection, source, kind, paths, table)
    except DataUnavailable:
        raise
    except PermissionError:
        problem = "permission denied"
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error, duckdb.Error):
        problem = f"not a readable {kind} file, or locked by another process"
    unavailable(table, source, problem)


def unavailable(
    table: str, source: str, problem: str, hint: str | None = None, code: str = "E_DATA"
) -> NoReturn:
    """Raise the DataUnavailable that names table and source."""
    raise DataUnavailable(code, f"table {table!r}, source {source!r}: {problem}", hint=hint)


def harden(connection: duckdb.DuckDBPyConnection, paths: tuple[str, ...]) -> None:
    """Leave the connection no file but ``paths``, lock its settings, and check the lock.

    DuckDB itself adds the log files (``.wal``) of a database file that is attached already.
    """
    listed = ", ".join(map(literal, paths))
    connection.execute(f"SET allowed_paths = [{listed}]")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    state = connection.execute(
        f"SELECT {', '.join(f'current_setting({literal(name)})' for name in LOCKED)}"
    ).fetchone()
    own = {path + suffix for path in paths for suffix in DATABASE_FILES}
    if state is None or not set(state[0]) <= own or state[1] is not True or any(state[2:]):
        raise InternalError("E_INTERNAL", "the connection to the data could not be locked")


def _match(source: str) -> tuple[str, ...]:
    found = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found))


def _find_paths(source: str, table: str) -> tuple[str, ...]:
    paths = _match(source)
    if not paths:
        unavailable(table, source, "there is no such file", "check `source` in the catalog")
    if not all(os.path.isfile(path) for path in paths):
        unavailable(table, source, "not a file", 'for a folder of files write "folder/*.parquet"')
    if not all(os.access(path, os.R_OK) for path in paths):
        unavailable(table, source, "permission denied")
    return paths


def _kind(path: str) -> str | None:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes[-2:]]
    return KINDS.get("".join(suffixes)) or KINDS.get(suffixes[-1] if suffixes else "")


def _read_schema(
    connection: duckdb.DuckDBPyConnection,
    declared: str,
    kind: str,
    paths: tuple[str, ...],
    table: str,
) -> Source:
    if kind == "duckdb":
        name = _stored_table(connection, paths[0], table)
        return Source(
            declared, kind, paths, _describe(connection, f"source.main.{quote(name)}"), name
        )
    if kind == "csv":
        headers = {path: tuple((name, "VARCHAR") for name in _header(path)) for path in paths}
    else:
        headers = {path: _describe_parquet(connection, path) for path in paths}
    for path, columns in headers.items():
        if columns != headers[paths[0]]:
            unavailable(table, path, f"its columns differ from those of {paths[0]!r}")
    return Source(declared, kind, paths, headers[paths[0]])


def _stored_table(connection: duckdb.DuckDBPyConnection, path: str, table: str) -> str:
    rows = connection.execute(
        "SELECT table_name FROM duckdb_tables() "
        "WHERE database_name = 'source' AND schema_name = 'main' ORDER BY table_name"
    ).fetchall()
    names = [name for (name,) in rows if name.casefold() == table.casefold()]
    if not names and len(rows) == 1:
        return str(rows[0][0])
    if not names:
        unavailable(table, path, "the DuckDB file holds no table of that name")
    return str(names[0])


def _describe(
    connection: duckdb.DuckDBPyConnection, relation: str, parameters: list[str] | None = None
) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}", parameters).fetchall()
    return tuple((str(row[0]), str(row[1])) for row in rows)


def _describe_parquet(
    connection: duckdb.DuckDBPyConnection, path: str
) -> tuple[tuple[str, str], ...]:
    return _describe(connection, "read_parquet(?, hive_partitioning = false)", [path])


def _header(path: str) -> list[str]:
    """Read the first line of a CSV file; nothing of the rows after it is decoded."""
    with open(path, "rb") as raw:
        file = gzip.GzipFile(fileobj=raw) if path.lower().endswith(".gz") else raw
        line = file.readline(MAX_HEADER).decode("utf-8-sig")
    header = next(csv.reader([line], delimiter=_delimiter(path), strict=True), [])
    if not header or len(set(header)) != len(header):
        raise csv.Error("no usable header line")
    return header


def _delimiter(path: str) -> str:
    return "\t" if path.lower().endswith((".tsv", ".tsv.gz")) else ","


def _file_facts(path: str) -> list[str | int]:
    facts = os.stat(path)
    return [path, facts.st_size, facts.st_mtime_ns]
