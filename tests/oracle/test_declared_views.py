"""Views that declare what counts and sums by unit may be, without noise, compared with DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from tests.oracle.test_private_joins import CATALOG, differences, star
from tests.support.seam import zero_noise
from tests.support.tables import World, open_tables

VIEWS = '''
[view.people]
sql = """
SELECT patient_id, COUNT(*) AS n, SUM(cost) AS spent, MAX(day) AS d FROM visits GROUP BY patient_id
"""
max_rows = 1
[view.people.column]
n = { type = "integer", domain = [1, 4] }
spent = { type = "number", bins = [0, 100, 250, 3000], null = true }

[view.gaps]
sql = "SELECT ward, day - LAG(day) OVER (PARTITION BY patient_id ORDER BY day) AS gap FROM visits"
[view.gaps.column]
gap = { type = "integer", domain = [0, 5], null = true }
'''

SAME = {
    "SELECT n, COUNT(*) AS k FROM people GROUP BY n":
        "SELECT LEAST(n, 4) AS n, COUNT(*) FROM people GROUP BY 1",
    "SELECT COUNT(*) AS k FROM people WHERE spent >= 100 AND n < 4": None,
    "SELECT d, COUNT(*) AS k FROM people WHERE spent < 250 GROUP BY d": None,
    "SELECT gap, COUNT(*) AS k FROM gaps GROUP BY gap":
        "SELECT LEAST(gap, 5 + 0 * gap) AS gap, COUNT(*) FROM gaps GROUP BY 1",
    "SELECT sex, AVG(n) AS k FROM people JOIN patients USING (patient_id) WHERE n < 4 GROUP BY 1":
        None,
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("views")
    with open_tables(folder, CATALOG + VIEWS, star(3)) as found, zero_noise():
        for name, view in found[0].catalog.views.items():
            found[1].execute(f"CREATE VIEW {name} AS {view.sql}")
        yield found


@pytest.mark.parametrize("sql", SAME)
def test_declared_columns_answer_as_the_database_does(world: World, sql: str) -> None:
    if SAME[sql] is None:
        assert differences(world, sql) == []
    else:
        found = {row for row in world[0].execute(sql).fetchall() if row[-1]}
        exact = {(key, float(n)) for key, n in world[1].execute(str(SAME[sql])).fetchall()}
        assert found == exact


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("SELECT patient_id, COUNT(*) + 1 AS x FROM visits GROUP BY patient_id", "[0, 5]"),
        ("SELECT patient_id, MAX(day) AS x FROM visits GROUP BY patient_id", "[0, 5]"),
        ("SELECT patient_id, COUNT(*) AS y FROM visits GROUP BY patient_id", "[0, 5]"),
        ("SELECT day AS x FROM visits", "[0, 5]"),
        ("SELECT ward, COUNT(*) AS x FROM visits GROUP BY ward", "[0, 5]"),
    ],
)
def test_other_columns_are_declared_where_they_come_from(
    tmp_path: Path, sql: str, column: str
) -> None:
    view = (
        f'[view.v]\nsql = "{sql}"\n[view.v.column]\nx = {{ type = "integer", domain = {column} }}'
    )
    with open_tables(tmp_path, f"{CATALOG}\n{view}", star(3)) as (connection, _):
        before = connection.budget
        with pytest.raises(dpsql.Error) as caught:
            connection.execute("SELECT COUNT(*) FROM v")
        assert caught.value.code == "E_JOIN"
        assert caught.value.hint
        assert connection.budget == before


def test_texts_are_no_columns_of_views(tmp_path: Path) -> None:
    view = '[view.v]\nsql = "SELECT ward FROM visits"\n[view.v.column]\n'
    for column in ('x = { type = "text", domain = ["a"] }', "x = 3"):
        (tmp_path / "c.toml").write_text(CATALOG + view + column, encoding="utf-8")
        with pytest.raises(dpsql.CatalogError):
            read_catalog(tmp_path / "c.toml")


def test_declared_columns_are_part_of_the_policy(tmp_path: Path) -> None:
    hashes = set()
    for text in (VIEWS, VIEWS.replace("[1, 4]", "[1, 5]"), VIEWS.replace("[0, 5]", "[0, 6]")):
        (tmp_path / "c.toml").write_text(CATALOG + text, encoding="utf-8")
        hashes.add(read_catalog(tmp_path / "c.toml").policy_hash())
    assert len(hashes) == 3
