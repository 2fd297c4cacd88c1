"""Batches of sums: published errors, dominance, thresholds, budgets."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Literal, get_args

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.tails import several_error, sum_error
from dpsql.algebra.operator import Floats, Integers
from dpsql.engine.clip import rule_of_one
from dpsql.errors import ProgrammingError
from dpsql.learn.batches import answer_sums, draw_in, smooth_tail
from dpsql.learn.design import Algorithm, SumBatch, padded
from dpsql.learn.thresholds import (
    AFTERWARDS,
    AGAIN,
    METHODS,
    SEARCH,
    SINGLE_SHARE,
    UNKNOWN,
    Method,
    Threshold,
    choose,
    grid,
    rows_above,
    rows_lost,
    shrink,
)
from dpsql.search.one_attribute import opt0
from dpsql.strategy.noise_law import Noise, law
from tests.learn.fake import FakeSums

DEMO = Path(__file__).parents[2] / "demo_data"
NOISES: tuple[Noise, ...] = ("laplace", "gaussian")
VALUES = np.arange(1, 21, dtype=np.int64) * 500
COUNTS = np.array([3000 // (1 + j) ** 2 for j in range(20)], dtype=np.int64)


def prefixes(bins: int) -> NDArray[np.int64]:
    """The queries that sum the first k bins, k = 1..bins."""
    return np.tril(np.ones((bins, bins), dtype=np.int64))


@pytest.fixture(scope="module")
def batches() -> dict[Noise, SumBatch]:
    return {noise: SumBatch(VALUES, prefixes(20), noise) for noise in ("laplace", "gaussian")}


def test_published_errors_of_one_hundred_prefixes() -> None:
    values, queries = np.arange(1, 101, dtype=np.int64) * 10_000, prefixes(100)
    pure, gaussian = SumBatch(values, queries, "laplace"), SumBatch(values, queries, "gaussian")
    expected: dict[Algorithm, tuple[float, float]] = {
        "identity": (1.76e6, 1.24e6),
        "workload": (2.29e7, 1.80e6),
        "timm": (1.19e6, 4.47e5),
        "tamm": (1.06e6, 4.02e5),
    }
    for algorithm, (laplace, normal) in expected.items():
        error = pure.design(algorithm, 200_000).error
        assert math.sqrt(2 * error / 100) == pytest.approx(laplace, rel=0.03)
        error = gaussian.design(algorithm, 200_000).error
        assert math.sqrt(error / 100) == pytest.approx(normal, rel=0.03)


@pytest.mark.parametrize("seed", range(6))
def test_the_padded_start_makes_tamm_at_most_timm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = rng.integers(0, 2, (8, 9)).astype(np.float64)
    values = rng.uniform(0, 1, 9)
    values[-1] = 1
    theta = opt0.optimise(queries.T @ queries, p=2, restarts=2, ftol=1e-4)
    A = opt0.matrix(theta) * values
    weighted = queries * values
    plain = np.square(weighted @ np.linalg.pinv(A)).sum() * np.abs(A).sum(axis=0).max() ** 2
    start = padded(theta, values)
    assert opt0.loss_and_grad(start, weighted.T @ weighted)[0] <= plain * (1 + 1e-9)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_tamm_dominates_at_every_threshold(batches: dict[Noise, SumBatch], noise: Noise) -> None:
    others: tuple[Algorithm, ...] = ("identity", "workload", "timm")
    for theta in (10_000, 3000, 500):
        best = batches[noise].design("tamm", theta).error
        for other in others:
            assert best <= batches[noise].design(other, theta).error * 1.002


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_every_pair_spends_exactly_its_budget(
    batches: dict[Noise, SumBatch], algorithm: Algorithm, method: str, noise: Noise
) -> None:
    rule = Threshold(method, start=500)  # type: ignore[arg-type]
    handle = FakeSums(VALUES, COUNTS, "0.7", noise=noise, rng=np.random.default_rng(0))
    reshaped = algorithm in ("identity", "tamm")
    if (method in AFTERWARDS and not reshaped) or (method == "r2t" and algorithm != "workload"):
        with pytest.raises(ProgrammingError):
            answer_sums(handle, batches[noise], algorithm, rule)
        assert handle.spent == []
        return
    found = answer_sums(handle, batches[noise], algorithm, rule)
    assert handle.remaining() == 0
    assert found.values.shape == found.stddev.shape == (20,)
    assert np.isfinite(found.values).all()
    assert np.isnan(found.stddev).all() if method in UNKNOWN else (found.stddev > 0).all()
    if found.ordered:
        assert (np.diff(found.values) >= 0).all()
        assert found.values[0] >= 0
    assert found.ordered == (algorithm != "sqm" or method == "none")


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_without_noise_answers_are_clipped_sums(
    batches: dict[Noise, SumBatch], algorithm: Algorithm
) -> None:
    handle = FakeSums(VALUES, COUNTS, 10)
    exact = answer_sums(handle, batches["laplace"], algorithm)
    truth = prefixes(20) @ (VALUES * COUNTS)
    assert exact.values == pytest.approx(truth, rel=1e-6)
    handle = FakeSums(VALUES, COUNTS, 10)
    rule = Threshold("svt", rows=Fraction(1000), start=500)
    clipped = answer_sums(handle, batches["laplace"], algorithm, rule)
    theta = clipped.thetas[-1]
    assert theta < 10_000
    if algorithm != "sqm":
        expected = prefixes(20) @ (np.minimum(VALUES, theta) * COUNTS)
        assert clipped.values == pytest.approx(expected, rel=1e-6)


def test_realised_errors_are_those_foretold(batches: dict[Noise, SumBatch]) -> None:
    batch = batches["laplace"]
    truth = prefixes(20) @ (VALUES * COUNTS)
    for algorithm in ("identity", "timm", "tamm"):
        squares = []
        for seed in range(200):
            handle = FakeSums(VALUES, COUNTS, 1, rng=np.random.default_rng(seed))
            found = answer_sums(handle, batch, algorithm, ordered=False)
            squares.append(np.square(found.values - truth).sum())
        expected = 2 * batch.design(algorithm, 10_000).error
        assert np.mean(squares) == pytest.approx(expected, rel=0.25)
        assert float(np.square(found.stddev).sum()) == pytest.approx(expected, rel=1e-9)


def test_thresholds_leave_the_rows_they_should() -> None:
    def above(theta: int) -> int:
        return int(COUNTS[theta < VALUES].sum())

    handle = FakeSums(VALUES, COUNTS, 10)
    for method in ("svt", "quantile"):
        rule = Threshold(method, rows=Fraction(60), start=500)
        theta = choose(handle, rule, Fraction(1), Fraction(1))
        assert 30 <= above(theta) <= 90
    rule = Threshold("svt-ratio", ratio=Fraction(9, 10), start=500)
    theta = choose(handle, rule, Fraction(1), Fraction(1))
    assert above(theta) <= 0.1 * COUNTS.sum()
    assert choose(handle, Threshold("recursive", start=500), Fraction(1), Fraction(1)) <= 10_000
    assert choose(handle, Threshold("none"), Fraction(1), Fraction(1)) == 10_000


def test_the_recursive_index_moves_by_at_most_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        counts = rng.integers(0, 4, 20)
        more = counts + (np.arange(20) == rng.integers(20))
        thetas = sorted(int(v) for v in rng.integers(0, 10_000, 15))
        before, after = (
            FakeSums(VALUES, c, 1).recursive(thetas, Fraction(1)) for c in (counts, more)
        )
        assert after - before in (0, 1)


def test_the_free_threshold_trades_bias_for_noise() -> None:
    queries = np.tril(np.ones((4, 4)))
    values = np.array([10, 20, 30, 1000])
    plenty = np.array([50.0, 40.0, 30.0, 20.0])
    assert shrink(values, queries, plenty, np.eye(4), 1.0) == 1000
    empty = np.array([50.0, 40.0, 30.0, 0.2])
    assert shrink(values, queries, empty, np.eye(4), 4.0) < 1000


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="is not one of"):
        Threshold("best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="between 0 and 1"):
        Threshold("svt", share=Fraction(1))
    with pytest.raises(ValueError, match="non-decreasing"):
        SumBatch(np.array([2, 1]), prefixes(2), "laplace")
    assert grid(1000, 0.2, 900) == [900]
    assert grid(1, 0.2, 5) == [1, 2, 3, 4, 5]


def test_counts_drawn_in_are_nearer_where_bins_are_empty() -> None:
    values = np.arange(1, 101, dtype=np.int64) * 1000
    counts = np.zeros(100, dtype=np.int64)
    counts[:8] = [4000, 9000, 5000, 2500, 1200, 500, 150, 40]
    batch = SumBatch(values, prefixes(100), "laplace")
    truth = batch.queries @ (values * counts)

    def error(method: Method, epsilon: str) -> float:
        found = []
        for seed in range(40):
            handle = FakeSums(values, counts, epsilon, rng=np.random.default_rng(seed))
            answers = answer_sums(handle, batch, "identity", Threshold(method)).values
            found.append(np.abs(answers - truth).mean())
        return float(np.mean(found))

    assert error("eb", "0.1") < 0.95 * error("none", "0.1")
    assert error("eb", "1") < 1.05 * error("none", "1")


def test_drawing_in_leaves_what_is_sure_and_takes_the_tail_for_the_rest() -> None:
    counts = np.array([900.0, 500.0, 100.0, 20.0, 5.0, 1.0])
    assert draw_in(counts, np.eye(6), 1e-12) == pytest.approx(counts, abs=1e-6)
    tail = smooth_tail(counts, 1e12 * np.eye(6))
    assert draw_in(counts, np.eye(6), 1e12) == pytest.approx(tail, rel=1e-4)
    assert (tail >= 0).all()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("approx-bounds", {"0.01": 1.0, "0.1": 0.40, "1": 0.0074}),
        ("r2t", {"0.1": 0.68, "1": 0.18}),
    ],
)
def test_one_sum_of_capital_gains_reaches_the_published_errors(
    method: Method, expected: dict[str, float]
) -> None:
    query = "SELECT CAST(capital_gain AS BIGINT) FROM read_parquet(?) LIMIT 32561"
    with duckdb.connect() as db:
        gains = np.array(db.execute(query, [str(DEMO / "adult.parquet")]).fetchall())[:, 0]
    present, counts = np.unique(gains, return_counts=True)
    values, counts = np.append(present, 1_000_000), np.append(counts, 0)
    batch = SumBatch(values, np.ones((1, len(values)), dtype=np.int64), "laplace")
    truth = float(values @ counts)
    for epsilon, limit in expected.items():
        errors = []
        for seed in range(200):
            handle = FakeSums(values, counts, epsilon, rng=np.random.default_rng(seed))
            rule = Threshold(method, SINGLE_SHARE)
            answer = answer_sums(handle, batch, "workload", rule).values[0]
            errors.append(abs(answer - truth) / truth)
        assert np.mean(errors) == pytest.approx(limit, rel=0.25)


def test_a_race_stays_below_the_sum_nine_times_in_ten() -> None:
    batch = SumBatch(VALUES, np.ones((1, 20), dtype=np.int64), "laplace")
    truth, above = float(VALUES @ COUNTS), 0
    for seed in range(200):
        for noise in NOISES:
            handle = FakeSums(VALUES, COUNTS, "0.5", noise=noise, rng=np.random.default_rng(seed))
            found = answer_sums(handle, batch, "workload", Threshold("r2t"))
            above += found.values[0] > truth
            assert handle.remaining() == 0
    assert above <= 80


@pytest.mark.parametrize("method", ["svt", "quantile"])
def test_thresholds_do_not_run_away(method: Literal["svt", "quantile"]) -> None:
    """One run in a hundred is off by some times the median, not by the declared bound.

    With one row above it the 99th percentile is 187,000 for svt; it is 90,000 for quantile where
    equal numbers of rows above have equal chances, with a median of 15,500.
    """
    errors = [sum_error(method, np.random.default_rng((5, i))) for i in range(400)]
    median, rare = np.quantile(errors, (0.5, 0.99))
    assert rare < 45_000
    assert median < 11_000


def test_thresholds_of_several_sums_do_not_run_away() -> None:
    """With one search the 99th percentile is 44,000, and the median the same."""
    errors = [several_error("svt", np.random.default_rng((6, i))) for i in range(400)]
    median, rare = np.quantile(errors, (0.5, 0.99))
    assert rare < 36_000
    assert median < 3_500


class Shared(FakeSums):
    """A handle over rows of which a privacy unit has several."""

    unit = 1

    def _spend(self, what: str, amount: Fraction, rate: int = 2) -> float:
        return super()._spend(what, amount, rate) / self.unit


@pytest.mark.parametrize("bound", [10_000, 10**6, 4 * 10**7])
@pytest.mark.parametrize(("method", "unit"), [("quantile", 1), ("recursive", 1), ("recursive", 5)])
def test_chances_do_not_follow_the_declared_bound(method: Method, unit: int, bound: int) -> None:
    """However far the bound is, a threshold is near where values end.

    At the pace of before ``recursive`` has 2.5 times the largest value at the farthest, 722 times
    where a unit has five rows.
    """
    values = np.append(VALUES, bound) if bound > VALUES[-1] else VALUES
    counts = np.append(COUNTS, 0)[: len(values)]
    rule = rule_of_one(method, bound, unit, "laplace")
    found = []
    for seed in range(300):
        handle = Shared(values, counts, "0.25", rng=np.random.default_rng(seed))
        handle.unit = unit
        found.append(choose(handle, rule, Fraction(1, 8), Fraction(1, 8)))
    assert np.sqrt(np.mean(np.square(np.array(found, dtype=float)))) < 2 * VALUES[-1]
    assert np.quantile(found, 0.99) < 8 * VALUES[-1]


def tailed(kind: str, rows: int, top: int) -> Integers:
    """Four thousand small values, and a number of larger ones of a kind."""
    rng = np.random.default_rng(3)
    larger = {
        "alike": np.full(rows, top),
        "spread": rng.integers(1, top + 1, rows),
        "lognormal": np.minimum(rng.lognormal(5, 2, 40 * rows), top).astype(np.int64),
    }
    return np.concatenate([rng.integers(1, 50, 4000), larger[kind]])


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("method", ["svt", "quantile"])
@pytest.mark.parametrize("kind", ["alike", "spread", "lognormal"])
def test_forecasts_have_the_error_of_the_choice(kind: str, method: Method, noise: Noise) -> None:
    """Before, the forecast was of noise alone: a third of what rows that are alike had."""
    top, budget = 10_000, Fraction(1) if noise == "laplace" else Fraction(1, 8)
    rule = rule_of_one(method, top, 1, noise)
    answers = (1 - rule.share - rule.again) * budget
    lost = rows_lost(rule, noise, budget, 1)
    assert lost is not None
    forecast = top * math.hypot(lost, math.sqrt(law(noise).unit_variance(float(answers))))
    for times in (1, 2, 3):
        values = tailed(kind, times * rows_above(rule, noise, (1 - rule.share) * budget), top)
        present, counts = np.unique(np.append(values, top), return_counts=True)
        counts[-1] -= 1
        batch = SumBatch(present, np.ones((1, len(present)), dtype=np.int64), noise)
        errors = []
        for seed in range(100):
            handle = FakeSums(present, counts, budget, noise=noise, rng=np.random.default_rng(seed))
            answer = answer_sums(handle, batch, "workload", rule, ordered=False).values[0]
            errors.append(float(answer) - float(values.sum()))
        assert np.sqrt(np.mean(np.square(errors))) < 1.4 * forecast


class Missing(FakeSums):
    """A handle whose first searches find nothing."""

    misses = 1

    def _svt(self, scores: Floats, threshold: float, query: float, amount: Fraction) -> int | None:
        found = super()._svt(scores, threshold, query, amount)
        self.misses -= 1
        return None if self.misses >= 0 else found


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("misses", [0, 1, 2])
def test_what_was_kept_back_is_spent_whether_a_search_hits_or_not(
    misses: int, noise: Noise
) -> None:
    values, counts = np.append(VALUES, 10**6), np.append(COUNTS, 0)
    batch = SumBatch(values, np.ones((1, 21), dtype=np.int64), noise)
    rule = rule_of_one("svt", 10**6, 1, noise)
    handle = Missing(values, counts, 30, noise=noise, rng=np.random.default_rng(1))
    handle.misses = misses
    found = answer_sums(handle, batch, "workload", rule)
    looks = [SEARCH, AGAIN][: 1 + min(misses, 1)]
    parts = [*looks, 1 - sum(looks)]
    assert [amount for _, amount in handle.spent] == [30 * part for part in parts]
    last = float(handle.spent[-1][1])
    scale = math.sqrt(2) / last if noise == "laplace" else 1 / math.sqrt(2 * last)
    assert found.stddev[0] == pytest.approx(found.thetas[0] * scale)
    (theta,) = found.thetas
    assert (theta == 10**6) == (misses == 2)
