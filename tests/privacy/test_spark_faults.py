"""Faults of what Spark is sent and of how its session is set, planted to be found."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Values
from dpsql.errors import InternalError
from dpsql.privacy.vault.codes import node_weights
from dpsql.privacy.vault.servers import code_sql, spark_session, spark_sql
from dpsql.privacy.vault.servers.spark_sql import SparkDialect
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import AnyResolution, Nodes, cells_of
from tests.support.spark import MASTER

SALT = b"0123456789abcdef"
pytestmark = pytest.mark.usefixtures("spark")
COLUMNS = {
    "n": Column("n", "integer", Values((0, 1, 2)), None, True, 9),
    "w": Column("w", "text", Values(("A", "B")), other="Z"),
    "x": Column("x", "number", None, (Fraction(0), Fraction(10))),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of units with too many, among them numbers that no integer holds."""
    numbers = [0.0, 1.0, 2.0, 0.5, 1e300, -1e300, float("inf"), float("nan"), None, 1.0]
    rows = {
        "who": pa.array([f"p{i % 6}" for i in range(60)]),
        "n": pa.array([numbers[i * 7 % 10] for i in range(60)], pa.float64()),
        "w": pa.array(["ABab"[i * 3 % 4] for i in range(60)]),
        "x": pa.array([i * 0.31 for i in range(60)]),
    }
    found = tmp_path_factory.mktemp("rows") / "t.parquet"
    pq.write_table(pa.table(rows), found)
    return found


def check(path: Path) -> None:
    """Assert that Spark counts as files are counted, and that sums too large are errors."""
    options = {"engine": "spark", "master": MASTER, "path": f"{path}", "version": "1"}
    unit, listed = Unit("who", 2), tuple(sorted(options.items()))
    file = TableVault(Table("t", f"{path}", unit, COLUMNS), SALT)
    table = Table("t", f"spark://{path}", unit, COLUMNS, options=listed)
    other = TableVault(table, SALT)
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark_session.session_for(table).sql("SELECT CAST(2147483647 AS int) + 1").collect()
    sets: list[AnyResolution] = [cells_of("n", np.arange(5)), cells_of("w", np.arange(3))]
    sets.append(Nodes("x", 1, 1, 64))
    try:
        for each in sets:
            np.testing.assert_array_equal(other.tally([each]), file.tally([each]))
    finally:
        for vault in (file, other):
            vault.close()


def unguarded(d: Any, column: Column, value: str, is_double: bool) -> str:
    return f"CAST({value} AS bigint)" if is_double and column.domain else value


def guarded_by_where(self: code_sql.CodeSql) -> str:
    return f"SELECT * FROM ({SELECT(self)}) AS t WHERE c0 < 3"


def any_case(column: str, stored: str) -> str:
    return f"upper({column} COLLATE UTF8_LCASE)"


SELECT = code_sql.CodeSql.select
SETTINGS = {**spark_session.SETTINGS, "spark.sql.ansi.enabled": "false"}
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "no guard": (code_sql, "refine", unguarded),
    "a guard in WHERE": (code_sql.CodeSql, "select", guarded_by_where),
    "sums of doubles": (
        node_weights,
        "_weights",
        lambda d, total, first, second, degree: [f"({total} - s0)", "s0"][:degree],
    ),
    "ANSI off": (spark_session, "SETTINGS", SETTINGS),
    "a collation": (spark_sql, "_text", any_case),
    "another order": (SparkDialect, "first_digits", lambda self, text, digits: f"right({text}, 7)"),
}


def test_without_a_fault_all_is_equal(path: Path) -> None:
    check(path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, InternalError, pytest.fail.Exception)):
        check(path)
