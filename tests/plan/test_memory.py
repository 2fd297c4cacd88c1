"""Memory is forecast from public facts and refused above a limit."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import ProgrammingError
from dpsql.plan import Workload, memory, request, select
from dpsql.plan.memory import ResultSize, check_memory, forecast_memory
from tests.support.symmetric import strategy_of

SQL = "SELECT age, sex, COUNT(*) AS n FROM adult GROUP BY age, sex"


def test_every_kind_of_memory_counts() -> None:
    wide = Workload({"a": 1000, "b": 1000}, [{"a": "identity", "b": "identity"}])
    needed = forecast_memory(ResultSize(10, 30), [select(wide)])
    assert needed.measured == 2 * 8 * 10**6
    assert needed.estimated == 8 * 1001**2
    assert needed.working == 3 * 8 * 1001**2
    assert needed.results == 10 * memory.ROW + 30 * memory.FIELD
    assert needed.total == sum((needed.measured, needed.estimated, needed.working, needed.results))
    symmetric = forecast_memory(ResultSize(0, 0), [strategy_of("mixed")])
    assert symmetric.estimated == 8 * 48
    assert symmetric.results == 0


def test_refusals_name_what_fits() -> None:
    results = forecast_memory(ResultSize(10**6, 4 * 10**6))
    check_memory(results, 10**6, limit=results.total)
    with pytest.raises(ProgrammingError, match="1,000,000 result rows") as caught:
        check_memory(results, 10**6, limit=results.total // 2)
    assert caught.value.code == "E_TOO_LARGE"
    assert "about 500,000 rows fit" in str(caught.value)
    wide = Workload({"a": 1000, "b": 1000}, [{"a": "identity", "b": "identity"}])
    with pytest.raises(ProgrammingError, match="fewer columns at once"):
        check_memory(forecast_memory(ResultSize(1, 1), [select(wide)]), 1, limit=10**6)


@pytest.mark.parametrize("limit", ["8KB", "60KB"], ids=["results", "plan"])
def test_nothing_is_charged(demo: Path, limit: str) -> None:
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        connection.execute(f"SET memory_limit = '{limit}'")
        for ask in (connection.execute, connection.explain):
            with pytest.raises(ProgrammingError, match="KiB of memory") as caught:
                ask(SQL)
            assert caught.value.code == "E_TOO_LARGE"
            assert "SET memory_limit allows for more" in str(caught.value)
        assert [entry.kind for entry in connection.entries()] == ["created"]
        connection.execute("SET memory_limit = '1GB'")
        assert len(connection.execute(SQL).fetchall()) == 148


RUNNING = "; ".join(
    f"SELECT {key}, SUM(COUNT(*)) OVER (ORDER BY {key}) AS n FROM t GROUP BY {key}" for key in "ab"
)
CATALOG = """
[budget]
epsilon = 10
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
a = { type = "integer", domain = [0, 15] }
b = { type = "integer", domain = [0, 16] }
"""


def test_a_leaner_plan_stands_in_for_one_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text(CATALOG)
    with duckdb.connect() as scribe:
        rows = "SELECT i % 16 AS a, i % 17 AS b FROM range(50) r(i)"
        scribe.execute(f"COPY ({rows}) TO '{tmp_path}/t.parquet'")
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        connection.execute("SET effort = 0.01")
        connection.execute("SET memory_limit = '50KB'")
        with monkeypatch.context() as patch:
            patch.setattr(request, "LEAN", ())
            patch.setattr(request, "HALVINGS", 0)
            with pytest.raises(ProgrammingError, match="KiB of memory"):
                connection.explain(RUNNING)
        leaner = connection.explain(RUNNING)
        assert "went without what needs over 50KB" in str(leaner)
        assert len(connection.executescript(RUNNING).fetchall()) == 16
        assert [entry.kind for entry in connection.entries()] == ["created", "debit"]
