"""The vaults of one catalog, for the doors; and what is told of a source, never of its rows."""

from __future__ import annotations

import hmac
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import SERVERS, Column, Table
from dpsql.catalog.discovery import Sought
from dpsql.errors import InternalError, OperationalError, ProgrammingError
from dpsql.plan.plan import Plan
from dpsql.privacy.budget.hash_chain import subkey
from dpsql.privacy.vault.codes.spill import MOST_DERIVED, fit_beside
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.privacy.vault.files import duckdb_pool
from dpsql.privacy.vault.files.stores import one_listing
from dpsql.privacy.vault.open_tables import OpenTables, Reads, close_all
from dpsql.privacy.vault.servers.held_sessions import one_snapshot
from dpsql.privacy.vault.stored_rows import StoredRows, find_engine
from dpsql.privacy.vault.unit.rows import fits
from dpsql.privacy.vault.vault import TableVault, Vault
from dpsql.records import replace
from dpsql.relation.derive import bases_of
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution

if TYPE_CHECKING:
    from dpsql.catalog.draft import DraftedTable


class Vaults:
    """The vaults of one catalog, by case-folded table name; each is opened on first use.

    Those of catalogs that declare other columns may be over the same open ``tables``.

    Raises: DataUnavailable (E_DATA) when a source cannot be opened, before any charge.
    """

    backend = "dpsql"

    def __init__(self, catalog: Catalog, salt: bytes, tables: OpenTables | None = None) -> None:
        self.backend = catalog.noise_backend
        self._catalog = catalog
        self._salt = salt
        self.tables = OpenTables(salt) if tables is None else tables
        self._lent: dict[str, TableVault] = {}

    @property
    def standing(self) -> int | None:
        """The number of times that rows were let go of; None where they are of a past period.

        It is looked at without waiting for anybody.
        """
        return None if self.tables.is_stale else self.tables.closings

    def of(self, catalog: Catalog) -> Vaults:
        """The vaults by a catalog whose declared columns may be others, over the same tables."""
        return Vaults(catalog, self._salt, self.tables)

    @contextmanager
    def lent(
        self,
        tables: Iterable[str],
        reads: Reads,
        sought: tuple[str, str, Sought] | None = None,
        is_long: bool = False,
    ) -> Iterator[Vaults]:
        """Some of them for one statement, whose rows stay as they are, with columns that are read.

        A bad source fails before any charge. Who counts the same table waits for its turn, unless
        this is long; nobody waits for others, nor for columns that they do not ask for.

        Args:
            tables: names of those whose rows are read.
            reads: columns to load, by table; None for all of a table.
            sought: table, column and declaration of keys to find; None where none are sought.
            is_long: True for a run of many looks, which takes a session of its own on a server.

        Raises: DataUnavailable if a source has gone or changed since it was opened.
        """
        stored = self._catalog.tables.values()
        self.tables.let_go(lambda those: len(those) <= MOST_DERIVED and fit_beside(those, stored))
        found = {name: self._catalog.find(name) for name in {*tables, *reads}}
        with self.one_snapshot(), self.tables.lent(found, reads, sought, is_long) as lent:
            own = self.of(self._catalog)
            own._lent = lent
            yield own

    def __getitem__(self, table: str) -> Vault:
        found = self._lent.get(table)
        return self.tables.vault(self._catalog.find(table)) if found is None else found

    def narrowed(self, table: str, rows: RowView | None) -> Vault:
        """The vault of a table of which some rows count, None for those of all columns."""
        return self[table] if rows is None else self[table].within(rows)

    def check_unit(self, table: str, rows: int) -> None:
        """Refuse noise for fewer rows of a privacy unit than the catalog declares.

        Raises: InternalError (E_INTERNAL).
        """
        if rows < self._catalog.find(table).unit.max_rows:
            raise InternalError("E_INTERNAL", "a privacy unit has more rows; nothing was measured")

    def check_cells(self, table: str, resolutions: Sequence[AnyResolution], units: bool) -> None:
        """Refuse cells or nodes that are not of the columns that the catalog declares.

        Args:
            table: name in the catalog.
            resolutions: cells or nodes of its columns, one for each axis of the counts.
            units: True where privacy units are counted, which have cells alone.

        Raises: ProgrammingError (E_WORKLOAD).
        """
        if not fits(resolutions, self._catalog.find(table), units):
            raise ProgrammingError("E_WORKLOAD", "cells or nodes do not fit the table")

    def seeing(self, table: str, column: Column) -> Vaults:
        """The vaults where a column that is not declared is seen as a run sees it."""
        known = self._catalog.tables[table]
        columns = {**known.columns, column.name.casefold(): column}
        tables = {**self._catalog.tables, table: replace(known, columns=columns)}
        return Vaults(replace(self._catalog, tables=tables), self._salt)

    def one_snapshot(self) -> AbstractContextManager[None]:
        """Within it, all that is read of one server is of one snapshot."""
        return one_snapshot()

    def one_listing(self) -> AbstractContextManager[None]:
        """Within it, no store of objects is asked twice what it holds."""
        return one_listing()

    def said_of(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Tell, in a forecast, of tables on servers; a function of public facts alone."""
        from dpsql.privacy.vault.servers.sent_sql import (
            describe_placement,  # what few catalogs need
        )

        found: dict[tuple[str, str], None] = {}
        for part in plan.parts:
            sets = [[part.resolutions[name] for name in block.attributes] for block in part.blocks]
            for base in bases_of(self._catalog, [part.table]):
                if base.engine in SERVERS or base.is_pushed:
                    counted = sets if base.name.casefold() == part.table else None
                    types = self._types(base)
                    found.update(
                        dict.fromkeys(describe_placement(base, counted, part.units, types))
                    )
        return tuple(found)

    def _types(self, table: Table) -> dict[str, str]:
        """The native types of the columns of a table of a server, none before it is opened."""
        vault = self.tables.found.get(table.name.casefold())
        if vault is None:
            return {}
        from dpsql.privacy.vault.servers.counter import as_counting  # what few catalogs need

        counting = as_counting(vault.stored)
        return {} if counting is None else {n.casefold(): kind for n, kind in counting.types}

    def versions(self, tables: Iterable[str]) -> str:
        """A keyed digest of the data versions of these tables together.

        Guarantee: without the ledger's salt it tells nothing of the sizes and times of files.
        """
        return self._version(subkey(self._salt, "versions"), tables)

    def earlier_versions(self, tables: Iterable[str]) -> str:
        """``versions`` as they were keyed by the salt itself: what was stored then is found."""
        return self._version(self._salt, tables)

    def _version(self, key: bytes, tables: Iterable[str]) -> str:
        facts = [(table, self[table].data_version) for table in tables]
        return hmac.digest(key, repr(("version", facts)).encode(), "sha256").hex()

    def reopen(self) -> None:
        """Let go of rows that are not as they were: the next statement reads them as they are."""
        self.tables.let_go_of_changed()

    def close(self) -> None:
        """Close every vault."""
        self.tables.close()

    def close_unused(self) -> None:
        """Close every vault when nobody has these vaults any more."""
        weakref.finalize(self.tables, close_all, self.tables.found).atexit = False


def open_ahead() -> None:
    """Begin to open the DuckDB that will read files, beside other work."""
    duckdb_pool.ahead.begin()


def describe_server(table: Table) -> list[tuple[str, str]]:
    """The column names and type families of a table of a server; never its values.

    Raises: DataUnavailable.
    """
    return list(find_engine(table).open(table).columns)


def list_server(schema: Table) -> list[tuple[str, bool]]:
    """The tables of a schema of a server, as (name, whether it is a view).

    Raises: DataUnavailable, also for an engine that does not list tables.
    """
    engine = find_engine(schema)
    if not hasattr(engine, "tables"):
        unavailable(schema.name, schema.source, "its engine does not list tables")
    return [(str(name), bool(is_view)) for name, is_view in engine.tables(schema)]


def describe_data(path: str, blind: bool = False) -> list[DraftedTable]:
    """The tables of a file, a database file or a folder: columns and types, never values.

    Raises: DataUnavailable.
    """
    # only for what opens a source
    from dpsql.privacy.vault.files.descriptions import describe_data as describe

    return describe(path, blind)


def refuse_unreadable(catalog: Catalog) -> None:
    """Refuse private tables of which one stored value could stop every statement.

    From the types that Parquet files declare, never from a row. Raises: DataUnavailable (E_DATA).
    """
    # only for what opens a source
    from dpsql.privacy.vault.files.refused_types import refuse_unreadable as refuse

    refuse(catalog.tables.values())


def share_room(catalog: Catalog) -> Catalog:
    """Return a catalog whose tables have the numbers of rows that there is room for.

    By numbers that the catalog states and the memory of the machine. Raises: DataUnavailable
    (E_DATA) where it states more than there is.
    """
    from dpsql.privacy.vault.codes.spill import share_room as share  # only for what opens a source

    return replace(catalog, tables=share(catalog.tables))


def stored_in(table: Table) -> tuple[tuple[str, ...], str]:
    """The files that hold the rows of a table, and the table within them, empty for most.

    Raises: DataUnavailable.
    """
    stored = find_engine(table).open(table)
    return stored.paths, stored.table


def public_version(table: Table) -> object:
    """The version of the files of a public table; None where nothing tells it."""
    try:
        if table.engine is not None:
            return StoredRows(table, find_engine(table).open(table)).fingerprint()
        if any(table.option(name) for name in ("table", "view", "version")):
            return None
        paths = find_engine(table).open(table).paths
        facts = [(path, os.stat(path)) for path in paths]
    except (OSError, OperationalError):
        return None
    return [(p, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for p, s in facts]


def read_public(table: Table) -> dict[str, tuple[str, Sequence[Any]]]:
    """The DuckDB type and all values of every column of a table that is declared public.

    Raises: InternalError for any other table; DataUnavailable, also when values are looked at.
    """
    from dpsql.privacy.vault.public_rows import read_public as read  # only for what opens a source

    if not table.public:
        raise InternalError("E_INTERNAL", "only public tables can be read")
    return read(table)
