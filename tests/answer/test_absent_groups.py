"""Statements that depend on which groups there are say how that is decided."""

from __future__ import annotations

import pytest

from dpsql.dbapi.connection import Connection
from dpsql.sql.groups.absent_groups import NOTE

GROUPS = "(SELECT education, COUNT(*) AS n FROM adult GROUP BY education{}) AS g"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (f"SELECT COUNT(*) FROM {GROUPS.format('')}", True),
        (f"SELECT AVG(n) AS a FROM {GROUPS.format('')}", True),
        (f"SELECT MIN(n) AS a, SUM(n) FROM {GROUPS.format('')}", True),
        (f"SELECT SUM(n) AS s FROM {GROUPS.format('')}", False),
        (f"SELECT COUNT(*) FROM {GROUPS.format(' HAVING COUNT(*) > 10')}", False),
        (f"SELECT COUNT(*) FROM {GROUPS.format('')} WHERE n > 10", False),
        (f"SELECT education, n FROM {GROUPS.format('')}", False),
        ("SELECT COUNT(*) FROM (SELECT COUNT(*) AS n FROM adult) AS g", False),
        ("SELECT COUNT(*), AVG(age) FROM adult", False),
    ],
)
def test_counts_of_groups_are_told_of(adult: Connection, sql: str, told: bool) -> None:
    assert (NOTE in adult.execute(sql).result.notes) == told
