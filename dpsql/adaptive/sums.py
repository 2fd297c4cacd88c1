"""Batches of sum queries: choose where to clip, measure one design, answer, order.

Source: Wu et al. 2019, Algorithms 1 to 5, on exact integers and with one public grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.adaptive.design import Algorithm, Batch, Design
from dpsql.adaptive.handle import Floats, Measured, SumHandle
from dpsql.adaptive.shrinkage import draw_in
from dpsql.adaptive.thresholds import (
    AFTERWARDS,
    UNKNOWN,
    Threshold,
    choose,
    levels,
    margin,
    shrink,
)
from dpsql.answer.project import project_monotone
from dpsql.errors import ProgrammingError

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
    batch: Batch,
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
    handle: SumHandle, batch: Batch, algorithm: Algorithm, rule: Threshold, on_values: bool
) -> tuple[Floats, Floats, tuple[int, ...]]:
    upper = int(batch.values[-1])
    theta = upper
    if not rule.free:
        budget = handle.remaining()
        amount = rule.share * budget
        theta = choose(handle, rule, amount, budget - amount)
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


def _drawn_in(
    batch: Batch, design: Design, measured: Measured
) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Return answers from counts that were drawn towards a smooth tail."""
    counts = _counts(design)
    drawn = draw_in(counts @ measured.values, counts @ counts.T, measured.stddev**2)
    values = (batch.queries * batch.values) @ drawn
    return values, np.full(values.shape, np.nan), (int(batch.values[-1]),)


def _raced(
    handle: SumHandle, batch: Batch, rule: Threshold
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


def _reshaped(batch: Batch, design: Design, values: Floats, stddev: float) -> tuple[int, Design]:
    """Return the threshold of least estimated risk, and the design with its answers clipped."""
    counts = _counts(design)
    queries = batch.queries.astype(np.float64)
    theta = shrink(batch.values, queries, counts @ values, counts @ counts.T, stddev**2)
    answers = (queries * batch.clipped(theta)) @ counts
    return theta, Design(design.rows, answers, counts, design.error)


def _one_by_one(
    handle: SumHandle, batch: Batch, rule: Threshold
) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Return every query's answer from its own threshold and part of the budget."""
    size = len(batch.queries)
    budget = handle.remaining()
    choosing = Fraction(0) if rule.free else rule.share * budget / size
    answering = budget / size - choosing
    values, stddev = np.empty(size), np.empty(size)
    thetas: list[int] = []
    for k, query in enumerate(batch.queries):
        upto = int(np.flatnonzero(query)[-1]) + 1 if query.any() else 1
        theta = int(batch.values[:upto][-1])
        if not rule.free:
            theta = choose(handle, rule, choosing, answering, upto)
        row = query * batch.clipped(theta)
        scale = int(row.any())  # without a value the sum is zero, whatever is measured
        measured = handle.measure((row if scale else query)[np.newaxis], answering)
        values[k], stddev[k] = scale * measured.values[0], scale * measured.stddev
        thetas.append(theta)
    return values, stddev, tuple(thetas)
