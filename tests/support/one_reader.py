"""One DuckDB that reads the files of all tests, where none asks how readers are confined.

To start one and to confine it takes 30 ms of CPU for every table of every test. The product starts
one for each set of files, which is what ``privacy``, ``audit`` and ``hostile`` test, with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import duckdb

from dpsql.privacy.vault import public_rows
from dpsql.privacy.vault.files import duckdb as duckdb_module
from dpsql.privacy.vault.files import refused_types, source

CONFINED = frozenset({"privacy", "audit", "hostile"})
"""Folders whose tests have readers as users have them."""

_kept: dict[int, duckdb.DuckDBPyConnection] = {}
_ours: set[int] = set()
_harden = source.harden


@contextmanager
def _reader(paths: tuple[str, ...] = (), threads: int = 0) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of its own, in a transaction that is undone."""
    with _own() as connection:
        connection.begin()
        yield connection
        connection.rollback()


@contextmanager
def _connect(threads: int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of its own, for CSV files and databases."""
    with _own() as connection:
        try:
            yield connection
        finally:
            connection.execute("DETACH DATABASE IF EXISTS source")


@contextmanager
def _own() -> Iterator[duckdb.DuckDBPyConnection]:
    process = os.getpid()
    if process not in _kept:  # threads do not survive a fork
        _kept[process] = source.connect()
        _kept[process].execute("SET GLOBAL TimeZone = 'UTC'")
    with _kept[process].cursor() as connection:
        _ours.add(id(connection))
        try:
            yield connection
        finally:
            _ours.discard(id(connection))


def _confine(connection: duckdb.DuckDBPyConnection, paths: tuple[str, ...]) -> None:
    if id(connection) not in _ours:
        _harden(connection, paths)


@contextmanager
def one_reader() -> Iterator[None]:
    """Read Parquet files in a DuckDB that other tests have used."""
    with ExitStack() as patched:
        for module, name, part in (
            (duckdb_module, "reader", _reader),
            (duckdb_module, "connect", _connect),
            (public_rows, "connect", _connect),
            (public_rows, "reader", _reader),
            (refused_types, "reader", _reader),
            (refused_types, "connect", _reader),
            (refused_types, "harden", _confine),
            (source, "harden", _confine),
        ):
            patched.enter_context(mock.patch.object(module, name, part))
        yield


def close_reader() -> None:
    """End it."""
    while _kept:
        _kept.popitem()[1].close()
