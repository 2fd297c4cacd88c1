"""The engine of files: DuckDB fetches Parquet, CSV and database files, and decides nothing.

The SQL is one total expression of one row for each column, and has no WHERE. It holds quoted
identifiers and indices only, never text of a query; see
:mod:`dpsql.privacy.vault.files.fetched_columns`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Table, is_stored
from dpsql.catalog.delimited import PLAIN, Delimited
from dpsql.files import ScratchFolder
from dpsql.privacy.vault.codes.byte_texts import ByteTexts
from dpsql.privacy.vault.codes.prefetch import read_ahead
from dpsql.privacy.vault.data_engine import (
    VERSION,
    Batch,
    RequestedColumn,
    Unreadable,
    find,
    fingerprint,
    unavailable,
)
from dpsql.privacy.vault.files.arrow_stream import Fetched, read_stream
from dpsql.privacy.vault.files.data_files import (
    FoundFiles,
    find_files,
    find_source,
    is_parquet,
)
from dpsql.privacy.vault.files.duckdb_pool import reader
from dpsql.privacy.vault.files.fetched_columns import (
    Fetch,
    TextPlaces,
    UnitIdentity,
    fetch_column,
    fetch_unit,
    hash_sql,
    narrow_sql,
)
from dpsql.privacy.vault.files.footers import BESIDES
from dpsql.privacy.vault.files.refused_types import refuse_risky
from dpsql.privacy.vault.files.schemas import cached_source
from dpsql.privacy.vault.files.source import (
    SHORT,
    RowQuery,
    Source,
    connect,
    family,
    open_source,
)
from dpsql.privacy.vault.files.stores import find_objects
from dpsql.privacy.vault.files.table_folders import Version
from dpsql.privacy.vault.files.view_plans import require_streamed
from dpsql.privacy.vault.sealed_errors import CHANGED, FAILED, UnreadableRows, unread
from dpsql.privacy.vault.servers.versions import stated_version
from dpsql.records import dataclass, field, replace

ROWS = 1 << 16
"""Rows of up to COLUMNS columns that are handed over at once: 64 MiB."""
COLUMNS = 64
"""More are fetched as frames, of which one can say how long they are."""
VECTOR = 2048
"""Rows of a vector of DuckDB, in which it counts what a frame is to have."""
ALONE = 3
"""Batches that are read as they are asked for: a short table has two, the last one empty."""


class FileEngine:
    """Opens Parquet, CSV and DuckDB files."""

    version = VERSION

    def open(self, table: Table) -> FileTable:
        """Find the files of a table and read their schema.

        A table with a declared column, or a privacy unit, that can make it unreadable is refused.
        Raises: DataUnavailable (E_DATA).
        """
        named, vouched = table.option("table") or "", table.option("view") is not None
        version = version_of(table)
        written, found = written_of(table), None
        is_stated, spill = stated_version(table) is not None, table.option("spill")
        if is_stored(table.source):
            found = find_source(table.source, table.name, version, is_stated)

        def read(room: AbstractContextManager[duckdb.DuckDBPyConnection]) -> Source:
            with room as connection:
                options = named, vouched, version, written, found
                source = open_source(connection, table.source, table.name, *options)
                if source.relation is not None and not table.public:
                    require_streamed(connection, source.relation, table, spill is not None)
                return source

        if (
            found is not None
            or written != PLAIN
            or named
            or vouched
            or version is not None
            or not is_parquet(table.source)
        ):
            source = read(connect(threads=1))
        else:
            paths = find_files(table.source, table.name)[1]
            source = cached_source(table.source, paths, lambda: read(reader(paths)))
        if source.kind == "parquet":
            refuse_risky(source, table)
        return FileTable(source, table.name, named, vouched, version, is_stated, spill)


FILES = FileEngine()


@dataclass(frozen=True, slots=True)
class FileTable:
    """The rows of one table in files; see :class:`dpsql.privacy.vault.data_engine.StoredTable`."""

    source: Source
    name: str
    named: str = ""
    is_vouched: bool = False
    version: Version | None = None
    is_stated: bool = False
    spill: str | None = None
    columns: tuple[tuple[str, str], ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        columns = tuple((name, family(stored)) for name, stored in self.source.columns)
        object.__setattr__(self, "columns", columns)

    @property
    def kind(self) -> str:
        version = self.source.version
        return self.source.kind if version is None else version.form

    @property
    def paths(self) -> tuple[str, ...]:
        if self.source.objects:
            folder = (self.source.declared.rstrip("/"),) if self.source.is_listed else ()
            return (*folder, *(each.address for each in self.source.objects))
        folder = (os.path.realpath(self.source.declared),) if self.source.is_listed else ()
        return (*folder, *self.source.paths)

    @property
    def table(self) -> str:
        return self.source.table

    @property
    def untyped(self) -> bool:
        return self.source.untyped

    def fingerprint(self) -> str:
        if self.source.objects:
            return self._fingerprint_stored()
        return fingerprint(self.source.found(), self.source.columns)

    def _fingerprint_stored(self) -> str:
        """Hash addresses, sizes and times as they are by now, unless the version is stated."""
        objects = self.source.objects
        if not self.is_stated:
            try:
                objects = find_objects(self.source.declared)
            except Unreadable as error:
                unavailable(self.name, self.source.declared, error.problem, error.hint)
        facts = [[each.address, each.size, each.written] for each in objects]
        text = json.dumps([[] if self.is_stated else facts, self.source.columns])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def read(self, asked: Sequence[RequestedColumn], unit: str | None) -> Iterator[Batch]:
        with self._reopened() as connection:
            batches = fetch_rows(connection, self.source, asked, unit)
            alone = 0 if self.is_vouched else ALONE  # a view may work for long before its first row
            yield from read_ahead(batches, connection.interrupt, alone)

    def texts(self, column: str) -> Iterator[npt.NDArray[np.object_]]:
        with self._reopened() as connection:
            batches = fetch_texts(connection, self.source, column)
            yield from read_ahead(batches, connection.interrupt)

    @contextmanager
    def _reopened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with self._room() as connection:
                named = self.source.declared, self.name, self.named, self.is_vouched
                written = self.source.written
                known = self._found() if self.source.objects else None
                if open_source(connection, *named, self.version, written, known) != self.source:
                    raise UnreadableRows(self.name, self.source.declared, *CHANGED)
                yield connection
        except FAILED as error:
            raise unread(self.name, self.source.declared, error) from None

    def _found(self) -> FoundFiles:
        """The copies of objects: rows are read of those that were opened."""
        source = self.source
        return FoundFiles(source.kind, source.paths, source.listed, source.objects, source.copies)

    def _room(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A kept instance, where nothing has to be registered with it or attached to it."""
        source = self.source
        if (
            source.kind != "parquet"
            or source.is_listed
            or source.objects
            or set(source.stored) & set(BESIDES)
        ):
            is_view = source.relation is not None and source.relation.is_view
            return connect() if self.spill is None or not is_view else _spilling(self.spill)
        return reader(find_files(source.declared, self.name)[1])


@contextmanager
def _spilling(folder: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that holds rows in a folder of its own, for its owner alone, till it is ended.

    Raises: OSError.
    """
    with (
        ScratchFolder("dpsql-rows-", folder) as room,
        connect(folder=str(room)) as connection,
    ):
        yield connection


def version_of(table: Table) -> Version | None:
    """Return the version that is stated of a table with a log."""
    form, number = table.option("format"), table.option("version")
    return None if form is None or number is None else Version(form, number)


def written_of(table: Table) -> Delimited:
    """Return how the text of a table is written.

    No line of JSON says which columns there are: they are those that the catalog names.
    """
    written = Delimited.of(table.options)
    if table.kind != "json" or written.header:
        return written
    unit = [table.unit.column] if table.unit.column else []
    names = [*(each.name for each in table.columns.values()), *table.keys, *unit]
    named = {name.casefold(): name for name in reversed(names)}
    return replace(written, header=tuple(named.values()))


def fetch_rows(
    connection: duckdb.DuckDBPyConnection,
    source: Source,
    asked: Sequence[RequestedColumn],
    unit: str | None,
) -> Iterator[Batch]:
    """Yield all rows of open files; see :class:`dpsql.privacy.vault.data_engine.StoredTable`."""
    places = [_position(source, each.column) for each in asked]
    fetches = [
        _fetch_key(source, place)
        if each.form == "key"
        else fetch_column(each, source.column_sql(place, each.form), source.columns[place][1])
        for each, place in zip(asked, places, strict=True)
    ]
    fetches = [
        replace(each, places=TextPlaces.of(connection, each.texts)) if each.texts else each
        for each in fetches
    ]
    owner = None if unit is None else _position(source, unit)
    identity = None if owner is None else _identity(source, owner)
    wanted = tuple(dict.fromkeys([*places, *([] if owner is None else [owner])]))
    keys = [place for each, place in zip(asked, places, strict=True) if each.form == "key"]
    valid = [*keys, *([] if owner is None else [owner])]
    for found in source.select(connection, _listed(fetches, identity), wanted, valid):
        if len(fetches) > COLUMNS:
            batches = _frames(found, len(fetches))
        else:
            is_text = identity is not None and identity.dtype is object
            batches = read_stream(found.stream(), ROWS, "u" if is_text else "")
        yield from (_batch(fetches, identity, some) for some in batches)


def fetch_texts(
    connection: duckdb.DuckDBPyConnection, source: Source, column: str
) -> Iterator[npt.NDArray[np.object_]]:
    """Yield all values of a column as text; see the same class."""
    place = _position(source, column)
    text = f"TRY_CAST({source.column_sql(place)} AS VARCHAR)"
    for found in source.select(connection, [f"{text} AS v", f"{text} IS NULL AS m"], [place]):
        for some in read_stream(found.stream(), ROWS):
            yield np.ma.array(some["v"], mask=some["m"])


def _listed(fetches: Sequence[Fetch], identity: UnitIdentity | None) -> list[str]:
    """The expressions v0, s0, v1, ... of values and states, then u and o of the unit."""
    own = [(i, each) for i, each in enumerate(fetches) if not _is_unit(each, identity)]
    listed = [f"{each.value} AS v{i}" for i, each in own]
    listed += [f"{each.state} AS s{i}" for i, each in own if each.state]
    if identity is not None:
        listed += [f"{identity.value} AS u", f"{identity.known} AS o"]
    return listed or ["0 AS v"]


def _is_unit(fetch: Fetch, identity: UnitIdentity | None) -> bool:
    """True if a key is the privacy unit as a number, which is fetched once."""
    if identity is None or identity.dtype is object:
        return False
    unit = identity.value, identity.known, identity.dtype
    return (fetch.value, fetch.state, fetch.key) == unit


def _frames(found: RowQuery, columns: int) -> Iterator[Fetched]:
    """Yield all rows of very many columns, a few at a time; the last batch is empty."""
    result, vectors = found.run(), max(1, ROWS * COLUMNS // columns // VECTOR)
    while True:
        frame = result.fetch_df_chunk(vectors)
        yield {str(name): frame[name].to_numpy() for name in frame.columns}
        if frame.empty:
            return


def _batch(fetches: Sequence[Fetch], identity: UnitIdentity | None, chunk: Fetched) -> Batch:
    rows = len(next(iter(chunk.values())))
    pairs = [
        (each, chunk["u"], chunk["o"])
        if _is_unit(each, identity)
        else (each, chunk[f"v{i}"], chunk.get(f"s{i}"))
        for i, each in enumerate(fetches)
    ]
    columns = [each.read(value, state) for each, value, state in pairs if each.key is None]
    keys: list[tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]] = [
        (value.astype(each.key), np.asarray(state, dtype=np.bool_))
        for each, value, state in pairs
        if each.key is not None
    ]
    if identity is None:
        return Batch(rows, columns, keys=keys)
    owned = chunk["o"].astype(np.bool_)
    units = chunk["u"]
    units = units if isinstance(units, ByteTexts) else units.astype(identity.dtype)
    return Batch(rows, columns, units, owned, keys)


def _identity(source: Source, place: int) -> UnitIdentity:
    raw, stored = source.column_sql(place), source.columns[place][1]
    return fetch_unit(raw, stored, source.valid_sql(place))


def _fetch_key(source: Source, place: int) -> Fetch:
    found, (_, stored) = _identity(source, place), source.columns[place]
    if family(stored) == "integer" and stored not in SHORT:  # are the keys of narrower integers
        raw = source.column_sql(place)
        value = f"COALESCE({narrow_sql(raw, stored)}, {hash_sql(raw)})"
        return Fetch(value, False, found.known, key=np.int64)
    return Fetch(found.value, False, found.known, key=found.dtype)


def _position(source: Source, name: str) -> int:
    position = find(source.columns, name)
    if position is None:
        raise ValueError("no such column")
    return position
