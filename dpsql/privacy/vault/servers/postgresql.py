"""The engine of PostgreSQL: tables of a server, streamed by COPY or counted where they are.

The schema is read from the system catalogs; no value is, before rows are. A view is refused unless
the catalog declares that it is one: what it joins is not known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from dpsql.catalog.catalog import Table
from dpsql.interrupts import check, ended_by
from dpsql.privacy.vault.data_engine import (
    VERSION,
    Batch,
    RequestedColumn,
    Values64,
    find,
    unavailable,
)
from dpsql.privacy.vault.dialect import Dialect, FetchedSql
from dpsql.privacy.vault.files.arrow_stream import Fetched
from dpsql.privacy.vault.files.database import quote
from dpsql.privacy.vault.servers.held_sessions import held
from dpsql.privacy.vault.servers.postgresql_rows import rows_sent
from dpsql.privacy.vault.servers.postgresql_session import (
    NAMED,
    OLDEST,
    address_of,
    connected,
    session,
    told,
)
from dpsql.privacy.vault.servers.postgresql_sql import DIALECT, family_of
from dpsql.records import dataclass, field

TABLES, VIEWS = ("r", "p"), ("v", "m", "f")
SENT = {"place": "int4", "boolean": "int4", "day": "int4", "whole": "int8"}
SENT |= {"clock": "int8", "time": "int8"}
"""The types in which whole numbers of a form are sent."""

QUOTED = re.compile(r'"(?:[^"]|"")*"')
FACTS = """
SELECT c.oid, n.nspname, c.relname,
       CASE WHEN c.relispopulated THEN c.relkind::text ELSE 'unfilled' END,
       row_security_active(c.oid), has_table_privilege(c.oid, 'SELECT'), current_database(),
       (SELECT system_identifier FROM pg_control_system()),
       current_setting('server_encoding'), current_setting('server_version_num')::int
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
COLUMNS = """
WITH RECURSIVE b(attnum, oid, typmod) AS (
  SELECT attnum, atttypid, atttypmod FROM pg_attribute
  WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
  UNION ALL
  SELECT b.attnum, t.typbasetype, t.typtypmod FROM b JOIN pg_type AS t ON t.oid = b.oid
  WHERE t.typtype = 'd')
SELECT a.attname,
       CASE WHEN a.attgenerated = 'v' THEN 'virtual'
            WHEN t.typtype = 'e' THEN 'enum'
            WHEN t.typname = 'numeric' AND b.typmod >= 0 THEN 'numeric()' ELSE t.typname END,
       has_column_privilege(a.attrelid, a.attnum, 'SELECT')
FROM b JOIN pg_type AS t ON t.oid = b.oid AND t.typtype <> 'd'
JOIN pg_attribute AS a ON a.attrelid = %s AND a.attnum = b.attnum ORDER BY a.attnum
"""
RELATIVES = """
WITH RECURSIVE up(oid) AS (
  SELECT %s::oid UNION SELECT i.inhparent FROM pg_inherits AS i JOIN up ON i.inhrelid = up.oid),
down(oid) AS (
  SELECT %s::oid UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN down ON i.inhparent = down.oid)
SELECT n.nspname, c.relname, c.relkind = 'f' AND c.oid IN (SELECT oid FROM down)
FROM (SELECT oid FROM up UNION SELECT oid FROM down) AS r
JOIN pg_class AS c ON c.oid = r.oid JOIN pg_namespace AS n ON n.oid = c.relnamespace ORDER BY 1, 2
"""
LISTED = """
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind IN ('v', 'm', 'f')
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND has_any_column_privilege(c.oid, 'SELECT') ORDER BY c.relname
"""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table in the system catalogs: where it is, and its columns with native types."""

    schema: str
    name: str
    paths: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    hidden: frozenset[str] = frozenset()

    @property
    def relation(self) -> str:
        """The name of the table after FROM."""
        return f"{quote(self.schema)}.{quote(self.name)}"


class PostgresEngine:
    """Opens tables of PostgreSQL servers."""

    version = VERSION

    def open(self, table: Table) -> PostgresTable:
        address = address_of(table)
        return PostgresTable(table, address, told(table, lambda: _describe(table, address)))

    def tables(self, schema: Table) -> list[tuple[str, bool]]:
        """The tables of a schema that the role may read, and whether each is a view.

        They are named as ``table`` in a catalog is, with quotes where they need any.
        """
        address = address_of(schema)
        return told(schema, lambda: _list(schema.option("table") or "", address))


ENGINE = PostgresEngine()


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table of a server; see :class:`dpsql.privacy.vault.servers.counter.CountingTable`."""

    declared: Table
    address: str = field(repr=False)
    described: TableDescription
    kind = "postgresql"
    table = ""
    untyped = False

    @property
    def paths(self) -> tuple[str, ...]:
        return self.described.paths

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return self.described.types

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, family_of(stored)) for name, stored in self.described.types)

    def fingerprint(self) -> str:
        found = told(self.declared, lambda: _describe(self.declared, self.address))
        return hashlib.sha256(repr((found.paths, found.types)).encode()).hexdigest()

    def read(self, asked: Sequence[RequestedColumn], unit: str | None) -> Iterator[Batch]:
        sent = SentColumns.of(self.described, asked, unit)
        with self._session() as seen:
            for found in rows_sent(self.address, seen, sent.select, sent.as_bytes):
                yield sent.batch(found)

    def texts(self, column: str) -> Iterator[npt.NDArray[np.object_]]:
        found = f"CAST({quote(column)} AS text)"
        listed = f"({found} IS NULL) AS m, COALESCE({found}, '') AS v"
        select = f"SELECT {listed} FROM {self.described.relation}"
        with self._session() as seen:
            for each in rows_sent(self.address, seen, select):
                yield np.ma.array(each["v"], mask=each["m"])

    def open_counter(self) -> PostgresCounter:
        return told(self.declared, lambda: PostgresCounter(self))

    def _session(self) -> Any:
        return held(("postgresql", self.address), lambda: session(self.address))


def _describe(table: Table, address: str) -> TableDescription:
    """Read what the system catalogs say, in the request's snapshot. Raises: DataUnavailable."""
    name = table.option("table") or ""
    name = name if "." in QUOTED.sub("", name) else f"public.{name}"
    with held(("postgresql", address), lambda: session(address)) as connection:
        facts = connection.execute(FACTS, [name]).fetchone()
        if facts is None:
            unavailable(table.name, table.source, "there is no such table", _HINT)
        oid, schema, relation, kind, is_filtered, may_read, database, system, encoding, version = (
            facts
        )
        problem = _fault(table, kind, is_filtered, encoding, version)
        if problem is not None:
            unavailable(table.name, table.source, problem)
        columns = connection.execute(COLUMNS, [oid, oid]).fetchall()
        relatives = connection.execute(RELATIVES, [oid, oid]).fetchall()
    if table.option("view") is None and any(is_foreign for *_, is_foreign in relatives):
        problem = "a part of it is a foreign table, which may join rows; view = true vouches for it"
        unavailable(table.name, table.source, problem)
    place = f"postgresql://{system}/{database}/"
    found = TableDescription(
        schema,
        relation,
        tuple(f"{place}{one}.{two}" for one, two, _ in relatives),
        tuple((column, stored) for column, stored, _ in columns),
        frozenset(column for column, _, readable in columns if not (may_read or readable)),
    )
    _check_rights(table, found)
    return found


def _list(schema: str, address: str) -> list[tuple[str, bool]]:
    with held(("postgresql", address), lambda: session(address)) as connection:
        is_quoted = QUOTED.fullmatch(schema) is not None
        named = schema[1:-1].replace('""', '"') if is_quoted else schema.lower()
        return connection.execute(LISTED, [named]).fetchall()


_HINT = f"{NAMED}, and the rights of the role"


def _fault(table: Table, kind: str, is_filtered: bool, encoding: str, version: int) -> str | None:
    """Tell why a table must not be read, from its schema alone; None where it may be."""
    if version < OLDEST:
        return f"the server is older than PostgreSQL {OLDEST // 10_000}"
    if encoding != "UTF8":
        return f"the encoding of the database is {encoding}, not UTF8"
    if is_filtered:
        return "row-level security hides rows from the role; read it as one with BYPASSRLS"
    if kind == "unfilled":
        return "it is a materialized view that was never filled; REFRESH it"
    if kind in VIEWS and table.option("view") is None:
        return "it is a view or a foreign table, which may join rows; view = true vouches for it"
    return None if kind in (*TABLES, *VIEWS) else "it is no table"


def _check_rights(table: Table, found: TableDescription) -> None:
    names = [each.name for each in table.columns.values()]
    names += [*table.keys, *([table.unit.column] if table.unit.column else [])]
    for name in names:
        position = find(found.types, name)
        if position is not None and found.types[position][0] in found.hidden:
            hint = "GRANT SELECT on the declared columns to the role"
            unavailable(table.name, table.source, f"permission denied for column {name!r}", hint)


@dataclass(frozen=True, slots=True)
class SentColumns:
    """The columns sent of each row, and how they become a batch.

    ``owners`` are the columns that say whether a key or the unit is there, and the one with it.
    """

    select: str
    asked: Sequence[RequestedColumn]
    owners: Sequence[tuple[str, str]]
    as_bytes: Sequence[str]
    by_unit: bool

    @classmethod
    def of(
        cls, described: TableDescription, asked: Sequence[RequestedColumn], unit: str | None
    ) -> SentColumns:
        """Write the SELECT: v0, v1, ... of values; o0, k0, ... of keys, and of the unit."""
        types = dict(described.types)
        plain = [each for each in asked if each.form != "key"]
        listed = []
        for i, each in enumerate(plain):
            found = DIALECT.fetch(each, f"t.{quote(each.column)}", types[each.column])
            listed.append(f"{_sent(found, SENT.get(each.form, 'float8'))} AS v{i}")
        names = [each.column for each in asked if each.form == "key"]
        owners, as_bytes = [], []
        for i, name in enumerate([*names, *([] if unit is None else [unit])]):
            owner = DIALECT.owner(f"t.{quote(name)}", types[name])
            is_text = owner.value == owner.name
            nothing = "''" if is_text else "0"
            value = f"CASE WHEN {owner.known} THEN {owner.value} ELSE {nothing} END"
            listed += [f"{owner.known} AS o{i}", f"{value} AS k{i}"]
            owners.append((f"o{i}", f"k{i}"))
            as_bytes += [f"k{i}"] if is_text and i == len(names) else []
        select = f"SELECT {', '.join(listed) or 'true AS v'} FROM {described.relation} AS t"
        return cls(select, plain, owners, as_bytes, unit is not None)

    def batch(self, found: Fetched) -> Batch:
        """Return the columns of some rows as arrays."""
        columns = [_values(each, found[f"v{i}"]) for i, each in enumerate(self.asked)]
        keys = [(found[value], found[known]) for known, value in self.owners]
        units, owned = keys.pop() if self.by_unit else (None, None)
        return Batch(len(next(iter(found.values()))), columns, units, owned, keys)


def _sent(found: FetchedSql, kind: str) -> str:
    """Write a value with the two least of its type for missing and unknown."""
    if kind == "float8":
        return f"CASE WHEN {found.missing} THEN CAST('NaN' AS float8) ELSE {found.value} END"
    least = -(1 << 31) if kind == "int4" else -(1 << 63)
    low, next_low = (f"CAST('{least + more}' AS {kind})" for more in (0, 1))
    value = f"GREATEST(COALESCE(CAST({found.value} AS {kind}), {next_low}), {next_low})"
    return f"CASE WHEN {found.missing} THEN {low} ELSE {value} END"


def _values(asked: RequestedColumn, numbers: npt.NDArray[Any]) -> Values64:
    """Values with flags for NaN, or for the two least of a type."""
    if asked.form == "number":
        return Values64(numbers, np.isnan(numbers), np.zeros(len(numbers), dtype=np.bool_))
    least = np.iinfo(numbers.dtype).min
    return Values64(numbers.astype(np.int64), numbers == least, numbers == least + 1)


class PostgresCounter:
    """Counts rows of one table in a session of its own, which keeps temporary tables.

    Where it may not keep any, statements are run in the request's snapshot instead. See
    :class:`dpsql.privacy.vault.servers.counter.Counter`.
    """

    def __init__(self, table: PostgresTable) -> None:
        self._table = table
        self._stack = ExitStack()
        self._kept = 0
        self._connection = self._stack.enter_context(connected(table.address))
        may_keep = (
            "SELECT has_database_privilege(current_database(), 'TEMP') AND NOT pg_is_in_recovery()"
        )
        found = self._connection.execute(may_keep).fetchone()
        self._may_keep = found is not None and found[0] is True

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    @property
    def relation(self) -> str:
        return self._table.described.relation

    def keep(self, select: str) -> str | None:
        if not self._may_keep:
            return None
        name = f"pg_temp.dpsql_kept_{self._kept}"
        self._kept += 1
        try:
            with ended_by(self._connection.cancel):
                self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE")
                self._connection.execute(f"CREATE TEMPORARY TABLE {name} AS {select}".encode())
                self._connection.execute("COMMIT")
        except psycopg.errors.QueryCanceled:
            check()
            raise
        return name

    def rows(self, select: str) -> Iterator[tuple[int, ...]]:
        statement = select.encode()
        if self._may_keep:
            yield from self._connection.execute(statement).fetchall()
            return
        address = self._table.address
        with held(("postgresql", address), lambda: session(address)) as connection:
            yield from connection.execute(statement).fetchall()

    def close(self) -> None:
        try:
            if self._kept and not self._connection.closed:
                self._connection.execute("ROLLBACK")
                self._connection.execute("DISCARD TEMP")
        except psycopg.Error:
            pass  # the server forgets the tables of a session that has ended
        finally:
            self._stack.close()
