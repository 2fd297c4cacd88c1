"""The rows of a table as an engine holds them: opened, checked against the catalog, encoded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence

from dpsql.catalog.catalog import SERVERS, Column, Table
from dpsql.catalog.composite_keys import apart, hidden_name, joint_columns, of_column, parts_of
from dpsql.catalog.domain import Labels
from dpsql.privacy.vault.codes.combinations import encode_joint
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.data_engine import (
    NESTED,
    Batch,
    DataEngine,
    RequestedColumn,
    StoredTable,
    find,
    unavailable,
)
from dpsql.privacy.vault.files.duckdb import FILES, FileTable
from dpsql.privacy.vault.files.fetched_columns import identity_of
from dpsql.privacy.vault.files.source import Source
from dpsql.privacy.vault.servers.versions import stated_version
from dpsql.privacy.vault.unit.rows import Rows, ask, declared, line_up, load_rows
from dpsql.privacy.vault.unit.unit_numbers import Digest
from dpsql.records import dataclass, replace

OTHERWISE = 'declare it: source = { file = "data.csv", delimiter = ";" }'
COLUMNAR = ("parquet", "delta", "iceberg", "duckdb")
"""Kinds of files of which some columns are read without the others."""

ACCEPTED = {
    "integer": ("integer", "float", "decimal"),
    "number": ("integer", "float", "decimal"),
    "decimal": ("decimal", "integer", "float"),
    "text": ("text",),
    "boolean": ("boolean", "integer"),
    "date": ("date", "timestamp"),
    "timestamp": ("timestamp", "date"),
    "time": ("time",),
}
"""The families of stored types that serve a column, by its declared type."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of a table as an engine holds them; what a vault reads."""

    table: Table
    stored: StoredTable

    @property
    def paths(self) -> tuple[str, ...]:
        return self.stored.paths

    def fingerprint(self) -> str:
        facts, stated = self.stored.fingerprint(), stated_version(self.table)
        if stated is None:
            return facts
        return hashlib.sha256(f"{facts} {stated}".encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def apart(self) -> bool:
        # where units have several rows, what is in all columns says which of them are kept
        columnar = self.table.engine is None and self.stored.kind in COLUMNAR
        return columnar and self.table.unit.column is None

    def read(self, columns: frozenset[str]) -> Rows:
        chosen = {key: each for key, each in self.table.columns.items() if key in columns}
        return _read(self.stored, self.table, replace(self.table, columns=chosen))


def find_engine(table: Table) -> DataEngine:
    """Return the engine that serves the source of a table: a public fact, from its form.

    Raises: DataUnavailable where none is installed; OperationalError (E_ENGINE) for a broken one.
    """
    if table.engine in SERVERS:
        from dpsql.privacy.vault.servers.registry import find_server  # most tables are files

        return find_server(table)
    if table.engine:
        from dpsql.privacy.vault.plugins import find_plugged

        return find_plugged(table)
    return FILES


def open_table(table: Table) -> StoredTable:
    """Let the engine of a table's source open it, and check that its columns fit the catalog.

    Raises: DataUnavailable.
    """
    stored = find_engine(table).open(table)
    folder = table.option("spill")
    if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
        problem = f"spill = {folder!r} is no folder in which files can be made"
        unavailable(table.name, table.source, problem)
    for column in apart(table).columns.values():
        untyped = stored.untyped or _is_apart(table, stored, column.name)
        _check_type(table, column, stored, untyped)
    named = {"privacy unit": [table.unit.column] if table.unit.column else [], "key": table.keys}
    for what, names in named.items():
        for name in names:
            if _family(table, stored, name) == NESTED:
                problem = f"{what} column {name!r} is stored as a nested or unknown type"
                hint = "texts, numbers, booleans, dates, times and bytes are told apart"
                unavailable(table.name, table.source, problem, hint)
    return stored


def check_keys(tables: Sequence[Table], stored: Mapping[str, StoredTable]) -> None:
    """Refuse tables that are matched by columns of different types, from their schemas alone.

    ``stored`` is by case-folded name. Raises: DataUnavailable (E_POLICY).
    """
    by_name = {table.name.casefold(): table for table in tables}
    for table in tables:
        ways = [*table.references, *([table.unit.through] if table.unit.through else [])]
        for way in ways:
            for one, other in way.on if way.table in by_name else ():
                _check_alike(table, one, by_name[way.table], other, stored)
    anchored = [table for table in tables if table.unit.through is None]
    for table in anchored:
        for name in table.unit_columns:
            _check_alike(table, name, table, str(table.unit.column), stored)
    for table in anchored[1:]:
        first = anchored[0]
        _check_alike(table, str(table.unit.column), first, str(first.unit.column), stored)


def _check_alike(
    table: Table, one: str, other: Table, two: str, stored: Mapping[str, StoredTable]
) -> None:
    mine = _identity(table, stored[table.name.casefold()], one)
    theirs = _identity(other, stored[other.name.casefold()], two)
    if mine != theirs:
        unavailable(
            table.name,
            table.source,
            f"column {one!r} is stored as {mine}, and {two!r} of table {other.name!r} as {theirs}",
            "store keys that refer to each other in one type",
            code="E_POLICY",
        )


def read_rows(stored: StoredTable, table: Table, salt: str) -> Rows:
    """Read, encode and line up all rows of a table."""
    return lined_up(_read(stored, table, table), table, salt)


def _read(stored: StoredTable, table: Table, chosen: Table) -> Rows:
    """Read and encode the chosen columns; those of several together follow from their parts."""
    joint = joint_columns(chosen)
    split = {key: each for key, each in apart(table).columns.items() if of_column(key, chosen)}
    parts = replace(table, columns=split)
    rows = load_rows(_batches(stored, parts), parts, SpillRoom.of(table))
    for key, column in joint.items():
        cells = [rows.codes.pop(hidden_name(key, part)) for _, part in parts_of(column)]
        rows.codes[key] = encode_joint(column, cells)
    return rows


def written(paths: Sequence[str]) -> tuple[int, ...]:
    """When files were written, named or linked last: times that no program can set."""
    return tuple(os.stat(path).st_ctime_ns for path in paths if os.path.exists(path))


def lined_up(rows: Rows, table: Table, salt: str) -> Rows:
    """Return rows with the order in which those of a unit with too many are kept."""
    if rows.owners is None:
        return rows
    return replace(rows, queue=line_up(rows, table, Digest(salt)))


def ask_all(stored: StoredTable, table: Table) -> tuple[list[RequestedColumn], str | None]:
    """Return what is asked of every row: declared columns, keys and the unit, and nothing else."""
    columns = declared(apart(table)).values()
    found = [stored.columns[position(table, stored, each.name)] for each in columns]
    asked = [ask(each, *known) for each, known in zip(columns, found, strict=True)]
    keys = [stored.columns[position(table, stored, name)][0] for name in table.keys]
    asked += [RequestedColumn(name, "key") for name in keys]
    if table.unit.column is None:
        return asked, None
    return asked, stored.columns[position(table, stored, table.unit.column)][0]


def _batches(stored: StoredTable, table: Table) -> Iterator[Batch]:
    """Yield all rows as the engine hands them over, checked."""
    asked, unit = ask_all(stored, table)
    for batch in stored.read(asked, unit):
        batch.check(asked, unit is not None)
        yield batch


def _check_type(table: Table, column: Column, stored: StoredTable, untyped: bool) -> None:
    accepted, family = ACCEPTED[column.type], _family(table, stored, column.name)
    if isinstance(column.domain, Labels) and column.domain.is_numeric:
        accepted = (*ACCEPTED["integer"], *(("text",) if _source(stored) is not None else ()))
    if untyped or family in accepted:
        return
    unavailable(
        table.name,
        table.source,
        f"column {column.name!r} is declared {column.type} but stored as "
        f"{'a nested or unknown type' if family == NESTED else family}",
        f"{column.type} columns are stored as {', '.join(accepted)}",
        code="E_POLICY",
    )


def _family(table: Table, stored: StoredTable, name: str) -> str:
    return stored.columns[position(table, stored, name)][1]


def _is_apart(table: Table, stored: StoredTable, name: str) -> bool:
    """True if a column is in no file, and a text that is read as those of CSV are."""
    source = _source(stored)
    return source is not None and source.is_apart(position(table, stored, name))


def _identity(table: Table, stored: StoredTable, name: str) -> str:
    """Return what has to be the same of two columns whose values tell the same units apart."""
    source = _source(stored)
    if source is not None:
        return identity_of(source.columns[position(table, stored, name)][1])
    return _family(table, stored, name)


def _source(stored: StoredTable) -> Source | None:
    """Return the rows as files have them, or batches of Arrow; None where an engine has others."""
    found: Source | None = getattr(stored, "source", None)
    return found


def position(table: Table, stored: StoredTable, name: str) -> int:
    """Return where a declared column is among those of its source. Raises: DataUnavailable."""
    found = find(stored.columns, name)
    if found is None:
        what, named = (
            ("file", "FILE") if isinstance(stored, FileTable) else ("table", "ENGINE:TABLE")
        )
        problem = f"column {name!r} is declared but the {what} has no such column"
        hint = f"`dpsql init {named}` lists its columns"
        if what == "file" and len(stored.columns) == 1:
            from dpsql.privacy.vault.files.lines import other_delimiter  # a rare message

            other = other_delimiter(stored.columns[0][0])
            problem += "" if other is None else f": its header seems to be separated by {other}"
            hint = hint if other is None else OTHERWISE
        unavailable(table.name, table.source, problem, hint)
    return found
