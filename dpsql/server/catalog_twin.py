"""The twin: an empty PostgreSQL with the declared tables, which answers questions about catalogs.

It holds names, types and comments and no row of data. Each analyst is a role there that may read,
and only questions about catalogs are sent there (see ``questions``).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from dpsql.errors import OperationalError
from dpsql.interrupts import InterruptibleLock
from dpsql.records import dataclass, field
from dpsql.server.catalog_questions import refusal, unlisted
from dpsql.server.messages import BINARY, TEXT, FieldDescription
from dpsql.server.result_stream import Write, spread
from dpsql.server.twin_connection import TwinError, all_of, columns_of, last_of
from dpsql.server.twin_server import MAINTENANCE, TwinServer, open_twin_server

if TYPE_CHECKING:
    from dpsql.server.twin_connection import PGconn

Declared = Sequence[tuple[str, str, Sequence[tuple[str, str, str]]]]
"""Tables: name, comment, and the name, type and comment of every column."""

KINDS = {
    "text": "text",
    "integer": "bigint",
    "number": "double precision",
    "decimal": "numeric",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "time": "time",
}
LIMIT = "5s"
"""Time of one statement in the twin."""
ENTERED = "dpsql.databases"
"""A setting of connections: the databases that are listed, between slashes."""
LISTING = f"""
SET allow_system_table_mods = on;
ALTER TABLE pg_catalog.pg_database RENAME TO pg_every_database;
CREATE VIEW pg_catalog.pg_database AS SELECT * FROM pg_catalog.pg_every_database
  WHERE datname = ANY (string_to_array(current_setting('{ENTERED}', true), '/'));
GRANT SELECT ON pg_catalog.pg_database TO PUBLIC
"""
"""The list of databases, in a database of a PostgreSQL of the server's own: those of the setting.
PostgreSQL itself goes by the table's number, and clients by its name."""
HINT = "the twin answers SELECTs over PostgreSQL's catalogs, by functions that are listed"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TwinTable:
    """Rows of the twin, as it encoded them: by format, of which there may be both."""

    heads: tuple[FieldDescription, ...]
    found: Mapping[int, list[list[bytes | None]]]

    def __len__(self) -> int:
        return min(map(len, self.found.values()))

    def rows(
        self, formats: Sequence[int], places: Sequence[int] | None = None, write: Write = None
    ) -> Iterator[Sequence[bytes | None]]:
        wanted = spread(formats, len(self.heads))
        for place in range(len(self)) if places is None else places:
            row = [self.found[each][place][k] for k, each in enumerate(wanted)]
            yield row if write is None else list(map(write, row))


@dataclass
class Twin:
    """One database of an empty PostgreSQL, for one catalog."""

    server: TwinServer
    database: str
    _known: Declared | None = None
    refused: frozenset[str] = frozenset()
    release: str = ""
    _roles: dict[str | None, str] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)
    _password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def declare(self, tables: Declared) -> None:
        """Make the database hold these tables and no others. Raises: OperationalError (E_TWIN)."""
        if tables != self._known:
            self.server.living(lambda: self._declare(tables))

    def _declare(self, tables: Declared) -> None:
        with InterruptibleLock(self._making):
            if tables != self._known:
                statements = ["DROP SCHEMA public CASCADE", "CREATE SCHEMA public"]
                statements.append("GRANT USAGE ON SCHEMA public TO PUBLIC")
                for name, comment, columns in tables:
                    listed = ", ".join(f"{_name(c)} {KINDS.get(k, 'text')}" for c, k, _ in columns)
                    statements.append(f"CREATE TABLE {_name(name)} ({listed})")
                    statements.append(f"GRANT SELECT ON {_name(name)} TO PUBLIC")
                    statements.append(f"COMMENT ON TABLE {_name(name)} IS {_literal(comment)}")
                    statements += [
                        f"COMMENT ON COLUMN {_name(name)}.{_name(c)} IS {_literal(told)}"
                        for c, _, told in columns
                    ]
                together = "; ".join(("BEGIN", *statements, "COMMIT"))
                self.server.administer(self.database, together)
                self._known = tables

    def create(self) -> None:
        """Make the database, in which nobody but analysts may do anything.

        Raises: OperationalError (E_TWIN).
        """
        database = _name(self.database)
        self.server.administer(MAINTENANCE, f"DROP DATABASE IF EXISTS {database}")
        self.server.administer(MAINTENANCE, f"CREATE DATABASE {database}")
        self.server.administer(MAINTENANCE, f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")
        if self.server.own is not None:
            self.server.administer(self.database, LISTING)
        found = self.server.administer(self.database, "SELECT DISTINCT proname FROM pg_proc")
        self.refused = unlisted((row[0] or b"").decode() for row in found)
        told = self.server.administer(self.database, "SHOW server_version")[0][0] or b""
        self.release = told.decode().split()[0]

    def reader(self, analyst: str | None, entered: Sequence[str] = ()) -> TwinReader:
        """The twin as an analyst reads it, whose role tells nobody who that is.

        Of databases they are listed this one and those ``entered``.
        """
        return TwinReader(self, analyst, entered)

    def role(self, analyst: str | None) -> str:
        """The role of an analyst, made when it is first needed.

        It may read the declared tables and do nothing else: what others ask is not shown to it, and
        it ends no session but its own. Raises: OperationalError (E_TWIN).
        """
        with InterruptibleLock(self._making):
            known = self._roles.get(analyst)
            if known is not None:
                return known
            plain = f"dpsql_{secrets.token_hex(8)}"
            role = _name(plain)
            limits = "NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT"
            for statement in (
                f"CREATE ROLE {role} LOGIN {limits} PASSWORD {_literal(self._password)}",
                f"GRANT CONNECT ON DATABASE {_name(self.database)} TO {role}",
                f"ALTER ROLE {role} SET default_transaction_read_only = on",
                f"ALTER ROLE {role} SET statement_timeout = '{LIMIT}'",
            ):
                self.server.administer(MAINTENANCE, statement)
            self._roles[analyst] = plain
            return plain

    def is_alive(self) -> bool:
        """True if it answers, after it was started again where that was needed."""
        try:
            self.server.living(lambda: self.server.administer(self.database, "SELECT 1"))
        except OperationalError:
            return False
        return True

    def lent(
        self, analyst: str | None, entered: Sequence[str] = ()
    ) -> AbstractContextManager[PGconn]:
        """A connection of an analyst for one statement. Raises: as :meth:`TwinServer.lent`."""
        role = {"dbname": self.database, "user": self.role(analyst), "password": self._password}
        if self.server.own is not None:
            listed = "/".join(sorted({self.database, *entered}))
            escaped = listed.replace("\\", "\\\\").replace(" ", "\\ ")
            role["options"] = f"-c {ENTERED}={escaped}"
        return self.server.lent(**role)

    def close(self) -> None:
        """Close the server that has the database."""
        self.server.close()


class TwinReader:
    """The twin for one analyst; see :class:`Twin`."""

    def __init__(self, twin: Twin, analyst: str | None, entered: Sequence[str]) -> None:
        self._twin = twin
        self._analyst = analyst
        self._entered = entered

    def describe(
        self, sql: str, oids: Sequence[int]
    ) -> tuple[list[int], tuple[FieldDescription, ...]]:
        """The types of the parameters and the columns of a statement. Raises: TwinError."""

        def ask(connection: PGconn) -> tuple[list[int], tuple[FieldDescription, ...]]:
            connection.send_prepare(b"", sql.encode(), list(oids))
            last_of(connection)
            connection.send_describe_prepared(b"")
            found = last_of(connection)
            return [found.param_type(k) for k in range(found.nparams)], columns_of(found)

        return self._asked(sql, ask)

    def run(
        self,
        sql: str,
        parameters: Sequence[bytes | None] = (),
        oids: Sequence[int] = (),
        formats: Sequence[int] = (),
        wanted: Sequence[int] = (),
    ) -> tuple[TwinTable | None, str]:
        """Run a statement; returns its rows, None where it has none, and its tag.

        A statement whose columns are wanted in both formats is run for each, as the twin sends one
        at a time.

        Args:
            sql: statement about the system catalog alone.
            parameters: encoded values, None for NULL.
            oids: types of the parameters; 0, or none, is left to the twin.
            formats: of the parameters: none for text, one for all, or each its own.
            wanted: formats of the rows that are kept, TEXT or BINARY or both.

        Raises: TwinError.
        """
        kinds = [*oids, *[0] * len(parameters)][: len(parameters)]
        given = spread(formats, len(parameters))

        def ask(connection: PGconn) -> tuple[TwinTable | None, str]:
            found: dict[int, list[list[bytes | None]]] = {}
            heads: tuple[FieldDescription, ...] = ()
            tag = ""
            for wish in sorted({*wanted} & {TEXT, BINARY}) or [TEXT]:
                connection.send_query_params(
                    sql.encode(),
                    list(parameters),
                    param_types=kinds or None,
                    param_formats=given or None,
                    result_format=wish,
                )
                heads, found[wish], tag = all_of(connection)
            return (TwinTable(heads, found) if heads else None), tag

        return self._asked(sql, ask)

    def _asked(self, sql: str, ask: Callable[[PGconn], T]) -> T:
        """Ask a question about catalogs; what is none is refused.

        Raises: TwinError; OperationalError (E_TWIN).
        """
        twin = self._twin
        found = refusal(sql, twin.refused)
        if found is not None:
            raise TwinError("0A000", found, "", HINT, 0)

        def work() -> T:
            with twin.lent(self._analyst, self._entered) as connection:
                return ask(connection)

        return twin.server.living(work)


def twin_of(server: TwinServer, database: str) -> Twin:
    """A twin in a PostgreSQL, where a database of its name is replaced.

    Raises: OperationalError (E_TWIN).
    """
    found = Twin(server, database)
    found.create()
    return found


def open_twin(where: str, database: str) -> Twin:
    """Open a twin that has a PostgreSQL of its own. Raises: as ``open_twin_server``."""
    return twin_of(open_twin_server(where), database)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\0", "") + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''").replace("\0", "") + "'"
