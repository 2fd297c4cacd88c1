"""Rows that PostgreSQL sends, as arrays: ADBC decodes COPY in a third of the time of a loop.

They come in a session of their own, which sees the snapshot of another one.

Guarantee: that session has every setting on which codes depend, checked before a row is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from typing import Any

import adbc_driver_postgresql
from adbc_driver_manager import AdbcConnection, AdbcDatabase, AdbcStatement

from dpsql.privacy.vault.codes.prefetch import read_ahead
from dpsql.privacy.vault.files.arrow_stream import Fetched, read_stream
from dpsql.privacy.vault.servers.postgresql_session import (
    SET_ALL,
    SHOW_ALL,
    Connection,
    check_settings,
    full_address,
)

ROWS = 1 << 16
"""Rows that are handed over at once."""


def rows_sent(
    address: str, seen: Connection, select: str, as_bytes: Collection[str] = ()
) -> Iterator[Fetched]:
    """Yield the rows of a SELECT in the snapshot of a session ``seen``; the last batch is empty.

    Texts of the columns ``as_bytes`` are no objects. An interrupt is not waited for: another thread
    waits for the server. Raises: adbc_driver_manager.Error; OSError; ValueError.
    """
    found = seen.execute("SELECT pg_export_snapshot()").fetchone()
    snapshot = str(found[0]) if found else ""
    with ExitStack() as stack:
        path = adbc_driver_postgresql._driver_path()
        database = stack.enter_context(
            closing(AdbcDatabase(driver=path, uri=full_address(address)))
        )
        connection = stack.enter_context(closing(AdbcConnection(database)))
        _see(connection, snapshot)
        statement = stack.enter_context(closing(AdbcStatement(connection)))
        batches = _asked(statement, select, as_bytes)
        yield from read_ahead(batches, statement.cancel)


def _see(connection: Any, snapshot: str) -> None:
    """Set a session, check what it is set to, and let it see a snapshot."""
    with closing(AdbcStatement(connection)) as statement:
        for _ in _asked(statement, SET_ALL):
            pass
        shown, *_ = _asked(statement, SHOW_ALL)
        check_settings([values[0] for values in shown.values()])
        for each in (
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            f"SET TRANSACTION SNAPSHOT '{snapshot}'",
        ):
            statement.set_sql_query(each)
            statement.execute_update()


def _asked(statement: Any, select: str, as_bytes: Collection[str] = ()) -> Iterator[Fetched]:
    statement.set_sql_query(select)
    stream, _ = statement.execute_query()
    yield from read_stream(stream.__arrow_c_stream__(), ROWS, as_bytes)
