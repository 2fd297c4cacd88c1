"""Standard errors across several noisy sub-queries, against many draws and against covariances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.algebra.blocks import Identity, Prefix
from dpsql.algebra.ranges import AllRange, Ranges
from dpsql.answer.assemble import read_answers
from dpsql.answer.covariance import _rows
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection, Cursor
from dpsql.plan.plan import Part
from dpsql.plan.request import Request
from dpsql.privacy.noise.samplers import discrete_gaussian, discrete_laplace
from dpsql.strategy.base import Forecast
from dpsql.strategy.product_forecast import ProductForecast
from dpsql.workload.workload import Product
from tests.privacy.seam import SeededBits
from tests.strategy.test_forecast import worked_example
from tests.support.seam import zero_noise
from tests.support.symmetric import UNIONS, strategy_of

Answers = Sequence[np.ndarray[Any, Any]]
DRAWS = 5_000
"""The standard deviation of draws has a relative error of at most sqrt(5 / (4 DRAWS)) = 0.018, for
sums of Laplace variables: 10 % are over five of those, so that false alarms are rarer than 1e-7."""

BOTH = (
    "SELECT sex, race, COUNT(*) AS n, COUNT(*) FILTER (WHERE age > 40) AS s "
    "FROM adult GROUP BY sex, race"
)
STATEMENTS: list[tuple[str, Callable[..., Any]]] = [
    (
        "SELECT (SELECT COUNT(*) FROM adult WHERE sex = 'Male') * 1.0 "
        "/ (SELECT COUNT(*) FROM adult)",
        lambda men, all_: men / all_,
    ),
    (
        "SELECT a.n / b.n, a.n - b.n "
        "FROM (SELECT sex, COUNT(*) AS n FROM adult WHERE age > 40 GROUP BY sex) AS a "
        "JOIN (SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex) AS b USING (sex)",
        lambda a, b: np.stack([a / b, a - b]),
    ),
    (
        f"WITH a AS ({BOTH}), m AS (SELECT sex, race, CAST(s AS DOUBLE) / n AS m, n FROM a) "
        "SELECT x.m - y.m, -(x.n * y.n) / 1000 + 2 FROM m AS x JOIN m AS y ON x.race = y.race "
        "WHERE x.sex = 'Male' AND y.sex = 'Female'",
        lambda n, s: np.stack([s[5:] / n[5:] - s[:5] / n[:5], -n[5:] * n[:5] / 1000 + 2]),
    ),
]  # fmt: skip


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_reported_errors_are_those_of_many_draws(adult: Connection, noise: str) -> None:
    if noise == "gaussian":
        adult.execute("SET delta = 1e-9")
    adult.execute(f"SET noise = {noise}")
    adult.execute("SET epsilon = 0.5")
    cursor, answers = drawn(adult, noise, ";".join(sql for sql, _ in STATEMENTS))
    for index, (_, formula) in enumerate(STATEMENTS):
        here = [answers[place] for place in sorted(answers) if place[0] == index]
        measured = formula(*here)
        result = cursor.result
        assert not lacks(result), index
        reported = np.array([errors for errors in result.stddev if errors is not None])
        at_truth = np.array(list(zip(*result.rows, strict=True)), dtype=float)
        measured = measured.reshape(*reported.shape, DRAWS)
        assert (np.abs(np.median(measured, axis=-1) - at_truth) < 0.15 * reported).all()
        np.testing.assert_allclose(measured.std(axis=-1), reported, rtol=0.1)
        cursor.nextset()


def drawn(adult: Connection, noise: str, script: str) -> tuple[Cursor, dict[Any, Any]]:
    """A script asked without noise, and its answers (rows, DRAWS) by many draws of the noise."""
    seen: list[Any] = []

    def noticed(request: Any, readings: Any, estimates: Any, whole: Any) -> Any:
        seen[:] = [request, readings]
        return read_answers(request, readings, estimates, whole)

    kept: list[Any] = []
    estimate = Part.estimate

    def captured(part: Any, values: Any) -> Any:
        kept.append((part, values))
        return estimate(part, values)

    with (
        zero_noise(),
        mock.patch("dpsql.answer.assemble.read_answers", noticed),
        mock.patch.object(Part, "estimate", captured),
    ):
        cursor = adult.executescript(script)
    request, readings = seen
    ((part, exact),) = kept
    bits, sample = SeededBits(7), discrete_laplace if noise == "laplace" else discrete_gaussian
    drawn = [sample(bits, s, DRAWS * len(v)) for s, v in zip(part.scales, exact, strict=True)]
    draws = [d.reshape(DRAWS, -1) + v for d, v in zip(drawn, exact, strict=True)]
    return cursor, _linear(request, readings, part, exact, draws)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_rounded_counts_have_the_errors_that_are_told(adult: Connection, noise: str) -> None:
    adult.execute("SET delta = 1e-9")
    adult.execute(f"SET noise = {noise}")
    sql = "SELECT sex, COUNT(*) AS n, SUM(age) AS s FROM adult GROUP BY sex"
    (forecast,) = adult.explain(sql).statements
    adult.execute(f"SET epsilon = {2 * forecast.errors[0].rmse:.2f}")
    cursor, answers = drawn(adult, noise, sql)
    errors = cursor.result.stddev[1]
    assert errors is not None
    assert [*cursor.result.vectors[1]] == [*np.rint(np.median(answers[0, 0], axis=1))]
    told, estimate = errors.numbers(), answers[0, 0].std(axis=1)
    assert (estimate > 0.4).all()
    assert (estimate < 0.65).all()
    np.testing.assert_allclose(np.rint(answers[0, 0]).std(axis=1), told, rtol=0.1)
    np.testing.assert_allclose(np.hypot(estimate, 12**-0.5), told, rtol=0.1)


def _linear(
    request: Request, readings: Any, part: Part, exact: Answers, draws: Answers
) -> dict[Any, np.ndarray[Any, Any]]:
    """The answers to every row of measured values: least squares is linear, so units suffice."""
    sizes, values = np.cumsum([len(v) for v in exact])[:-1], np.concatenate(draws, axis=1)
    out: dict[Any, np.ndarray[Any, Any]] = {}
    for j, unit in enumerate(np.eye(values.shape[1])):
        estimates = {0: part.estimate(np.split(unit, sizes))}
        found = read_answers(request, readings, estimates, frozenset())
        for place, each in found.items():
            known = out.setdefault(place, np.zeros((len(each), len(values))))
            known += np.outer(each, values[:, j])
    return out


def lacks(result: Result) -> bool:
    """Whether a note says that an error is not worked out."""
    return any("is not worked out" in note for note in result.notes)


def errors_of(connection: Connection, sql: str) -> tuple[Result, list[float | None]]:
    result = connection.execute(sql).result
    errors = result.stddev[-1]
    assert errors is not None
    return result, list(errors)


COUNTS = "WITH a AS (SELECT race, COUNT(*) AS n FROM adult GROUP BY race) "


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        COUNTS + "SELECT n / 2 FROM a WHERE n > 1000",
        COUNTS + "SELECT n / 2 FROM a ORDER BY n LIMIT 2",
        COUNTS + "SELECT n / 2 FROM (SELECT * FROM a WHERE n > 1000) AS b",
        COUNTS + "SELECT n / 2 FROM (SELECT * FROM a ORDER BY n DESC LIMIT 2) AS b",
        COUNTS + "SELECT x.n / 2 FROM a AS x JOIN a AS y ON x.n <= y.n",
        COUNTS + "SELECT x.n / 2 FROM a AS x "
        "JOIN (SELECT race FROM a WHERE n > 900) AS y USING (race)",
        COUNTS + "SELECT CASE WHEN n > 1000 THEN n / 2 ELSE 0 END FROM a",
        COUNTS + "SELECT ROUND(n / 3) FROM a",
        COUNTS + "SELECT CAST(n / 3 AS INTEGER) FROM a",
        COUNTS + "SELECT GREATEST(n, 0) * 2 FROM a",
        COUNTS + "SELECT DISTINCT n / 2 FROM a",
        COUNTS + "SELECT SUM(n) / 2 FROM a",
        COUNTS + "SELECT n / 2 FROM a QUALIFY row_number() OVER (ORDER BY n) < 3",
        "SELECT n / 2 "
        "FROM (SELECT race, COUNT(*) AS n FROM adult GROUP BY race HAVING n > 900) AS a",
        "SELECT m / 2 FROM (SELECT MEDIAN(age) AS m FROM adult) AS a",
    ],
)  # fmt: skip
def test_what_is_chosen_by_noise_or_not_smooth_has_no_error(adult: Connection, sql: str) -> None:
    result, errors = errors_of(adult, sql)
    assert set(errors) == {None}
    assert lacks(result)


@pytest.mark.parametrize(
    ("sql", "times"),
    [
        ("SELECT n / 2 FROM a ORDER BY n", 0.5),
        ("SELECT n / 2 FROM a WHERE race <> 'Other'", 0.5),
        ("SELECT n / 2 FROM a ORDER BY race LIMIT 3", 0.5),
        ("SELECT 3 * n + 1 FROM (SELECT n - 5 AS n FROM a) AS b", 3),
        ("SELECT x.n - y.n FROM a AS x JOIN a AS y USING (race)", 0),
        ("SELECT n + (SELECT n FROM a WHERE race = 'Other') FROM a WHERE race = 'Black'", 2**0.5),
        ("SELECT n + (SELECT n FROM a WHERE race = 'Other') FROM a WHERE race = 'Other'", 2),
    ],
)
def test_affine_arithmetic_has_the_exact_error(adult: Connection, sql: str, times: float) -> None:
    _, (one, *_) = errors_of(adult, COUNTS + "SELECT n FROM a")
    assert one is not None
    result, errors = errors_of(adult, COUNTS + sql)
    assert errors == pytest.approx([times * one] * len(errors))
    assert not lacks(result)


def test_rows_without_a_number_have_no_error(adult: Connection) -> None:
    half = COUNTS + "SELECT race, b.m / 2 FROM a LEFT JOIN (SELECT race, n AS m FROM a "
    result, errors = errors_of(adult, half + "WHERE race < 'C') AS b USING (race)")
    numbers = [row[1] for row in result.rows]
    assert [value is None for value in numbers] == [error is None for error in errors]
    assert None in numbers
    assert any(numbers)


def test_grouping_sets_and_several_sources(adult: Connection) -> None:
    sql = (
        "WITH a AS (SELECT sex, race, COUNT(*) AS n FROM adult GROUP BY ROLLUP (sex, race)) "
        "SELECT x.sex, x.race, x.n / y.n "
        "FROM a AS x CROSS JOIN (SELECT COUNT(*) AS n FROM adult) AS y"
    )
    result, errors = errors_of(adult, sql)
    whole = [e for row, e in zip(result.rows, errors, strict=True) if row[0] is None]
    assert whole == pytest.approx([0], abs=1e-9), "all of all is known exactly"
    assert all(error is not None and error > 0 for error in errors if error not in whole)


@pytest.mark.usefixtures("quick_plans")
def test_errors_of_many_keys_are_not_worked_out_from_whole_rows(tmp_path: Path) -> None:
    """Of n keys n^2 numbers were written out, some rows at a time: 10,000 took 8 s."""
    columns = 'k = { type = "integer", domain = [0, 19999] }\nc = { type = "boolean", domain = '
    head = '[budget]\nepsilon = 9\n[table.t]\nsource = "t.parquet"\nprivacy_unit = "row"\n'
    (tmp_path / "c.toml").write_text(f"{head}[table.t.column]\n{columns}[true, false] }}\n")
    with duckdb.connect() as db:
        db.execute(f"COPY (SELECT 1 AS k, true AS c) TO '{tmp_path / 't.parquet'}'")
    one, two = (f"SELECT k, COUNT(*) AS n FROM t WHERE {c} GROUP BY k" for c in ("c", "NOT c"))
    sql = f"SELECT x.n - y.n FROM ({one}) x JOIN ({two}) y USING (k)"
    known = ProductForecast.paired
    with (
        dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection,
        mock.patch.object(ProductForecast, "paired", autospec=True, side_effect=known) as paired,
    ):
        _, errors = errors_of(connection, sql)
        _, single = errors_of(connection, one)
    assert single[0] is not None
    assert errors == pytest.approx([2**0.5 * single[0]] * 20_000)
    assert paired.call_count == 3
    for call in paired.call_args_list:
        assert isinstance(call.args[1].factors["k"], Ranges)


@pytest.mark.parametrize("name", ["blocks", *UNIONS])
def test_paired_covariances_are_those_of_single_rows(name: str) -> None:
    forecast: Forecast
    if name == "blocks":
        forecast = worked_example().forecast([1.0, 2.0, 3.0, 4.0])
        products: Sequence[Product] = (
            Product({"1": Identity(2), "2": Prefix(3)}), Product({"2": AllRange(3)}), Product({}),
        )  # fmt: skip
    else:
        forecast, products = strategy_of(name).forecast([2.5]), UNIONS[name].products
    domain = forecast.domain
    rng = np.random.default_rng(3)
    for one in products:
        whole = forecast.variance(one)
        flat = rng.integers(0, one.rows, 12)
        rows = _rows(one, flat, domain)
        assert forecast.paired(rows, rows) == pytest.approx(
            np.resize(whole[flat], len(forecast.paired(rows, rows)))
        )
        for two in products:
            other = rng.integers(0, two.rows, 12)
            together = np.resize(forecast.paired(rows, _rows(two, other, domain)), 12)
            for r in range(12):
                single = (_rows(one, flat[r : r + 1], domain), _rows(two, other[r : r + 1], domain))
                (apart,) = forecast.covariance(*single)
                assert together[r] == pytest.approx(apart, rel=1e-9, abs=1e-12)
