"""Conditions over many columns: answered on few cells, or refused before anything large is made.

What is made of Python and numpy is counted; DuckDB has a limit of its own.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.plan import choice
from dpsql.search.problem import Problem
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Workload

COLUMNS, ROWS = 26, 400
CATALOG = """[budget]
epsilon = 1000000
max_epsilon_per_request = 1000
[table.t]
source = "t.parquet"
row_count_hint = 1000
privacy_unit = "row"
[table.t.column]
"""


@pytest.fixture
def table(tmp_path: Path) -> Connection:
    names = [f"a{j}" for j in range(COLUMNS)]
    declared = "".join(f'{name} = {{ type = "text", domain = ["x", "y"] }}\n' for name in names)
    (tmp_path / "c.toml").write_text(CATALOG + declared)
    drawn = (
        f"CASE WHEN hash(i + {j}) % 8 = 0 THEN 'x' ELSE 'y' END AS {n}" for j, n in enumerate(names)
    )
    with duckdb.connect() as scribe:
        rows = f"SELECT {', '.join(drawn)} FROM range({ROWS}) r(i)"
        scribe.execute(f"COPY ({rows}) TO '{tmp_path}/t.parquet'")
    return dpsql.connect(tmp_path / "c.toml", epsilon=1000)


def met(first: int, last: int, word: str) -> str:
    return f" {word} ".join(f"a{j} = 'x'" for j in range(first, last))


def pairs(count: int, within: str, between: str) -> str:
    return f" {between} ".join(f"({met(2 * k, 2 * k + 2, within)})" for k in range(count))


def counted(connection: Connection, where: str) -> int:
    (n,) = connection.execute(f"SELECT COUNT(*) FROM t WHERE {where}").fetchone() or (0,)
    return int(n)


def of_file(folder: Path, where: str) -> int:
    with duckdb.connect() as scribe:
        found = scribe.execute(f"SELECT COUNT(*) FROM '{folder}/t.parquet' WHERE {where}")
        (n,) = found.fetchone() or (0,)
    return int(n)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (f"COUNT(*) FROM t WHERE {met(0, 24, 'OR')}", "E_TOO_LARGE"),
        (f"COUNT(*) FROM t WHERE {pairs(12, 'OR', 'AND')}", "E_TOO_LARGE"),
        (f"COUNT(*) FROM t WHERE {pairs(8, 'AND', 'OR')} OR a20 = a21", "E_PREDICATE"),
        (
            f"{' || '.join(f'a{j}' for j in range(18))} AS k, COUNT(*) FROM t GROUP BY k",
            "E_TOO_LARGE",
        ),
    ],
)
def test_what_cannot_fit_is_refused_in_little_memory(
    table: Connection, asked: str, code: str
) -> None:
    table.explain("SELECT COUNT(*) FROM t")
    tracemalloc.start()
    try:
        with pytest.raises(dpsql.ProgrammingError) as refused:
            table.execute(f"SELECT {asked}")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.value.code == code
    assert refused.value.hint
    assert most < 32 << 20
    assert table.budget.entries == 0


def test_conditions_of_many_columns_are_answered_on_few_cells(
    table: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widest = 0
    form = Problem.__init__

    def noted(self: Problem, workload: Workload, noise: Noise) -> None:
        nonlocal widest
        form(self, workload, noise)
        widest = max(widest, self.d)

    monkeypatch.setattr(Problem, "__init__", noted)
    tracemalloc.start()
    try:
        for where in (
            met(0, 19, "OR"),
            f"NOT ({met(0, 17, 'AND')})",
            pairs(9, "OR", "AND"),
            f"a20 = 'y' AND ({met(0, 12, 'OR')})",
        ):
            assert counted(table, where) == pytest.approx(of_file(tmp_path, where), abs=1)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert widest <= 2
    assert most < 128 << 20


def test_several_statements_over_many_columns(table: Connection, tmp_path: Path) -> None:
    tests = (met(0, 10, "OR"), met(10, 20, "AND"), f"NOT ({met(3, 14, 'AND')})")
    script = "; ".join(f"SELECT COUNT(*) FROM t WHERE {each}" for each in tests)
    results = table.executescript(script)
    for where in tests:
        ((n,),) = results.fetchall()
        assert n == pytest.approx(of_file(tmp_path, where), abs=1)
        results.nextset()


def test_few_cells_are_as_good_as_many_columns(
    table: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheres = met(0, 9, "AND"), met(4, 9, "AND")
    script = "; ".join(f"SELECT COUNT(*) FROM t WHERE {where}" for where in wheres)
    few = table.explain(script)
    monkeypatch.setattr(choice, "WIDE", COLUMNS)
    many = dpsql.connect(tmp_path / "c.toml", epsilon=1000).explain(script)
    assert few.rmse <= many.rmse * (1 + 1e-9)
