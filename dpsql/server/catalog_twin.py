"""The twin: an empty PostgreSQL with the declared tables, which answers questions about catalogs.

It holds names, types and comments and no row of data. Each analyst is a role there that may read,
and only questions about catalogs are sent there (see ``questions``). Nobody waits for it with
Python's lock in hand. One of the server's own that has died is started again by who needs it.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dpsql.errors import OperationalError, UsageError
from dpsql.files import ScratchFolder
from dpsql.interrupts import HeldLock, check
from dpsql.records import dataclass, field
from dpsql.server.catalog_questions import refusal, unlisted
from dpsql.server.events import Events
from dpsql.server.messages import BINARY, TEXT, Head
from dpsql.server.own_postgres import OwnPostgres, find_postgres
from dpsql.server.result_stream import Write, spread

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

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
MOST_IDLE = 8
"""Connections to the twin that wait for the next statement; each is a process of PostgreSQL."""
MOST_BYTES = 1 << 24
"""Bytes of a result of the twin."""
LIMIT = "5s"
"""Time of one statement in the twin."""
PATIENCE = 15.0
"""Seconds without a word after which a twin that does not keep to that is given up."""
STARTS, WITHIN = 5, 600.0
"""Starts of a twin that has died, at most, within so many seconds: one that dies at once is not
started for ever."""
TRIES = 3
"""Times that a question is asked again of a twin of the server's own that was lost."""
STEP = 0.2
"""Seconds between looks at whether an interrupt was asked for."""
LOST = "08006"
"""The state of a connection that is lost, which comes from nobody."""
GONE = (LOST, "57P01", "57P02", "57P03")
"""States of a PostgreSQL that ends, or of a connection to one that has ended."""
T = TypeVar("T")
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_DONE = (0, 3)
"""libpq's PGRES_POLLING_FAILED and PGRES_POLLING_OK."""
HINT = "the twin answers SELECTs over PostgreSQL's catalogs, by functions that are listed"


class TwinError(Exception):
    """An error of PostgreSQL in a statement, by field of its message."""

    def __init__(self, state: str, text: str, detail: str, hint: str, position: int) -> None:
        super().__init__(text)
        self.state, self.text = state, text
        self.detail, self.hint, self.position = detail, hint, position


@dataclass(frozen=True, slots=True)
class TwinTable:
    """Rows of the twin, as it encoded them: by format, of which there may be both."""

    heads: tuple[Head, ...]
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
    """One database of an empty PostgreSQL; connections to it are lent for one statement each."""

    admin: str
    database: str
    folder: ScratchFolder | None = None
    own: OwnPostgres | None = None
    events: Events = field(default_factory=Events)
    _idle: list[tuple[str, PGconn]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: Declared | None = None
    refused: frozenset[str] = frozenset()
    release: str = ""
    _roles: dict[str | None, str] = field(default_factory=dict)
    _starts: list[float] = field(default_factory=list)
    _began: float = 0.0
    _making: threading.Lock = field(default_factory=threading.Lock)
    _starting: threading.Lock = field(default_factory=threading.Lock)
    _password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def declare(self, tables: Declared) -> None:
        """Make the database hold these tables and no others. Raises: OperationalError (E_TWIN)."""
        if tables != self._known:
            self.living(lambda: self._declare(tables))

    def _declare(self, tables: Declared) -> None:
        with HeldLock(self._making):
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
                self._administer(self.database, "BEGIN; " + "; ".join(statements) + "; COMMIT")
                self._known = tables

    def create(self) -> None:
        """Make the database, in which nobody but analysts may do anything.

        Raises: OperationalError (E_TWIN).
        """
        database = _name(self.database)
        self._administer("postgres", f"DROP DATABASE IF EXISTS {database}")
        self._administer("postgres", f"CREATE DATABASE {database}")
        self._administer("postgres", f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")
        found = self._administer(self.database, "SELECT DISTINCT proname FROM pg_proc")
        self.refused = unlisted((row[0] or b"").decode() for row in found)
        told = self._administer(self.database, "SHOW server_version")[0][0] or b""
        self.release = told.decode().split()[0]

    def reader(self, analyst: str | None) -> TwinReader:
        """The twin as an analyst reads it, whose role tells nobody who that is."""
        return TwinReader(self, analyst)

    def role(self, analyst: str | None) -> str:
        """The role of an analyst, made when it is first needed.

        It may read the declared tables and do nothing else: what others ask is not shown to it, and
        it ends no session but its own. Raises: OperationalError (E_TWIN).
        """
        with HeldLock(self._making):
            known = self._roles.get(analyst)
            if known is not None:
                return known
            plain = f"dpsql_{self.database}_{secrets.token_hex(6)}"
            role = _name(plain)
            limits = "NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT"
            for statement in (
                f"CREATE ROLE {role} LOGIN {limits} PASSWORD {_literal(self._password)}",
                f"GRANT CONNECT ON DATABASE {_name(self.database)} TO {role}",
                f"ALTER ROLE {role} SET default_transaction_read_only = on",
                f"ALTER ROLE {role} SET statement_timeout = '{LIMIT}'",
            ):
                self._administer("postgres", statement)
            self._roles[analyst] = plain
            return plain

    def is_alive(self) -> bool:
        """True if it answers, after it was started again where that was needed."""
        try:
            self.living(lambda: self._administer(self.database, "SELECT 1"))
        except OperationalError:
            return False
        return True

    def living(self, work: Callable[[], T]) -> T:
        """Do what needs it; where it cannot be reached, it is started again, and asked anew.

        Questions change nothing, so that one may be asked again. One that has just lost a process
        may answer for a moment before it ends. Raises: OperationalError (E_TWIN).
        """
        for _ in range(1 if self.own is None else TRIES):
            began = time.monotonic()
            with contextlib.suppress(Unreachable):
                return work()
            self._start_again(began)
        return work()

    def _start_again(self, began: float) -> None:
        """Start a twin of the server's own, unless it runs or somebody has done so since.

        Its folder has all that was made in it. Raises: OperationalError (E_TWIN) where it dies
        again and again, and Unreachable where it does not answer.
        """
        with HeldLock(self._starting):
            if self._began > began:
                return
            with self._lock:
                for _, connection in self._idle:
                    connection.finish()
                self._idle.clear()
            if self.folder is not None and self.own is not None:
                self._start(self.own, self.folder.path)
                self._await()
            self._began = time.monotonic()

    def _start(self, own: OwnPostgres, folder: Path) -> None:
        if own.is_running(folder):  # it recovers by itself from the death of one of its processes
            return
        now = time.monotonic()
        self._starts = [each for each in self._starts if each > now - WITHIN]
        if len(self._starts) >= STARTS:
            what = f"the twin has died {STARTS} times within {WITHIN / 60:.0f} minutes"
            raise OperationalError("E_TWIN", what, hint="it is started again later")
        self._starts.append(now)
        self.events.note("twin", outcome="started again")
        self.admin = own.start(folder)

    def _await(self) -> None:
        """Wait until it answers. Raises: Unreachable after ``PATIENCE`` seconds."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._administer(self.database, "SELECT 1")
                return
            except Unreachable:
                if time.monotonic() > end:
                    raise
            check()
            time.sleep(STEP)

    @contextlib.contextmanager
    def lent(self, analyst: str | None) -> Iterator[PGconn]:
        """A connection of an analyst for one statement; nothing of it is left for the next.

        Raises: Unreachable; OperationalError (E_TWIN); TwinError.
        """
        role = self.role(analyst)
        with self._lock:
            place = next((k for k, (whose, _) in enumerate(self._idle) if whose == role), None)
            connection = None if place is None else self._idle.pop(place)[1]
        if connection is None:
            access = {"user": role, "password": self._password}
            connection = _connect(self.admin, self.database, access)
        try:
            with _reached():
                yield connection
                connection.send_query(b"DISCARD ALL")
                _last_of(connection)
        except BaseException:
            connection.finish()
            raise
        late = None
        with self._lock:
            self._idle.append((role, connection))
            if len(self._idle) > MOST_IDLE:
                late = self._idle.pop(0)[1]
        if late is not None:
            late.finish()

    def _administer(self, database: str, sql: str) -> list[list[bytes | None]]:
        """The rows of the last of some statements. Raises: OperationalError (E_TWIN)."""
        connection = _connect(self.admin, database)
        try:
            with _reached():
                connection.send_query(sql.encode())
                found = _last_of(connection)
            return [
                [found.get_value(row, k) for k in range(found.nfields)]
                for row in range(found.ntuples)
            ]
        except TwinError as error:
            raise OperationalError("E_TWIN", f"the twin refused: {error.text}") from None
        finally:
            connection.finish()

    def close(self) -> None:
        """Close the connections; a twin of the server's own is stopped and its folder removed."""
        with self._lock:
            for _, connection in self._idle:
                connection.finish()
            self._idle.clear()
        if self.folder is not None:
            self.folder.remove()


class TwinReader:
    """The twin for one analyst; see :class:`Twin`."""

    def __init__(self, twin: Twin, analyst: str | None) -> None:
        self._twin = twin
        self._analyst = analyst

    def describe(self, sql: str, oids: Sequence[int]) -> tuple[list[int], tuple[Head, ...]]:
        """The types of the parameters and the columns of a statement. Raises: TwinError."""

        def ask(connection: PGconn) -> tuple[list[int], tuple[Head, ...]]:
            connection.send_prepare(b"", sql.encode(), list(oids))
            _last_of(connection)
            connection.send_describe_prepared(b"")
            found = _last_of(connection)
            return [found.param_type(k) for k in range(found.nparams)], _heads(found)

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

        They are there in every format that is ``wanted``: the twin sends one at a time, so that a
        statement whose columns come in both is run for each. Raises: TwinError.
        """
        kinds = [*oids, *[0] * len(parameters)][: len(parameters)]
        given = spread(formats, len(parameters))

        def ask(connection: PGconn) -> tuple[TwinTable | None, str]:
            found: dict[int, list[list[bytes | None]]] = {}
            heads: tuple[Head, ...] = ()
            tag = ""
            for wish in sorted({*wanted} & {TEXT, BINARY}) or [TEXT]:
                connection.send_query_params(
                    sql.encode(),
                    list(parameters),
                    param_types=kinds or None,
                    param_formats=given or None,
                    result_format=wish,
                )
                heads, found[wish], tag = _all_of(connection)
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
            with twin.lent(self._analyst) as connection:
                return ask(connection)

        return twin.living(work)


def open_twin(where: str, database: str) -> Twin:
    """Open the twin: ``auto`` starts an empty PostgreSQL, anything else is the DSN of one.

    Raises: UsageError (E_TWIN) where there is none.
    """
    try:
        import psycopg.pq  # noqa: F401  of the extra dpsql[server]
    except ImportError:
        raise UsageError(
            "E_TWIN", "the twin needs psycopg", hint="pip install 'dpsql[server]', or --twin off"
        ) from None
    folder = own = None
    if where == "auto":
        own = find_postgres()
        folder = ScratchFolder("dpsql-twin-", remove=own.stop)  # and a twin that a killed one left
        try:
            where = own.start(folder.path)
        except OperationalError:
            folder.remove()
            raise
    twin = Twin(where, database, folder, own)
    twin.create()
    return twin


class Unreachable(OperationalError):
    """The twin does not answer: it has died, or is about to start."""


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """Tell a connection that is lost from all else that goes wrong. Raises: Unreachable."""
    from psycopg import OperationalError as Lost  # of the extra dpsql[server]

    try:
        yield
    except Lost:
        pass
    except TwinError as error:
        if error.state not in GONE:
            raise
    else:
        return
    raise Unreachable("E_TWIN", "the twin cannot be reached")


def _connect(admin: str, database: str, access: Mapping[str, str] | None = None) -> PGconn:
    from psycopg import conninfo, pq  # of the extra dpsql[server]

    dsn = conninfo.make_conninfo(admin, dbname=database, client_encoding="UTF8", **(access or {}))
    connection = pq.PGconn.connect_start(dsn.encode())
    try:
        how: int = pq.PollingStatus.WRITING
        while connection.status != pq.ConnStatus.BAD and how not in _DONE:
            _wait(connection, WRITE if how == pq.PollingStatus.WRITING else READ)
            how = connection.connect_poll()
    except (TwinError, OSError, ValueError):  # no answer; no descriptor; no socket any more
        how = pq.PollingStatus.FAILED
    except BaseException:
        connection.finish()
        raise
    if connection.status != pq.ConnStatus.OK or how != pq.PollingStatus.OK:
        connection.finish()
        raise Unreachable("E_TWIN", "the twin cannot be reached")
    connection.notice_handler = None
    connection.nonblocking = 1
    return connection


def _wait(connection: PGconn, events: int) -> None:
    """Wait for the socket of a connection, so that other threads run meanwhile.

    libpq's own functions wait with Python's lock held: whatever one statement takes, nobody else
    would be served. Raises: TwinError after ``PATIENCE`` seconds; KeyboardInterrupt, if asked for.
    """
    end = time.monotonic() + PATIENCE
    with selectors.DefaultSelector() as waiting:
        waiting.register(connection.socket, events)
        while not waiting.select(STEP):
            check()
            if time.monotonic() > end:
                raise TwinError("57014", "canceling statement due to statement timeout", "", "", 0)


def _next_of(connection: PGconn) -> PGresult | None:
    """The next result of what a connection has been sent, None after the last; no lock is held."""
    while connection.flush():
        _wait(connection, READ | WRITE)
        connection.consume_input()
    while connection.is_busy():
        _wait(connection, READ)
        connection.consume_input()
    return connection.get_result()


def _last_of(connection: PGconn) -> PGresult:
    """The last result of what a connection has been sent. Raises: TwinError."""
    last = None
    while (found := _next_of(connection)) is not None:
        last = found
    if last is None:
        raise TwinError(LOST, "the twin has not answered", "", "", 0)
    return _check(last)


def _all_of(connection: PGconn) -> tuple[tuple[Head, ...], list[list[bytes | None]], str]:
    """The columns and rows of what a connection has been sent, and its tag. Raises: TwinError."""
    connection.set_single_row_mode()
    heads: tuple[Head, ...] = ()
    rows: list[list[bytes | None]] = []
    tag, size = "", 0
    while (found := _next_of(connection)) is not None:
        _check(found)
        heads, tag = heads or _heads(found), (found.command_status or b"").decode()
        for row in range(found.ntuples):
            rows.append([found.get_value(row, k) for k in range(found.nfields)])
            size += sum(len(value or b"") for value in rows[-1])
        if size > MOST_BYTES:
            raise TwinError("54000", f"a result of over {MOST_BYTES} bytes", "", "", 0)
    return heads, rows, tag


def _check(found: PGresult) -> PGresult:
    """A result. Raises: TwinError."""
    from psycopg import pq  # of the extra dpsql[server]

    if found.status in (
        pq.ExecStatus.TUPLES_OK,
        pq.ExecStatus.SINGLE_TUPLE,
        pq.ExecStatus.COMMAND_OK,
        pq.ExecStatus.EMPTY_QUERY,
    ):
        return found
    names = pq.DiagnosticField

    def told(name: pq.DiagnosticField) -> str:
        return (found.error_field(name) or b"").decode(errors="replace")

    if found.status != pq.ExecStatus.FATAL_ERROR:
        raise TwinError("0A000", "this is not supported here", "", "", 0)
    position = told(names.STATEMENT_POSITION)
    raise TwinError(
        told(names.SQLSTATE) or LOST,
        told(names.MESSAGE_PRIMARY),
        told(names.MESSAGE_DETAIL),
        told(names.MESSAGE_HINT),
        int(position) if position.isdigit() else 0,
    )


def _heads(found: PGresult) -> tuple[Head, ...]:
    return tuple(
        Head((found.fname(k) or b"").decode(), found.ftype(k), found.fsize(k), TEXT)
        for k in range(found.nfields)
    )


def _name(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\0", "") + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''").replace("\0", "") + "'"
