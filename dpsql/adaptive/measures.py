"""One sum of a bounded measure: choose where to clip, then release the clipped sum exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.adaptive.handle import Floats, Integers, MeasureHandle
from dpsql.adaptive.sums import SumAnswers
from dpsql.adaptive.thresholds import Threshold, choose, levels, margin
from dpsql.plan.cells import Nodes, Steps, grid_for
from dpsql.plan.noise_law import Noise


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
        """How rows are counted between the thresholds."""
        return Steps(self.column, tuple(self.level(theta) for theta in thresholds))

    def nodes(self, level: Fraction) -> Nodes:
        """The two nodes whose weights add up to the values clipped to a level, exactly."""
        span = None
        if self.whole and self.low.denominator == level.denominator == 1:
            span = int(level - self.low)
        others = (-1,) if self.null else ()
        grid = grid_for(span, 1, 1)
        return Nodes(self.column, 1, 1, grid, others, self.low, level)

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
        budget = handle.remaining()
        amount = rule.share * budget
        theta = choose(handle, rule, amount, budget - amount)
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
