"""Files that match a declared source, their schema, and the locked DuckDB that reads them.

Schema facts are the curator's: they are checked before any budget is spent, and values are never
read here beyond the header line of a CSV file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import duckdb

from dpsql.catalog.delimited import PLAIN, Delimited
from dpsql.errors import DataUnavailable, InternalError
from dpsql.privacy.vault.codes.spill import SHARE
from dpsql.privacy.vault.data_engine import (
    NESTED,
    DamagedError,
    Form,
    Unreadable,
    find,
    unavailable,
)
from dpsql.privacy.vault.files.arrow_rows import (
    FORMATS,
    REPLACED,
    ArrowRows,
    open_rows,
    plain_batches,
    plain_schema,
)
from dpsql.privacy.vault.files.csv_patterns import spelling
from dpsql.privacy.vault.files.data_files import (
    READABLE,
    FoundFiles,
    find_source,
    match_files,
)
from dpsql.privacy.vault.files.database import Relation, find_relation, quote
from dpsql.privacy.vault.files.footers import BESIDES, read_footers, stored_as
from dpsql.privacy.vault.files.footers import PLAIN as PLAIN_STORED
from dpsql.privacy.vault.files.layouts import Columns, FileLayout, Told, layouts_of, merged
from dpsql.privacy.vault.files.partitions import folder_values, in_groups
from dpsql.privacy.vault.files.stores import Copy, StoredObject
from dpsql.privacy.vault.files.table_folders import Version, VersionFiles
from dpsql.privacy.vault.files.timestamps import read_instants
from dpsql.records import dataclass, field, replace
from dpsql.sealed import disable_progress_bar, open_duckdb
from dpsql.settings.machine import memory

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "enable_external_file_cache": False,
    "temp_directory": "",
    "memory_limit": f"{memory() // SHARE}B",
}
"""Settings of a session, not of a source: how many rows there are could be told by where reading
fails. DuckDB reads before a request is measured, so that either has half of the memory."""
NEEDED = {"unused_columns"}
"""Steps of the optimiser that stay on: columns that nobody asked for are not read."""

STORED_AS = {
    "integer": (
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    ),
    "float": ("FLOAT", "DOUBLE"),
    "decimal": ("DECIMAL",),
    "boolean": ("BOOLEAN",),
    "text": ("VARCHAR",),
    "date": ("DATE",),
    "timestamp": (
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
        *("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"),
    ),
    "time": ("TIME", "TIME_NS"),
    "other": ("UUID", "BLOB", "BIT", "BIGNUM"),
}
SHORT = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
"""Integers that fit 64 bits with a sign."""


def safe_type(duckdb_type: str) -> str:
    """Return a DuckDB type without the values that an ENUM lists.

    >>> safe_type("ENUM('Alice', 'Bob')"), safe_type("ENUM('Alice')[]"), safe_type("DECIMAL(9,2)")
    ('VARCHAR', 'NESTED', 'DECIMAL(9,2)')
    """
    if duckdb_type.startswith("ENUM(") and duckdb_type.endswith(")"):
        return "VARCHAR"
    return duckdb_type if family(duckdb_type) != NESTED else "NESTED"


def family(duckdb_type: str) -> str:
    """Return the family of a DuckDB type, NESTED for nested and unknown types.

    >>> family("DECIMAL(18,3)"), family("INTEGER[]"), family("STRUCT(a DATE)")
    ('decimal', 'nested', 'nested')
    """
    if duckdb_type.endswith("]"):
        return NESTED
    name = duckdb_type.partition("(")[0].strip().upper()
    return next((key for key, names in STORED_AS.items() if name in names), NESTED)


DATABASE_FILES = ("", ".wal", ".wal.recovery", ".wal.checkpoint")
PARQUET = "hive_partitioning = false, can_have_nan = true"
FORMS: tuple[Form, ...] = ("number", "whole", "day", "clock", "time")
"""Forms of values of which the spelling may be declared."""
BLOCK = "lines"
"""The name under which the lines of CSV files are offered to DuckDB."""
BESIDE = "beside"
"""The name under which columns that DuckDB cannot read as they are stored are offered to it."""
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
class RowQuery:
    """One SELECT from all rows, with its parameters, for a connection to run."""

    connection: duckdb.DuckDBPyConnection
    sql: str
    parameters: tuple[Sequence[str], ...] = ()

    def run(self) -> duckdb.DuckDBPyConnection:
        """Run it and return the connection, which holds what is found."""
        return self.connection.execute(self.sql, list(self.parameters))

    def stream(self) -> object:
        """Run it and return what is found as an Arrow stream in a capsule."""
        return self.connection.sql(self.sql, params=list(self.parameters)).__arrow_c_stream__()


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a table, one kind, and the (name, DuckDB type) of their columns.

    The columns of CSV files are all text, as those that are ``untyped`` are. Types never list
    values, and ``written`` says how they are written. Rows that are not read by DuckDB itself come
    in blocks, whose columns are called f0, f1, ... in SQL: lines, or what ``opened`` makes of a
    path, of which ``named`` is the table that is meant. ``stored`` says of Parquet files what
    :mod:`footers` says of each column. The last columns, ``apart``, are in no file: ``told`` has
    what each file lacks. Of a table with a log they are the files of one ``version``, as it is
    ``listed``, with a layout for each. Of ``objects`` in a store, paths are those of ``copies``,
    which are there for as long as a source holds them.
    """

    declared: str
    kind: str
    paths: tuple[str, ...]
    columns: Columns
    relation: Relation | None = None
    stored: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    told: tuple[Told, ...] = ()
    layouts: tuple[FileLayout, ...] = ()
    version: Version | None = None
    listed: VersionFiles | None = None
    written: Delimited = PLAIN
    named: str = ""
    untyped: bool = False
    opened: Callable[[str], ArrowRows] | None = field(default=None, compare=False)
    objects: tuple[StoredObject, ...] = ()
    copies: tuple[Copy, ...] = field(default=(), compare=False)

    @property
    def is_listed(self) -> bool:
        """True if a log says which files they are."""
        return self.version is not None

    def is_apart(self, position: int) -> bool:
        """True if a column is in no file, and a text that folders or a log tell."""
        return position >= len(self.columns) - len(self.apart)

    @property
    def table(self) -> str:
        """The table within the file; empty for all of it, of which a view may show any part."""
        if self.relation is None or self.relation.is_view:
            return self.named
        return self.relation.shown

    def column_sql(self, position: int, form: Form = "key") -> str:
        """Return the name of a column in the expressions of :meth:`select`.

        Texts that hold values of a form, spelled as declared, are those in the standard spelling.
        """
        is_spelled = self.untyped and spelling(form, self.written) is not None
        is_spelled = is_spelled and not self.is_apart(position)
        return f't."f{position}_{form}"' if is_spelled else f"t.{self._quoted(position)}"

    def valid_sql(self, position: int) -> str:
        """Return when the text of a column is what the file holds; see :meth:`select`."""
        if self.columns[position][1] != "VARCHAR":
            return "TRUE"
        if self.opened is not None or self.is_apart(position):
            return f"NOT contains(t.{self._quoted(position)}, {literal(REPLACED)})"
        if self.kind != "parquet":
            return "TRUE"
        return f"t.{self._quoted(position)} IS NOT DISTINCT FROM k.{self._quoted(position)}"

    def select(
        self,
        connection: duckdb.DuckDBPyConnection,
        listed: Sequence[str],
        wanted: Sequence[int],
        valid: Sequence[int] = (),
    ) -> Iterator[RowQuery]:
        """Select expressions from all rows, in stored order; each is to be read at once.

        ``wanted`` are the columns that they need. ``valid`` are those whose
        :meth:`valid_sql` they use: bytes that are not UTF-8 are read as "?", and left out from a
        second reading of these columns, so that the two differ.
        """
        texts = [
            each
            for each in dict.fromkeys(valid)
            if self.valid_sql(each) != "TRUE" and not self.is_apart(each)
        ]
        chosen = f"SELECT {', '.join(listed)} FROM"
        if self._in_blocks:
            yield from self._select_blocks(connection, chosen, wanted)
        elif self.relation is not None:
            yield RowQuery(connection, f"{chosen} {self.relation.sql} AS t")
        else:
            layouts = self.layouts or [None] * len(self.paths)
            facts = [*zip(self._told(), layouts, strict=True)]
            for paths, (told, layout) in in_groups(self.paths, facts):
                rows = self._parquet_rows(connection, wanted, paths, told, layout)
                parameters = [list(paths)]
                if texts:
                    again = ", ".join(self._file_sql(i, told, layout) for i in texts)
                    second = f"(SELECT {again} FROM {parquet_sql('ignore')} AS p)"
                    rows, parameters = f"{rows} POSITIONAL JOIN {second} AS k", parameters * 2
                yield RowQuery(connection, f"{chosen} {rows}", tuple(parameters))

    def _parquet_rows(
        self,
        connection: duckdb.DuckDBPyConnection,
        wanted: Sequence[int],
        paths: Sequence[str],
        told: Told,
        layout: FileLayout | None,
    ) -> str:
        """Name the rows of Parquet files t; what DuckDB cannot fetch is put beside the others."""
        columns, stored = self.columns, self.stored
        places = {i: i for i in wanted if not self.is_apart(i)}
        if layout is not None:
            columns, stored = layout.columns, layout.stored
            known = {i: find(columns, self.columns[i][0]) for i in places}
            places = {i: place for i, place in known.items() if place is not None}
        instants = [i for i, place in places.items() if stored[place] in BESIDES]
        if not instants and not told and layout is None:
            return f"{parquet_sql('replace')} AS t"
        rows = f"{parquet_sql('replace')} AS p"
        if instants:
            connection.register(
                BESIDE, read_instants(paths, [columns[places[i]] for i in instants])
            )
            rows = f"{rows} POSITIONAL JOIN {BESIDE} AS m"
        listed = [
            self._file_sql(i, told, layout, "m" if i in instants else "p")
            for i in dict.fromkeys(wanted)
        ]
        return f"(SELECT {', '.join(listed) or '0 AS n'} FROM {rows}) AS t"

    def _file_sql(
        self, position: int, told: Told, layout: FileLayout | None = None, rows: str = "p"
    ) -> str:
        """Name a column of a file in the type of all of them, or what all rows of it have there."""
        name, stored = self.columns[position]
        if position in dict(told):
            text = dict(told)[position]
            value = "NULL" if text is None else literal(text)
            return f"TRY_CAST({value} AS {stored}) AS {self._quoted(position)}"
        place = None if layout is None else find(layout.columns, name)
        if layout is None or place is None:
            return f"{rows}.{self._quoted(position)}"
        own, kind = layout.columns[place]
        raw = f"{rows}.{quote(own)}"
        cast = raw if kind == stored else f"CAST({raw} AS {stored})"
        return f"{cast} AS {self._quoted(position)}"

    def _select_blocks(
        self, connection: duckdb.DuckDBPyConnection, chosen: str, wanted: Sequence[int]
    ) -> Iterator[RowQuery]:
        """Select from blocks; spellings that are not asked for are left out by DuckDB."""
        places = [i for i in wanted if not self.is_apart(i)] or [0]
        fields, blocks = self._blocks(places)
        rows = ", ".join(f"{each} AS f{i}" for i, each in zip(places, fields, strict=True))
        rows = f"SELECT {rows} FROM {BLOCK}"
        if self.untyped:
            missing = ", ".join(map(literal, ("", *self.written.missing)))
            listed = [f"CASE WHEN f{i} NOT IN ({missing}) THEN f{i} END AS f{i}" for i in places]
            rows = f"SELECT {', '.join(listed)} FROM ({rows}) AS r"
            listed = [
                f'{known.sql(f"f{i}")} AS "f{i}_{form}"'
                for form in FORMS
                if (known := spelling(form, self.written)) is not None
                for i in places
            ]
            rows = f"SELECT *, {', '.join(listed)} FROM ({rows}) AS s" if listed else rows
        for values, block in blocks:
            listed = ["*", *(self._file_sql(i, values) for i, _ in values if i in wanted)]
            all_rows = f"SELECT {', '.join(listed)} FROM ({rows}) AS b" if values else rows
            connection.register(BLOCK, block)
            yield RowQuery(connection, f"{chosen} ({all_rows}) AS t")

    def _blocks(self, places: Sequence[int]) -> tuple[list[str], Iterator[tuple[Told, Any]]]:
        """Return the fields of some columns in SQL, and blocks of all rows that have them.

        With each block come the values of its columns that are in no file.
        """
        if self.opened is not None:
            return [f"f{i}" for i in places], self._arrow_blocks(places, self.opened)
        from dpsql.privacy.vault.files.lines import field_sql, read_rows  # most tables are no text

        inside = len(self.columns) - len(self.apart)
        read = (
            (values, read_rows(path, inside, self.written)) for path, values in self._told_paths()
        )
        fields = [field_sql(i, self.written) for i in places]
        return fields, ((values, block) for values, blocks in read for block in blocks)

    def _arrow_blocks(
        self, places: Sequence[int], opened: Callable[[str], ArrowRows]
    ) -> Iterator[tuple[Told, Any]]:
        """Yield the rows of each file, as a stream of batches of Arrow."""
        from pyarrow import RecordBatchReader, schema  # pyarrow is optional

        names = [self.columns[i][0] for i in places]
        for path, values in self._told_paths():
            rows = opened(path)
            plain = schema([plain_schema(rows.schema).field(i) for i in places])
            yield values, RecordBatchReader.from_batches(plain, plain_batches(rows, names, plain))

    def _told_paths(self) -> Iterator[tuple[str, Told]]:
        """Yield each file, with the values of its columns that are in no file."""
        return zip(self.paths, self._told(), strict=True)

    def _told(self) -> Sequence[Told]:
        return self.told or [()] * len(self.paths)

    @property
    def _in_blocks(self) -> bool:
        return self.kind == "csv" or self.opened is not None

    def _quoted(self, position: int) -> str:
        return f'"f{position}"' if self._in_blocks else quote(self.columns[position][0])

    def found(self) -> tuple[str, ...]:
        """The files that are declared and there by now, with the logs of database files."""
        paths = self.paths if self.is_listed else match_files(self.declared)
        return paths + tuple(path + ".wal" for path in paths if os.path.exists(path + ".wal"))


def literal(text: str) -> str:
    """Quote a string literal.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def open_source(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    table: str,
    named: str = "",
    is_vouched: bool = False,
    version: Version | None = None,
    written: Delimited = PLAIN,
    found: FoundFiles | None = None,
) -> Source:
    """Find the files of ``source``, read their schema and allow the connection nothing else.

    ``named`` is the table or view of a database file that is meant, a view if it is vouched for;
    ``version`` is that of a table with a log; CSV files are as they are ``written``.
    Files that are ``found`` already are looked for no more.
    Raises: DataUnavailable (E_DATA), naming table and source.
    """
    found = found or find_source(source, table, version)
    kind, paths = found.kind, found.paths
    try:
        if kind == "duckdb":  # attached first, so that DuckDB allows its log files as well
            connection.execute(f"ATTACH {literal(paths[0])} AS source (READ_ONLY)")
        harden(connection, paths)
        if kind == "duckdb":
            relation = find_relation(connection, source, table, named, is_vouched)
            return read_relation(connection, source, paths, relation)
        if kind in FORMATS:
            inside = _open_format(connection, source, kind, paths, table, named, written)
            return _with_folders(inside, table, found)
        if named:
            unavailable(table, source, "only databases and workbooks hold tables of a name")
        other = [each for each in written.said() if each != "partitions"]
        if kind != "csv" and other:
            unavailable(table, source, f"{', '.join(other)} are options of CSV files")
        inside = read_schema(connection, source, kind, paths, table, written, found.listed)
        return replace(_with_folders(inside, table, found), version=version)
    except DataUnavailable:
        raise
    except Unreadable as error:
        unavailable(table, source, error.problem, error.hint)
    except PermissionError:
        unavailable(table, source, "permission denied")
    except DamagedError as error:
        unavailable(table, source, str(error), error.hint)
    except (OSError, duckdb.Error):
        problem = f"not a readable {kind} file, or locked by another process"
    unavailable(table, source, problem, READABLE[kind])


def _with_folders(source: Source, table: str, found: FoundFiles) -> Source:
    """Return files with the columns that their folders tell, as texts. Raises: Unreadable."""
    source = replace(source, objects=found.objects, copies=found.copies)
    apart = source.written.partitions
    if not apart:
        return source
    for name in apart:
        if name.casefold() in {each.casefold() for each, _ in source.columns}:
            problem = f"the column {name!r} is in its files, and in their folders as well"
            unavailable(table, source.declared, problem, "leave it out of `partitions`")
    values = folder_values([each.address for each in found.objects] or source.paths, apart)
    return replace(
        source,
        columns=(*source.columns, *((name, "VARCHAR") for name in apart)),
        stored=(*source.stored, *(PLAIN_STORED for _ in apart)) if source.stored else (),
        apart=apart,
        told=tuple(tuple(enumerate(each, len(source.columns))) for each in values),
    )


def parquet_sql(utf8: str = "strict") -> str:
    """Return a table function over Parquet files, their paths being a parameter.

    ``utf8`` says what becomes of text that is not UTF-8: an error, a "?", or nothing.
    """
    return f"read_parquet(?, {PARQUET}, utf8_validation = '{utf8}')"


def connect(threads: int | None = None, folder: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open an empty in-memory DuckDB without optimiser; what it holds goes to a folder, if any.

    Guarantee: no expression is folded, moved or pruned by what a file says of its other rows.
    Raises: InternalError if the optimiser cannot be switched off.
    """
    config = dict(CONFIG) if threads is None else {**CONFIG, "threads": threads}
    config |= {} if folder is None else {"temp_directory": folder}
    connection = open_duckdb(config=config)
    disable_progress_bar(connection)
    switch_off(connection)
    if not is_switched_off(connection):
        raise InternalError("E_INTERNAL", "the optimiser could not be switched off")
    return connection


def switch_off(connection: duckdb.DuckDBPyConnection) -> None:
    """Switch off every step of the optimiser but those NEEDED, and keep rows in stored order."""
    steps = {name for (name,) in connection.execute("FROM duckdb_optimizers()").fetchall()}
    connection.execute(f"SET disabled_optimizers = '{','.join(sorted(steps - NEEDED))}'")
    connection.execute("SET preserve_insertion_order = true")


def is_switched_off(connection: duckdb.DuckDBPyConnection) -> bool:
    """Say whether the optimiser reads no statistics and rows come in stored order."""
    settings = "current_setting('disabled_optimizers'), current_setting('preserve_insertion_order')"
    listed = "(SELECT list(name) FROM duckdb_optimizers())"
    ((off, in_order, steps),) = connection.execute(f"SELECT {settings}, {listed}").fetchall()
    return in_order is True and "statistics_propagation" in {*steps} - NEEDED <= {*off.split(",")}


def harden(connection: duckdb.DuckDBPyConnection, paths: tuple[str, ...]) -> None:
    """Leave the connection no file but ``paths``, lock its settings, and check the lock.

    One that is confined so already stays as it is. DuckDB itself adds the log files (``.wal``) of a
    database file that is attached already.
    """
    is_locked = _is_locked(connection, paths)
    if not is_locked:
        confined = f"SET allowed_paths = [{', '.join(map(literal, paths))}]; SET TimeZone = 'UTC'"
        connection.execute(f"{confined}; SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        is_locked = _is_locked(connection, paths)
    if not is_locked or not is_switched_off(connection):
        raise InternalError("E_INTERNAL", "the connection to the data could not be locked")


def _is_locked(connection: duckdb.DuckDBPyConnection, paths: tuple[str, ...]) -> bool:
    """Say whether a connection reads no file but these, and can never read another."""
    (state,) = connection.execute(
        f"SELECT {', '.join(f'current_setting({literal(name)})' for name in LOCKED)}"
    ).fetchall()
    own = {path + suffix for path in paths for suffix in DATABASE_FILES}
    return set(state[0]) <= own and state[1] is True and not any(state[2:])


def read_schema(
    connection: duckdb.DuckDBPyConnection,
    declared: str,
    kind: str,
    paths: tuple[str, ...],
    table: str,
    written: Delimited = PLAIN,
    listed: VersionFiles | None = None,
) -> Source:
    """Read the schema of Parquet or CSV files, which agree unless a log has ``listed`` them.

    Raises: DataUnavailable (E_DATA), Unreadable.
    """
    footers = {} if kind == "csv" else read_footers(connection, paths)
    if kind == "csv":
        from dpsql.privacy.vault.files.lines import read_header  # as above

        names = {path: read_header(path, written) for path in paths}
        headers = {path: tuple((name, "VARCHAR") for name in names[path]) for path in paths}
    else:
        files = {footer: path for path, footer in footers.items()}  # one of each, where many agree
        known = {f: _safe(_describe(connection, parquet_sql(), [at])) for f, at in files.items()}
        headers = {path: known[footer] for path, footer in footers.items()}
        if listed is not None:
            by_path = layouts_of(footers, known)
            layouts = tuple(by_path[path] for path in paths)
            whole = merged(layouts, listed)
            return Source(
                *(declared, kind, paths, whole.columns),
                stored=whole.stored,
                apart=whole.apart,
                told=whole.told,
                layouts=layouts,
                listed=listed,
                written=written,
            )
    if len({*headers.values()}) > 1:
        _refuse_other(declared, table)
    stored = stored_as(footers.values(), headers[paths[0]]) if footers else ()
    found = headers[paths[0]]
    is_text = kind == "csv"
    return Source(declared, kind, paths, found, stored=stored, written=written, untyped=is_text)


def _refuse_other(declared: str, table: str) -> NoReturn:
    """Refuse files of different columns; no name of one is told, nor of a folder: it is a value."""
    hint = "`dpsql init FOLDER` drafts a table for each of its files: compare their columns"
    unavailable(table, declared, "its files differ in their columns", hint)


def _open_format(
    connection: duckdb.DuckDBPyConnection,
    declared: str,
    kind: str,
    paths: tuple[str, ...],
    table: str,
    named: str,
    written: Delimited,
) -> Source:
    """Read the schema of files of a format that is read as Arrow, which have to agree.

    Raises: Unreadable, OSError.
    """
    opened = partial(open_rows, kind, named=named, written=written)
    untyped = FORMATS[kind].untyped
    headers = {path: arrow_columns(connection, opened(path)) for path in paths}
    if len({*headers.values()}) > 1:
        _refuse_other(declared, table)
    return Source(
        *(declared, kind, paths, headers[paths[0]]),
        written=written,
        named=named,
        untyped=untyped,
        opened=opened,
    )


def arrow_columns(
    connection: duckdb.DuckDBPyConnection, rows: ArrowRows
) -> tuple[tuple[str, str], ...]:
    """Return the names of columns, and the types in which DuckDB is handed them."""
    connection.register(BLOCK, plain_schema(rows.schema).empty_table())
    types = _describe(connection, BLOCK)
    connection.unregister(BLOCK)
    return _safe(tuple((n, t) for n, (_, t) in zip(rows.schema.names, types, strict=True)))


def read_relation(
    connection: duckdb.DuckDBPyConnection, declared: str, paths: tuple[str, ...], relation: Relation
) -> Source:
    """Read the schema of a table of the attached database file."""
    columns = _safe(_describe(connection, relation.sql))
    return Source(declared, "duckdb", paths, columns, relation)


def stored_types(
    connection: duckdb.DuckDBPyConnection, source: Source
) -> tuple[tuple[str, str], ...]:
    """Return the types of the columns of a public source, the values of an ENUM included."""
    if source.kind == "csv" or source.opened is not None:
        return source.columns
    if source.relation is not None:
        return _describe(connection, source.relation.sql)
    apart = tuple((name, "VARCHAR") for name in source.apart)
    return (*_describe(connection, parquet_sql(), [source.paths[0]]), *apart)


def _describe(
    connection: duckdb.DuckDBPyConnection, relation: str, parameters: list[str] | None = None
) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}", parameters).fetchall()
    return tuple((str(row[0]), str(row[1])) for row in rows)


def _safe(columns: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, safe_type(stored)) for name, stored in columns)
