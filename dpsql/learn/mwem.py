"""MWEM: measure what the model gets most wrong, then reweight the model until it fits.

Source: MWEM (Hardt, Ligett, McSherry 2012), section 3.3, "initialisation of weights".

Source: MWEM (Hardt, Ligett, McSherry 2012), in counts and with a private number of rows, which
the paper takes as known although its neighbours differ in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dpsql.errors import ProgrammingError
from dpsql.learn.antipodes import measure_together
from dpsql.learn.candidates import (
    CompiledCandidates,
    attributes_of,
    expected_noise,
    marginal,
    norm,
    rows,
)
from dpsql.learn.factored import FactoredModel, PullTarget, Step, TablePart, replay, target_of
from dpsql.learn.schedule import (
    SINGLE,
    START_ROUNDS,
    WHOLE,
    AnnealingSchedule,
    DoublingSchedule,
    FixedSchedule,
    Outcome,
    Schedule,
    Spend,
    default_rounds,
    total_share,
)
from dpsql.pgm.measurements import Candidate, Handle, Measured
from dpsql.records import dataclass, replace
from dpsql.strategy.noise_law import Noise, law

ZERO, ONE = Fraction(0), Fraction(1)
CROWDED = 4
"""Single queries outnumber cells over this: some noisy answers will contradict the others."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Declared constants of a run; none may be chosen by looking at private data.

    ``rounds`` "auto" is the default number of the paper's bound for single queries and annealing
    for whole marginals. ``total`` is a number of rows that is public or was released before;
    ``hint`` a public guess at it. ``cap`` limits the cells of one part of the model.
    """

    rounds: int | Literal["auto", "doubling", "annealing"] = "auto"
    total: float | None = None
    hint: float | None = None
    share: Fraction | None = None
    slack: float | None = None
    sweeps: int | None = None
    step: Step | None = None
    average: bool = False
    histogram: bool | None = None
    cap: int = 1_000_000

    def facts(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        names = ("rounds", "total", "hint", "slack", "sweeps", "step", "average", "histogram")
        found = {name: getattr(self, name) for name in names}
        return {**found, "cap": self.cap, "share": None if self.share is None else str(self.share)}


def check(domain: Mapping[str, int], candidates: Sequence[Candidate], settings: Settings) -> None:
    """Refuse what cannot run, before anything is spent.

    Raises ProgrammingError E_WORKLOAD or E_TOO_LARGE.
    """
    if not candidates:
        raise ProgrammingError("E_WORKLOAD", "the workload is empty", hint="ask for something")
    if not isinstance(settings.rounds, str) and settings.rounds < 1:
        raise ProgrammingError(
            "E_SETTING", f"a run has at least one round, not {settings.rounds}", hint="use 'auto'"
        )
    model = FactoredModel.uniform(domain, 1.0)
    sizes = [model.merged_cells(attributes_of(c)) for c in candidates]
    if min(sizes) > settings.cap:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"the smallest query needs {min(sizes)} cells at once, the cap is {settings.cap}",
            hint="ask for marginals of fewer or smaller columns, or raise the cap",
        )
    every = math.prod(domain[a] for a in touched(domain, candidates))
    if (settings.average or settings.histogram) and every > settings.cap:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"an explicit table of {every} cells is above the cap of {settings.cap}",
            hint="use the last iterate and a uniform start, or raise the cap",
        )


def default_slack(settings: Settings, best: int, cells: int, candidates: int, whole: bool) -> float:
    """Return the dead zone in noise scales: wider when answers are too many to be all feasible."""
    if whole or (isinstance(settings.rounds, str) and settings.rounds != "auto"):
        return 1.0
    planned = best if settings.rounds == "auto" else min(int(settings.rounds), candidates)
    return 2.0 if planned > 2 * best or CROWDED * planned > cells else 1.0


def first_tables(candidates: Sequence[Candidate], cap: int = 1_000_000) -> tuple[int, ...]:
    """Return tables without common attributes, the smallest first, by their places.

    None where ordinary rounds reach them all: there are few, and others to choose from.

    >>> domain = {"a": 2, "b": 3, "c": 2}
    >>> first_tables([marginal(domain, names) for names in ("a", "b", "c")])
    (0, 2, 1)
    >>> first_tables([marginal(domain, names) for names in ("a", "bc", "c")])
    ()
    """
    found: list[int] = []
    known: set[str] = set()
    sizes = [rows(each) for each in candidates]
    for index in sorted((i for i, n in enumerate(sizes) if n <= cap), key=sizes.__getitem__):
        names = set(attributes_of(candidates[index]))
        if not names & known:
            found.append(index)
            known |= names
    few = len(found) <= START_ROUNDS and len(found) < len(candidates)
    return () if few or len(candidates) == 1 else tuple(found)


def touched(domain: Mapping[str, int], candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the attributes that any candidate depends on, in domain order."""
    used = {a for c in candidates for a in attributes_of(c)}
    return tuple(a for a in domain if a in used)


LEFT_OVER = 0.05
"""Least part of the rows that is spread over the cells that were not kept."""


def level(noise: Noise, amount: Fraction, cells: int) -> float:
    """Return the noisy count above which a cell is believed, in counts."""
    return law(noise).highest(law(noise).spread(1, float(amount)), cells)


def histogram_pays(noise: Noise, amount: Fraction, total: float, cells: int) -> bool:
    """Say from public facts whether believed cells would hold most of the rows.

    >>> histogram_pays("laplace", Fraction(1, 2), 1841, 64)
    True
    """
    return cells > 1 and cells * level(noise, amount, cells) < total / 2


def start_from_histogram(
    handle: Handle, model: FactoredModel, attributes: tuple[str, ...], amount: Fraction
) -> FactoredModel:
    """Return the model with one part over the attributes, from a measured histogram."""
    (measured,) = handle.measure([marginal(handle.domain, attributes)], amount)
    counts = measured.values
    kept = counts > level(handle.noise, amount, max(counts.size, 2))
    rest = max(model.total - float(counts[kept].sum()), LEFT_OVER * model.total)
    cells = np.where(kept, counts, rest / max(1, int((~kept).sum())))
    weights = (cells / cells.sum()).reshape([handle.domain[a] for a in attributes])
    others = tuple(p for p in model.parts if not set(p.attributes) & set(attributes))
    return replace(model, parts=(*others, TablePart(attributes, weights)))


__all__ = ["MwemRound", "MwemRun", "Progress", "Settings", "check", "mwem"]

Progress = Callable[[float, str], None]
"""Told the part of the budget that is spent, and what was measured."""


@dataclass(frozen=True, slots=True)
class MwemRound:
    """One entry of the transcript: which candidate, what it cost and what was released."""

    index: int
    spend: Spend
    measured: Measured


@dataclass(frozen=True, slots=True)
class MwemRun:
    """A model, the transcript that led to it, and whether the run was interrupted."""

    model: FactoredModel
    rounds: tuple[MwemRound, ...]
    slack: float
    interrupted: bool = False


def mwem(
    handle: Handle,
    candidates: Sequence[Candidate],
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
) -> MwemRun:
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
    model = FactoredModel.uniform(handle.domain, total)
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
    first = first_tables(candidates, settings.cap) if whole and settings.rounds == "auto" else ()
    part = 1 - SINGLE if len(first) < len(candidates) else ONE
    amount = handle.remaining() * part if first else ZERO
    left = handle.remaining() - amount
    schedule = _schedule(settings, handle.noise, left, best, whole, len(candidates))
    loop = _MwemLoop(handle, candidates, replace(settings, slack=slack), budget, progress)
    return loop.run(model, schedule, first, amount)


class _MwemLoop:
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
        self.sheet = CompiledCandidates(candidates)
        self.attributes = [attributes_of(c) for c in candidates]
        self.norms = [norm(c, handle.noise) for c in candidates]
        self.repeats = settings.rounds == "annealing" or (
            settings.rounds == "auto" and any(rows(c) > 1 for c in candidates)
        )
        self.done: dict[int, list[Measured]] = {}
        self.slack = 1.0 if settings.slack is None else settings.slack

    def run(
        self, model: FactoredModel, schedule: Schedule, first: Sequence[int], amount: Fraction
    ) -> MwemRun:
        """Measure the ``first`` tables together with an amount, then those that are chosen."""
        model, rounds = self.begin(model, first, amount) if first else (model, [])
        mean = model
        interrupted = False
        try:
            while (spend := schedule.next(self.handle.remaining())) is not None:
                index, spend = self.choose(model, spend)
                (measured,) = self.handle.measure([self.candidates[index]], spend.measure)
                rounds.append(MwemRound(index, spend, measured))
                model, outcome = self.learn(model, index, measured, spend.measure)
                schedule.after(outcome)
                mean = _averaged(mean, model, len(rounds)) if self.settings.average else model
                self.tell(index)
        except KeyboardInterrupt:
            if not rounds:
                raise
            interrupted = True
        return MwemRun(mean, tuple(rounds), self.slack, interrupted)

    def begin(
        self, model: FactoredModel, first: Sequence[int], amount: Fraction
    ) -> tuple[FactoredModel, list[MwemRound]]:
        """Return the model of tables that are measured without a choice, and how they were."""
        found = measure_together(
            self.handle, [self.candidates[i] for i in first], amount, model.total
        )
        spend = Spend(ZERO, amount / len(first))
        for index, measured in zip(first, found, strict=True):
            self.done[index] = [measured]
            model = model.merge(self.attributes[index])
        targets: list[PullTarget] = [target_of([each], model.total) for each in found]
        model = replay(model, targets, slack=0.0, sweeps=self.settings.sweeps, step="proportional")
        pairs = zip(first, found, strict=True)
        return model, [MwemRound(index, spend, measured) for index, measured in pairs]

    def choose(self, model: FactoredModel, spend: Spend) -> tuple[int, Spend]:
        """Return the candidate to measure; a choice of one is free."""
        pool = self.pool(model)
        if len(pool) == 1:
            return pool[0], Spend(ZERO, spend.all)
        every = self.sheet.answers(model)
        (place,) = self.handle.select(
            [self.candidates[i] for i in pool],
            [every[i] for i in pool],
            penalties=[self.noise(i, spend.measure) for i in pool],
            amount=spend.select,
        )
        return pool[place], spend

    def pool(self, model: FactoredModel) -> list[int]:
        """Return the candidates that the cap admits, new ones only unless runs repeat them."""
        cap = self.settings.cap
        fits = [i for i, names in enumerate(self.attributes) if model.merged_cells(names) <= cap]
        new = [i for i in fits if i not in self.done]
        return fits if self.repeats or not new else new

    def learn(
        self, model: FactoredModel, index: int, measured: Measured, amount: Fraction
    ) -> tuple[FactoredModel, Outcome]:
        """Return the model after a replay of all measurements, and what the round showed."""
        candidate = self.candidates[index]
        before = model.answer(candidate)
        self.done.setdefault(index, []).append(measured)
        targets: list[PullTarget] = [target_of(m, model.total) for m in self.done.values()]
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
        return DoublingSchedule(budget, noise)
    if kind == "annealing" or (kind == "auto" and whole and candidates > 1):
        return AnnealingSchedule(budget, noise, part)
    return FixedSchedule(min(best if kind == "auto" else int(kind), candidates), part)


def _averaged(mean: FactoredModel, model: FactoredModel, count: int) -> FactoredModel:
    """Return the running mean of iterates that hold the same parts."""
    if count == 1:
        return model
    parts = tuple(
        replace(new, weights=old.weights + (new.weights - old.weights) / count)
        for old, new in zip(mean.parts, model.parts, strict=True)
    )
    return replace(model, parts=parts)
