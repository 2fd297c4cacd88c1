"""Schedules: the budget of a run divided over rounds, and the constants it is paid for with."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Protocol

from dpsql.records import dataclass, field
from dpsql.strategy.noise_law import Noise, law

SHARE, UNSURE_SHARE = Fraction(1, 20), Fraction(1, 10)
"""Part of the budget for the number of rows; the larger one for small or unknown tables."""
SMALL_PRODUCT = 200
"""Rows times epsilon below which a table counts as small."""
SINGLE, WHOLE = Fraction(1, 2), Fraction(9, 10)
"""Part of a round's rho for measuring single queries and whole marginals; epsilon is halved."""
LEAST_ROUNDS, MOST_ROUNDS = 8, 128
"""Limits of the default number of rounds under zCDP."""
START_ROUNDS = 8
"""Rounds that annealing would take if it never raised its budget per round."""


def total_share(noise: Noise, budget: Fraction, hint: float | None) -> Fraction:
    """Return the part of the budget spent on the number of rows, given a public guess at it.

    >>> total_share("laplace", Fraction(1), 1e4), total_share("laplace", Fraction(1), None)
    (Fraction(1, 20), Fraction(1, 10))
    """
    epsilon = float(budget) if law(noise).is_pure else math.sqrt(2 * float(budget))
    return UNSURE_SHARE if hint is None or hint * epsilon < SMALL_PRODUCT else SHARE


def default_rounds(
    noise: Noise, budget: Fraction, total: float, sizes: Iterable[int], queries: int
) -> int:
    """Return the number of rounds that balances the error bound's terms, at least 1.

    ``total`` is a noisy or public number of rows, ``sizes`` those of the attributes asked about.
    Source: MWEM, Theorem 2.2, minimised over T; under zCDP the same bound with Gumbel and
    Gaussian tails, a quarter of its minimiser.

    >>> default_rounds("laplace", Fraction(1, 10), 32561, [4357], 2000)
    25
    """
    if queries <= 1:
        return 1
    entropy = math.sqrt(sum(math.log(n) for n in sizes))
    if law(noise).is_pure:
        best = math.pow(total * float(budget) * entropy / (10 * math.log(queries)), 2 / 3)
        return min(max(round(best), 1), queries)
    a = float(SINGLE)
    cost = math.sqrt(2) * math.log(queries) / math.sqrt(1 - a)
    cost = (cost + math.sqrt(math.log(2 * queries) / a)) / math.sqrt(float(budget))
    return min(max(round(total * entropy / cost / 2), LEAST_ROUNDS), MOST_ROUNDS, queries)


@dataclass(frozen=True, slots=True)
class Spend:
    """Amounts for the selection and the measurement of one round."""

    select: Fraction
    measure: Fraction

    @property
    def all(self) -> Fraction:
        """Return the cost of the round."""
        return self.select + self.measure


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a round: L1 distances, in counts, and the L1 noise that was expected."""

    surprise: float
    change: float
    noise: float
    answers: int


class Schedule(Protocol):
    """Decides the next round's amounts; the handle enforces their sum."""

    def next(self, left: Fraction) -> Spend | None:
        """Return the amounts of the next round, None at the end; the last one takes all."""

    def after(self, outcome: Outcome) -> None:
        """Learn from a round."""


def split(amount: Fraction, part: Fraction) -> Spend:
    """Return an amount split in two, ``part`` of it for measuring."""
    return Spend(amount - amount * part, amount * part)


@dataclass(slots=True)
class FixedSchedule:
    """The same amount for every one of ``rounds`` rounds."""

    rounds: int
    part: Fraction

    def next(self, left: Fraction) -> Spend | None:
        """Return an equal part of what is left."""
        if self.rounds == 0 or left <= 0:
            return None
        self.rounds -= 1
        return split(left / (self.rounds + 1), self.part)

    def after(self, outcome: Outcome) -> None:
        """Learn nothing."""


@dataclass(slots=True)
class DoublingSchedule:
    """Phases of doubling precision; a phase ends when an answer was no surprise at its noise."""

    budget: Fraction
    noise: Noise
    phase: int = 0
    cost: Fraction = field(default=Fraction(0))

    def next(self, left: Fraction) -> Spend | None:
        """Return the phase's amounts, or all that is left when it holds no further round."""
        if left <= 0:
            return None
        self.cost = self.budget * Fraction(2**self.phase, 32) ** law(self.noise).norm
        return split(left if 2 * self.cost > left else self.cost, SINGLE)

    def after(self, outcome: Outcome) -> None:
        """Go to the next phase when the surprise is at most the noise scale of this one."""
        half = float(self.cost / 2)
        level = law(self.noise).spread(1, half)
        if outcome.surprise <= level * outcome.answers:
            self.phase += 1


@dataclass(slots=True)
class AnnealingSchedule:
    """Rounds whose noise halves whenever a measurement changed the model by less than its noise.

    Source: AIM (McKenna et al. 2022), section 5.
    """

    budget: Fraction
    noise: Noise
    part: Fraction
    rounds: int = START_ROUNDS
    factor: int = 1

    def next(self, left: Fraction) -> Spend | None:
        """Return the current amounts, or all that is left when it holds at most two rounds."""
        if left <= 0:
            return None
        cost = self.budget * self.factor / self.rounds
        return split(left if left <= 2 * cost else cost, self.part)

    def after(self, outcome: Outcome) -> None:
        """Halve the noise of the next rounds when this one taught little."""
        if outcome.change <= outcome.noise:
            self.factor *= 2 ** law(self.noise).norm


MODULES = {
    "mwem": ("antipodes", "factored", "mwem", "schedule"),
    "rap": ("rap", "schedule"),
    "marginals": ("relaxed", "whole_marginals"),
    "matrix": ("antipodes", "fixed", "relaxed", "schedule", "whole_marginals"),
    "matrix+projection": ("antipodes", "fixed", "relaxed", "schedule", "whole_marginals"),
}
"""The modules with the constants of each mechanism."""


def constants_of(mechanism: str) -> tuple[tuple[str, str], ...]:
    """Return the constants that a mechanism runs with, by module and name, as text."""
    found = []
    for each in MODULES[mechanism]:
        module = importlib.import_module(f"dpsql.learn.{each}")
        values = sorted((name, repr(value)) for name, value in vars(module).items())
        found += [(f"{each}.{name}", text) for name, text in values if name.isupper()]
    return tuple(found)
