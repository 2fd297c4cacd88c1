"""Thresholds to clip values at: private choices on a public grid, a free one after the fact.

Clipping at theta trades a bias, the values above theta, for noise that grows with theta. The best
theta leaves about (expected absolute noise in units of theta) rows above it, whatever the data.

Source: Wu et al. 2019, section 4 (ratio form); the count form, which needs no number of rows, is
our own; Chen and Zhou 2013 (recursive mechanism); Wilson et al. 2020 (approximate bounds: the top
bin of powers of two that stands out); Dong et al. 2022 (race to the top, R2T).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import numpy as np

from dpsql.algebra.operator import Floats, Integers
from dpsql.pgm.measurements import Measured, SumHandle
from dpsql.records import dataclass, field
from dpsql.strategy.noise_law import Noise, law

Method: TypeAlias = Literal[
    "none", "svt", "svt-ratio", "recursive", "quantile", "approx-bounds", "sure", "eb", "r2t"
]

METHODS: tuple[Method, ...] = get_args(Method)
AFTERWARDS: frozenset[Method] = frozenset({"sure", "eb"})
"""Methods that look at nothing but one measurement of the bins."""
UNKNOWN: frozenset[Method] = frozenset({"eb", "r2t"})
"""Methods whose answers have errors that nothing is known about."""
FREE: frozenset[Method] = frozenset({"none", "r2t", *AFTERWARDS})
"""Methods that need no budget of their own."""

SINGLE_SHARE, BATCH_SHARE, GAUSSIAN_SHARE = Fraction(1, 2), Fraction(1, 4), Fraction(1, 10)
"""Part of the budget for the threshold of one sum, of a batch, and of a batch under zCDP."""
SEARCH = Fraction(9, 20)
"""Part of the budget for the search of one sum through the handle that measures it."""
AGAIN, SEVERAL_AGAIN = Fraction(3, 20), Fraction(2, 5)
"""Part kept back for a second search: of the budget for one sum, of the first's for several."""
FALLING = 3
"""Power of a threshold with which its chances fall under ``quantile``, rows above being equal.

Squared errors grow with the square of the threshold: their mean over all that lie above every
value is finite, whatever the declared bound, from a power above 2 on.
"""
PACE, STEADY = 0.5, 4
"""The pace of ``recursive`` as published, where this power is 2; the power that rules have."""
REACH = 4096
"""The first threshold of a grid is the largest value over this."""
BATCH_ROWS = Fraction(3, 2)
"""Rows above the threshold of a batch, in units of 1 / epsilon of the answers."""
FINEST = 1e-3
"""Least logarithmic step of the recursive mechanism's grid."""
EMPTY = 1e-9
"""Chance that a bin of approximate bounds stands out where all are empty."""
LEAST_POWER, MOST_POWER = -20, 53
"""Powers of two that bounds are found among."""
BASE, OVER = 5.5, 0.1
"""Ratio of the levels of a race, and the chance that its answer is above the true one."""
NOTHING = Fraction(0)
START, GROWTH = 1000, 0.2
"""First threshold of a grid, and its relative growth."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A method with its public constants.

    ``share`` is its part of the budget; ``rows`` is how many rows it leaves above, in units of
    1 / epsilon of the answers; ``ratio`` is the covered part of the rows in the ratio form;
    ``pace`` times epsilon is the logarithmic step of the recursive mechanism's grid. ``again`` is
    the part of the budget for a second search by ``svt`` after one without a hit; with a hit the
    answers get it.
    """

    method: Method
    share: Fraction = BATCH_SHARE
    rows: Fraction = BATCH_ROWS
    ratio: Fraction = Fraction(19, 20)
    pace: float = PACE
    start: int = START
    growth: float = GROWTH
    again: Fraction = field(default=Fraction(0), repr=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"{self.method!r} is not one of {METHODS}")
        if not 0 < self.share < 1 - self.again <= 1 or not 0 < self.ratio < 1 or self.rows <= 0:
            raise ValueError("share and ratio lie between 0 and 1, rows is positive")

    @property
    def free(self) -> bool:
        """Say whether the whole budget goes to the answers."""
        return self.method in FREE


def grid(start: int, growth: float, upper: int) -> list[int]:
    """Return the public thresholds start * (1 + growth)^i below ``upper``, then ``upper``.

    >>> grid(1000, 0.5, 3000)
    [1000, 1500, 2250, 3000]
    """
    out: list[int] = []
    value = float(max(start, 1))
    while value < upper:
        if not out or math.ceil(value) > out[-1]:
            out.append(math.ceil(value))
        value *= 1 + growth
    return [theta for theta in out if theta < upper] + [upper]


def answer_epsilon(noise: Noise, amount: Fraction) -> float:
    """Return epsilon, or the epsilon whose Laplace noise has the absolute mean of rho's noise."""
    if law(noise).is_pure:
        return float(amount)
    return math.sqrt(2 * float(amount)) / math.sqrt(2 / math.pi)


def rows_above(rule: Threshold, noise: Noise, answers: Fraction) -> int:
    """Return how many rows a rule leaves above; ``answers`` is what the answers will get."""
    return math.ceil(float(rule.rows) / answer_epsilon(noise, answers))


def rows_lost(rule: Threshold, noise: Noise, amount: Fraction, unit: int) -> float | None:
    """Return the root mean square number of rows that end above a threshold, at its worst.

    ``amount`` is the whole budget, ``unit`` the most rows of a privacy unit. It is what a rule
    leaves and the deviation of its search; under ``quantile`` also what chances that fall down
    to the lowest level are worth in rows. None for rules whose rows depend on more than that.
    """
    if rule.method not in ("svt", "quantile"):
        return None
    rows = rows_above(rule, noise, (1 - rule.share) * amount)
    is_svt, part = rule.method == "svt", float(rule.share * amount)
    epsilon = part if law(noise).is_pure else math.sqrt((2 if is_svt else 8) * part)
    scale = 2 * unit / epsilon
    if is_svt:
        return math.hypot(rows, 2 * scale)  # noise on the count and on what it is compared with
    return math.hypot(rows + FALLING * math.log(REACH) * scale, math.sqrt(2) * scale)


def levels(rule: Threshold, noise: Noise, amount: Fraction, upper: int) -> list[int]:
    """Return the public thresholds that a rule chooses from when it may spend ``amount``."""
    if rule.method == "approx-bounds":
        return grid(1, 1.0, upper)
    if rule.method == "r2t":
        return grid(math.ceil(BASE), BASE - 1, upper)
    growth = rule.growth
    if rule.method == "recursive":
        growth = math.expm1(max(rule.pace * answer_epsilon(noise, amount), FINEST))
    return grid(min(rule.start, upper), growth, upper)


def choose(
    handle: SumHandle,
    rule: Threshold,
    amount: Fraction,
    answers: Fraction,
    upto: int | None = None,
    again: Fraction = NOTHING,
) -> int:
    """Return a clipping threshold, spending ``amount``; ``answers`` is what the answers will get.

    A search without a hit is made ``again`` for that part of what the answers were to get; without
    a hit of the last it is the largest value. Guarantee: as ``search``.
    """
    found = search(handle, rule, amount, answers, upto)
    if found is None and again:
        found = search(handle, rule, again, answers - again, upto)
    return _largest(handle, upto) if found is None else found


def _largest(handle: SumHandle, upto: int | None) -> int:
    return int(handle.values[-1] if upto is None else handle.values[:upto][-1])


def search(
    handle: SumHandle, rule: Threshold, amount: Fraction, answers: Fraction, upto: int | None = None
) -> int | None:
    """Return the threshold of one search that spends ``amount``, None for one without a hit.

    Guarantee: every look goes through the handle, and whether one hits is an output of it.
    """
    upper = _largest(handle, upto)
    if rule.free or upper <= 0:
        return upper
    count = rows_above(rule, handle.noise, answers)
    thetas = levels(rule, handle.noise, amount, upper)
    if rule.method == "svt":
        hit = handle.first_below(thetas, count, amount, upto)
        return None if hit is None else thetas[hit]
    if rule.method == "svt-ratio":
        hit = handle.first_covering(thetas, rule.ratio, amount, upto)
        return upper if hit is None else thetas[hit]
    if rule.method == "approx-bounds":
        return thetas[_top_bin(handle, thetas, amount, upto)]
    if rule.method == "quantile":
        return thetas[handle.quantile(thetas, count, amount, upto, FALLING)]
    return thetas[handle.recursive(thetas, amount, upto)]


def _top_bin(handle: SumHandle, thetas: list[int], amount: Fraction, upto: int | None) -> int:
    """Return the last place where noisily more rows lie than an empty histogram would show."""
    ends = np.searchsorted(thetas, handle.values)
    rows = (ends[np.newaxis, :] == np.arange(len(thetas))[:, np.newaxis]).astype(np.int64)
    rows[:, len(handle.values) if upto is None else upto :] = 0
    return int(max(outstanding(handle.measure(rows, amount)), default=0))


def outstanding(measured: Measured) -> Integers:
    """Return the bins with more rows than an empty histogram would noisily show."""
    least = _exceeded(measured, 1 - (1 - EMPTY) ** (1 / len(measured.values)))
    return np.flatnonzero(measured.values > least)


def powers(is_whole: bool) -> tuple[Fraction, ...]:
    """Return the public edges of bins of all magnitudes: powers of two, zero, and their negatives.

    >>> len(powers(True)), powers(True)[53:57]
    (109, (Fraction(-1, 1), Fraction(0, 1), Fraction(1, 1), Fraction(2, 1)))
    """
    up = [Fraction(2) ** k for k in range(0 if is_whole else LEAST_POWER, MOST_POWER + 1)]
    return (*(-edge for edge in reversed(up)), Fraction(0), *up)


def enclosing(measured: Measured, edges: Sequence[Fraction]) -> tuple[Fraction, Fraction] | None:
    """Return the ends of the outermost bins that stand out; None where none does."""
    found = outstanding(measured)
    return (edges[int(found[0])], edges[int(found[-1]) + 1]) if len(found) else None


def _exceeded(measured: Measured, chance: float) -> float:
    """Return what one noise variable is above with a small chance."""
    return law(measured.noise).exceeded(measured.stddev, chance)


def margin(measured: Measured, levels: int) -> float:
    """Return what is taken off every answer of a race, so that few are above the true one."""
    noise = law(measured.noise)
    return noise.highest(noise.spread_of(measured.stddev), levels / OVER)


def shrink(
    values: Integers, queries: Floats, estimate: Floats, covariance: Floats, variance: float
) -> int:
    """Return the threshold of least estimated risk for answers from one measurement of the bins.

    ``estimate`` (m,) are least squares counts with covariance ``variance * covariance``; clipped
    answers trade the estimated squared bias for the trace of their noise. Free post-processing.
    Source: Stein's unbiased risk estimate, over diagonal shrinkage.

    >>> shrink(np.array([1, 100]), np.eye(2), np.array([50.0, 0.1]), np.eye(2), 4.0)
    1
    """
    gram = queries.T @ queries
    best, found = math.inf, int(values[-1])
    for theta in np.unique(values):
        kept = np.minimum(values, theta).astype(np.float64)
        cut = values - kept
        bias = queries @ (cut * estimate)
        noise_of_bias = variance * float(np.sum(gram * covariance * np.outer(cut, cut)))
        noise = variance * float(np.sum(gram * covariance * np.outer(kept, kept)))
        risk = max(float(bias @ bias) - noise_of_bias, 0.0) + noise
        if risk < best:
            best, found = risk, int(theta)
    return found
