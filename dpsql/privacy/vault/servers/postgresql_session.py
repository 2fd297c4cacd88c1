"""A session of a PostgreSQL server: reached, set and checked; what its driver says is withheld."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.data_engine import unavailable

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

OLDEST = 140_000
"""The version from which on infinities of numeric and exact epochs are known."""
PATIENCE = 10
"""Seconds to wait for a server that does not answer, where its address names no others."""
SETTINGS = {
    "statement_timeout": "0",
    "TimeZone": "UTC",
    "row_security": "off",
    "standard_conforming_strings": "on",
    "search_path": "pg_catalog",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "repeatable read",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "jit": "off",
    "synchronize_seqscans": "off",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
}
"""Settings that are set, and checked: whatever the role, the database or the address says of it.

Rows that a policy hides are an error and not a smaller count; no time limit depends on the data;
rows come in the order in which they are stored, so that two readings in one snapshot agree.
"""
LATER = "transaction_timeout"
"""One more time limit, which servers know from version 17 on."""
SET_ALL, SHOW_ALL = (
    "SELECT " + ", ".join(each.format(*pair) for pair in SETTINGS.items())
    for each in (
        "pg_catalog.set_config('{0}', '{1}', false) AS {0}",
        "pg_catalog.current_setting('{0}') AS {0}",
    )
)
SET_ALL += (
    ", (SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings"
    f" WHERE name OPERATOR(pg_catalog.=) '{LATER}') AS {LATER}"
)
"""The statements that set a session, and show what it is set to."""
TOLD = {
    "28": "the server refuses the login",
    "3D": "the server has no such database",
    "42501": "permission denied",
    "3F": "there is no such table",
    "42P01": "there is no such table",
    "42602": "its table is no name of a table",
    "0A000": "its table is no name of a table",
    "42704": f"the server is older than PostgreSQL {OLDEST // 10_000}",
    "42601": "its table is no name of a table",
    "53": "the server has no room for another session",
    "57P": "the server is shutting down or starting",
}
"""Messages on a failure before any row is read, by the start of its SQLSTATE."""
AT_LOGIN = {
    "password authentication failed": "the server refuses the login",
    "role": "the server refuses the login",
    "pg_hba": "the server refuses the login",
    "database": "the server has no such database",
}
UNSAID = "no password supplied"
"""The driver's own message, and not the server's, where it is asked for a password."""
NAMED = "check `table` in the catalog, as schema.table, with capitals in double quotes"
HINTS = {
    "the server refuses the login": "check user and dbname in {0}, the password in ~/.pgpass, and "
    "pg_hba.conf",
    "the server has no such database": "check dbname in {0}",
    "permission denied": "GRANT USAGE ON its schema and SELECT on the declared columns to the role",
    "there is no such table": NAMED,
    "its table is no name of a table": NAMED,
    "the address of the server is malformed": "{0} is host=... dbname=..., or postgresql://...",
    "the server cannot be reached": "check that it runs, and host and port in {0}",
}
"""Hints, by the message; {0} is what holds the address."""


def address_of(table: Table) -> str:
    """Return how the server of a table is reached. Raises: DataUnavailable."""
    name, service = table.option("dsn_env"), table.option("service")
    if name is not None:
        address = os.environ.get(name)
        if not address:
            problem = f"the environment variable {name}, which says how to reach it, is not set"
            unavailable(table.name, table.source, problem, f"export {name}='host=... dbname=...'")
        return address
    if service is None:
        problem = "nothing says how to reach the server"
        unavailable(table.name, table.source, problem, 'dsn_env = "NAME", or service = "name"')
    return make_conninfo(service=service)


@contextmanager
def session(address: str) -> Iterator[Connection]:
    """Open a session in a read-only transaction, whose one snapshot all reads share."""
    with connected(address) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield connection


@contextmanager
def connected(address: str) -> Iterator[Connection]:
    """Open a session, set and checked, outside any transaction.

    Raises: psycopg.Error; ValueError where a setting does not hold.
    """
    given = full_address(address)
    connection = psycopg.connect(given, autocommit=True, prepare_threshold=None)
    try:
        connection.execute(SET_ALL.encode())
        check_settings(connection.execute(SHOW_ALL.encode()).fetchone() or ())
        yield connection
    finally:
        connection.close()


def full_address(address: str) -> str:
    """Return an address with what is not said in it. Raises: psycopg.Error."""
    known: dict[str, Any] = conninfo_to_dict(address)
    known.setdefault("connect_timeout", PATIENCE)
    known.setdefault("application_name", "dpsql")
    return make_conninfo(**{**known, "client_encoding": "UTF8"})


def check_settings(shown: Sequence[object]) -> None:
    """Raise ValueError unless a session is set as it must be; ``shown`` is what it shows."""
    if [*shown] != [*SETTINGS.values()]:
        raise ValueError("a setting of the session does not hold")


def told(table: Table, work: Callable[[], T]) -> T:
    """Run what opens a table; a failure of the driver is told by what it is about, in our words.

    Raises: DataUnavailable, without a trace of the driver's error.
    """
    try:
        return work()
    except psycopg.Error as error:
        problem = _problem(error)
    except ValueError:
        problem = "the session cannot be set as it must be, or the address is malformed"
    _refuse(table, problem)


def _refuse(table: Table, problem: str) -> NoReturn:
    where = table.option("dsn_env") or f"the service {table.option('service')}"
    hint = HINTS.get(problem, "its log says why").format(where)
    unavailable(table.name, table.source, problem, hint)


def _problem(error: psycopg.Error) -> str:
    state = error.sqlstate
    if state is not None:
        known = (text for start, text in TOLD.items() if state.startswith(start))
        return next(known, "the server does not describe it; details are withheld")
    said = str(error)
    if isinstance(error, psycopg.ProgrammingError):
        return "the address of the server is malformed"
    if "FATAL" in said or UNSAID in said:
        return next((text for part, text in AT_LOGIN.items() if part in said), TOLD["28"])
    return "the server cannot be reached"
