"""PIVOT of what is read in other spellings: it has the columns and the answers of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsql
from tests.sql.test_scalar_lookups import CATALOG, TABLES
from tests.support.seam import zero_noise
from tests.support.tables import stored_world

WAYS = (
    "SELECT * FROM {0}",
    "SELECT * REPLACE (pieces + 0 AS pieces) FROM {0}",
    "SELECT pieces, shop FROM {0}",
    "WITH shops AS (SELECT * FROM {0}) SELECT * FROM shops",
    "SELECT * RENAME (s AS shop) FROM (SELECT * RENAME (shop AS s) FROM {0}) AS r",
    "SELECT i.* FROM {0} WHERE pieces >= 0",
    "SELECT shop, pieces FROM {0} UNION ALL SELECT shop, pieces FROM {0} WHERE pieces < 0",
)
"""Queries of the rows of ``i`` in FROM, with the columns ``shop`` and ``pieces``."""


def test_a_pivot_is_that_of_the_rows_however_they_are_read(tmp_path: Path) -> None:
    one = [way.format("sales AS i") for way in WAYS]
    two = [WAYS[place - 3].format(f"({inner}) AS i") for place, inner in enumerate(one)]
    names = ["sales", "ages", "shops"]
    with stored_world(tmp_path, TABLES, names, CATALOG) as (connection, _), zero_noise():
        answers: dict[str, list[tuple[Any, ...]]] = {}
        for source in ("sales", *(f"({query})" for query in one + two)):
            # values of a UNION are those that are listed
            which = "IN (0, 1, 2) " if "UNION" in source else ""
            pivot = "PIVOT {} ON shop {}USING COUNT(*) GROUP BY pieces"
            plain = answers.get(which) or sorted(connection.execute(pivot.format("sales", which)))
            answers[which] = plain
            assert sorted(connection.execute(pivot.format(source, which))) == plain, source


@pytest.mark.parametrize("source", ["(SELECT nope, shop FROM sales)", "(SELECT shop FROM nope) i"])
def test_what_is_wrong_about_the_source_is_said_of_it(tmp_path: Path, source: str) -> None:
    names = ["sales", "ages", "shops"]
    with stored_world(tmp_path, TABLES, names, CATALOG) as (connection, _):
        for sql in (f"PIVOT {source} ON shop USING COUNT(*)", f"UNPIVOT {source} ON * INTO NAME n"):
            with pytest.raises(dpsql.Error, match="nope") as caught:
                connection.execute(f"{sql} VALUE v" if sql.startswith("UN") else sql)
            assert caught.value.code in ("E_UNKNOWN_COLUMN", "E_UNKNOWN_TABLE")
            assert caught.value.span is not None
