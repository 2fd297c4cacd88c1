"""Keys alone: SELECT DISTINCT, and GROUP BY without an aggregate, list declared domains, free."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from tests.support.people import people


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with dpsql.connect(people(tmp_path_factory.mktemp("keys") / "w")) as connection:
        yield connection


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT DISTINCT sex FROM people", [("F",), ("M",)]),
        ("SELECT sex FROM people GROUP BY sex", [("F",), ("M",)]),
        ("SELECT DISTINCT ward FROM people", [("A",), ("B",), ("C",), (None,)]),
        ("SELECT DISTINCT ward FROM people WHERE ward > 'A'", [("B",), ("C",)]),
        ("SELECT DISTINCT sex, ward FROM people WHERE sex = 'F' ORDER BY ward DESC LIMIT 1",
         [("F", "C")]),
        ("SELECT DISTINCT lower(sex) AS s FROM people ORDER BY s DESC", [("m",), ("f",)]),
        ("SELECT DISTINCT age // 5 AS half FROM people", [(0,), (1,)]),
        ("SELECT sex AS s FROM people GROUP BY ALL", [("F",), ("M",)]),
        ("WITH k AS (SELECT DISTINCT sex FROM people) SELECT * FROM k", [("F",), ("M",)]),
        ("SELECT sex FROM people GROUP BY sex UNION SELECT 'x' ORDER BY 1",
         [("F",), ("M",), ("x",)]),
        ("SELECT DISTINCT p.sex FROM people AS p WHERE p.sex <> 'F'", [("M",)]),
    ],
)  # fmt: skip
def test_keys_are_listed_without_an_epsilon(
    world: Connection, sql: str, rows: list[tuple[object, ...]]
) -> None:
    before = world.budget
    result = world.execute(sql).result
    assert list(result.rows) == rows
    assert result.cost is None
    assert any("keys are those that are declared" in note for note in result.notes)
    assert world.budget == before


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT sex FROM people", "E_NO_AGGREGATE"),
        ("SELECT DISTINCT * FROM people", "E_AGGREGATE"),
        ("SELECT DISTINCT ON (sex) sex, ward FROM people", "E_NO_AGGREGATE"),
        ("SELECT DISTINCT cost FROM people", "E_DOMAIN"),
        ("SELECT DISTINCT person FROM people", "E_DOMAIN"),
        ("SELECT DISTINCT 1 FROM people", "E_NO_AGGREGATE"),
    ],
)
def test_rows_are_still_refused(world: Connection, sql: str, code: str) -> None:
    with pytest.raises(dpsql.Error) as caught:
        world.execute(sql)
    assert caught.value.code == code


def test_groups_with_an_aggregate_in_having_are_measured(world: Connection) -> None:
    result = world.execute("SELECT sex FROM people GROUP BY sex HAVING COUNT(*) > 0", epsilon=1)
    assert result.result.cost is not None
    assert not result.result.cost.free
