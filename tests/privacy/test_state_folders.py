"""Files and folders of the state that may not be looked at: refused as such; nothing is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import dpsql
from dpsql.dbapi.connection import Connection, verify_ledger
from dpsql.dbapi.history import read_past
from tests.support.tables import write_tables

CATALOG = """
[budget]
epsilon = 1000
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
sex = { type = "text", domain = ["f", "m"] }
"""
TABLES = {"t": "SELECT 'fm'[1 + i % 2] AS sex FROM range(40) r(i)"}
COUNT = "SELECT COUNT(*) AS n FROM t"
OTHER = "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex"
PLACES = (
    *("t.ledger", "t.ledger.lock", "t.ledger-journal", "t.releases", "t.synthetic"),
    *("/dpsql", "/anchors", ".anchor", "sources.lock", ".source", ".inode"),
)


@contextmanager
def unseen(place: str, number: int) -> Iterator[None]:
    """Nothing is told of files with such names, or in such folders."""
    look = os.stat

    def refuse(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if name.endswith(place) or (place[0] == "/" and f"{place}/" in name):
            raise OSError(number, os.strerror(number), name)
        return look(path, *arguments, **options)

    with mock.patch.object(os, "stat", refuse):
        yield


def code_of(work: Callable[[], object]) -> str:
    """How something ends: with nothing or with an error of dpsql."""
    try:
        work()
    except dpsql.Error as error:
        return error.code
    return ""


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("begins", ["before all", "between sessions", "in a session"])
def test_what_may_not_be_looked_at_is_refused_as_such(
    place: str, number: int, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_tables(tmp_path, CATALOG, TABLES).close()
    path = tmp_path / "t.toml"
    if begins == "between sessions":
        with dpsql.connect(path, epsilon=1) as before:
            before.execute(COUNT).fetchall()
    connection = dpsql.connect(path, epsilon=1) if begins == "in a session" else None
    codes = set()
    with unseen(place, number):
        if connection is None:
            opened: list[Connection] = []
            codes.add(code_of(lambda: opened.append(dpsql.connect(path, epsilon=1))))
            connection = opened[0] if opened else None
        for sql in (COUNT, COUNT, OTHER, "SHOW budget", "SHOW ledger"):
            if connection is not None:
                codes.add(code_of(partial(connection.execute, sql)))
        codes |= {code_of(lambda: read_past(path)), code_of(lambda: verify_ledger(path))}
    assert codes <= {"", "E_LEDGER_IO", "E_LEDGER_MISSING"}, codes
    assert "E_LEDGER_MISSING" not in codes or begins == "before all"
    if connection is not None:
        connection.close()
    with dpsql.connect(path, epsilon=1) as again:
        assert again.execute(COUNT).fetchall()
        debits = [entry for entry in again.entries() if entry.kind == "debit"]
        assert again.budget.spent_epsilon == len(debits) <= 2
        assert {entry.state for entry in debits} == {"released"}
