"""Batches of clipped sums: choose where to clip, measure one design, answer, order.

Source: Wu et al. 2019, Algorithms 1 to 5, on exact integers and with one public grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.errors import ProgrammingError
from dpsql.learn.design import Algorithm, Design, SumBatch
from dpsql.learn.thresholds import (
    AFTERWARDS,
    UNKNOWN,
    Threshold,
    choose,
    levels,
    margin,
    shrink,
)
from dpsql.pgm.measurements import Measured, MeasureHandle, SumHandle
from dpsql.pgm.project import project_monotone
from dpsql.records import dataclass
from dpsql.strategy.noise_law import Noise
from dpsql.workload.cells import Nodes, Steps
from dpsql.workload.nodes import steps_between

REACH = 2
"""Bins on either side that the tail is averaged over."""
LEAST = 0.5
"""Least expected deviation of a bin."""


def draw_in(estimate: Floats, covariance: Floats, variance: float) -> Floats:
    """Return least squares counts (m,) drawn towards their own smoothed monotone tail.

    The estimate has covariance ``variance * covariance``. With mu the tail and P the diagonal of
    (mu + 1/2)^2, it is mu + P (P + covariance)^-1 (estimate - mu): counts that stand out from the
    noise stay. Guarantee: a function of its arguments alone.
    ``estimate`` has shape (m,) and ``covariance`` (m, m).
    Source: Efron and Morris 1973, with a prior mean from isotonic regression of the tail sums.
    """
    noise = variance * covariance
    mean = smooth_tail(estimate, noise)
    prior = np.diag((mean + LEAST) ** 2)
    drawn = mean + prior @ np.linalg.solve(prior + noise, estimate - mean)
    return np.asarray(drawn)


def smooth_tail(estimate: Floats, noise: Floats) -> Floats:
    """Return non-negative counts whose tail sums fit those of the estimate, averaged over bins.

    ``noise`` (m, m) is the covariance of the estimate.

    Args:
        estimate: (m,) counts of bins.
        noise: (m, m), the covariance of the estimate.

    >>> smooth_tail(np.array([9.0, 9.0, 9.0, 9.0]), np.eye(4)).round(6).tolist()
    [9.0, 9.0, 9.0, 9.0]
    """
    backwards = noise[::-1, ::-1]
    variances = np.diag(np.cumsum(np.cumsum(backwards, axis=0), axis=1))
    tails = project_monotone(np.cumsum(estimate[::-1]), np.maximum(variances, 1e-300))
    counts = np.diff(tails, prepend=0.0)[::-1]
    padded = np.pad(counts, REACH, mode="edge")
    return np.convolve(padded, np.full(2 * REACH + 1, 1 / (2 * REACH + 1)), mode="valid")


RESHAPED: frozenset[Algorithm] = frozenset({"identity", "tamm"})
"""Algorithms whose measurement does not depend on the threshold, so it may be chosen after."""


@dataclass(frozen=True, slots=True)
class SumAnswers:
    """Answers (q,), the standard deviation of their noise before any ordering, and thresholds.

    Values above a threshold are clipped to it: the answers are biased downwards by what is cut.
    Deviations are NaN where a method leaves them unknown.
    """

    values: Floats
    stddev: Floats
    thetas: tuple[int, ...]
    ordered: bool


def answer_sums(
    handle: SumHandle,
    batch: SumBatch,
    algorithm: Algorithm = "tamm",
    rule: Threshold | None = None,
    *,
    ordered: bool | None = None,
    on_values: bool = False,
) -> SumAnswers:
    """Return the answers of a batch, spending exactly what the handle has left.

    The threshold of a batch, or any with ``on_values``, is rounded up to the value of a bin.
    ``ordered`` makes nested sums non-decreasing; it is done by default unless every query has a
    threshold, hence a bias, of its own.
    Raises ProgrammingError E_SETTING for a threshold that the algorithm cannot use.
    """
    rule = rule or Threshold("none")
    check(algorithm, rule)
    if rule.method == "r2t":
        values, stddev, thetas = _raced(handle, batch, rule)
        single = True
    elif algorithm == "sqm":
        values, stddev, thetas = _one_by_one(handle, batch, rule)
        single = len(set(thetas)) == 1 or rule.free
    else:
        values, stddev, thetas = _jointly(handle, batch, algorithm, rule, on_values)
        single = True
    if ordered is None:
        ordered = single
    ordered = ordered and batch.nested
    if ordered:
        known = rule.method not in UNKNOWN
        weights = np.maximum(stddev, _least(stddev)) ** 2 if known else None
        values = project_monotone(values, weights)
    return SumAnswers(values, stddev, thetas, ordered)


def _least(stddev: Floats) -> float:
    """Return a positive floor for deviations: an answer that is zero by design has none."""
    return 1e-9 * (float(stddev.max()) or 1.0)


def check(algorithm: Algorithm, rule: Threshold) -> None:
    """Refuse a free threshold where the measurement would have to know it.

    Raises: ProgrammingError (E_SETTING).
    """
    if rule.method in AFTERWARDS and algorithm not in RESHAPED:
        raise ProgrammingError(
            "E_SETTING",
            f"'{rule.method}' decides after measuring, which {algorithm} cannot use",
            hint="use 'tamm' or 'identity', or a threshold chosen before",
        )
    if rule.method == "r2t" and algorithm != "workload":
        raise ProgrammingError(
            "E_SETTING", f"'r2t' measures answers, not {algorithm}", hint="use 'workload'"
        )


def _jointly(
    handle: SumHandle, batch: SumBatch, algorithm: Algorithm, rule: Threshold, on_values: bool
) -> tuple[Floats, Floats, tuple[int, ...]]:
    upper = int(batch.values[-1])
    theta = upper
    if not rule.free:
        theta = _chosen(handle, rule)
        if on_values or len(batch.queries) > 1:  # few thresholds, hence few designs
            theta = int(batch.values[batch.values >= min(theta, upper)][0])
    design = batch.design(algorithm, theta)
    measured = handle.measure(design.rows, handle.remaining())
    if rule.method == "sure":
        theta, design = _reshaped(batch, design, measured.values, measured.stddev)
    if rule.method == "eb":
        return _drawn_in(batch, design, measured)
    stddev = measured.stddev * np.sqrt(np.square(design.answers).sum(axis=1))
    return design.answers @ measured.values, stddev, (theta,)


def _chosen(handle: SumHandle, rule: Threshold) -> int:
    """Return the threshold of all answers; what is left of the budget is theirs."""
    budget = handle.remaining()
    amount = rule.share * budget
    return choose(handle, rule, amount, budget - amount, again=rule.again * budget)


def _drawn_in(
    batch: SumBatch, design: Design, measured: Measured
) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Return answers from counts that were drawn towards a smooth tail."""
    counts = _counts(design)
    drawn = draw_in(counts @ measured.values, counts @ counts.T, measured.stddev**2)
    values = (batch.queries * batch.values) @ drawn
    return values, np.full(values.shape, np.nan), (int(batch.values[-1]),)


def _raced(
    handle: SumHandle, batch: SumBatch, rule: Threshold
) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Return the largest of several clipped answers, each less what noise may have added.

    Source: Dong et al. 2022; with probability 0.9 an answer is not above the true one.
    """
    upper = int(batch.values[-1])
    thetas = levels(rule, handle.noise, handle.remaining(), upper)
    each = handle.remaining() / len(thetas)
    best = np.zeros(len(batch.queries))
    for theta in thetas:
        measured = handle.measure(batch.design("workload", theta).rows, each)
        best = np.maximum(best, measured.values - margin(measured, len(thetas)))
    return best, np.full(best.shape, np.nan), (upper,)


def _counts(design: Design) -> Floats:
    if design.counts is None:
        raise ValueError("the design does not determine the counts")
    return design.counts


def _reshaped(batch: SumBatch, design: Design, values: Floats, stddev: float) -> tuple[int, Design]:
    """Return the threshold of least estimated risk, and the design with its answers clipped."""
    counts = _counts(design)
    queries = batch.queries.astype(np.float64)
    theta = shrink(batch.values, queries, counts @ values, counts @ counts.T, stddev**2)
    answers = (queries * batch.clipped(theta)) @ counts
    return theta, Design(design.rows, answers, counts, design.error)


def _one_by_one(
    handle: SumHandle, batch: SumBatch, rule: Threshold
) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Return every query's answer from its own threshold and part of the budget."""
    size = len(batch.queries)
    each = handle.remaining() / size
    choosing = rule.share * each
    values, stddev = np.empty(size), np.empty(size)
    thetas: list[int] = []
    for k, query in enumerate(batch.queries):
        upto = int(np.flatnonzero(query)[-1]) + 1 if query.any() else 1
        theta, before = int(batch.values[:upto][-1]), handle.remaining()
        if not rule.free:
            theta = choose(handle, rule, choosing, each - choosing, upto, rule.again * each)
        answering = each - (before - handle.remaining())
        row = query * batch.clipped(theta)
        scale = int(row.any())  # without a value the sum is zero, whatever is measured
        measured = handle.measure((row if scale else query)[np.newaxis], answering)
        values[k], stddev[k] = scale * measured.values[0], scale * measured.stddev
        thetas.append(theta)
    return values, stddev, tuple(thetas)


@dataclass(frozen=True, slots=True)
class Measure:
    """The public facts about a measure: its bounds, and the unit that thresholds are counted in.

    ``whole`` says that its values are integers; a value of NULL adds nothing.
    """

    column: str
    low: Fraction
    high: Fraction
    unit: Fraction
    whole: bool
    null: bool

    @property
    def upper(self) -> int:
        """The largest threshold, in units: at least the upper bound."""
        return math.ceil(self.high / self.unit)

    def level(self, theta: int) -> Fraction:
        """The number that a threshold stands for; at most the upper bound."""
        return min(theta * self.unit, self.high)

    def thresholds(self, rule: Threshold, noise: Noise, budget: Fraction) -> list[int]:
        """The public thresholds that a rule chooses from."""
        if rule.free:
            return [self.upper]
        return levels(rule, noise, rule.share * budget, self.upper)

    def steps(self, thresholds: Sequence[int]) -> Steps:
        """Return the steps between the thresholds, by which rows are counted."""
        return Steps(self.column, tuple(self.level(theta) for theta in thresholds))

    def nodes(self, level: Fraction) -> Nodes:
        """The two nodes whose weights add up to the values clipped to a level, exactly."""
        steps = steps_between(self.low, level) if self.whole else 0
        others = (-1,) if self.null else ()
        return Nodes(self.column, 1, 1, steps, others, self.low, level)

    def row(self, level: Fraction) -> tuple[Integers, Fraction]:
        """The sum as a row of integers over the nodes, and the value of one."""
        ends = (self.low, level)
        unit = Fraction(
            math.gcd(*(each.numerator for each in ends)),
            math.lcm(*(each.denominator for each in ends)),
        )
        row = [int(each / unit) for each in ends]
        return np.array([row], dtype=np.int64), unit


def answer_sum(handle: MeasureHandle, measure: Measure, rule: Threshold) -> SumAnswers:
    """Return one clipped sum, spending exactly what the handle has left.

    Guarantee: the threshold is chosen through the handle; what one row then adds is at most the
    larger end of the clipped range, exactly.
    """
    if rule.method == "r2t":
        return _race(handle, measure, rule)
    theta = measure.upper
    if not rule.free:
        theta = _chosen(handle, rule)
    level = measure.level(theta)
    row, unit = measure.row(level)
    measured = handle.spread(measure.nodes(level), row, handle.remaining())
    values: Floats = measured.values * float(unit)
    return SumAnswers(values, np.array([measured.stddev * float(unit)]), (theta,), False)


def _race(handle: MeasureHandle, measure: Measure, rule: Threshold) -> SumAnswers:
    """Return the largest of several clipped sums, each less what noise may have added to it."""
    thetas = levels(rule, handle.noise, handle.remaining(), measure.upper)
    each = handle.remaining() / len(thetas)
    best = 0.0
    for theta in thetas:
        level = measure.level(theta)
        row, unit = measure.row(level)
        found = handle.spread(measure.nodes(level), row, each)
        best = max(best, float(unit) * (float(found.values[0]) - margin(found, len(thetas))))
    unknown = np.array([math.nan])
    return SumAnswers(np.array([best]), unknown, (measure.upper,), False)
