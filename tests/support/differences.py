"""Statements that dpsql answers otherwise than the database does, or refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import duckdb

import dpsql
from tests.support.tables import World

Rows = list[tuple[Any, ...]]


def differences(
    world: World, statements: Iterable[str], alike: Callable[[Rows, Rows], bool]
) -> Iterator[str]:
    """What is wrong with each of them that is not ``alike``; a planted fault needs the first."""
    connection, database = world
    for sql in statements:
        expected = database.execute(sql).fetchall()
        try:
            found = connection.execute(sql).fetchall()
        except dpsql.Error as error:
            yield f"{sql}\n{error}"
            continue
        if not alike(found, expected):
            yield f"{sql}\nfound    {found[:6]}\nexpected {expected[:6]}"


def agree(world: World, statements: Iterable[str], alike: Callable[[Rows, Rows], bool]) -> None:
    """Assert that there are none."""
    found = list(differences(world, statements, alike))
    assert not found, "\n\n".join(found[:5])


def answerable(database: duckdb.DuckDBPyConnection, statements: Iterable[str]) -> Iterator[str]:
    """Those of the statements that the database answers."""
    for sql in statements:
        try:
            database.execute(sql).fetchall()
        except duckdb.Error:
            continue
        yield sql
