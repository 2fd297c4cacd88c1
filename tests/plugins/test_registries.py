"""An aggregate, a family of strategies and an output format, each added by a module of a stranger.

They register themselves by a decorator when they are imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
from dpsql.search import select
from dpsql.settings import table
from dpsql.sql.measures import aggregates, moments
from dpsql.ui import formats
from tests.support.packages import folder_of_packages
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 100

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 15] }
b = { type = "text", domain = ["x", "y"] }
x = { type = "number", bounds = [0, 10] }
"""
COVARIANCE = '''
"""COVAR_POP(x, y): the mean of the product less the product of the means."""

from dataclasses import replace

from sqlglot import exp

from dpsql.sql.measures.aggregates import aggregate
from dpsql.sql.measures.sums import amount


@aggregate(exp.CovarPop)
def covariance(aggregates, node, shape):
    both = exp.Mul(this=exp.paren(node.this.copy()), expression=exp.paren(node.expression.copy()))
    found = [amount(aggregates.scope, each) for each in (both, node.this, node.expression)]
    product, one, other = (aggregates.column(replace(shape, summands=f.summands)) for f in found)
    count = aggregates.column(replace(shape, summands=found[0].counted))
    means = [exp.paren(exp.Div(this=each, expression=count.copy())) for each in (one, other)]
    mean = exp.Div(this=product, expression=count.copy())
    return exp.paren(exp.Sub(this=mean, expression=exp.Mul(this=means[0], expression=means[1])))
'''
HALVES = '''
"""Halves: for one attribute, every cell, and the cells of each half together."""

import numpy as np

from dpsql.search.select import template
from dpsql.strategy.product import assemble


@template("halves")
def halves(problem):
    if problem.d != 1:
        return
    (name,), size = problem.names, problem.factors[0].n
    half = np.arange(size) < size // 2
    rows = np.concatenate([np.eye(size, dtype=np.int64), [half, ~half]])
    yield assemble(problem.workload.domain, {name: rows}, {(name,): 1.0}, problem.noise, "halves")
'''
LISP = '''
"""Results as S-expressions."""

from dpsql.ui.formats import text_format


@text_format("lisp", "lisp")
def render(grid, style):
    for row in grid.rows():
        yield "(" + " ".join(map(str, row)) + ")\\\\n"
'''


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Installs a module and imports it; registries are as before afterwards."""
    registries: list[dict[Any, Any]] = [
        aggregates.BUILDERS,
        moments.OF_MOMENTS,
        select.TEMPLATES,
        formats.FORMATS,
    ]
    before = [dict(registry) for registry in registries]
    with folder_of_packages(tmp_path / "site", monkeypatch) as folder:

        def install(name: str, text: str) -> None:
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
            importlib.import_module(name)

        yield install
    for registry, known in zip(registries, before, strict=True):
        registry.clear()
        registry.update(known)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    with duckdb.connect() as scribe:
        scribe.execute(
            "CREATE TABLE t AS SELECT (i * i) % 16 AS a, CASE WHEN i % 3 = 0 THEN 'x' ELSE 'y' END"
            " AS b, (i * 7 % 100) / 10 AS x FROM range(5000) v(i)"
        )
        scribe.execute(f"COPY t TO '{tmp_path / 't.parquet'}'")
    path = tmp_path / "t.toml"
    path.write_text(CATALOG, encoding="utf-8")
    return path


@pytest.fixture
def connection(catalog: Path) -> Iterator[Connection]:
    with zero_noise(), dpsql.connect(catalog, epsilon=1) as opened:
        yield opened


def true(catalog: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        return database.execute(
            sql.replace("FROM t", f"FROM '{catalog.parent}/t.parquet'")
        ).fetchall()


def test_an_aggregate(
    catalog: Path, connection: Connection, add: Callable[[str, str], None]
) -> None:
    sql = "SELECT b, COVAR_POP(a, x) AS c, COUNT(*) AS n FROM t GROUP BY b"
    del moments.OF_MOMENTS[exp.CovarPop]  # as if dpsql did not know it
    with pytest.raises(Error, match="E_AGGREGATE"):
        connection.execute(sql)
    add("covariance", COVARIANCE)
    with dpsql.connect(catalog, epsilon=1) as again:
        result = again.execute(sql).result
        assert all(error is not None and error > 0 for error in result.stddev[1] or (None,))
        for found, exact in zip(result.rows, true(catalog, f"{sql} ORDER BY b"), strict=True):
            assert found[0] == exact[0]
            assert found[1:] == pytest.approx(exact[1:], rel=1e-3)


def test_a_family_of_strategies(
    catalog: Path,
    connection: Connection,
    add: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = [f"COUNT(*) FILTER (WHERE a {sign} 8) AS n{i}" for i, sign in enumerate(("<", ">="))]
    sql = f"SELECT {', '.join(counts)}, COUNT(*) FILTER (WHERE a = 3) AS n FROM t"
    add("halves", HALVES)
    # A family that can be chosen by name has its name in FAMILIES of dpsql.settings.table.
    mechanism = table.SETTINGS["mechanism"]
    named = replace(mechanism, kind=table._words(*table.MECHANISMS, "halves"))
    monkeypatch.setitem(table.SETTINGS, "mechanism", named)
    connection.execute("SET mechanism = 'halves'")
    assert "halves" in str(connection.explain(sql))
    result = connection.execute(sql).result
    assert [list(result.rows[0])] == [pytest.approx(row) for row in true(catalog, sql)]
    assert result.cost is not None
    connection.execute("SET mechanism = 'auto'")
    assert connection.explain(sql).statements


def test_an_output_format(
    catalog: Path, add: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    from dpsql.ui.cli import run_command_line

    add("lisp", LISP)
    sql = "SELECT b, COUNT(*) AS n FROM t GROUP BY b"
    with zero_noise():
        status = run_command_line([str(catalog), "--epsilon", "1", "--format", "lisp", "-c", sql])
    assert status == 0
    assert capsys.readouterr().out.startswith("(x 1667")
