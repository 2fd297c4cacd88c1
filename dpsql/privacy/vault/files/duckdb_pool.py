"""Instances of DuckDB that are kept from one read of Parquet files to the next.

To start one, to confine it and to end it takes 20 ms of CPU, which is more than most statements
need for all the rest; the next read of the same files takes 3.

Guarantee: an instance reads the files that it was confined to, and no others, for one reader at a
time. What a reader creates in it is undone, and after a fault it is ended.
"""

from __future__ import annotations

import atexit
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import duckdb

from dpsql.forks import fresh, in_child
from dpsql.privacy.vault.files.source import connect, harden
from dpsql.sealed import PrefetchedConnection, end

KEPT = 4
"""Instances that wait for a reader; each has threads of its own."""

ahead = PrefetchedConnection(connect)

_idle: OrderedDict[tuple[str, ...], duckdb.DuckDBPyConnection] = OrderedDict()
# A connection belongs to one reader at a time: it is taken out while it is used.
_taking = fresh(Lock())


@contextmanager
def reader(paths: tuple[str, ...]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads these files alone, within a transaction that is rolled back.

    Nothing may be registered with it. Raises: InternalError if it cannot be confined.
    """
    with _taking:
        found = _idle.pop(paths, None)
    connection = ahead.take() if found is None else found
    try:
        harden(connection, paths)
        connection.begin()
        yield connection
        connection.rollback()
    except BaseException:  # a reader that goes away early, too
        end(connection)
        raise
    with _taking:
        late = [_idle.pop(paths)] if paths in _idle else []
        _idle[paths] = connection
        late += [_idle.popitem(last=False)[1] for _ in range(len(_idle) - KEPT)]
    for each in late:
        end(each)


def end_readers() -> None:
    """End all instances that wait."""
    with _taking:
        while _idle:
            end(_idle.popitem()[1])


atexit.register(end_readers)
in_child(_idle.clear)  # they lack threads
