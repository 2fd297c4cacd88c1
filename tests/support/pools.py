"""Pools of connections, each as its library has it, under one set of verbs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Protocol

import asyncpg
import psycopg
import sqlalchemy
from psycopg_pool import ConnectionPool, PoolTimeout

from tests.support.served import PASSWORD

ASKED = "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind"
OPTIONS = "-c epsilon=0.01"
LOST = ("57P01", "08006", "08003")
"""States of a connection that has been ended."""


class Lost(Exception):
    """A connection that its library knows to be gone, so that nobody gets it again."""


class Refused(Exception):
    """A pool that can connect no more."""


class Pool(Protocol):
    """A pool of one user; what is kept out of it is given back by ``go_on``."""

    def use(self) -> int:
        """The rows of a statement, of a connection that is there for it. Raises: Refused."""

    def keep(self, with_cursor: bool) -> Any:
        """Keep a connection in a transaction, with a cursor half read."""

    def go_on(self, kept: Any) -> int:
        """The rows that are left, or of the statement; it is given back. Raises: Lost."""

    def close(self) -> None:
        """End it."""


def _close(cursor: psycopg.Cursor[Any]) -> None:
    """Close a cursor of psycopg, which needs a connection that is known to be lost where it is."""
    with contextlib.suppress(psycopg.Error):
        cursor.close()
    if not cursor.closed:
        cursor.connection.close()
        cursor.close()


class OfPsycopg:
    """psycopg's own, which looks at a connection before it hands it out."""

    def __init__(self, port: int) -> None:
        facts = f"host=127.0.0.1 port={port} user=ana password='{PASSWORD}' dbname=clinic"
        self.pool = ConnectionPool(
            f"{facts} options='{OPTIONS}'",
            min_size=1,
            max_size=4,
            reconnect_timeout=0.1,
            check=ConnectionPool.check_connection,
            open=True,
        )
        self.pool.wait(30)

    def use(self) -> int:
        try:
            with self.pool.connection(timeout=1.0) as connection:
                return len(connection.execute(ASKED).fetchall())
        except PoolTimeout:
            raise Refused from None

    def keep(self, with_cursor: bool) -> Any:
        connection = self.pool.getconn()
        cursor = connection.cursor("c") if with_cursor else connection.cursor()
        cursor.execute(ASKED)
        cursor.fetchone()
        return connection, cursor, with_cursor

    def go_on(self, kept: Any) -> int:
        connection, cursor, with_cursor = kept
        try:
            if with_cursor:
                return len(cursor.fetchall()) + 1
            return len(connection.execute(ASKED).fetchall())
        except psycopg.OperationalError:
            raise Lost from None
        finally:
            _close(cursor)
            self.pool.putconn(connection)

    def close(self) -> None:
        self.pool.close()


class OfSqlAlchemy:
    """SQLAlchemy's, with a ping before a connection is handed out."""

    def __init__(self, port: int) -> None:
        where = ("127.0.0.1", port, "clinic")
        url = sqlalchemy.URL.create("postgresql+psycopg", "ana", PASSWORD, *where)
        given = {"options": OPTIONS}
        self.engine = sqlalchemy.create_engine(url, pool_pre_ping=True, connect_args=given)

    def use(self) -> int:
        try:
            with self.engine.connect() as connection:
                return len(connection.execute(sqlalchemy.text(ASKED)).fetchall())
        except sqlalchemy.exc.OperationalError:
            raise Refused from None

    def keep(self, with_cursor: bool) -> Any:
        connection = self.engine.connect()
        options = {"stream_results": True, "max_row_buffer": 1} if with_cursor else {}
        cursor = connection.execute(sqlalchemy.text(ASKED), execution_options=options)
        cursor.fetchone()
        return connection, cursor, with_cursor

    def go_on(self, kept: Any) -> int:
        connection, cursor, with_cursor = kept
        own = cursor.cursor
        try:
            if with_cursor:
                return len(cursor.fetchall()) + 1
            return len(connection.execute(sqlalchemy.text(ASKED)).fetchall())
        except sqlalchemy.exc.OperationalError as error:
            raise Lost if error.connection_invalidated else error from None
        finally:
            connection.close()
            if own is not None:
                _close(own)

    def close(self) -> None:
        self.engine.dispose()


class OfAsyncpg:
    """asyncpg's, whose loop hears of a connection that has ended."""

    def __init__(self, port: int) -> None:
        self.loop = asyncio.new_event_loop()
        facts = {"host": "127.0.0.1", "port": port, "user": "ana", "password": PASSWORD}
        facts |= {"database": "clinic", "server_settings": {"epsilon": "0.01"}}
        self.pool: Any = asyncpg.create_pool(**facts, min_size=1, max_size=4, loop=self.loop)
        self.run(self.pool)

    def run(self, work: Any) -> Any:
        async def done() -> Any:
            for _ in range(5):  # what has come meanwhile is heard of
                await asyncio.sleep(0.001)
            return await work

        return self.loop.run_until_complete(done())

    def use(self) -> int:
        try:
            return len(self.run(self.pool.fetch(ASKED)))
        except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError):
            raise Refused from None

    def keep(self, with_cursor: bool) -> Any:
        return self.run(self._keep(with_cursor))

    async def _keep(self, with_cursor: bool) -> Any:
        connection = await self.pool.acquire()
        transaction = connection.transaction()
        await transaction.start()
        cursor = await connection.cursor(ASKED)
        await (cursor.fetchrow() if with_cursor else connection.fetch(ASKED))
        return connection, transaction, cursor, with_cursor

    def go_on(self, kept: Any) -> int:
        return int(self.run(self._go_on(*kept)))

    async def _go_on(self, connection: Any, transaction: Any, cursor: Any, half: bool) -> int:
        try:
            rows = len(await cursor.fetch(100)) + 1 if half else len(await connection.fetch(ASKED))
            await transaction.commit()
            return rows
        except (
            asyncpg.PostgresConnectionError,
            asyncpg.AdminShutdownError,
            asyncpg.InterfaceError,
        ):
            raise Lost from None
        finally:
            await self.pool.release(connection)

    def close(self) -> None:
        ending: Coroutine[Any, Any, None] = self.pool.close()
        self.run(ending)
        self.loop.close()


class OfJdbc:
    """Connections of JDBC, each asked whether it is valid before it is handed out, as pools do."""

    def __init__(self, port: int, jvm: Any) -> None:
        self.jvm = jvm
        self.url = f"jdbc:postgresql://127.0.0.1:{port}/clinic?options=-c%20epsilon=0.01"
        self.here: list[Any] = []
        self.use()

    def _take(self) -> Any:
        while self.here:
            found = self.here.pop()
            if found.isValid(5):
                return found
        from py4j.protocol import Py4JJavaError  # of an extra that few have

        try:
            return self.jvm.java.sql.DriverManager.getConnection(self.url, "ana", PASSWORD)
        except Py4JJavaError as error:
            is_refused = error.java_exception.getSQLState() in ("28P01", "28000")
            raise Refused if is_refused else error from None

    def _ask(self, connection: Any) -> Any:
        statement = connection.createStatement()
        statement.setFetchSize(0 if connection.getAutoCommit() else 1)
        return statement.executeQuery(ASKED)

    def use(self) -> int:
        connection = self._take()
        rows = _count(self._ask(connection))
        self.here.append(connection)
        return rows

    def keep(self, with_cursor: bool) -> Any:
        connection = self._take()
        connection.setAutoCommit(False)
        rows = self._ask(connection)
        rows.next()
        return connection, rows if with_cursor else None

    def go_on(self, kept: Any) -> int:
        from py4j.protocol import Py4JJavaError  # of an extra that few have

        connection, rows = kept
        try:
            found = _count(self._ask(connection)) if rows is None else _count(rows) + 1
            connection.commit()
            connection.setAutoCommit(True)
        except Py4JJavaError as error:
            is_lost = error.java_exception.getSQLState() in LOST and not connection.isValid(5)
            raise Lost if is_lost else error from None
        self.here.append(connection)
        return found

    def close(self) -> None:
        for each in self.here:
            each.close()


def _count(rows: Any) -> int:
    found = 0
    while rows.next():
        found += 1
    return found
