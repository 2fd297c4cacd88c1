"""Columns that become several attributes: what is asked is answered, and planning stays quick."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.plan.target import find_targets, find_views
from dpsql.workload import facets
from dpsql.workload.layout import Layout
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 100000
delta = 1e-4
max_epsilon_per_request = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
g = { type = "text", domain = ["a", "b", "c"] }
k = { type = "integer", domain = [0, 239] }
seen = { type = "timestamp", domain = ["2023-01-01", "2024-12-31"], by = "hour" }
"""

FUNCTIONS = (
    *("k % 6", "k // 6 % 8", "k // 48", "k % 4", "k // 6", "k % 2", "k // 100", "k % 48"),
    *("k % 6, k // 48", "k // 48, k % 6", "g, k % 6", "k // 6 % 8, g, k % 6", "k % 6, k // 6 % 8"),
)
CONDITIONS = ("", "", "", "k < 60", "k BETWEEN 30 AND 77", "g = 'a'", "k % 7 = 3")
TIMES = (
    "SELECT hour(seen) AS h, COUNT(*) AS n FROM t GROUP BY h",
    "SELECT dayofweek(seen) AS d, COUNT(*) AS n FROM t GROUP BY d",
    "SELECT date_trunc('month', seen) AS m, g, COUNT(*) AS n FROM t GROUP BY m, g",
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    (tmp_path / "c.toml").write_text(CATALOG)
    path = tmp_path / "t.parquet"
    draw = "SELECT 'abc'[1 + i % 3] AS g, hash(i) % 240 AS k,"
    draw += " TIMESTAMP '2023-01-01' + to_hours((hash(i + 7) % 17544)::INT) AS seen"
    duckdb.sql(f"COPY ({draw} FROM range(500) r(i)) TO '{path}'")
    with dpsql.connect(tmp_path / "c.toml", epsilon=100, delta=1e-9) as found:
        yield found


def statement(draw: random.Random) -> str:
    keys, where = draw.choice(FUNCTIONS), draw.choice(CONDITIONS)
    condition = f" WHERE {where}" if where else ""
    return f"SELECT {keys}, COUNT(*) AS n FROM t{condition} GROUP BY {keys}"


def layout_of(connection: Connection, script: str) -> Layout:
    compiled = connection.engine.compile(parse_script(script))
    (target,) = find_targets(compiled, find_views(compiled))
    return target.layouts[0]


def classes_of_k(layout: Layout) -> dict[str, int]:
    return {name: n for name, n in layout.workload.domain.items() if name.startswith("k")}


def answers(connection: Connection, script: str) -> list[Result]:
    with connection.executescript(script) as cursor:
        found = [cursor.result]
        while cursor.nextset():
            found.append(cursor.result)
    return found


def counted(rows: Sequence[Sequence[object]]) -> Counter[tuple[object, ...]]:
    return Counter({tuple(key): round(float(str(n))) for *key, n in rows if round(float(str(n)))})


@pytest.mark.parametrize("seed", [0, 1, 2, 4])  # of the third, planning alone takes 20 s of CPU
def test_answers_are_those_of_the_database(
    connection: Connection, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(facets, "SPLIT_FROM", 8)
    draw = random.Random(seed)
    connection.set("noise", draw.choice(["laplace", "gaussian"]))
    statements = list(dict.fromkeys(statement(draw) for _ in range(draw.randrange(2, 7))))
    with zero_noise():
        results = answers(connection, ";".join(statements))
    path = tmp_path / "t.parquet"
    for sql, found in zip(statements, results, strict=True):
        true = duckdb.execute(sql.replace(" t ", f" '{path}' t ")).fetchall()
        assert counted(found.rows) == counted(true), sql


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_was_measured_is_free_afterwards(
    connection: Connection, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facets, "SPLIT_FROM", 8)
    connection.set("noise", noise)
    keys = ("k % 6", "k // 6 % 8", "k // 48", "k % 6, k // 48")
    statements = [f"SELECT {each}, COUNT(*) AS n FROM t GROUP BY {each}" for each in keys]
    results = answers(connection, ";".join(statements))
    connection.set("reuse", "always")
    for sql, found in zip(statements, results, strict=True):
        again = connection.execute(sql).result
        assert again.cost is not None
        assert again.cost.free, sql
        assert [row[-1] for row in again.rows] == pytest.approx([row[-1] for row in found.rows])


def test_hours_weekdays_and_months_are_attributes_of_their_own(connection: Connection) -> None:
    layout = layout_of(connection, ";".join(TIMES))
    assert sorted(layout.workload.domain.values()) == [1, 3, 7, 24, 24]
    assert layout.order == ("g", "k", "seen", "seen", "seen")


def test_functions_that_determine_each_other_stay_together(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facets, "SPLIT_FROM", 8)
    asked = "SELECT {0} AS x, COUNT(*) AS n FROM t GROUP BY x;"
    together = layout_of(connection, asked.format("k // 6") + asked.format("k // 10"))
    joined = 1 + sum(k % 6 == 0 or k % 10 == 0 for k in range(1, 240))  # classes of both
    assert classes_of_k(together) == {"k": joined}
    apart = layout_of(connection, asked.format("k % 6") + asked.format("k // 6"))
    assert classes_of_k(apart) == {"k (1)": 40, "k (2)": 6}


def test_a_calendar_has_facets_though_few_combinations_occur(connection: Connection) -> None:
    asked = "SELECT {0}, COUNT(*) AS n FROM t GROUP BY {0};"
    keys = ("year(seen)", "month(seen)", "day(seen)", "dayofweek(seen)")
    layout = layout_of(connection, "".join(map(asked.format, keys)) + asked.format("g"))
    sizes = [n for name, n in layout.workload.domain.items() if name.startswith("seen")]
    assert sorted(sizes) == [2, 7, 12, 31]
    assert layout.padded


def test_a_table_of_two_functions_is_a_product_in_either_order(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facets, "SPLIT_FROM", 8)
    asked = "SELECT {0}, COUNT(*) AS n FROM t GROUP BY {0};"
    singles = asked.format("k % 6") + asked.format("k // 48")
    for keys in ("k % 6, k // 48", "k // 48, k % 6"):
        layout = layout_of(connection, singles + asked.format(keys))
        assert len(layout.workload.products[-1].factors) == 2
        assert {f.rows for f in layout.workload.products[-1].factors.values()} == {5, 6}


def test_the_error_is_that_of_all_classes_or_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text(CATALOG.replace("[0, 239]", "[0, 59]"))
    asked = "SELECT {0} AS x, COUNT(*) AS n FROM t GROUP BY x;"
    script = "".join(map(asked.format, ("k % 4", "k // 4 % 5", "k // 20")))
    errors = []
    for least in (8, 1000):
        monkeypatch.setattr(facets, "SPLIT_FROM", least)
        with dpsql.connect(tmp_path / "c.toml", epsilon=1, delta=1e-9) as connection:
            errors.append(connection.explain(script).rmse)
    print(errors)
    assert errors[0] <= errors[1] * 1.003


def test_combinations_that_never_occur_take_the_bound_away(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facets, "SPLIT_FROM", 8)
    asked = "SELECT {0} AS x, COUNT(*) AS n FROM t WHERE {1} GROUP BY x;"
    whole = asked.format("k % 6", "k >= 0") + asked.format("k // 6", "k >= 0")
    ragged = asked.format("k % 6", "k < 116") + asked.format("k // 6", "k < 116")
    assert not layout_of(connection, whole).padded
    assert layout_of(connection, ragged).padded
    assert connection.explain(whole).bound is not None
    assert connection.explain(ragged).bound is None
