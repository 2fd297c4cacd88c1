"""Differential oracle on random tables and statements: without noise, answers are DuckDB's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.dbapi import Connection, Result
from tests.support.oracle import ROWS, compare, write_world
from tests.support.seam import zero_noise
from tests.support.statements import Statement, statements

TABLES = int(os.environ.get("ORACLE_TABLES", "25"))
REFUSED = {"E_TOO_LARGE", "E_PREDICATE"}


def answer(connection: Connection, sql: str) -> Result | None:
    """The result of a statement, None where it is refused for its size."""
    try:
        return connection.execute(sql).result
    except dpsql.Error as error:
        if error.code in REFUSED:
            return None
        raise AssertionError(f"{sql}\n{error}") from error


@settings(max_examples=TABLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ROWS, wanted=st.lists(statements(), min_size=8, max_size=16))
def test_random_statements_on_random_tables(
    rows: list[tuple[Any, ...]], wanted: list[Statement]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = write_world(folder, rows)
        with zero_noise(), dpsql.connect(folder / "t.toml", epsilon=1) as connection:
            for statement in wanted:
                if (result := answer(connection, statement.sql)) is not None:
                    compare(statement, result, database, len(rows))
        database.close()
