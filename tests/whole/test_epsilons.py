"""Every epsilon that a catalog admits works: finite answers and errors, or a refusal for free."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.amounts import MIN_EPSILON
from dpsql.dbapi.connection import Connection
from dpsql.strategy.noise_law import NO_NOISE, laplace_variance
from dpsql.strategy.published_variance import unit_variance

pytestmark = pytest.mark.slow

ROWS = 600
CATALOG = """
[budget]
epsilon = 1000000
delta = 1e-4
max_epsilon_per_request = 1000000

[table.t]
source = "t.parquet"
privacy_unit = {unit}

[table.t.column]
a = {{ type = "integer", domain = [0, 4] }}
h = {{ type = "integer", domain = [0, 23] }}
x = {{ type = "number", bounds = [0, 100] }}
"""
EDGES = ["1e-6", "99", "711", "746", "2000.5", "50000"]
"""Where exp(epsilon) or exp(-epsilon) leaves what floats can say."""
STATEMENTS = [
    "SELECT a, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY ROLLUP (a)",
    "SELECT AVG(x) AS m FROM t",
    "SELECT MEDIAN(h) AS q FROM t",
]
UNITS = "SELECT a, COUNT(DISTINCT who) AS n FROM t GROUP BY a"
BY_UNIT = '{ column = "who", max_rows = 3 }'


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("epsilons") / "t.parquet"
    duckdb.execute(
        f"COPY (SELECT i % 5 AS a, i * 7 % 24 AS h, (i % 101)::DOUBLE AS x, 'p' || i AS who "
        f"FROM range({ROWS}) r(i)) TO '{place}' (FORMAT parquet)"
    )
    return place


@pytest.fixture
def table(source: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Connection]:
    (tmp_path / "t.parquet").write_bytes(source.read_bytes())
    (tmp_path / "c.toml").write_text(CATALOG.format(unit=request.param))
    with dpsql.connect(tmp_path / "c.toml") as connection:
        yield connection


def numbers(connection: Connection, sql: str) -> list[tuple[float, float]]:
    """Return all numbers of an answer with their errors, 0 where there is none."""
    result = connection.execute(sql).result
    found = []
    for column, errors in zip(zip(*result.rows, strict=True), result.stddev, strict=True):
        known = [0.0 if each is None else each for each in errors or [None] * len(column)]
        pairs = zip(column, known, strict=True)
        noisy = errors is not None
        numbers = ((v, e) for v, e in pairs if noisy or isinstance(v, float))
        found += [(float(v), error) for v, error in numbers if v is not None]
    return found


def finite(found: list[tuple[float, float]]) -> bool:
    return all(math.isfinite(value) and 0 <= error < math.inf for value, error in found)


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "auto"])
@pytest.mark.parametrize("table", ['"row"', BY_UNIT], indirect=True)
def test_every_epsilon_gives_finite_answers(table: Connection, noise: str) -> None:
    table.set("noise", noise)
    table.set("fresh", "on")
    table.set("delta", "0" if noise == "laplace" else "1e-9")
    by_unit = table.catalog.tables["t"].unit.max_rows > 1
    for place, epsilon in enumerate(EDGES[::3] if noise == "auto" else EDGES):
        table.set("epsilon", epsilon)
        for sql in [*STATEMENTS, *([UNITS] if by_unit else [])]:
            if place % 3 == 0:
                table.explain(sql)
            assert finite(numbers(table, sql)), (epsilon, sql)
    assert abs(numbers(table, STATEMENTS[0])[0][0] - ROWS / 5) < 1


@pytest.mark.parametrize("table", ['"row"'], indirect=True)
def test_the_largest_epsilon_of_all(table: Connection) -> None:
    table.set("epsilon", "1000000")
    ((value, error),) = numbers(table, "SELECT COUNT(*) AS n FROM t")
    assert value == ROWS
    assert 0 < error < 1e-12


@pytest.mark.parametrize("table", ['"row"'], indirect=True)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("wanted", ["1e-8", "0.02", "0.5", "300", "1000000000"])
def test_the_least_epsilon_is_found_where_errors_are_not_in_proportion(
    table: Connection, noise: str, wanted: str
) -> None:
    table.set("noise", noise)
    table.set("delta", "0" if noise == "laplace" else "1e-9")
    options = "WITH DIFFERENTIAL_PRIVACY OPTIONS(max_stddev = {})"
    sql = "SELECT {} a, COUNT(*) AS n FROM t GROUP BY a"
    if noise == "gaussian" and wanted == "1e-8":
        with pytest.raises(dpsql.Error, match="above the limit of 1000000"):
            table.explain(sql.format(options.format(wanted)))
        return
    epsilon = table.explain(sql.format(options.format(wanted))).epsilon
    table.set("fresh", "on")
    if wanted == "1000000000":
        assert epsilon == MIN_EPSILON
        return
    errors = []
    for share in (Fraction(1), Fraction(98, 100)):
        table.set("epsilon", str(float(epsilon * share)))
        errors.append(numbers(table, sql.format(""))[0][1])
    assert errors[0] <= float(wanted) < errors[1]


def test_the_variance_of_discrete_laplace_noise_of_any_scale() -> None:
    for scale in np.geomspace(1e-7, 300, 400):
        z = np.arange(1, 20_000)
        masses = np.exp(-z / scale)
        exact = 2 * float(z**2 @ masses) / (1 + 2 * float(masses.sum()))
        assert laplace_variance(float(scale)) == pytest.approx(max(exact, NO_NOISE), rel=1e-9)
    for scale in np.geomspace(300, 1e15, 50):
        near = 2 * float(scale) ** 2 - 1 / 6
        assert laplace_variance(float(scale)) == pytest.approx(near, rel=1e-9)


def test_the_published_convention_at_any_epsilon() -> None:
    found = [unit_variance("gaussian", float(e), 1e-9) for e in np.geomspace(1e-6, 1e6, 60)]
    assert all(0 < after < before for before, after in itertools.pairwise(found))
    assert found[-1] == pytest.approx(1 / 2e6, rel=0.02)
