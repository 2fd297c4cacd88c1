"""Connections to the twin, by libpq; nobody waits for one with Python's lock in hand."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpsql.errors import OperationalError, UsageError
from dpsql.interrupts import check
from dpsql.server.messages import TEXT, FieldDescription

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn as PGconn
    from psycopg.pq.abc import PGresult

MOST_BYTES = 1 << 24
"""Bytes of a result of the twin."""
PATIENCE = 15.0
"""Seconds without a word after which a twin that does not keep to its limits is given up."""
STEP = 0.2
"""Seconds between looks at whether an interrupt was asked for."""
LOST = "08006"
"""The state of a connection that is lost, which comes from nobody."""
GONE = (LOST, "57P01", "57P02", "57P03")
"""States of a PostgreSQL that ends, or of a connection to one that has ended."""
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_DONE = (0, 3)
"""libpq's PGRES_POLLING_FAILED and PGRES_POLLING_OK."""


class TwinError(Exception):
    """An error of PostgreSQL in a statement, by field of its message."""

    def __init__(self, state: str, text: str, detail: str, hint: str, position: int) -> None:
        super().__init__(text)
        self.state, self.text = state, text
        self.detail, self.hint, self.position = detail, hint, position


class Unreachable(OperationalError):
    """The twin does not answer: it has died, or is about to start."""


def find_driver() -> None:
    """Look for the driver. Raises: UsageError (E_TWIN)."""
    try:
        import psycopg.pq  # noqa: F401  of the extra dpsql[server]
    except ImportError:
        raise UsageError(
            "E_TWIN", "the twin needs psycopg", hint="pip install 'dpsql[server]', or --twin off"
        ) from None


@contextlib.contextmanager
def reached() -> Iterator[None]:
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


def connect(dsn: str, **access: str) -> PGconn:
    """Connect to a PostgreSQL as a DSN says, but for what is given. Raises: Unreachable."""
    from psycopg import conninfo, pq  # of the extra dpsql[server]

    whole = conninfo.make_conninfo(dsn, client_encoding="UTF8", **access)
    connection = pq.PGconn.connect_start(whole.encode())
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


def next_of(connection: PGconn) -> PGresult | None:
    """The next result of what a connection has been sent, None after the last; no lock is held."""
    while connection.flush():
        _wait(connection, READ | WRITE)
        connection.consume_input()
    while connection.is_busy():
        _wait(connection, READ)
        connection.consume_input()
    return connection.get_result()


def last_of(connection: PGconn) -> PGresult:
    """The last result of what a connection has been sent. Raises: TwinError."""
    last = None
    while (found := next_of(connection)) is not None:
        last = found
    if last is None:
        raise TwinError(LOST, "the twin has not answered", "", "", 0)
    return _check(last)


def all_of(
    connection: PGconn,
) -> tuple[tuple[FieldDescription, ...], list[list[bytes | None]], str]:
    """The columns and rows of what a connection has been sent, and its tag. Raises: TwinError."""
    connection.set_single_row_mode()
    heads: tuple[FieldDescription, ...] = ()
    rows: list[list[bytes | None]] = []
    tag, size = "", 0
    while (found := next_of(connection)) is not None:
        _check(found)
        heads, tag = heads or columns_of(found), (found.command_status or b"").decode()
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


def columns_of(found: PGresult) -> tuple[FieldDescription, ...]:
    """The columns of a result."""
    return tuple(
        FieldDescription((found.fname(k) or b"").decode(), found.ftype(k), found.fsize(k), TEXT)
        for k in range(found.nfields)
    )
