"""Bounds of answers asked alone: below every strategy, in dense algebra and in forecasts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from dpsql.algebra.blocks import AllRange, Dense, Identity, Prefix
from dpsql.algebra.operator import Floats, Operator
from dpsql.dbapi.connection import Connection
from dpsql.engine.terms import Terms, form_request
from dpsql.search.bounds.single_answers import bound_alone, factor_bound, rows_bound
from dpsql.search.one_attribute.dual import optimise
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from dpsql.workload.layout import Layout, Place
from tests.support.tables import Tables, open_tables

CATALOG = """
[budget]
epsilon = 1000
delta = 1e-6

[table.t]
source = "t.parquet"
privacy_unit = { column = "p", max_rows = 3 }

[table.t.column]
a = { type = "integer", domain = [0, 11] }
g = { type = "text", domain = ["x", "y", "z"] }
v = { type = "number", bounds = [-2, 10] }

[table.u]
source = "u.parquet"
privacy_unit = "row"

[table.u.column]
a = { type = "integer", domain = [0, 11] }
"""
TABLES: Tables = {"t": ("p INTEGER, a INTEGER, g TEXT, v DOUBLE", []), "u": ("a INTEGER", [])}

STATEMENTS = (
    "SELECT COUNT(*) AS n FROM t WHERE a BETWEEN 3 AND 5",
    "SELECT g, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY g",
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
    "SELECT a // 4 AS k, SUM(COUNT(*)) OVER (ORDER BY a // 4) AS n FROM t GROUP BY a // 4",
    "SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) AS n FROM t GROUP BY a",
    "SELECT COUNT(*) AS n FROM t WHERE a > 8 OR g = 'x'",
    "SELECT g, SUM(v * v) AS q FROM t WHERE a < 6 GROUP BY g",
    "SELECT SUM(a) AS n, COUNT(*) FILTER (WHERE g <> 'y') AS m FROM t",
    "SELECT a, COUNT(*) - 2 * COUNT(*) FILTER (WHERE g = 'x') AS n FROM t GROUP BY a",
    "SELECT COUNT(*) AS n FROM t WHERE a < 3 UNION ALL SELECT COUNT(*) FROM u",
    "SELECT a, COUNT(*) AS n FROM u GROUP BY a",
)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with open_tables(tmp_path_factory.mktemp("alone"), CATALOG, TABLES) as (opened, _):
        yield opened


def layouts_of(connection: Connection, *sql: str) -> Iterator[tuple[Layout, Place]]:
    """The layouts of statements that are asked together, and the answers in each."""
    compiled = connection.engine.compile([parse(split_statements(each)[0]) for each in sql])
    request = form_request(compiled, Terms(Fraction(1)), Fraction(1))
    for target in request.targets:
        for layout in target.layouts:
            yield from ((layout, place) for place in target.asked)


def rows_of(layout: Layout, place: Place) -> Floats:
    """The rows of an answer over all cells."""
    total: Floats = np.zeros((1, 1))
    for scale, product in layout.products[place]:
        factors = [
            product.factors[name].dense() if name in product.factors else np.ones((1, n))
            for name, n in layout.workload.domain.items()
        ]
        total = total + scale * reduce(np.kron, factors)
    return np.asarray(total, dtype=np.float64)


def error_of(rows: Floats, strategy: Floats) -> float:
    """The total squared error of a strategy at unit noise, of unit L2 sensitivity."""
    norm2 = float(np.square(strategy).sum(axis=0).max())
    return norm2 * float(np.square(rows @ np.linalg.pinv(strategy)).sum())


def test_no_strategy_over_the_cells_is_below_the_bound(connection: Connection) -> None:
    known = 0
    for layout, place in layouts_of(connection, *STATEMENTS):
        bound = bound_alone(layout, place)
        if bound is None:
            continue
        known += 1
        rows = rows_of(layout, place)
        found = optimise(rows.T @ rows).upper
        best = min(found, error_of(rows, rows), error_of(rows, np.eye(rows.shape[1])))
        assert 0.5 * found < bound <= best * (1 + 1e-9), place
    assert known >= 10


@pytest.mark.parametrize("seed", range(20))
def test_bounds_of_rows_are_below_the_optimum_and_near_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (rng.integers(1, 6), rng.integers(1, 9))).astype(np.float64)
    optimum = optimise(rows.T @ rows)
    bound = rows_bound(np.hstack([rows, rows[:, :2], np.zeros((len(rows), 1))]))
    assert 0.97 * optimum.lower <= bound <= optimum.upper * (1 + 1e-9)


@pytest.mark.parametrize(
    "factor", [Identity(7), Prefix(9), AllRange(6), Prefix(100), Dense(np.eye(5)[:2])]
)
def test_bounds_of_factors_are_below_their_optimum(factor: Operator) -> None:
    optimum = optimise(factor)
    assert 0.7 * optimum.lower < factor_bound(factor) <= optimum.upper


def test_factors_that_are_too_large_have_no_bound() -> None:
    assert factor_bound(Dense(np.ones((600, 600)) + np.eye(600))) == 0.0


@pytest.mark.parametrize(
    ("noise", "epsilon", "mechanism"),
    [("laplace", "8", "identity"), ("gaussian", "0.5", "identity"), ("gaussian", "8", "auto")],
)
def test_forecasts_are_above_the_bounds(
    connection: Connection, noise: str, epsilon: str, mechanism: str
) -> None:
    settings = {"delta": "1e-9", "noise": noise, "epsilon": epsilon, "mechanism": mechanism}
    for name, text in settings.items():
        connection.set(name, text)
    asked = STATEMENTS[:6] if mechanism == "auto" else STATEMENTS
    together = connection.explain("; ".join(asked))
    columns = [each for statement in together.statements for each in statement.errors]
    assert all(each.lower is not None and each.lower <= each.rmse for each in columns)
    assert "alone at least" in "\n".join(together.lines())
    for sql, statement in zip(asked, together.statements, strict=True):
        alone = connection.explain(sql).statements[0].errors
        for one, many in zip(alone, statement.errors, strict=True):
            assert one.lower is not None
            assert max(one.lower, many.lower or 0) <= one.rmse * (1 + 1e-6)


def test_a_workload_of_one_unit_is_bounded_by_the_sum_of_its_answers(
    connection: Connection,
) -> None:
    sql = "SELECT COUNT(*) AS n FROM t; SELECT COUNT(*) AS n FROM u"
    found = connection.explain(sql)
    lower = [each.lower for statement in found.statements for each in statement.errors]
    assert found.bound is not None
    assert found.bound >= math.sqrt(sum((each or 0) ** 2 for each in lower) / 2) * (1 - 1e-9)
    assert found.bound <= found.rmse


def test_counts_of_units_have_no_bound(connection: Connection) -> None:
    found = connection.explain("SELECT COUNT(*) AS n, COUNT(DISTINCT p) AS m FROM t")
    rows, units = found.statements[0].errors
    assert rows.lower is not None
    assert units.lower is None
    assert "no bound known" in "\n".join(found.lines())
