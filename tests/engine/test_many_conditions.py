"""Conditions on many columns that are joined by AND: planned, counted and asked again in full."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.algebra.operator import Floats
from dpsql.dbapi.connection import Connection
from dpsql.strategy.product_forecast import ProductForecast

COLUMNS = 62
CATALOG = """[budget]
epsilon = 1000000
max_epsilon_per_request = 1000
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
a = { type = "integer", domain = [0, 2] }
x = { type = "number", bounds = [0, 4] }
"""
MET = 40
"""Rows of each a that meet all conditions, at least."""


@pytest.fixture
def wide(tmp_path: Path) -> Connection:
    names = [f"c{i}" for i in range(COLUMNS)]
    declared = "".join(f'{name} = {{ type = "integer", domain = [0, 2] }}\n' for name in names)
    (tmp_path / "c.toml").write_text(CATALOG + declared)
    drawn = ", ".join(f"i % {i + 1} % 2 AS {name}" for i, name in enumerate(names))
    zeros = ", ".join(f"0 AS {name}" for name in names)
    with duckdb.connect() as scribe:
        scribe.execute(
            f"COPY (SELECT i % 3 AS a, 2 AS x, {zeros} FROM range({3 * MET}) r(i) UNION ALL "
            f"SELECT i % 3 AS a, 2 AS x, {drawn} FROM range(1, 60) r(i)) "
            f"TO '{tmp_path}/t.parquet'"
        )
    return dpsql.connect(tmp_path / "c.toml", epsilon=1000)


def conditions(first: int, last: int) -> str:
    told = [f"c{i} < 1" if i % 2 else f"c{i} = 0" for i in range(first, last)]
    return " AND ".join(told)


@pytest.mark.parametrize("count", [18, 30, 58])
def test_are_counted_and_free_again(
    count: int, wide: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    form = ProductForecast.precisions

    def counted(self: ProductForecast, names: Sequence[str]) -> Floats:
        nonlocal most
        found = form(self, names)
        most = max(most, found.size)
        return found

    monkeypatch.setattr(ProductForecast, "precisions", counted)
    where = conditions(0, count)
    sql = f"SELECT a, COUNT(*) AS n, SUM(x) AS s FROM t WHERE {where} GROUP BY a ORDER BY a"
    rows = wide.execute(sql).fetchall()
    with duckdb.connect() as scribe:
        want = scribe.execute(sql.replace("FROM t", f"FROM '{tmp_path}/t.parquet'")).fetchall()
    assert [row[0] for row in rows] == [row[0] for row in want]
    for place, near in ((1, 0.1), (2, 1.0)):
        numbers = [row[place] for row in want]
        assert [row[place] for row in rows] == pytest.approx(numbers, abs=near)
    assert most <= 4
    part = f"SELECT a, SUM(x) AS s FROM t WHERE {where} GROUP BY a"
    wide.set("reuse", "always")
    for again in (sql, part):
        result = wide.execute(again).result
        assert result.cost is not None
        assert result.cost.free


def test_statements_with_conditions_of_their_own(wide: Connection) -> None:
    one, two = conditions(0, 20), conditions(20, 40)
    script = f"SELECT COUNT(*) FROM t WHERE {one}; SELECT COUNT(*) FROM t WHERE {two}"
    assert str(wide.explain(script))
    last = wide.executescript(script).fetchall()
    assert last[0][0] >= 3 * MET
    entries = wide.budget.entries
    assert wide.executescript(script).fetchall() == last
    assert wide.budget.entries == entries


def test_too_many_are_refused_before_anything_is_charged(wide: Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="over 61 columns, the limit is 60") as refused:
        wide.execute(f"SELECT COUNT(*) FROM t WHERE {conditions(0, 61)}")
    assert refused.value.code == "E_TOO_LARGE"
    assert wide.budget.entries == 0
