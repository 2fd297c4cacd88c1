"""MWEM: measure what the model gets most wrong, then reweight the model until it fits.

Source: MWEM (Hardt, Ligett, McSherry 2012), in counts and with a private number of rows, which
the paper takes as known although its neighbours differ in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpsql.adaptive.factored import Factored
from dpsql.adaptive.handle import Candidate, Handle, Measured
from dpsql.adaptive.query import attributes_of, expected_noise, norm, rows
from dpsql.adaptive.replay import Target, replay, target_of
from dpsql.adaptive.schedule import (
    SINGLE,
    WHOLE,
    Annealing,
    Doubling,
    Fixed,
    Outcome,
    Schedule,
    Spend,
    default_rounds,
    total_share,
)
from dpsql.adaptive.settings import Settings, check, default_slack, touched
from dpsql.adaptive.sheet import Sheet
from dpsql.adaptive.start import histogram_pays, start_from_histogram
from dpsql.plan.noise_law import Noise, law

__all__ = ["Progress", "Round", "Run", "Settings", "check", "mwem"]

Progress = Callable[[float, str], None]
"""Told the part of the budget that is spent, and what was measured."""


@dataclass(frozen=True, slots=True)
class Round:
    """One entry of the transcript: which candidate, what it cost and what was released."""

    index: int
    spend: Spend
    measured: Measured


@dataclass(frozen=True, slots=True)
class Run:
    """A model, the transcript that led to it, and whether the run was interrupted."""

    model: Factored
    rounds: tuple[Round, ...]
    slack: float
    interrupted: bool = False


def mwem(
    handle: Handle,
    candidates: Sequence[Candidate],
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
) -> Run:
    """Return a model fitted to the candidates, spending exactly what the handle has left.

    An interrupt after the first measurement ends the run early with what is known by then.
    Guarantee: every look goes through the handle, which enforces the budget.
    """
    settings = settings or Settings()
    check(handle.domain, candidates, settings)
    budget = handle.remaining()
    total = _number_of_rows(handle, settings)
    whole = any(rows(c) > 1 for c in candidates)
    names = touched(handle.domain, candidates)
    sizes = [handle.domain[a] for a in names]
    best = default_rounds(handle.noise, budget, total, sizes, len(candidates))
    model = Factored.uniform(handle.domain, total)
    cells = math.prod(sizes)
    pays = settings.histogram
    if pays is None:
        half = handle.remaining() / 2
        fits = cells <= settings.cap and len(candidates) > 1
        pays = fits and histogram_pays(handle.noise, half, total, cells)
    if pays:
        model = start_from_histogram(handle, model, names, handle.remaining() / 2)
    elif settings.average:
        model = model.merge(names)
    slack = settings.slack
    if slack is None:
        slack = default_slack(settings, best, cells, len(candidates), whole)
    schedule = _schedule(settings, handle.noise, handle.remaining(), best, whole, len(candidates))
    settings = replace(settings, slack=slack)
    return _Loop(handle, candidates, settings, budget, progress).run(model, schedule)


class _Loop:
    """The rounds of one run."""

    def __init__(
        self,
        handle: Handle,
        candidates: Sequence[Candidate],
        settings: Settings,
        budget: Fraction,
        progress: Progress | None,
    ) -> None:
        self.handle = handle
        self.candidates = candidates
        self.settings = settings
        self.budget = budget
        self.progress = progress
        self.sheet = Sheet(candidates)
        self.attributes = [attributes_of(c) for c in candidates]
        self.norms = [norm(c, handle.noise) for c in candidates]
        self.repeats = settings.rounds == "annealing" or (
            settings.rounds == "auto" and any(rows(c) > 1 for c in candidates)
        )
        self.done: dict[int, list[Measured]] = {}
        self.slack = 1.0 if settings.slack is None else settings.slack

    def run(self, model: Factored, schedule: Schedule) -> Run:
        rounds: list[Round] = []
        mean = model
        interrupted = False
        try:
            while (spend := schedule.next(self.handle.remaining())) is not None:
                index, spend = self.choose(model, spend)
                (measured,) = self.handle.measure([self.candidates[index]], spend.measure)
                rounds.append(Round(index, spend, measured))
                model, outcome = self.learn(model, index, measured, spend.measure)
                schedule.after(outcome)
                mean = _averaged(mean, model, len(rounds)) if self.settings.average else model
                self.tell(index)
        except KeyboardInterrupt:
            if not rounds:
                raise
            interrupted = True
        return Run(mean, tuple(rounds), self.slack, interrupted)

    def choose(self, model: Factored, spend: Spend) -> tuple[int, Spend]:
        """Return the candidate to measure; a choice of one is free."""
        pool = self.pool(model)
        if len(pool) == 1:
            return pool[0], Spend(Fraction(0), spend.all)
        every = self.sheet.answers(model)
        (place,) = self.handle.select(
            [self.candidates[i] for i in pool],
            [every[i] for i in pool],
            penalties=[self.noise(i, spend.measure) for i in pool],
            amount=spend.select,
        )
        return pool[place], spend

    def pool(self, model: Factored) -> list[int]:
        """Return the candidates that the cap admits, new ones only unless runs repeat them."""
        cap = self.settings.cap
        fits = [i for i, names in enumerate(self.attributes) if model.merged_cells(names) <= cap]
        new = [i for i in fits if i not in self.done]
        return fits if self.repeats or not new else new

    def learn(
        self, model: Factored, index: int, measured: Measured, amount: Fraction
    ) -> tuple[Factored, Outcome]:
        """Return the model after a replay of all measurements, and what the round showed."""
        candidate = self.candidates[index]
        before = model.answer(candidate)
        self.done.setdefault(index, []).append(measured)
        targets: list[Target] = [target_of(m, model.total) for m in self.done.values()]
        settings = self.settings
        fitted = replay(
            model.merge(self.attributes[index]),
            targets,
            slack=self.slack,
            sweeps=settings.sweeps,
            step=settings.step or ("proportional" if rows(candidate) > 1 else "multiplicative"),
        )
        outcome = Outcome(
            surprise=float(np.abs(measured.values - before).sum()),
            change=float(np.abs(fitted.answer(candidate) - before).sum()),
            noise=self.noise(index, amount),
            answers=before.size,
        )
        return fitted, outcome

    def noise(self, index: int, amount: Fraction) -> float:
        """Return the expected L1 norm of the noise of one candidate."""
        each = expected_noise(self.norms[index], self.handle.noise, amount)
        return rows(self.candidates[index]) * each

    def tell(self, index: int) -> None:
        if self.progress is not None:
            part = 1 - float(self.handle.remaining() / self.budget)
            self.progress(part, " x ".join(self.attributes[index]) or "total")


def _number_of_rows(handle: Handle, settings: Settings) -> float:
    """Return the number of rows: known, or measured with a share of the budget."""
    if settings.total is not None:
        return max(1.0, settings.total)
    budget = handle.remaining()
    share = settings.share or total_share(handle.noise, budget, settings.hint)
    return max(1.0, float(handle.total(share * budget).values[0]))


def _schedule(
    settings: Settings, noise: Noise, budget: Fraction, best: int, whole: bool, candidates: int
) -> Schedule:
    part = WHOLE if whole and not law(noise).is_pure else SINGLE
    kind = settings.rounds
    if kind == "doubling":
        return Doubling(budget, noise)
    if kind == "annealing" or (kind == "auto" and whole and candidates > 1):
        return Annealing(budget, noise, part)
    return Fixed(min(best if kind == "auto" else int(kind), candidates), part)


def _averaged(mean: Factored, model: Factored, count: int) -> Factored:
    """Return the running mean of iterates that hold the same parts."""
    if count == 1:
        return model
    parts = tuple(
        replace(new, weights=old.weights + (new.weights - old.weights) / count)
        for old, new in zip(mean.parts, model.parts, strict=True)
    )
    return replace(model, parts=parts)
