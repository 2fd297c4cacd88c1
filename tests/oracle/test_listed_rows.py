"""Public rows that are joined to several private columns: conditions choose them first."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql
from dpsql.sql.public import public_combinations
from tests.support.seam import zero_noise
from tests.support.tables import Tables, open_tables

CATALOG = """
[budget]
epsilon = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 9] }
b = { type = "integer", domain = [0, 9] }

[table.shops]
source = "shops.parquet"
public = true

[table.shops.column]
id = { type = "integer" }
least = { type = "integer" }
kind = { type = "text" }
"""
TABLES: Tables = {
    "t": "SELECT i % 10 AS a, i // 10 % 10 AS b FROM range(300) r(i)",
    "shops": "SELECT i % 10 AS id, i % 7 AS least, 'k' || i % 150 AS kind FROM range(300) r(i)",
}
EITHER = "(t.a = s.id AND s.kind = 'k7') OR (t.b = s.id AND s.kind = 'k9' AND t.a = 3)"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as a quick test has."""
    monkeypatch.setattr(public_combinations, "MAX_LISTED", 100)


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT COUNT(*) FROM t, shops s WHERE {EITHER}",
        "SELECT COUNT(*) FROM t JOIN shops s ON t.a = s.id AND t.b >= s.least WHERE s.kind = 'k5'",
        "SELECT x.kind, COUNT(*) FROM t, shops s, shops x WHERE t.a = s.id AND t.b = x.id AND "
        "s.kind = x.kind AND s.kind IN ('k1', 'k2') GROUP BY x.kind",
    ],
)
def test_conditions_choose_public_rows_before_they_are_listed(tmp_path: Path, sql: str) -> None:
    with open_tables(tmp_path, CATALOG, TABLES) as (connection, database), zero_noise():
        connection.set("mechanism", "identity")
        found = sorted(connection.execute(sql).fetchall())
        known = sorted(database.execute(sql).fetchall())
        assert [(*row[:-1], round(row[-1])) for row in found] == known


def test_without_conditions_they_are_too_many(tmp_path: Path) -> None:
    with open_tables(tmp_path, CATALOG, TABLES) as (connection, _):
        with pytest.raises(dpsql.Error) as caught:
            connection.execute("SELECT COUNT(*) FROM t JOIN shops s ON a >= id AND b >= least")
        assert caught.value.code == "E_TOO_LARGE"


def test_a_row_counts_once_for_every_public_row_without_a_condition(tmp_path: Path) -> None:
    """Noise is that of the rows alone: all groups are one number, and a total is so many of it."""
    with open_tables(tmp_path, CATALOG, TABLES) as (connection, _):

        def error(sql: str) -> float | None:
            found = connection.execute(sql, epsilon=1).result.stddev[-1]
            assert len(set(found or ())) == 1
            return found[0] if found else None

        once = error("SELECT COUNT(*) FROM t")
        assert once is not None
        assert error("SELECT COUNT(*) FROM t, range(3)") == pytest.approx(3 * once)
        each = error("SELECT i, COUNT(*) FROM t, range(3) AS r(i) GROUP BY i")
        assert each == pytest.approx(once)
