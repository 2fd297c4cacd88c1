"""Measure whole marginals, chosen round by round where the model is worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import combinations
from typing import Protocol

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.errors import ProgrammingError
from dpsql.learn.relaxed import COMPONENTS, STEPS, ProductMixture, fit_mixture
from dpsql.pgm.fit import SETTLED, WORK, fit
from dpsql.pgm.linear import clique_of, estimate_total, whole_marginal
from dpsql.pgm.measurements import Handle, Measured, Model
from dpsql.pgm.model import GraphicalModel
from dpsql.pgm.tree import DEFAULT_CAP, Clique, ModelTooLarge, model_cells
from dpsql.records import dataclass, field
from dpsql.strategy.noise_law import law

Progress = Callable[[int, float], None]


class Backend(Protocol):
    """The interface of a model family, as the selection loop uses it."""

    @property
    def name(self) -> str:
        """Return the name shown to people."""

    def fit(
        self,
        measurements: Sequence[Measured],
        total: float,
        warm: Model | None,
        *,
        last: bool,
        progress: Progress | None = None,
    ) -> Model:
        """Return a model of the measurements; ``last`` asks for the most careful fit."""

    def admits(self, cliques: Sequence[Clique], new: Clique, share: float) -> bool:
        """Say whether a clique may still be measured when ``share`` of the budget is used."""


@dataclass(frozen=True, slots=True)
class Graphical:
    """Private-PGM under a cap on the junction tree that grows with the budget used.

    ``work`` bounds the last fit, in cells that it goes through; those between rounds get a tenth.
    """

    domain: Mapping[str, int]
    cap: int = DEFAULT_CAP
    work: float = WORK

    @property
    def name(self) -> str:
        """Return the name shown to people."""
        return "graphical"

    def fit(
        self,
        measurements: Sequence[Measured],
        total: float,
        warm: Model | None,
        *,
        last: bool,
        progress: Progress | None = None,
    ) -> Model:
        """Return a graphical model of the measurements."""
        return fit(
            self.domain,
            measurements,
            total,
            warm=warm if isinstance(warm, GraphicalModel) else None,
            cap=self.cap,
            work=self.work if last else self.work / 10,
            tolerance=SETTLED if last else 5 * SETTLED,
            progress=progress,
        )

    def admits(self, cliques: Sequence[Clique], new: Clique, share: float) -> bool:
        """Say whether the junction tree with a new clique stays under its part of the cap."""
        return model_cells(self.domain, [*cliques, new]) <= self.cap * min(1.0, share)


@dataclass(frozen=True, slots=True)
class Mixture:
    """A fixed number of product distributions; any set of marginals fits."""

    domain: Mapping[str, int]
    rng: np.random.Generator
    cap: int = DEFAULT_CAP
    components: int = COMPONENTS
    steps: int = STEPS
    name: str = field(default="mixture", init=False)

    def fit(
        self,
        measurements: Sequence[Measured],
        total: float,
        warm: Model | None,
        *,
        last: bool,
        progress: Progress | None = None,
    ) -> Model:
        """Return a mixture of products near the measurements."""
        return fit_mixture(
            self.domain,
            measurements,
            total,
            warm=warm if isinstance(warm, ProductMixture) else None,
            components=self.components,
            steps=2 * self.steps if last else self.steps,
            rng=self.rng,
            progress=progress,
        )

    def admits(self, cliques: Sequence[Clique], new: Clique, share: float) -> bool:
        """Say whether the marginal itself is under the cap."""
        return bool(np.prod([float(self.domain[a]) for a in new]) <= self.cap)


def count_admitted(
    domain: Mapping[str, int], cliques: Sequence[Clique], cap: int = DEFAULT_CAP
) -> int:
    """Return how many cliques, each next to all single attributes, fit under a cap.

    >>> count_admitted({"a": 2, "b": 3, "c": 9}, [("a", "b"), ("b", "c")], cap=20)
    1
    """
    return sum(model_cells(domain, [clique]) <= cap for clique in cliques)


ONE_WAY = Fraction(1, 10)
"""Part of the budget for all single attributes, before anything is chosen."""
SELECT = {1: Fraction(1, 2), 2: Fraction(1, 10)}
"""Part of a round's cost that the choice takes, by the norm of the noise law."""
FIRST_ROUNDS = 16
"""Rounds per attribute if annealing never raised its cost per round."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MarginalRound:
    """One choice and its measurement; ``amount`` is what both cost."""

    attributes: Clique
    amount: Fraction
    stddev: float


@dataclass(frozen=True, slots=True, eq=False)
class MarginalRun:
    """The model an adaptive run ended with, and everything it was told."""

    model: Model
    measurements: tuple[Measured, ...]
    rounds: tuple[MarginalRound, ...]
    interrupted: bool = False


def closure(
    cliques: Mapping[Clique, Fraction], domain: Mapping[str, int]
) -> dict[Clique, Fraction]:
    """Return every non-empty subset of the cliques with its weight, the wanted overlap.

    >>> closure({("a", "b"): Fraction(1)}, {"a": 2, "b": 2})
    {('a',): Fraction(1, 1), ('b',): Fraction(1, 1), ('a', 'b'): Fraction(2, 1)}
    """
    ordered = {tuple(a for a in domain if a in c): w for c, w in cliques.items()}
    subsets = {r for c in ordered for k in range(1, len(c) + 1) for r in combinations(c, k)}
    place = {a: i for i, a in enumerate(domain)}
    return {
        r: sum((w * len(set(r) & set(c)) for c, w in ordered.items()), Fraction(0))
        for r in sorted(subsets, key=lambda r: (len(r), [place[a] for a in r]))
    }


def run_marginals(
    handle: Handle,
    workload: Mapping[Clique, Fraction] | Sequence[Clique],
    backend: Backend,
    *,
    rounds: int | None = None,
    cap: int = DEFAULT_CAP,
    counted: Measured | None = None,
    report: Report | None = None,
) -> MarginalRun:
    """Spend all that the handle holds on the marginals a workload needs, and fit a model.

    With ``rounds`` every round costs the same; without, rounds start small and cost four times
    as much (twice under pure privacy) whenever a measurement taught the model less than its
    noise. ``counted`` is a number of rows that was measured before. An interrupt after the first
    fit returns what is known so far.

    Guarantee: the handle's; every look is charged there, and the whole budget is used unless
    interrupted. Raises ProgrammingError E_WORKLOAD when no marginal is left to measure.
    Source: AIM (McKenna et al. 2022), algorithm 4.
    """
    loop = _MarginalLoop(handle, _weights(workload, handle.domain), backend, cap, report)
    return loop.run(rounds, counted)


def _weights(
    workload: Mapping[Clique, Fraction] | Sequence[Clique], domain: Mapping[str, int]
) -> dict[Clique, Fraction]:
    pairs = workload if isinstance(workload, Mapping) else dict.fromkeys(workload, Fraction(1))
    for clique in pairs:
        clique_of(whole_marginal(dict.fromkeys(clique, 1), clique), domain)
    found = closure(pairs, domain)
    if not found:
        _refuse("the workload has no marginal of an attribute", "ask for a count instead")
    return found


class _MarginalLoop:
    """One run: measurements so far, the current model, and what a round may cost."""

    def __init__(
        self,
        handle: Handle,
        weights: Mapping[Clique, Fraction],
        backend: Backend,
        cap: int,
        report: Report | None,
    ) -> None:
        self.handle = handle
        self.backend = backend
        self.report = report
        self.domain = handle.domain
        self.budget = handle.remaining()
        sizes = {r: math.prod(self.domain[a] for a in r) for r in weights}
        self.weights = {r: w for r, w in weights.items() if sizes[r] <= cap}
        self.candidates = {r: whole_marginal(self.domain, r) for r in self.weights}
        self.measurements: list[Measured] = []
        self.cliques: list[Clique] = []
        self.rounds: list[MarginalRound] = []
        self.model: Model | None = None
        self.total = 1.0
        self.unit = 1.0

    def run(self, rounds: int | None, counted: Measured | None) -> MarginalRun:
        if not any(len(r) == 1 for r in self.weights):
            _refuse("the cap excludes every marginal", "raise the cap")
        if rounds is not None and rounds < 1:
            _refuse(f"{rounds} rounds measure nothing", "use one round or more")
        interrupted = False
        self._measure_one_way(counted)
        try:
            self._fit(last=False)
            fixed = None if rounds is None else self.handle.remaining() / rounds
            first = self.budget / (FIRST_ROUNDS * len(self.cliques))
            amount = min(fixed or first, self.handle.remaining())
            while self.handle.remaining() > 0:
                left = self.handle.remaining()
                if left <= (amount if fixed is not None else 2 * amount):
                    amount = left
                learnt = self._round(amount, last=amount == left)
                if fixed is None and not learnt:
                    amount *= 2 ** law(self.handle.noise).norm
        except KeyboardInterrupt:
            if self.model is None:
                raise
            interrupted = True
        assert self.model is not None
        return MarginalRun(self.model, tuple(self.measurements), tuple(self.rounds), interrupted)

    def _measure_one_way(self, counted: Measured | None) -> None:
        singles = [r for r in self.weights if len(r) == 1]
        amount = self.budget * ONE_WAY
        self.measurements += self.handle.measure([self.candidates[r] for r in singles], amount)
        self.cliques += singles
        together = math.sqrt(law(self.handle.noise).squared(len(singles)))
        self.unit = self.measurements[0].stddev / (self._stddev(amount) * together)
        known = self.measurements if counted is None else [counted, *self.measurements]
        self.total = estimate_total(known, self.domain)

    def _stddev(self, amount: Fraction) -> float:
        """Return the noise of one whole marginal for unit sensitivity."""
        return math.sqrt(law(self.handle.noise).unit_variance(float(amount)))

    def _expected(self, stddev: float) -> float:
        """Return the expected size of the noise in one cell."""
        noise = law(self.handle.noise)
        return noise.mean_size * noise.spread_of(stddev)

    def _round(self, amount: Fraction, *, last: bool) -> bool:
        assert self.model is not None
        choosing = amount * SELECT[law(self.handle.noise).norm]
        allowed = self._allowed(
            float((self.budget - self.handle.remaining() + amount) / self.budget)
        )
        stddev = self.unit * self._stddev(amount - choosing)
        before = self._answers(allowed)
        allowed = list(before)
        [chosen] = self.handle.select(
            [self.candidates[r] for r in allowed],
            [before[r] for r in allowed],
            penalties=[self._expected(stddev) * before[r].size for r in allowed],
            weights=[self.weights[r] for r in allowed],
            amount=choosing,
        )
        clique = allowed[chosen]
        [measured] = self.handle.measure([self.candidates[clique]], amount - choosing)
        self.measurements.append(measured)
        self.cliques.append(clique)
        self._fit(last=last)
        moved = float(np.abs(self.model.answer(self.candidates[clique]) - before[clique]).sum())
        learnt = moved > self._expected(measured.stddev) * before[clique].size
        self.rounds.append(MarginalRound(clique, amount, measured.stddev))
        if self.report is not None:
            spent = float(1 - self.handle.remaining() / self.budget)
            self.report(
                f"round {len(self.rounds)}: {', '.join(clique)} ({spent:.0%} of the budget)"
            )
        return learnt

    def _allowed(self, share: float) -> list[Clique]:
        inside = [r for r in self.weights if self.backend.admits(self.cliques, r, share)]
        inside = inside or [r for r in self.weights if self.backend.admits(self.cliques, r, 1.0)]
        # a marginal that is inside a measured one never enlarges the model
        return inside or [r for r in self.weights if any(set(r) <= set(c) for c in self.cliques)]

    def _answers(self, allowed: Sequence[Clique]) -> dict[Clique, Floats]:
        """Return the model's answers, without those it could not work out under its cap."""
        assert self.model is not None
        out = {}
        for r in allowed:
            with suppress(ModelTooLarge):
                out[r] = self.model.answer(self.candidates[r])
        return out

    def _fit(self, *, last: bool) -> None:
        self.model = self.backend.fit(self.measurements, self.total, self.model, last=last)


def _refuse(message: str, hint: str) -> None:
    raise ProgrammingError("E_WORKLOAD", message, hint=hint)
