"""Strategies that are best where noise is coarse: on whole numbers it varies less than its limit.

With a scale of one, discrete Laplace noise has a twelfth less variance than the law that it comes
near to for finer numbers; with a tenth, next to none. Rows of small integers gain by that and rows
that were rounded from real numbers do not, so the best of them depends on the budget. Those that
are best for some budget are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpsql.errors import ProgrammingError
from dpsql.records import dataclass, field
from dpsql.strategy.base import Strategy
from dpsql.strategy.noise_law import law
from dpsql.strategy.product import ProductStrategy
from dpsql.workload.workload import Workload

AMOUNTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Budgets for which the best strategies are kept.

With more, noise of the smallest scale is next to none, a hundredth of its limit and soon 1e-9 of
it: beside it other blocks would seem to tell nothing.
"""

FINE = 0.996
"""Part of its limit from which the variance of noise is fine: at four times the unit."""

MARGIN = 1e-6
"""Relative gain below which two strategies are alike."""


def error_of(strategy: Strategy, workload: Workload) -> float:
    """Return a strategy's error, infinite where rounding to integers lost what some query needs."""
    try:
        return strategy.unit_error(workload)
    except ProgrammingError as error:
        if error.code != "E_NOT_MEASURED":
            raise
        return math.inf


def drawn_part(strategy: Strategy, amount: float) -> list[float]:
    """Return per block the variance of its noise at a budget, as a part of its limit.

    >>> from dpsql.strategy.product import assemble
    >>> [round(x, 3) for x in drawn_part(assemble({"a": 2}, {}, {("a",): 1.0}, "laplace", ""), 1.0)]
    [0.921]
    """
    noise = law(strategy.noise)
    unit = noise.unit_variance(1.0)
    out = []
    for cost, block in zip(strategy.sensitivities(), strategy.blocks, strict=True):
        scale = float(noise.scale(Fraction(cost) / block.share, Fraction(amount)))
        out.append(noise.variance(scale) * amount ** (3 - noise.norm) / unit)
    limits = strategy.unit_variances()
    return [part / limit for part, limit in zip(out, limits, strict=True)]


def is_coarse(strategy: Strategy) -> bool:
    """Say whether its noise is coarse at some of the budgets."""
    return min(drawn_part(strategy, AMOUNTS[-1])) < FINE


@dataclass(slots=True)
class BestByBudget:
    """The strategies of least error at each of some budgets, of those that were seen."""

    workload: Workload
    least: list[float] = field(default_factory=([math.inf] * len(AMOUNTS)).copy)
    best: dict[int, ProductStrategy] = field(default_factory=dict)
    waiting: tuple[ProductStrategy, float] | None = None
    is_open: bool = False

    def enter(self, strategy: ProductStrategy, error: float) -> None:
        """Let a strategy of a known error, for fine noise and a unit budget, take part.

        The first waits for another one: most requests have a single candidate.
        """
        if not self.is_open:
            self.waiting, self.is_open = (strategy, error), True
            return
        if self.waiting is not None:
            self._compare(*self.waiting)
            self.waiting = None
        self._compare(strategy, error)

    def _compare(self, strategy: ProductStrategy, error: float) -> None:
        for place, amount in enumerate(AMOUNTS):
            parts = drawn_part(strategy, amount)
            if min(parts) * error >= self.least[place] * (1 - MARGIN):
                continue
            found = self._error(strategy, error, parts)
            if found < self.least[place] * (1 - MARGIN):
                self.least[place], self.best[place] = found, strategy

    def _error(self, strategy: ProductStrategy, error: float, parts: Sequence[float]) -> float:
        if min(parts) > FINE or max(parts) == min(parts):
            return error * max(parts)
        pairs = zip(strategy.unit_variances(), parts, strict=True)
        return strategy.unit_error(self.workload, [limit * part for limit, part in pairs])

    def winners(self, but: ProductStrategy) -> tuple[ProductStrategy, ...]:
        """Return those that are best at some budget, but for the best one for fine noise."""
        found: list[ProductStrategy] = []
        for _, each in sorted(self.best.items()):
            if all(each is not known for known in (but, *found)):
                found.append(each)
        return tuple(found)
