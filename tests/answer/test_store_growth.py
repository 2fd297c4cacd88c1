"""What a statement asks of the ledger and of the store does not grow with what is in them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import dpsql
from dpsql.dbapi.connection import Connection

GROWING = ("entry", "release", "measured", "implied", "clipped", "learned")
STATEMENTS = (
    "SELECT COUNT(*) AS n FROM adult WHERE age < 30",
    "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex",
    "SELECT sex, COUNT(*) AS n FROM adult WHERE sex = 'Male' GROUP BY sex",
    "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex",
    "SELECT SUM(hours_per_week) AS s FROM adult",
    "SHOW budget",
)


@contextmanager
def asked_of_sqlite() -> Iterator[list[tuple[str, str]]]:
    """The statements that SQLite runs, each with the path of the file that it runs on."""
    found: list[tuple[str, str]] = []
    connect = sqlite3.connect

    def watched(database: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(database, **options)
        path = str(database).removeprefix("file://").partition("?")[0]
        db.set_trace_callback(lambda sql: found.append((path, sql)))
        return db

    with mock.patch.object(sqlite3, "connect", watched):
        yield found


def test_nothing_is_searched_for_row_by_row(adult: Connection) -> None:
    adult.execute("SELECT COUNT(*) AS n FROM adult").fetchall()
    with asked_of_sqlite() as found:
        for sql in STATEMENTS:
            adult.execute(sql).fetchall()
    slow = []
    for path, sql in dict.fromkeys(found):
        if re.match(r"(SELECT|INSERT|UPDATE|DELETE)\b", sql):
            with sqlite3.connect(path) as db:
                steps = db.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            slow += [(told, sql) for *_, told in steps if is_slow(told)]
    assert not slow
    assert sum("measured" in sql for _, sql in found) > 3


def is_slow(told: str) -> bool:
    """Whether a step looks at every row of a table that grows, or sorts what it has found."""
    return "TEMP B-TREE" in told or any(told.startswith(f"SCAN {name}") for name in GROWING)


def test_a_store_of_before_gets_its_indexes(demo: Path) -> None:
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        first = connection.execute(STATEMENTS[1]).fetchall()
    with sqlite3.connect(demo / "adult.releases") as db:
        db.execute("DROP INDEX newest")
        db.execute("DROP INDEX answered")
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        assert connection.execute(STATEMENTS[1]).fetchall() == first  # which writes nothing
        assert len(connection.entries()) == 2
        connection.execute(STATEMENTS[0])
    with sqlite3.connect(demo / "adult.releases") as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    assert {"newest", "answered"} <= {name for (name,) in names}
