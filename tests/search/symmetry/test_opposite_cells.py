"""Conditions on columns of their own, measured by differences of opposite cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.algebra.operator import Floats
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.errors import ProgrammingError
from dpsql.plan.request import PlannedRequest, Request, make_plan
from dpsql.plan.target import reading_variance
from dpsql.privacy.vault.unit.rows import fits
from dpsql.search.symmetry.opposite_cells import in_threes, opposite_rows
from dpsql.strategy.axis import residual_axis
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.registry import decode_strategy
from dpsql.workload.cells import Cells
from dpsql.workload.layout import Layout
from dpsql.workload.workload import Product, Workload

EIGHT = (
    "age >= 40",
    "hours_per_week > 40",
    "education = 'Bachelors'",
    "race = 'Black'",
    "sex = 'Male'",
    "income = '>50K'",
    "workclass = 'Private'",
    "relationship = 'Wife'",
)


def laid_out(sizes: Sequence[int], products: Sequence[Mapping[str, object]]) -> Layout:
    domain = {f"x{i}": n for i, n in enumerate(sizes)}
    workload = Workload(domain, products)
    resolutions = {name: Cells((name,), (np.arange(n),)) for name, n in domain.items()}
    readings = {(i, 0): ((1.0, product),) for i, product in enumerate(workload.products)}
    return Layout(workload, resolutions, readings, tuple(domain))


def asked(kind: str) -> Layout:
    yes = np.array([[1, 0]])
    if kind == "counts":
        return laid_out([2] * 5, [{f"x{i}": yes} for i in range(5)])
    if kind == "total":
        return laid_out([2] * 5, [{}, *({f"x{i}": "identity"} for i in range(5))])
    products = [{f"x{i}": yes} for i in range(5)]
    return laid_out([2] * 5 + [3, 2], [*products, {"x5": "identity"}, {"x5": yes3(), "x6": yes}])


def yes3() -> Floats:
    return np.array([[1, 1, 0]])


def over_all(domain: Mapping[str, int], factors: Mapping[str, Floats | None]) -> Floats:
    """Rows over all cells: the identity where a factor is None, sums where there is none."""
    out: Floats = np.ones((1, 1))
    for name, n in domain.items():
        rows = factors.get(name, np.ones((1, n)))
        out = np.asarray(np.kron(out, np.eye(n) if rows is None else rows))
    return out


def dense(strategy: ProductStrategy) -> tuple[Floats, Floats]:
    """All rows that are measured over all cells, and the standard deviation of each."""
    rows, deviations = [], []
    for block, variance in zip(strategy.blocks, strategy.unit_variances(), strict=True):
        factors = {
            name: (strategy.residual if name in block.residual else strategy.full)[name]
            for name in block.attributes
        }
        part = over_all(strategy.domain, factors)  # type: ignore[arg-type]
        rows.append(part)
        deviations.append(np.full(len(part), math.sqrt(variance)))
    return np.concatenate(rows), np.concatenate(deviations)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_every_cell_is_in_one_row_against_its_opposite(columns: int) -> None:
    rng = np.random.default_rng(columns)
    labels = rng.permutation(2**columns).reshape((2,) * columns)
    rows = opposite_rows(labels)
    assert (np.abs(rows).sum(axis=0) == 1).all()
    assert (rows.sum(axis=1) == 0).all()
    flipped = labels[(slice(None, None, -1),) * columns]
    opposite = np.empty(labels.size, dtype=np.int64)
    opposite[labels.ravel()] = flipped.ravel()
    assert (rows[:, opposite] == -rows).all()


@pytest.mark.parametrize("kind", ["counts", "total", "mixed"])
def test_forecast_and_estimate_are_those_of_dense_algebra(kind: str) -> None:
    found = in_threes(asked(kind), "laplace", 1.0)
    assert found is not None
    layout, strategy = found
    assert [strategy.sensitivity(block) for block in strategy.blocks if block.residual] == [1, 1]
    A, deviations = dense(strategy)
    forecast = strategy.forecast(strategy.unit_variances())
    rng = np.random.default_rng(0)
    values = rng.integers(-50, 50, len(A))
    ends = np.cumsum([block.rows for block in strategy.blocks])[:-1]
    estimate = strategy.solve(np.split(values, ends), forecast)
    inverse = np.linalg.pinv(A / deviations[:, np.newaxis])
    for product in layout.workload.products:
        Q = over_all(strategy.domain, {n: f.dense() for n, f in product.factors.items()})
        spread = Q @ inverse
        assert spread @ (A / deviations[:, np.newaxis]) == pytest.approx(Q, abs=1e-9)
        assert forecast.variance(product) == pytest.approx(np.square(spread).sum(axis=1))
        assert estimate.answer(product) == pytest.approx(spread @ (values / deviations))


def test_what_opposites_do_not_say_is_not_answered() -> None:
    found = in_threes(asked("counts"), "laplace", 1.0)
    assert found is not None
    _, strategy = found
    forecast = strategy.forecast(strategy.unit_variances())
    joint, other = strategy.residual
    cell = np.zeros((1, strategy.domain[joint]))
    cell[0, 0] = 1
    workload = Workload(strategy.domain, [{joint: cell}, {joint: "identity"}, {other: "identity"}])
    assert not any(forecast.supports(product) for product in workload.products)
    with pytest.raises(ProgrammingError):
        forecast.variance(workload.products[0])
    assert forecast.supports(Product({}))


def test_a_strategy_is_read_back_as_it_was_written() -> None:
    found = in_threes(asked("mixed"), "laplace", 1.0)
    assert found is not None
    _, strategy = found
    arrays: dict[str, np.ndarray] = {}

    def keep(array: np.ndarray) -> str:
        arrays[f"a{len(arrays)}"] = array
        return f"a{len(arrays) - 1}"

    again = decode_strategy(strategy.encode(keep), arrays)
    assert again.fingerprint() == strategy.fingerprint()


def test_few_columns_other_noise_and_columns_that_are_asked_together_are_left() -> None:
    yes = np.array([[1, 0]])
    few = laid_out([2] * 4, [{f"x{i}": yes} for i in range(4)])
    assert in_threes(few, "laplace", 1.0) is None
    assert in_threes(asked("counts"), "gaussian", 1.0) is None
    pairs = laid_out([2] * 6, [{f"x{i}": yes, f"x{(i + 1) % 6}": yes} for i in range(6)])
    assert in_threes(pairs, "laplace", 1.0) is None


def test_residual_rows_of_lower_rank_must_sum_to_zero() -> None:
    axis = residual_axis(4, opposite_rows(np.arange(4).reshape(2, 2)))
    assert axis.u == pytest.approx([0.25] * 4)
    with pytest.raises(ValueError, match="exactly one direction"):
        residual_axis(4, np.array([[1, -1, 0, 0], [0, 0, 1, 0]]))


def planned(connection: Connection, script: str) -> PlannedRequest:
    compiled = connection.engine.compile(parse_script(script))
    return make_plan(Request(compiled, Fraction(1), Fraction(0), "laplace"))


def test_conditions_on_columns_of_their_own_cost_less(adult: Connection) -> None:
    """Before: 6.33 each at epsilon 1."""
    script = ";".join(f"SELECT COUNT(*) FROM adult WHERE {each}" for each in EIGHT)
    found = planned(adult, script)
    (part,) = found.plan.parts
    assert part.strategy.method == "opposites"
    for at, reading, _ in found.readings.values():
        forecast = found.plan.parts[at].forecast
        assert math.sqrt(float(reading_variance(forecast, reading)[0])) < 5.9
    assert sum(block.share for block in part.strategy.blocks) == 1


@pytest.mark.usefixtures("quick_plans")
def test_answers_are_true_but_for_noise_and_kept(adult: Connection, demo: Path) -> None:
    shown = ", ".join(f"COUNT(*) FILTER (WHERE {each})::DOUBLE" for each in EIGHT)
    (row,) = adult.execute(f"SELECT {shown} FROM adult").fetchall()
    with duckdb.connect() as db:
        known = [f"{name} IS NOT NULL" for name in ("age", "workclass", "relationship")]
        source = f"'{demo / 'adult.parquet'}' WHERE {' AND '.join(known)}"
        (true,) = db.execute(f"SELECT {shown} FROM {source}").fetchall()
    assert np.abs(np.array(row) - np.array(true)).max() < 6 * 25
    other = ", ".join(f"COUNT(*) FILTER (WHERE NOT ({each}))::DOUBLE" for each in EIGHT)
    assert adult.explain(f"SELECT {other} FROM adult").free
    (rest,) = adult.execute(f"SELECT {other} FROM adult").fetchall()
    assert np.ptp(np.array(row) + np.array(rest)) < 1e-6


@pytest.mark.usefixtures("quick_plans")
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("measures", [0, 1, 4, 5, 7])
@pytest.mark.parametrize("flags", [0, 3, 5])
def test_what_is_planned_can_be_counted(
    tmp_path: Path, noise: str, measures: int, flags: int
) -> None:
    """Measures have two nodes, and were joined as if they had two cells: refused from five on."""
    kinds = ('"integer", domain = [0, 3]', '"number", bounds = [0, 9]')
    columns = [f"m{i} = {{ type = {kinds[i % 2]} }}" for i in range(7)]
    columns += [f'f{i} = {{ type = "boolean", domain = [true, false] }}' for i in range(5)]
    head = '[budget]\nepsilon = 9\ndelta = 1e-6\n[table.t]\nsource = "t.parquet"\n'
    head += 'privacy_unit = "row"\n[table.t.column]\n'
    (tmp_path / "c.toml").write_text(head + "\n".join(columns))
    items = [f"AVG(m{i})" for i in range(measures)]
    items += [f"COUNT(*) FILTER (WHERE f{i})" for i in range(flags)] or ["COUNT(*)"]
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        compiled = connection.engine.compile(parse_script(f"SELECT {', '.join(items)} FROM t"))
        request = Request(compiled, Fraction(1), Fraction(1, 10**6), noise)
        for part in make_plan(request).plan.parts:
            table = connection.engine.catalog.find(part.table)
            for block in part.blocks:
                asked = [part.resolutions[name] for name in block.attributes]
                assert fits(asked, table, part.units)
