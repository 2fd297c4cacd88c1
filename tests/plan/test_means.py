"""Plans of means and spreads by groups: how many descents they take, and their told errors."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.algebra.operator import Floats
from dpsql.dbapi.connection import Connection
from dpsql.search import strategy_cache
from dpsql.search.one_attribute import gram_parts, hierarchy, low_rank_descent, opt0
from dpsql.search.unions import joint
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 10000
delta = 1e-4
[table.t]
source = "t.parquet"
privacy_unit = "row"
[table.t.column]
g = { type = "integer", domain = [0, 99] }
h = { type = "integer", domain = [0, 1] }
f = { type = "integer", domain = [0, 9] }
x = { type = "integer", domain = [17, 37] }
y = { type = "integer", domain = [0, 60] }
z = { type = "number", bounds = [0, 5000] }
"""
LOW, HIGH, ROWS = 17, 37, 4000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    random, row = np.random.default_rng(0), np.arange(ROWS)
    columns = {
        "g": row % 100,
        "h": row % 2,
        "f": random.integers(0, 10, ROWS),
        "x": random.integers(LOW, HIGH + 1, ROWS),
        "y": row // 100,  # the same values in every group
        "z": random.random(ROWS) * 5000,
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    (tmp_path / "c.toml").write_text(CATALOG)
    monkeypatch.setenv("DPSQL_CACHE", "off")
    return tmp_path


@pytest.fixture(params=["laplace", "gaussian"])
def connection(request: pytest.FixtureRequest, folder: Path) -> Iterator[Connection]:
    delta = 1e-9 if request.param == "gaussian" else 0
    path = folder / "c.toml"
    with dpsql.connect(path, epsilon=1, delta=delta, noise=request.param) as found:
        yield found


def descents(connection: Connection, sql: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many descents EXPLAIN of a statement takes where nothing was planned before."""
    calls = 0
    real = opt0.minimise

    def counted(*args: Any, **kwargs: Any) -> tuple[float, Floats]:
        nonlocal calls
        calls += 1
        return real(*args, **kwargs)

    for module in (low_rank_descent, gram_parts, hierarchy, joint, opt0):
        monkeypatch.setattr(module, "minimise", counted)
    monkeypatch.setattr(strategy_cache, "_memory", OrderedDict())
    connection.explain(sql)
    return calls


@pytest.mark.parametrize(
    ("shown", "most"),
    [
        ("g, AVG(x) FROM t GROUP BY g", 0),  # 61 before
        ("h, AVG(y) FROM t WHERE f = 3 GROUP BY h", 0),  # 69 before
        ("AVG(z) FROM t", 0),
        ("g, AVG(x), COUNT(*) FROM t GROUP BY g", 30),
        ("g, SUM(x), COUNT(*), AVG(x) FROM t GROUP BY g", 30),
        ("g, VAR_POP(z) FROM t GROUP BY g", 30),
        ("h, STDDEV(y) FROM t GROUP BY h", 50),  # 102 before
    ],
)
def test_few_descents(
    shown: str, most: int, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert descents(connection, f"SELECT {shown}", monkeypatch) <= most


def test_descents_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else there would be few of them whatever is planned."""
    with dpsql.connect(folder / "c.toml", epsilon=1, noise="laplace", delta=0) as connection:
        assert descents(connection, "SELECT h, STDDEV(y) FROM t GROUP BY h", monkeypatch) > 0


def test_a_mean_has_the_error_of_two_nodes(folder: Path) -> None:
    """The least there is for a count and a sum less the middle that count for the same."""
    path = folder / "c.toml"
    with zero_noise(), dpsql.connect(path, epsilon=0.1, noise="laplace", delta=0) as connection:
        cursor = connection.execute("SELECT h, AVG(x), COUNT(*) FROM t GROUP BY h")
        rows, told = cursor.fetchall(), cursor.stddev
        connection.execute("SET fresh = on")
        alone = connection.execute("SELECT h, AVG(x) FROM t GROUP BY h").stddev
    variance = 2 / 0.1**2
    assert told[1] is not None
    assert alone[1] is not None
    for (_, mean, count), error, one in zip(rows, told[1], alone[1], strict=True):
        expected = math.sqrt(variance * ((mean - LOW) ** 2 + (HIGH - mean) ** 2)) / count
        assert error == pytest.approx(expected, rel=2e-3)
        assert one == pytest.approx(expected, rel=2e-3)


def test_spreads_of_ranges_have_cells_for_any_number_of_groups(folder: Path) -> None:
    """Under Gaussian noise they were planned on nodes where groups are many."""
    path = folder / "c.toml"
    with (
        zero_noise(),
        dpsql.connect(path, epsilon=1, noise="gaussian", delta=1e-9) as connection,
    ):
        few_groups = connection.execute("SELECT h, VAR_POP(y) FROM t GROUP BY h").stddev[1]
        many_groups = connection.execute("SELECT g, VAR_POP(y) FROM t GROUP BY g").stddev[1]
    assert few_groups is not None
    assert many_groups is not None
    shown = [2 * float(few_groups[0] or 0), float(many_groups[0] or 0) / 25]
    assert shown[0] == pytest.approx(shown[1], rel=2e-3)
