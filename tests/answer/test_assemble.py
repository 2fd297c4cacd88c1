"""What rounding leaves of zero is zero: in answers, and in variances."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.answer.assemble import round_residue
from dpsql.answer.rank_values import quantile
from dpsql.plan.target import reading_variance
from tests.support.oracle import write_world
from tests.support.seam import zero_noise

DAY = dt.date(2024, 1, 31)
ROWS = [
    (3, "rest", None, DAY, 4, 1.0, 10.0, 0.0, 100, 2.0),
    (1, "rest", False, DAY, 4, 10.0, 3.7, 0.0, 0, 0.0),
    (7, "zz", True, DAY, 4, 2.0, 3.7, 3.5, 50, 0.0),
    (5, "zz", True, DAY, 0, 1.0, 3.7, 0.0, 1, 1.0),
]
MEANS = (
    "SELECT a, AVG(e) AS mean, SUM(e) / COUNT(e) AS ratio FROM t "
    "WHERE starts_with(b, 'i') OR a + e != -1 GROUP BY a"
)


def test_a_mean_of_no_rows_has_no_value_and_no_error(tmp_path: Path) -> None:
    write_world(tmp_path, ROWS).close()
    with zero_noise(), dpsql.connect(tmp_path / "t.toml", epsilon=1, delta=1e-9) as connection:
        result = connection.execute(MEANS).result
    there = {row[0] for row in ROWS}
    for column in (1, 2):
        errors = result.stddev[column]
        assert errors is not None
        for row, error in zip(result.rows, errors, strict=True):
            assert (row[column] is None) == (row[0] not in there), row
            assert (error is None) == (row[0] not in there), (row, error)


def test_answers_far_below_their_errors_are_zero() -> None:
    place = (0, 0)
    answers = {place: np.array([1e-16, -1e-12, 1e-3, 1e-16, 1e-16])}
    round_residue(answers, {place: np.array([4.0, 4.0, 4.0, 0.0, np.nan])})
    assert answers[place].tolist() == [0.0, 0.0, 1e-3, 1e-16, 1e-16]


def test_what_sums_in_floating_point_leave_is_not_told() -> None:
    """Multiples of a public step come out as such, whatever the order in which they were added."""
    draw, place = np.random.default_rng(43), (0, 0)
    for step in (1.0, 0.5, 0.01, 0.125, 1e-6):
        exact = draw.integers(-(10**6), 10**6, 500) * step
        parts = draw.normal(0, 1e3, (500, 6))
        values = parts.sum(axis=1) + (exact - parts[:, ::-1].sum(axis=1))
        answers = {place: values}
        round_residue(answers, {place: np.full(500, (2e3 * step) ** 2)})
        assert answers[place] == pytest.approx(exact, abs=1e-5 * step)
        assert max(len(str(value)) for value in answers[place].tolist()) <= 16
    assert max(len(str(value)) for value in values.tolist()) > 16


def test_rounding_leaves_what_is_large_or_exact() -> None:
    place = (0, 0)
    values = np.array([1e300, 2.0**60, 1 / 3, -1 / 3, 12.5, np.nan])
    answers = {place: values.copy()}
    round_residue(answers, {place: np.array([1.0, 1.0, 0.0, 1e-40, 1e30, 1.0])})
    assert np.array_equal(answers[place], [1e300, 2.0**60, 1 / 3, -1 / 3, 0.0, np.nan], True)


def test_terms_that_cancel_leave_no_negative_variance() -> None:
    left, right = object(), object()

    def covariance(one: object, two: object) -> Any:
        return np.array([0.1 if one is two else 0.1 + 1e-17, 1.0 if one is two else 1 + 1e-14])

    forecast: Any = SimpleNamespace(covariance=covariance)
    reading: Any = ((1.0, left), (-1.0, right))
    assert reading_variance(forecast, reading).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(20))
def test_quantiles_within_bins_are_those_of_rows_spread_evenly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.integers(1, 9, rng.integers(2, 12)) / 2.0)
    counts = rng.integers(0, 6, len(edges) - 1)
    counts[rng.integers(len(counts))] += 1
    spread = [
        low + (np.arange(n) + 0.5) / n * (high - low)
        for low, high, n in zip(edges, edges[1:], counts, strict=False)
        if n
    ]
    totals = np.cumsum(counts).astype(float)
    starts, ends = edges[:-1].tolist(), edges[1:].tolist()
    rows = np.concatenate(spread)
    for row in range(len(rows)):
        place = row / max(len(rows) - 1, 1)
        found = quantile(totals, starts, place, True, ends)
        assert found == pytest.approx(np.quantile(rows, place))
    found = [quantile(totals, starts, q, True, ends) for q in np.linspace(0, 1, 40)]
    assert found == sorted(found)
    assert edges[0] <= found[0] <= found[-1] <= edges[-1]


def test_quantiles_of_noise_stay_within_the_bins() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        totals = np.cumsum(rng.normal(0, 3, 8))
        for place in (0.0, 0.3, 1.0):
            found = quantile(totals, range(0, 80, 10), place, True, range(10, 90, 10))
            if found is not None:
                assert 0 <= found <= 79
