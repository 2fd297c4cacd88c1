"""What every kept version of dpsql was paid for is owned: asked again, it is free and the same.

The corpus has the ledgers and releases that earlier versions wrote, one file for each; ``write.py``
adds a version to it.
"""

from __future__ import annotations

import json
import math
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import dpsql
from dpsql.answer import implied
from dpsql.answer.accuracy import ComparedErrors
from dpsql.dbapi.connection import Connection, adopt_ledger
from tests.upgrades import ask

VERSIONS = sorted(ask.HERE.glob("*.zip"))
SUMMED = "384dde47"
"""A version whose sums were measured in other weights than those of today."""


@contextmanager
def reopened(version: Path, folder: Path) -> Iterator[tuple[Connection, list[Any]]]:
    """The catalog of the corpus with what a version wrote, and what it answered."""
    for each in (*ask.HERE.glob("*.toml"), *ask.HERE.glob("*.parquet")):
        shutil.copy(each, folder)
    with zipfile.ZipFile(version) as file:
        file.extractall(folder)
    adopt_ledger(folder / ask.CATALOG, "the corpus is a copy")
    answered = json.loads((folder / "answered.json").read_text())
    with ask.known_by_name(), dpsql.connect(folder / ask.CATALOG, epsilon=1) as connection:
        yield connection, answered


def charged(connection: Connection, answered: list[Any]) -> list[str]:
    return [sql for sql, *_ in answered if not connection.explain(sql).free]


def alike(one: Any, two: Any) -> bool:
    """True if an answer is that of an earlier version, which did not round counts beside sums."""
    if isinstance(one, int) and isinstance(two, float):
        return abs(one - two) <= 0.5 + 1e-4
    if isinstance(one, float) and isinstance(two, int | float):
        return math.isclose(one, two, rel_tol=1e-4, abs_tol=1e-4)
    return bool(one == two)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: each.stem)
def test_what_was_paid_for_is_free_and_the_same(version: Path, tmp_path: Path) -> None:
    with reopened(version, tmp_path) as (connection, answered):
        entries = len(connection.entries())
        assert len(answered) == len(ask.statements())
        for sql, _, rows in answered:
            found = json.loads(json.dumps(connection.execute(sql).fetchall(), default=str))
            assert len(found) == len(rows), sql
            for one, two in zip(sorted(found, key=repr), sorted(rows, key=repr), strict=True):
                assert all(map(alike, one, two)), (sql, one, two)
        assert len(connection.entries()) == entries


def test_what_was_paid_for_is_free_whatever_would_be_more_accurate(tmp_path: Path) -> None:
    worse = mock.patch.object(ComparedErrors, "is_no_worse", new=False)
    with reopened(VERSIONS[0], tmp_path) as (connection, answered), worse:
        owned = [each for each in answered if not each[1]]
        assert charged(connection, owned) == []
        connection.set("metric", "max")
        assert charged(connection, owned[1:2])  # on other terms than it was asked on


def test_sums_that_are_not_looked_for_are_found_to_be_charged(tmp_path: Path) -> None:
    version = ask.HERE / f"{SUMMED}.zip"
    blind = mock.patch.object(implied, "spans", return_value=False)
    with reopened(version, tmp_path) as (connection, answered), blind:
        assert len(charged(connection, answered)) > 5


def test_releases_of_another_version_of_the_data_are_not_taken(tmp_path: Path) -> None:
    with reopened(VERSIONS[0], tmp_path) as (connection, answered):
        some = answered[:4]
        assert charged(connection, some) == []
    newer = mock.patch.object(ask, "facts", lambda path: [Path(path).name, 1, 1])
    with newer, ask.known_by_name(), dpsql.connect(tmp_path / ask.CATALOG, epsilon=1) as later:
        assert charged(later, some) == [sql for sql, *_ in some]
